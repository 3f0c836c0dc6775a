// One half of each block produces words and the other consumes them, at two kinds of barriers: who hands something over
// arrives at one and goes on. Both step what they get from the other.
#include "exchange.h"

constexpr uint32_t HALF = THREADS / 2;
constexpr uint32_t PARTNER = HALF | 1;

__global__ void exchange(uint32_t *values, uint64_t rounds)
{
    __shared__ uint32_t words[THREADS];
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t value = values[i];
    __syncthreads();
    for (uint64_t round = 0; round < rounds; ++round) {
        uint32_t found;
        const uint32_t handed_back = 2 + (round & 1);
        if (threadIdx.x < HALF) {
            words[threadIdx.x] = value;
            asm volatile("bar.arrive 1, %0;" ::"n"(THREADS) : "memory");
            asm volatile("bar.sync %0, %1;" ::"r"(handed_back), "n"(THREADS) : "memory");
            found = words[threadIdx.x ^ PARTNER];
        } else {
            asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
            found = words[threadIdx.x ^ PARTNER];
            words[threadIdx.x] = value;
            asm volatile("bar.arrive %0, %1;" ::"r"(handed_back), "n"(THREADS) : "memory");
        }
        value = found * STEP.factor + STEP.summand;
    }
    values[i] = value;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "producers", "halves of blocks hand words over and go on",
                              {{"blocks", 8, 1, 1u << 20, "blocks"},
                               {"rounds", 100, 1, UINT64_MAX / 2, "rounds of each half"}});
    const uint64_t rounds = arguments["rounds"];
    return run_exchange(arguments, exchange, [=](uint32_t) { return rounds; }, PARTNER);
}
