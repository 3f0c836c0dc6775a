// The threads of each block go round at a barrier of libcu++, a memory barrier object: they arrive, go on, and wait for
// the others later. In each round a thread takes over what its neighbour has, through shared memory, and steps it. One
// half of the block leaves half-way.
#include "exchange.h"

#include <cuda/barrier>
#include <utility>

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

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "memory_barriers", "threads arrive at barriers and wait for others later",
                              {{"blocks", 8, 1, 1u << 20, "blocks"},
                               {"rounds", 100, 2, UINT64_MAX / 2, "rounds of those who stay"}});
    const uint64_t rounds = arguments["rounds"];
    return run_exchange(arguments, exchange,
                        [=](uint32_t thread) { return thread < THREADS / 2 ? rounds : rounds / 2; });
}
