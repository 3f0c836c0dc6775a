// Host and kernels take turns on memory that the program has from `malloc` and registers: each steps every element of
// an array, which begins and ends amid pages. Elements beside it stay as they are.
//
// Both step linear congruential generators, so any number of turns has a closed form for the check.
#include "affine.h"
#include "program.h"

constexpr uint32_t THREADS = 256, BESIDE = 10;
constexpr Affine KERNELS = {1664525, 1013904223}, HOST = {22695477, 1};

__global__ void step(uint32_t *values, uint64_t n, uint64_t rounds)
{
    const uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    if (i >= n)
        return;
    uint32_t value = values[i];
    for (uint64_t round = 0; round < rounds; ++round)
        value = value * KERNELS.factor + KERNELS.summand;
    values[i] = value;
}

static uint32_t first(uint64_t i)
{
    return uint32_t(i * 2654435761u);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "registered", "host and kernels take turns on registered memory",
                              {{"n", 100000, 1, UINT32_MAX, "elements"},
                               {"turns", 3, 1, 1u << 20, "turns of each side"},
                               {"rounds", 100, 1, UINT64_MAX, "steps of each element in a turn of the kernels"}});
    const uint64_t n = arguments["n"], turns = arguments["turns"], rounds = arguments["rounds"];
    std::vector<uint32_t> memory(n + 2 * BESIDE);
    for (uint64_t i = 0; i < memory.size(); ++i)
        memory[i] = first(i);
    uint32_t *const values = memory.data() + BESIDE, *on_device;
    CHECK_CUDA(cudaHostRegister(values, n * sizeof(uint32_t), cudaHostRegisterMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&on_device, values, 0));

    for (uint64_t turn = 1; turn <= turns; ++turn) {
        step<<<(n + THREADS - 1) / THREADS, THREADS>>>(on_device, n, rounds);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        for (uint64_t i = 0; i < n; ++i)
            values[i] = values[i] * HOST.factor + HOST.summand;
        arguments.progress("turn", turn);
    }

    CHECK_CUDA(cudaHostUnregister(values));
    bool correct = true;
    const Affine all = power(after(power(KERNELS, rounds), HOST), turns);
    for (uint64_t i = 0; i < memory.size() && correct; ++i) {
        const bool is_value = i >= BESIDE && i < BESIDE + n;
        const uint32_t expected = is_value ? first(i) * all.factor + all.summand : first(i);
        if (memory[i] != expected)
            correct = mismatch("value", i, memory[i], expected);
    }
    Digest digest;
    digest.add(memory);
    return finish(arguments, digest, correct);
}
