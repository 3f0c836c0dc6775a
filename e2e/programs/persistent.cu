// A persistent kernel: as many blocks as fit on the device take items from a queue until it is empty, and mix each
// item's 256 words for many rounds through shared memory, with a barrier in every round.
#include <algorithm>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t THREADS = 256; // words of an item
constexpr uint32_t NUM_KEYS = 32;

__constant__ uint32_t round_keys[NUM_KEYS];
__device__ uint32_t next_item;
__device__ uint32_t items_done;

__host__ __device__ inline uint32_t mix(uint32_t value, uint32_t left, uint32_t right, uint32_t key)
{
    return (left << 7 | left >> 25) ^ (right * 0x9e3779b1u + value + key);
}

__global__ void __launch_bounds__(THREADS)
persistent(const uint32_t *__restrict__ in, uint32_t *__restrict__ out, uint32_t num_items, uint32_t rounds)
{
    __shared__ uint32_t ring[2][THREADS]; // read one half while the other is written
    __shared__ uint32_t item;
    const uint32_t thread = threadIdx.x;
    uint32_t items_of_block = 0;
    for (;;) {
        if (thread == 0)
            item = atomicAdd(&next_item, 1);
        __syncthreads();
        const uint32_t current = item;
        if (current >= num_items)
            break;
        uint32_t value = in[current * THREADS + thread];
        for (uint32_t round = 0; round < rounds; ++round) {
            uint32_t *words = ring[round % 2];
            words[thread] = value;
            __syncthreads();
            value = mix(value, words[(thread + THREADS - 1) % THREADS], words[(thread + 1) % THREADS],
                        round_keys[round % NUM_KEYS]);
        }
        out[current * THREADS + thread] = value;
        ++items_of_block;
        __syncthreads(); // all have read `item`
    }
    if (thread == 0)
        atomicAdd(&items_done, items_of_block);
}

static bool item_is_right(const uint32_t *in, const uint32_t *out, const uint32_t *keys, uint32_t rounds)
{
    uint32_t words[THREADS], mixed[THREADS];
    std::copy(in, in + THREADS, words);
    for (uint32_t round = 0; round < rounds; ++round) {
        for (uint32_t i = 0; i < THREADS; ++i)
            mixed[i] = mix(words[i], words[(i + THREADS - 1) % THREADS], words[(i + 1) % THREADS], keys[round % NUM_KEYS]);
        std::copy(mixed, mixed + THREADS, words);
    }
    for (uint32_t i = 0; i < THREADS; ++i)
        if (out[i] != words[i])
            return mismatch("out", i, out[i], words[i]);
    return true;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "persistent", "mixes items from a queue in a persistent kernel",
                              {{"items", 64, 1, 1u << 20, "items of 256 words"},
                               {"iterations", 500, 0, UINT32_MAX, "rounds of mixing for each item"},
                               {"blocks", 0, 0, 65535, "thread blocks; 0: as many as the device holds at once"}});
    const uint32_t num_items = arguments["items"], rounds = arguments["iterations"];
    uint32_t blocks = arguments["blocks"];
    if (blocks == 0) {
        int per_processor = 0, processors = 0;
        CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, persistent, THREADS, 0));
        CHECK_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
        blocks = std::min<uint32_t>(per_processor * processors, num_items);
    }

    uint32_t keys[NUM_KEYS];
    for (uint32_t i = 0; i < NUM_KEYS; ++i)
        keys[i] = xorshift32_seed(~i);
    const uint32_t zero = 0;
    CHECK_CUDA(cudaMemcpyToSymbol(round_keys, keys, sizeof(keys)));
    CHECK_CUDA(cudaMemcpyToSymbol(next_item, &zero, sizeof(zero)));
    CHECK_CUDA(cudaMemcpyToSymbol(items_done, &zero, sizeof(zero)));
    std::vector<uint32_t> in(num_items * THREADS);
    for (uint32_t i = 0; i < in.size(); ++i)
        in[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_in(in), device_out(in.size());
    persistent<<<blocks, THREADS>>>(device_in.get(), device_out.get(), num_items, rounds);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> out = device_out.to_host();
    uint32_t done = 0;
    CHECK_CUDA(cudaMemcpyFromSymbol(&done, items_done, sizeof(done)));

    bool correct = done == num_items || mismatch("items done", 0, done, num_items);
    const uint32_t num_samples = std::clamp<uint64_t>(60000 / (rounds + 1ull), 1, num_items);
    for (uint32_t sample = 0; sample < num_samples && correct; ++sample) {
        const uint32_t item = num_items - 1 - static_cast<uint64_t>(sample) * num_items / num_samples;
        correct = item_is_right(&in[item * THREADS], &out[item * THREADS], keys, rounds);
    }
    Digest digest;
    digest.add(out);
    return finish(arguments, digest, correct);
}
