// Threads follow pointers of which the compiler cannot tell what memory they lead to: pointers to shared, local and
// global memory lie in one array, and change their places in each round.
//
// Each word goes through steps of a linear congruential generator, so any number of them has a closed form.
#include <utility>

#include "affine.h"
#include "program.h"

constexpr uint32_t THREADS = 64, POINTERS = 4;
constexpr Affine STEP = {1664525, 1013904223};

__global__ void generic_pointers(uint32_t **pointers, uint32_t *words, uint64_t rounds)
{
    __shared__ uint32_t shared[THREADS];
    // In shared or in global memory.
    __shared__ uint32_t *counter;
    __shared__ uint32_t own_counter;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t own[2] = {POINTERS * i + 2, POINTERS * i + 3};
    shared[threadIdx.x] = POINTERS * i + 1;
    if (threadIdx.x == 0) {
        own_counter = 0;
        counter = blockIdx.x % 2 ? &own_counter : &words[gridDim.x * THREADS * POINTERS + blockIdx.x];
    }
    __syncthreads();
    uint32_t **const mine = pointers + i * POINTERS;
    mine[0] = &words[i * POINTERS];
    mine[1] = &shared[threadIdx.x];
    mine[2] = &own[0];
    mine[3] = &own[1];
    for (uint64_t round = 0; round < rounds; ++round) {
        uint32_t *&place = mine[round % (POINTERS - 1)];
        uint32_t *const word = place;
        *word = *word * STEP.factor + STEP.summand;
        place = mine[POINTERS - 1];
        mine[POINTERS - 1] = word;
        if (round % 64 == 0)
            atomicAdd(counter, 1);
    }
    __syncthreads();
    words[i * POINTERS] += *counter;
    words[i * POINTERS + 1] = shared[threadIdx.x];
    words[i * POINTERS + 2] = own[0];
    words[i * POINTERS + 3] = own[1];
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "generic_pointers", "pointers to memory of several kinds",
                              {{"blocks", 4, 1, 1024, "blocks"}, {"rounds", 10000, 1, 1ull << 40, "rounds"}});
    const uint32_t blocks = uint32_t(arguments["blocks"]), n = blocks * THREADS;
    const uint64_t rounds = arguments["rounds"];
    std::vector<uint32_t> words(n * POINTERS + blocks);
    for (uint32_t i = 0; i < n; ++i)
        words[i * POINTERS] = POINTERS * i;
    uint32_t *device, **pointers;
    CHECK_CUDA(cudaMalloc(&device, words.size() * sizeof(uint32_t)));
    CHECK_CUDA(cudaMalloc(&pointers, n * POINTERS * sizeof(uint32_t *)));
    CHECK_CUDA(cudaMemcpy(device, words.data(), words.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    generic_pointers<<<blocks, THREADS>>>(pointers, device, rounds);
    CHECK_LAUNCH();

    // How often each word has its turn.
    uint32_t at[POINTERS] = {0, 1, 2, 3};
    uint64_t turns[POINTERS] = {};
    for (uint64_t round = 0; round < rounds; ++round) {
        uint32_t &place = at[round % (POINTERS - 1)];
        ++turns[place];
        std::swap(place, at[POINTERS - 1]);
    }
    const uint32_t count = uint32_t((rounds + 63) / 64 * THREADS);
    CHECK_CUDA(cudaMemcpy(words.data(), device, words.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    bool correct = true;
    for (uint32_t i = 0; i < n * POINTERS && correct; ++i) {
        const uint32_t k = i % POINTERS;
        const Affine all = power(STEP, turns[k]);
        const uint32_t expected = i * all.factor + all.summand + (k ? 0 : count);
        correct = words[i] == expected || mismatch("word", i, words[i], expected);
    }
    for (uint32_t block = 0; block < blocks && correct; ++block) {
        const uint32_t expected = block % 2 ? 0 : count, got = words[n * POINTERS + block];
        correct = got == expected || mismatch("counter", block, got, expected);
    }
    Digest digest;
    digest.add(words);
    return finish(arguments, digest, correct);
}
