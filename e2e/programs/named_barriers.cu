// The two halves of each block go round by themselves, at barriers of their own, and one twice as often as the other.
// In each round a thread takes over what its neighbour has, through shared memory, and steps it.
#include "exchange.h"

constexpr uint32_t HALF = THREADS / 2;

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

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "named_barriers", "halves of blocks go round at barriers of their own",
                              {{"blocks", 8, 1, 1u << 20, "blocks"},
                               {"rounds", 100, 1, UINT64_MAX / 2, "rounds of the slower half"}});
    const uint64_t rounds = arguments["rounds"];
    return run_exchange(arguments, exchange, [=](uint32_t thread) { return rounds * (thread / HALF + 1); });
}
