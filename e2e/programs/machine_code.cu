// Variables, copies and fills of a program that is built as machine code only. Its kernel leaves everything as it is,
// so the results are right on a stand-in for the driver, which runs no kernels, too.
#include "program.h"

#include <unistd.h>

constexpr uint32_t WORDS = 4096;

__device__ uint32_t counters[WORDS];
__constant__ uint32_t factors[64];

__global__ void keep(uint32_t *words)
{
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    words[at] = words[at] * factors[at % 64] - words[at] * (factors[at % 64] - 1);
    counters[at] += factors[at % 64] - (at % 64 + 1);
}

// How many clusters of each size run at once, as programs ask before they choose a kernel; of more blocks than can be
// launched, too.
static void tell_clusters()
{
    CHECK_CUDA(cudaFuncSetAttribute(keep, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    cudaLaunchConfig_t config{};
    config.blockDim = 1024;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (uint32_t size = 2; size <= 18; ++size) {
        attribute.val.clusterDim = {size, 1, 1};
        config.gridDim = size;
        int clusters = 0;
        CHECK_CUDA(cudaOccupancyMaxActiveClusters(&clusters, keep, &config));
        printf("clusters of %u: %d\n", size, clusters);
    }
    int size = 0;
    CHECK_CUDA(cudaOccupancyMaxPotentialClusterSize(&size, keep, &config));
    printf("largest: %d\n", size);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "machine_code", "copies to and from variables of machine code",
                              {{"rounds", 300, 1, 1u << 20, "rounds of 10 ms each"},
                               {"clusters", 0, 0, 1, "1: tell how many clusters of each size run at once"}});
    if (arguments["clusters"])
        tell_clusters();
    std::vector<uint32_t> small(64), start(WORDS);
    for (uint32_t i = 0; i < 64; ++i)
        small[i] = i + 1;
    CHECK_CUDA(cudaMemcpyToSymbol(factors, small.data(), sizeof(uint32_t) * 64));
    uint32_t *a, *b;
    CHECK_CUDA(cudaMalloc(&a, sizeof(uint32_t) * WORDS));
    CHECK_CUDA(cudaMalloc(&b, sizeof(uint32_t) * WORDS));
    bool correct = true;
    Digest digest;
    std::vector<uint32_t> words(WORDS);
    for (uint32_t round = 0; round < arguments["rounds"] && correct; ++round) {
        // What the round before has left in the variable, which a restore may have moved.
        CHECK_CUDA(cudaMemcpyFromSymbol(words.data(), counters, sizeof(uint32_t) * WORDS));
        for (uint32_t i = 0; i < WORDS && correct; ++i)
            if (words[i] != (round ? start[i] : 0))
                correct = mismatch("counters", i, words[i], round ? start[i] : 0);
        for (uint32_t i = 0; i < WORDS; ++i)
            start[i] = round * 2654435761u + i;
        CHECK_CUDA(cudaMemsetAsync(a, 0xff, sizeof(uint32_t) * WORDS));
        CHECK_CUDA(cudaMemcpyAsync(b, a, sizeof(uint32_t) * WORDS, cudaMemcpyDeviceToDevice));
        keep<<<WORDS / 256, 256>>>(b);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpyToSymbolAsync(counters, b, sizeof(uint32_t) * WORDS / 2, 0, cudaMemcpyDeviceToDevice));
        CHECK_CUDA(cudaMemcpyFromSymbol(words.data(), counters, sizeof(uint32_t) * WORDS / 2));
        for (uint32_t i = 0; i < WORDS / 2 && correct; ++i)
            if (words[i] != 0xffffffff)
                correct = mismatch("counters", i, words[i], 0xffffffff);
        CHECK_CUDA(cudaMemcpyToSymbol(counters, start.data(), sizeof(uint32_t) * WORDS));
        usleep(10000);
    }
    arguments.progress("done");
    digest.add(words);
    return finish(arguments, digest, correct);
}
