// The threads of each block go round at a barrier of libcu++, a memory barrier object: they arrive, go on, and wait for
// the others later. In each round a thread takes over what its neighbour has, through shared memory, and steps it. One
// half of the block leaves half-way.
//
// The steps are those of a linear congruential generator, so any number of rounds has a closed form for the check.
#include "affine.h"
#include "program.h"

#include <cuda/barrier>
#include <utility>

constexpr uint32_t THREADS = 128;
constexpr Affine STEP = {1664525, 1013904223};

using Barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void exchange(uint32_t *values, uint64_t rounds)
{
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier barrier;
    __shared__ uint32_t words[2][THREADS];
    if (threadIdx.x == 0)
        init(&barrier, THREADS);
    __syncthreads();
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const bool leaves = threadIdx.x >= THREADS / 2;
    uint32_t value = values[i];
    for (uint64_t round = 0; round < (leaves ? rounds / 2 : rounds); ++round) {
        words[round & 1][threadIdx.x] = value;
        Barrier::arrival_token token = barrier.arrive();
        value = STEP.summand;
        barrier.wait(std::move(token));
        value += words[round & 1][threadIdx.x ^ 1] * STEP.factor;
    }
    if (leaves)
        barrier.arrive_and_drop();
    values[i] = value;
}

static uint32_t first_value(uint32_t i)
{
    return i * 2654435761u;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "memory_barriers", "threads arrive at barriers and wait for others later",
                              {{"blocks", 8, 1, 1u << 20, "blocks"},
                               {"rounds", 100, 2, UINT64_MAX / 2, "rounds of those who stay"}});
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
        const uint64_t times = i % THREADS < THREADS / 2 ? rounds : rounds / 2;
        const Affine all = power(STEP, times);
        const uint32_t expected = first_value(i ^ uint32_t(times & 1)) * all.factor + all.summand;
        if (values[i] != expected)
            correct = mismatch("value", i, values[i], expected);
    }
    Digest digest;
    digest.add(values);
    return finish(arguments, digest, correct);
}
