// An array that grows where it is: addresses are reserved once, and memory is made and mapped behind what is there.
// Scratch memory comes from a pool of its own, in the order of the stream. At the end the array shrinks again.
//
// The kernels step a linear congruential generator, so any number of steps has a closed form for the check.
#include <cuda.h>

#include "affine.h"
#include "program.h"

constexpr uint32_t THREADS = 256, FACTOR = 1664525, SUMMAND = 1013904223;

// What programs without the driver library at hand do.
template <typename F> static F driver_function(const char *name)
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
        fprintf(stderr, "%s is not there\n", name);
        exit(EXIT_ERROR);
    }
    return reinterpret_cast<F>(function);
}

#define DRIVER(name) driver_function<decltype(&name)>(#name)
#define CHECK_DRIVER(call) check_driver((call), #call)

static void check_driver(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: error %d\n", call, result);
    exit(EXIT_ERROR);
}

__global__ void seed(uint32_t *values, uint64_t first, uint64_t n)
{
    const uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    if (i < n)
        values[first + i] = (first + i) * 2654435761u;
}

__global__ void step(uint32_t *values, const uint32_t *before, uint64_t n, uint64_t rounds)
{
    const uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    if (i >= n)
        return;
    uint32_t value = before[i];
    for (uint64_t round = 0; round < rounds; ++round)
        value = value * FACTOR + SUMMAND;
    values[i] = value;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "growing", "an array that grows where it is, and scratch memory from a pool",
                              {{"pieces", 3, 1, 1024, "pieces of the array, each mapped by itself"},
                               {"rounds", 10, 1, UINT64_MAX, "steps of each element whenever the array has grown"}});
    const uint64_t pieces = arguments["pieces"], rounds = arguments["rounds"];
    CHECK_CUDA(cudaFree(nullptr));
    const auto granularity_of = DRIVER(cuMemGetAllocationGranularity);
    const auto reserve = DRIVER(cuMemAddressReserve);
    const auto unreserve = DRIVER(cuMemAddressFree);
    const auto create = DRIVER(cuMemCreate);
    const auto release = DRIVER(cuMemRelease);
    const auto map = DRIVER(cuMemMap);
    const auto unmap = DRIVER(cuMemUnmap);
    const auto set_access = DRIVER(cuMemSetAccess);

    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t piece = 0;
    CHECK_DRIVER(granularity_of(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    const uint64_t per_piece = piece / sizeof(uint32_t);
    CUdeviceptr start = 0;
    CHECK_DRIVER(reserve(&start, piece * pieces, 0, 0, 0));
    uint32_t *const values = reinterpret_cast<uint32_t *>(start);

    cudaMemPoolProps of_pool{};
    of_pool.allocType = cudaMemAllocationTypePinned;
    of_pool.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK_CUDA(cudaMemPoolCreate(&pool, &of_pool));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    for (uint64_t count = 1; count <= pieces; ++count) {
        const CUdeviceptr end = start + (count - 1) * piece;
        CUmemGenericAllocationHandle memory;
        CHECK_DRIVER(create(&memory, piece, &properties, 0));
        CHECK_DRIVER(map(end, piece, 0, memory, 0));
        CHECK_DRIVER(set_access(end, piece, &access, 1));
        CHECK_DRIVER(release(memory));

        const uint64_t n = count * per_piece;
        seed<<<(per_piece + THREADS - 1) / THREADS, THREADS, 0, stream>>>(values, n - per_piece, per_piece);
        CHECK_LAUNCH();
        uint32_t *scratch;
        CHECK_CUDA(cudaMallocFromPoolAsync(&scratch, n * sizeof(uint32_t), pool, stream));
        // From one piece into the next, as if they were one.
        CHECK_CUDA(cudaMemcpyAsync(scratch, values, n * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream));
        step<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(values, scratch, n, rounds);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaFreeAsync(scratch, stream));
        arguments.progress("piece", count);
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    uint64_t in_pool = 1;
    CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &in_pool));
    bool correct = in_pool == 0 ? true : mismatch<uint64_t>("bytes in the pool", 0, in_pool, 0);

    std::vector<uint32_t> got(pieces * per_piece);
    CHECK_CUDA(cudaMemcpy(got.data(), values, pieces * piece, cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < got.size() && correct; ++i) {
        const Affine all = power({FACTOR, SUMMAND}, rounds * (pieces - i / per_piece));
        const uint32_t expected = uint32_t(i * 2654435761u) * all.factor + all.summand;
        if (got[i] != expected)
            correct = mismatch("value", i, got[i], expected);
    }
    Digest digest;
    digest.add(got);
    CHECK_DRIVER(unmap(start, pieces * piece));
    CHECK_DRIVER(unreserve(start, pieces * piece));
    CHECK_CUDA(cudaMemPoolDestroy(pool));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return finish(arguments, digest, correct);
}
