// Holds much device memory, and if asked to the program's own, filled with data that does not compress, runs a long kernel beside it, and
// then checks every word: for measuring how long dump and restore take.
#include <algorithm>
#include <chrono>
#include <thread>

#include "paced_work.h"

// The word that belongs at `index`: a bijective mix, so no two words are equal and there is nothing to compress.
__host__ __device__ inline uint64_t word_at(uint64_t index)
{
    uint64_t word = index * 0x9e3779b97f4a7c15u + 1;
    word ^= word >> 30;
    word *= 0xbf58476d1ce4e5b9u;
    word ^= word >> 27;
    word *= 0x94d049bb133111ebu;
    return word ^ word >> 31;
}

__global__ void fill(uint64_t *words, uint64_t first, uint64_t count)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] = word_at(first + i);
}

// totals[0] counts wrong words, totals[1] sums all words modulo 2^64.
__global__ void verify(const uint64_t *words, uint64_t first, uint64_t count, unsigned long long *totals)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    unsigned long long wrong = 0, sum = 0;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        wrong += words[i] != word_at(first + i);
        sum += words[i];
    }
    atomicAdd(&totals[0], wrong);
    atomicAdd(&totals[1], sum);
}

__global__ void spin(uint32_t *states, uint64_t iterations)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    for (uint64_t pass = 0; pass < iterations; ++pass)
        state = xorshift32(state);
    states[thread] = state;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "memory_hog", "holds much device memory while a long kernel runs",
                              {{"gib", 0, 0, 1024, "GiB of device memory; 0: --mib counts"},
                               {"mib", 64, 1, 1u << 20, "MiB of device memory"},
                               {"host-mib", 0, 0, 1u << 20, "MiB of the program's own memory"},
                               {"chunks", 4, 1, 1024, "allocations that share it"},
                               {"blocks", 64, 1, 1u << 20, "thread blocks of the long kernel"},
                               {"sleeps", 0, 0, 1, "1: its threads, 2 a block, sleep 0.1 ms after each step; 0: 128 threads, no sleep"},
                               {"idle", 0, 0, 86400, "seconds that the host sleeps behind the long kernel"},
                               {"iterations", 10000, 0, UINT64_MAX, "steps of each thread of the long kernel"}});
    const uint64_t mib = arguments["gib"] ? arguments["gib"] * 1024 : arguments["mib"];
    const uint64_t num_chunks = arguments["chunks"], iterations = arguments["iterations"];
    const uint64_t words_per_chunk = std::max<uint64_t>((mib << 20) / sizeof(uint64_t) / num_chunks, 1);
    const uint32_t spin_blocks = arguments["blocks"];
    const bool sleeps = arguments["sleeps"];
    const uint32_t spin_threads = sleeps ? PacedWork::THREADS : 128;
    constexpr uint32_t BLOCKS = 1024, THREADS = 256;

    std::vector<uint64_t> host((arguments["host-mib"] << 20) / sizeof(uint64_t));
    for (uint64_t i = 0; i < host.size(); ++i)
        host[i] = word_at(i);

    std::vector<DeviceArray<uint64_t> *> chunks;
    for (uint64_t chunk = 0; chunk < num_chunks; ++chunk) {
        chunks.push_back(new DeviceArray<uint64_t>(words_per_chunk));
        fill<<<BLOCKS, THREADS>>>(chunks[chunk]->get(), chunk * words_per_chunk, words_per_chunk);
        CHECK_LAUNCH();
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    arguments.progress("filled MiB:", mib);

    std::vector<uint32_t> start(spin_blocks * spin_threads);
    for (uint32_t i = 0; i < start.size(); ++i)
        start[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_states(start);
    if (sleeps)
        paced<<<spin_blocks, spin_threads>>>(device_states.get(), iterations, hurry_on_signal());
    else
        spin<<<spin_blocks, spin_threads>>>(device_states.get(), iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> states = device_states.to_host();
    arguments.progress("idle for", arguments["idle"]);
    std::this_thread::sleep_for(std::chrono::seconds(arguments["idle"]));
    // What SIGUSR1 would set is gone before the program is.
    signal(SIGUSR1, SIG_IGN);
    const XorshiftJump jump(iterations);
    bool correct = true;
    for (uint32_t i = 0; i < states.size() && correct; ++i)
        if (states[i] != jump(start[i]))
            correct = mismatch("states", i, states[i], jump(start[i]));

    DeviceArray<unsigned long long> device_totals(std::vector<unsigned long long>(2, 0));
    for (uint64_t chunk = 0; chunk < num_chunks; ++chunk) {
        verify<<<BLOCKS, THREADS>>>(chunks[chunk]->get(), chunk * words_per_chunk, words_per_chunk, device_totals.get());
        CHECK_LAUNCH();
    }
    const std::vector<unsigned long long> totals = device_totals.to_host();
    if (correct && totals[0] != 0)
        correct = mismatch("wrong words", 0, totals[0], 0ull);
    for (uint64_t i = 0; i < host.size() && correct; ++i)
        if (host[i] != word_at(i))
            correct = mismatch("host words", i, host[i], word_at(i));
    for (DeviceArray<uint64_t> *chunk : chunks)
        delete chunk;

    Digest digest;
    digest.add(states);
    digest.add(totals);
    return finish(arguments, digest, correct);
}
