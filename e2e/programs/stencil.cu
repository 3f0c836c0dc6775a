// Heat flow on a square plate by many small launches. Every few steps the host looks at the peak temperature and
// decides what to launch next: it heats the plate up again when it has cooled, and changes the step's length.
//
// The plate starts in its slowest eigenmode, so the exact result of any sequence of decisions is one factor.
#include <cmath>
#include <utility>

#include "program.h"

constexpr uint32_t TILE = 16;

// The plate has `n` x `n` inner points and a border that stays at 0; a row has n + 2 points.
__global__ void heat_step(const float *__restrict__ now, float *__restrict__ next, uint32_t n, float rate)
{
    const uint32_t column = blockIdx.x * TILE + threadIdx.x + 1, row = blockIdx.y * TILE + threadIdx.y + 1;
    if (column > n || row > n)
        return;
    const uint32_t width = n + 2, i = row * width + column;
    const float centre = now[i];
    const float around = (now[i - 1] + now[i + 1]) + (now[i - width] + now[i + width]);
    next[i] = centre + rate * (around - 4.0f * centre);
}

// Temperatures are not negative, so their bit patterns have their order.
__global__ void peak_bits(const float *__restrict__ now, uint32_t n, uint32_t *__restrict__ peak)
{
    __shared__ uint32_t block_peak;
    const uint32_t column = blockIdx.x * TILE + threadIdx.x + 1, row = blockIdx.y * TILE + threadIdx.y + 1;
    const bool first = threadIdx.x == 0 && threadIdx.y == 0;
    if (first)
        block_peak = 0;
    __syncthreads();
    if (column <= n && row <= n)
        atomicMax(&block_peak, __float_as_uint(now[row * (n + 2) + column]));
    __syncthreads();
    if (first)
        atomicMax(peak, block_peak);
}

__global__ void heat_up(float *now, uint32_t count, float factor)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        now[i] *= factor;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "stencil", "heat flow by many small kernels with host decisions in between",
                              {{"n", 48, 2, 8192, "inner points in each direction"},
                               {"steps", 2000, 0, UINT32_MAX, "time steps, one launch each"},
                               {"look-every", 20, 1, UINT32_MAX, "steps between two looks at the peak"}});
    const uint32_t n = arguments["n"], steps = arguments["steps"], look_every = arguments["look-every"];
    const uint32_t width = n + 2;

    // Eigenmode sin(i t) sin(j t), t = pi / (n + 1): each step multiplies it by 1 - 4 rate (1 - cos t).
    const double angle = M_PI / (n + 1);
    std::vector<float> start(width * width);
    for (uint32_t row = 1; row <= n; ++row)
        for (uint32_t column = 1; column <= n; ++column)
            start[row * width + column] = static_cast<float>(std::sin(row * angle) * std::sin(column * angle));
    const float slow = 0.125f, fast = 0.1875f;
    float rate = slow;
    double factor = 1.0;

    DeviceArray<float> front(start), back(start);
    DeviceArray<uint32_t> device_peak(1);
    float *now = front.get(), *next = back.get();
    const dim3 grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE), block(TILE, TILE);
    Digest decisions;
    for (uint32_t step = 0; step < steps; ++step) {
        heat_step<<<grid, block>>>(now, next, n, rate);
        CHECK_LAUNCH();
        std::swap(now, next);
        factor *= 1.0 - 4.0 * rate * (1.0 - std::cos(angle));
        if (step % look_every != 0)
            continue;

        CHECK_CUDA(cudaMemset(device_peak.get(), 0, device_peak.bytes()));
        peak_bits<<<grid, block>>>(now, n, device_peak.get());
        CHECK_LAUNCH();
        const uint32_t bits = device_peak.to_host()[0];
        decisions.add(&bits, sizeof(bits));
        float peak;
        memcpy(&peak, &bits, sizeof(peak));
        arguments.progress("step", step);
        if (peak < 0.25f) {
            heat_up<<<(width * width + 255) / 256, 256>>>(now, width * width, 4.0f);
            CHECK_LAUNCH();
            factor *= 4.0;
            rate = slow;
        } else if (peak < 0.5f) {
            rate = fast;
        }
    }
    std::vector<float> result(width * width);
    CHECK_CUDA(cudaMemcpy(result.data(), now, front.bytes(), cudaMemcpyDeviceToHost));

    // Each step rounds to about 2^-24 of the peak; the bound supposes that no two roundings cancel.
    const double tolerance = 1e-6 + steps * std::ldexp(1.0, -23);
    bool correct = true;
    for (uint32_t i = 0; i < width * width && correct; ++i) {
        const double expected = start[i] * factor;
        if (!(std::fabs(result[i] - expected) <= tolerance))
            correct = mismatch<double>("temperature", i, result[i], expected);
    }
    const uint64_t decided = decisions.value();
    Digest digest;
    digest.add(result);
    digest.add(&decided, sizeof(decided));
    return finish(arguments, digest, correct);
}
