// Blocks whose threads exchange words with their neighbours, round after round, and step them: what programs with
// several kinds of barriers have in common. The steps are those of a linear congruential generator, so any number of
// rounds has a closed form for the check.
#pragma once

#include "affine.h"
#include "program.h"

constexpr uint32_t THREADS = 128;
constexpr Affine STEP = {1664525, 1013904223};

inline uint32_t first_value(uint32_t i)
{
    return i * 2654435761u;
}

// Runs `kernel(values, rounds)` on the blocks that were asked for. A thread of number `thread` in its block has gone
// round `times(thread)` times in the end, and got the words of the one `partner` away (exclusive or).
template <class Times>
int run_exchange(const Arguments &arguments, void (*kernel)(uint32_t *, uint64_t), Times times, uint32_t partner = 1)
{
    const uint32_t n = uint32_t(arguments["blocks"]) * THREADS;
    std::vector<uint32_t> values(n);
    for (uint32_t i = 0; i < n; ++i)
        values[i] = first_value(i);
    uint32_t *device;
    CHECK_CUDA(cudaMalloc(&device, n * sizeof(uint32_t)));
    CHECK_CUDA(cudaMemcpy(device, values.data(), n * sizeof(uint32_t), cudaMemcpyHostToDevice));
    kernel<<<n / THREADS, THREADS>>>(device, arguments["rounds"]);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(values.data(), device, n * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(device));

    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i) {
        const uint64_t rounds = times(i % THREADS);
        const Affine all = power(STEP, rounds);
        const uint32_t expected = first_value(rounds & 1 ? i ^ partner : i) * all.factor + all.summand;
        if (values[i] != expected)
            correct = mismatch("value", i, values[i], expected);
    }
    Digest digest;
    digest.add(values);
    return finish(arguments, digest, correct);
}
