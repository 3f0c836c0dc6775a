// Counts on the order in which a GPU runs the lanes of a warp, in three ways of old programs: lanes add up through
// volatile shared memory with no barrier between; all lanes of a warp write what a lock guards, and one of them gives
// the lock back; one thread reads what the others have just written.
#include "program.h"
#include "xorshift.h"

constexpr uint32_t THREADS = 64;
constexpr uint32_t LANES = 32;
// A warp takes the lock once in so many rounds.
constexpr uint64_t ROUNDS_A_LOCK = 64;

struct Guarded {
    uint32_t lock;
    uint32_t sums[LANES];
};

// The sum over the lanes up to this one. Below each warp's words lie as many zeros.
__device__ uint32_t sum_to_lane(volatile uint32_t *words, uint32_t value)
{
    uint32_t at = 2 * threadIdx.x - threadIdx.x % LANES;
    words[at] = 0;
    at += LANES;
    words[at] = value;
    words[at] += words[at - 1];
    words[at] += words[at - 2];
    words[at] += words[at - 4];
    words[at] += words[at - 8];
    words[at] += words[at - 16];
    return words[at];
}

__device__ void add(Guarded *guarded, uint32_t value)
{
    const uint32_t lane = threadIdx.x % LANES;
    bool is_taken = true;
    while (is_taken) {
        if (lane == 0)
            is_taken = atomicExch(&guarded->lock, 1) != 0;
        is_taken = __shfl_sync(0xffffffff, is_taken, 0);
    }
    __threadfence();
    volatile uint32_t *const sum = &guarded->sums[lane];
    *sum = *sum + value;
    __threadfence();
    if (lane == 0)
        atomicExch(&guarded->lock, 0);
}

__global__ void lanes_in_step(uint32_t *values, Guarded *guarded, uint64_t rounds)
{
    __shared__ uint32_t words[2 * THREADS];
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t value = values[i];
    for (uint64_t round = 0; round < rounds; ++round) {
        value = xorshift32(sum_to_lane(words, value) | 1);
        if (round % ROUNDS_A_LOCK == 0)
            add(guarded, value);
    }
    values[i] = value;
}

// One warp a block.
__global__ void totals(const uint32_t *values, uint32_t *totals)
{
    __shared__ uint32_t words[LANES];
    words[threadIdx.x] = values[blockIdx.x * LANES + threadIdx.x];
    if (threadIdx.x == 0) {
        uint32_t sum = 0;
        for (uint32_t lane = 0; lane < LANES; ++lane)
            sum = 3 * sum + words[lane];
        totals[blockIdx.x] = sum;
    }
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "lanes_in_step", "lanes that exchange values without barriers",
                              {{"blocks", 4, 1, 1024, "blocks"}, {"rounds", 10000, 1, 1ull << 40, "rounds"}});
    const uint32_t n = uint32_t(arguments["blocks"]) * THREADS, num_warps = n / LANES;
    const uint64_t rounds = arguments["rounds"];
    std::vector<uint32_t> values(n), sums(num_warps);
    for (uint32_t i = 0; i < n; ++i)
        values[i] = xorshift32_seed(i);
    Guarded expected = {}, got;

    uint32_t *device_values, *device_totals;
    Guarded *device_guarded;
    CHECK_CUDA(cudaMalloc(&device_values, n * sizeof(uint32_t)));
    CHECK_CUDA(cudaMalloc(&device_totals, num_warps * sizeof(uint32_t)));
    CHECK_CUDA(cudaMalloc(&device_guarded, sizeof(Guarded)));
    CHECK_CUDA(cudaMemcpy(device_values, values.data(), n * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(device_guarded, 0, sizeof(Guarded)));
    lanes_in_step<<<n / THREADS, THREADS>>>(device_values, device_guarded, rounds);
    CHECK_LAUNCH();
    totals<<<num_warps, LANES>>>(device_values, device_totals);
    CHECK_LAUNCH();

    // The warps' rounds again, on the host.
    std::vector<uint32_t> expected_sums(num_warps);
    for (uint32_t warp = 0; warp < num_warps; ++warp) {
        uint32_t *const lanes = &values[warp * LANES];
        for (uint64_t round = 0; round < rounds; ++round) {
            uint32_t sum = 0;
            for (uint32_t lane = 0; lane < LANES; ++lane) {
                sum += lanes[lane];
                lanes[lane] = xorshift32(sum | 1);
                if (round % ROUNDS_A_LOCK == 0)
                    expected.sums[lane] += lanes[lane];
            }
        }
        for (uint32_t lane = 0; lane < LANES; ++lane)
            expected_sums[warp] = 3 * expected_sums[warp] + lanes[lane];
    }

    std::vector<uint32_t> results(n);
    CHECK_CUDA(cudaMemcpy(results.data(), device_values, n * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(sums.data(), device_totals, num_warps * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(&got, device_guarded, sizeof(Guarded), cudaMemcpyDeviceToHost));
    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i)
        correct = results[i] == values[i] || mismatch("value", i, results[i], values[i]);
    for (uint32_t warp = 0; warp < num_warps && correct; ++warp)
        correct = sums[warp] == expected_sums[warp] || mismatch("total", warp, sums[warp], expected_sums[warp]);
    for (uint32_t lane = 0; lane < LANES && correct; ++lane)
        correct = got.sums[lane] == expected.sums[lane] || mismatch("sum", lane, got.sums[lane], expected.sums[lane]);
    Digest digest;
    digest.add(results);
    digest.add(sums);
    return finish(arguments, digest, correct);
}
