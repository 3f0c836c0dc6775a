// Counts set bits by warp votes: lane b of a warp counts how often bit b is set in the warp's 32 words, over many
// generations of the words; the warp also counts generations by `any` and `all` votes.
#include <algorithm>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t WARP = 32;
constexpr uint32_t FULL_WARP = 0xffffffffu;

__global__ void bit_count(const uint32_t *__restrict__ words, uint32_t *__restrict__ ones,
                          uint32_t *__restrict__ generations, uint32_t n, uint32_t iterations)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) // n is a multiple of the warp size: whole warps leave
        return;
    const uint32_t lane = threadIdx.x % WARP;
    uint32_t word = words[i], count = 0, marked = 0;
    for (uint32_t pass = 0; pass < iterations; ++pass) {
        word = xorshift32(word);
#pragma unroll 4
        for (uint32_t bit = 0; bit < WARP; ++bit) {
            const uint32_t votes = __ballot_sync(FULL_WARP, word >> bit & 1);
            if (lane == bit)
                count += __popc(votes);
        }
        if (__any_sync(FULL_WARP, word % 32 == 0))
            marked += 1;
        if (__all_sync(FULL_WARP, word % 32 != 1))
            marked += 1u << 16;
    }
    ones[i] = count;
    if (lane == 0)
        generations[i / WARP] = marked;
}

// What one warp must have counted.
struct Expected {
    uint32_t ones[WARP] = {};
    uint32_t generations = 0;

    Expected(const uint32_t *words, uint32_t iterations)
    {
        uint32_t word[WARP];
        std::copy(words, words + WARP, word);
        for (uint32_t pass = 0; pass < iterations; ++pass) {
            bool any = false, all = true;
            for (uint32_t lane = 0; lane < WARP; ++lane) {
                word[lane] = xorshift32(word[lane]);
                any |= word[lane] % 32 == 0;
                all &= word[lane] % 32 != 1;
                for (uint32_t bit = 0; bit < WARP; ++bit)
                    ones[bit] += word[lane] >> bit & 1;
            }
            generations += any + (static_cast<uint32_t>(all) << 16);
        }
    }
};

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "bit_count", "counts set bits by warp votes",
                              {{"n", 1 << 14, WARP, 1u << 28, "words, rounded down to whole warps"},
                               {"iterations", 20, 0, UINT32_MAX, "generations of words inside the kernel"}});
    const uint32_t n = arguments["n"] / WARP * WARP, iterations = arguments["iterations"];
    constexpr uint32_t THREADS = 128;

    std::vector<uint32_t> words(n);
    for (uint32_t i = 0; i < n; ++i)
        words[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_words(words), device_ones(n), device_generations(n / WARP);
    bit_count<<<(n + THREADS - 1) / THREADS, THREADS>>>(device_words.get(), device_ones.get(), device_generations.get(), n,
                                                       iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> ones = device_ones.to_host(), generations = device_generations.to_host();

    // The reference costs as much as the kernel, so a long run is checked by a sample of its warps.
    const uint32_t num_warps = n / WARP;
    const uint32_t num_samples = std::clamp<uint64_t>(100000 / (iterations + 1ull), 1, num_warps);
    bool correct = true;
    for (uint32_t sample = 0; sample < num_samples && correct; ++sample) {
        const uint32_t warp = num_warps - 1 - static_cast<uint64_t>(sample) * num_warps / num_samples;
        const Expected expected(&words[warp * WARP], iterations);
        if (generations[warp] != expected.generations)
            correct = mismatch("generations", warp, generations[warp], expected.generations);
        for (uint32_t lane = 0; lane < WARP && correct; ++lane)
            if (ones[warp * WARP + lane] != expected.ones[lane])
                correct = mismatch("ones", warp * WARP + lane, ones[warp * WARP + lane], expected.ones[lane]);
    }
    Digest digest;
    digest.add(ones);
    digest.add(generations);
    return finish(arguments, digest, correct);
}
