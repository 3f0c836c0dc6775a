// Blocks of 1024 threads of a kernel that has just so few registers that they can be launched, without launch bounds. It also
// reads a little before the program's first allocation and behind its last one, as some programs do by mistake. What the
// runtime says of the kernel goes to standard error.
#include "program.h"
#include "xorshift.h"

constexpr int VALUES = 54;
// Elements beyond the ends of what is allocated.
constexpr long BEYOND = 256;

__global__ void many_values(const uint32_t *seeds, uint32_t *out, uint64_t iterations)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t value[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i)
        value[i] = seeds[thread] + 0x9e3779b9u * i;
    for (uint64_t pass = 0; pass < iterations; ++pass) {
#pragma unroll
        for (int i = 0; i < VALUES; ++i)
            value[i] = value[i] * 1664525u + value[(i + 1) % VALUES];
    }
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < VALUES; ++i)
        sum = sum * 31 + value[i];
    out[thread] = sum;
}

// What lies there is not this program's; only that it can be read is told.
__global__ void read_beyond(const uint32_t *first, const uint32_t *end, uint32_t *was_read)
{
    const long at = threadIdx.x;
    const uint32_t before = first[at - BEYOND], behind = end[BEYOND - 1 - at];
    was_read[at] = before == behind || before != behind;
}

static uint32_t on_host(uint32_t seed, uint64_t iterations)
{
    uint32_t value[VALUES];
    for (int i = 0; i < VALUES; ++i)
        value[i] = seed + 0x9e3779b9u * i;
    for (uint64_t pass = 0; pass < iterations; ++pass)
        for (int i = 0; i < VALUES; ++i)
            value[i] = value[i] * 1664525u + value[(i + 1) % VALUES];
    uint32_t sum = 0;
    for (int i = 0; i < VALUES; ++i)
        sum = sum * 31 + value[i];
    return sum;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "full_blocks", "launches blocks as large as their registers allow",
                              {{"blocks", 4, 1, 1u << 16, "thread blocks"},
                               {"threads", 1024, 32, 1024, "threads of each block"},
                               {"iterations", 1000, 0, UINT64_MAX, "steps of each thread"}});
    const uint32_t blocks = arguments["blocks"], threads = arguments["threads"];
    const uint64_t iterations = arguments["iterations"];

    std::vector<uint32_t> start(blocks * threads);
    for (uint32_t i = 0; i < start.size(); ++i)
        start[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> seeds(start), out(start.size()), last(1 << 20);

    cudaFuncAttributes attributes;
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, many_values));
    int resident = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, many_values, threads, 0));
    fprintf(stderr, "full_blocks: %d registers, at most %d threads a block, %d blocks a multiprocessor\n",
            attributes.numRegs, attributes.maxThreadsPerBlock, resident);

    read_beyond<<<1, BEYOND>>>(seeds.get(), last.get() + last.size(), out.get());
    CHECK_LAUNCH();
    const std::vector<uint32_t> was_read = out.to_host();
    bool correct = true;
    for (long i = 0; i < BEYOND && i < long(was_read.size()); ++i)
        if (was_read[i] != 1)
            correct = mismatch("was_read", i, was_read[i], 1u);

    many_values<<<blocks, threads>>>(seeds.get(), out.get(), iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> sums = out.to_host();
    // Some of them, as a host takes long.
    for (size_t i = 0; i < sums.size() && correct; i += sums.size() / 8)
        if (iterations <= 1u << 20 && sums[i] != on_host(start[i], iterations))
            correct = mismatch("sums", i, sums[i], on_host(start[i], iterations));
    Digest digest;
    digest.add(sums);
    return finish(arguments, digest, correct);
}
