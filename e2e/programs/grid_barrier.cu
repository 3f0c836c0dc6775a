// Blocks that wait for one another: in each round every block adds its neighbours' values of the round before, with a barrier
// of the whole grid between rounds. At the barrier one thread of a block spins while the others wait for it.
// With --cooperative 1 it is the barrier of CUDA's cooperative groups.
#include "program.h"
#include "xorshift.h"

#include <cooperative_groups.h>

constexpr uint32_t THREADS = 128;

// The last block to come lets the others go; `generation` counts the barriers passed.
__device__ void grid_barrier(uint32_t *arrived, volatile uint32_t *generation)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t passed = *generation;
        __threadfence();
        if (atomicAdd(arrived, 1) == gridDim.x - 1) {
            *arrived = 0;
            __threadfence();
            *generation = passed + 1;
        } else {
            while (*generation == passed) {
            }
        }
        __threadfence();
    }
    __syncthreads();
}

template <class Barrier>
__device__ void exchange_behind(Barrier barrier, uint32_t *values, uint32_t rounds)
{
    const uint32_t size = gridDim.x * THREADS, i = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t left = (i + size - THREADS) % size, right = (i + THREADS) % size;
    for (uint32_t round = 0; round < rounds; ++round) {
        const volatile uint32_t *from = values + (round % 2) * size;
        const uint32_t sum = from[left] + 3 * from[i] + from[right];
        values[(round + 1) % 2 * size + i] = xorshift32(sum | 1);
        barrier();
    }
}

__global__ void exchange(uint32_t *values, uint32_t *sync, uint32_t rounds)
{
    exchange_behind([=] { grid_barrier(&sync[0], &sync[1]); }, values, rounds);
}

__global__ void exchange_in_groups(uint32_t *values, uint32_t *sync, uint32_t rounds)
{
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    exchange_behind([&] { grid.sync(); }, values, rounds);
    if (grid.thread_rank() == 0)
        sync[1] = rounds;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "grid_barrier", "exchanges values between blocks that wait for one another",
                              {{"blocks", 8, 2, 64, "thread blocks; all must be on the device at once"},
                               {"iterations", 1000, 1, UINT32_MAX, "rounds"},
                               {"cooperative", 0, 0, 1, "with the barrier of CUDA's cooperative groups"}});
    const uint32_t blocks = arguments["blocks"], size = blocks * THREADS;
    uint32_t rounds = arguments["iterations"];
    std::vector<uint32_t> values(2 * size);
    for (uint32_t i = 0; i < size; ++i)
        values[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_values(values), device_sync(std::vector<uint32_t>(2, 0));
    if (arguments["cooperative"]) {
        uint32_t *values_at = device_values.get(), *sync_at = device_sync.get();
        void *parameters[] = {&values_at, &sync_at, &rounds};
        CHECK_CUDA(cudaLaunchCooperativeKernel((const void *)exchange_in_groups, blocks, THREADS, parameters));
    } else {
        exchange<<<blocks, THREADS>>>(device_values.get(), device_sync.get(), rounds);
        CHECK_LAUNCH();
    }
    arguments.progress("launched");
    const std::vector<uint32_t> out = device_values.to_host();
    const std::vector<uint32_t> sync = device_sync.to_host();

    // The first rounds are checked in full, the rest by the number of barriers passed.
    bool correct = sync[1] == rounds || mismatch("generation", 1, sync[1], rounds);
    for (uint32_t round = 0; round < rounds && rounds <= 10000; ++round) {
        const uint32_t *from = values.data() + (round % 2) * size;
        for (uint32_t i = 0; i < size; ++i) {
            const uint32_t sum = from[(i + size - THREADS) % size] + 3 * from[i] + from[(i + THREADS) % size];
            values[(round + 1) % 2 * size + i] = xorshift32(sum | 1);
        }
    }
    for (uint32_t i = 0; i < 2 * size && rounds <= 10000 && correct; ++i)
        correct = out[i] == values[i] || mismatch("values", i, out[i], values[i]);
    Digest digest;
    digest.add(out);
    return finish(arguments, digest, correct);
}
