// Monte Carlo estimate of pi in integers: points outside the quarter circle are pulled inwards by a loop of unequal
// length per thread, and each thread keeps a histogram of rings in local memory that it adds up with 64-bit atomics.
#include <algorithm>
#include <cmath>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t NUM_RINGS = 8;          // of equal area: by the square of the radius
constexpr uint32_t RADIUS_BITS = 15;       // coordinates are below 2^15
constexpr uint32_t CIRCLE = 1u << (2 * RADIUS_BITS);
constexpr uint32_t RING_SHIFT = 2 * RADIUS_BITS - 3;

__device__ unsigned long long ring_totals[NUM_RINGS];
__device__ unsigned long long pull_total;

// What one thread found.
struct Tally {
    uint32_t inside;           // points that lay in the circle at once
    uint32_t pulls;            // steps that the other points took inwards
    uint32_t rings[NUM_RINGS]; // where all points ended up
};

__host__ __device__ inline Tally sample_points(uint32_t seed, uint32_t iterations)
{
    Tally tally = {};
    uint32_t state = seed;
    for (uint32_t pass = 0; pass < iterations; ++pass) {
        state = xorshift32(state);
        uint32_t x = state >> 17, y = state >> 2 & 0x7fff;
        uint32_t square = x * x + y * y;
        if (square < CIRCLE) {
            ++tally.inside;
        } else {
            do {
                x -= x >> 4;
                y -= y >> 5;
                square = x * x + y * y;
                ++tally.pulls;
            } while (square >= CIRCLE);
        }
        ++tally.rings[square >> RING_SHIFT];
    }
    return tally;
}

__global__ void monte_carlo_pi(uint32_t *inside, uint32_t iterations)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const Tally tally = sample_points(xorshift32_seed(thread), iterations);
    inside[thread] = tally.inside;
    atomicAdd(&pull_total, static_cast<unsigned long long>(tally.pulls));
    for (uint32_t ring = 0; ring < NUM_RINGS; ++ring)
        atomicAdd(&ring_totals[ring], static_cast<unsigned long long>(tally.rings[ring]));
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "monte_carlo_pi", "estimates pi from random points",
                              {{"blocks", 64, 1, 1u << 20, "thread blocks of 256 threads"},
                               {"iterations", 200, 0, UINT32_MAX, "points of each thread"}});
    const uint32_t blocks = arguments["blocks"], iterations = arguments["iterations"];
    constexpr uint32_t THREADS = 256;
    const uint32_t num_threads = blocks * THREADS;

    const unsigned long long zeros[NUM_RINGS] = {};
    CHECK_CUDA(cudaMemcpyToSymbol(ring_totals, zeros, sizeof(ring_totals)));
    CHECK_CUDA(cudaMemcpyToSymbol(pull_total, zeros, sizeof(pull_total)));
    DeviceArray<uint32_t> device_inside(num_threads);
    monte_carlo_pi<<<blocks, THREADS>>>(device_inside.get(), iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> inside = device_inside.to_host();
    unsigned long long rings[NUM_RINGS], pulls;
    CHECK_CUDA(cudaMemcpyFromSymbol(rings, ring_totals, sizeof(rings)));
    CHECK_CUDA(cudaMemcpyFromSymbol(&pulls, pull_total, sizeof(pulls)));

    // All points are in some ring; a sample of the threads is computed again; the estimate is near pi.
    const uint64_t num_points = static_cast<uint64_t>(num_threads) * iterations;
    uint64_t num_inside = 0, num_in_rings = 0, expected_pulls = 0;
    for (const uint32_t count : inside)
        num_inside += count;
    for (const unsigned long long count : rings)
        num_in_rings += count;
    bool correct = num_in_rings == num_points || mismatch("points in rings", 0, num_in_rings, num_points);
    const uint32_t num_samples = std::clamp<uint64_t>(4000000 / (iterations + 1ull), 2, num_threads);
    for (uint32_t sample = 0; sample < num_samples && correct; ++sample) {
        const uint32_t thread = num_threads - 1 - static_cast<uint64_t>(sample) * num_threads / num_samples;
        const Tally expected = sample_points(xorshift32_seed(thread), iterations);
        expected_pulls += expected.pulls;
        if (inside[thread] != expected.inside)
            correct = mismatch("inside", thread, inside[thread], expected.inside);
    }
    if (correct && num_samples == num_threads && pulls != expected_pulls)
        correct = mismatch<uint64_t>("pulls", 0, pulls, expected_pulls);
    const double pi = num_points ? 4.0 * num_inside / num_points : M_PI;
    if (correct && std::fabs(pi - M_PI) > 1e-3 + 10.0 / std::sqrt(num_points + 1.0))
        correct = mismatch("pi", 0, pi, M_PI);

    Digest digest;
    digest.add(inside);
    digest.add(rings, sizeof(rings));
    digest.add(&pulls, sizeof(pulls));
    printf("pi is about %.9f\n", pi);
    return finish(arguments, digest, correct);
}
