// The two halves of each block go round by themselves, at barriers of their own, and one twice as often as the other.
// In each round a thread takes over what its neighbour has, through shared memory, and steps it.
//
// The steps are those of a linear congruential generator, so any number of rounds has a closed form for the check.
#include "affine.h"
#include "program.h"

constexpr uint32_t HALF = 64, THREADS = 2 * HALF;
constexpr Affine STEP = {1664525, 1013904223};

__global__ void exchange(uint32_t *values, uint64_t rounds)
{
    __shared__ uint32_t words[2][THREADS];
    const uint32_t half = threadIdx.x / HALF, i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t value = values[i];
    for (uint64_t round = 0; round < rounds * (half + 1); ++round) {
        words[round & 1][threadIdx.x] = value;
        asm volatile("bar.sync %0, %1;" ::"r"(half + 1), "n"(HALF) : "memory");
        value = words[round & 1][threadIdx.x ^ 1] * STEP.factor + STEP.summand;
    }
    values[i] = value;
}

static uint32_t first_value(uint32_t i)
{
    return i * 2654435761u;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "named_barriers", "halves of blocks go round at barriers of their own",
                              {{"blocks", 8, 1, 1u << 20, "blocks"},
                               {"rounds", 100, 1, UINT64_MAX / 2, "rounds of the slower half"}});
    const uint32_t n = uint32_t(arguments["blocks"]) * THREADS;
    const uint64_t rounds = arguments["rounds"];
    std::vector<uint32_t> values(n);
    for (uint32_t i = 0; i < n; ++i)
        values[i] = first_value(i);
    uint32_t *device;
    CHECK_CUDA(cudaMalloc(&device, n * sizeof(uint32_t)));
    CHECK_CUDA(cudaMemcpy(device, values.data(), n * sizeof(uint32_t), cudaMemcpyHostToDevice));
    exchange<<<n / THREADS, THREADS>>>(device, rounds);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(values.data(), device, n * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(device));

    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i) {
        const uint64_t times = rounds * (i % THREADS / HALF + 1);
        const Affine all = power(STEP, times);
        const uint32_t expected = first_value(i ^ uint32_t(times & 1)) * all.factor + all.summand;
        if (values[i] != expected)
            correct = mismatch("value", i, values[i], expected);
    }
    Digest digest;
    digest.add(values);
    return finish(arguments, digest, correct);
}
