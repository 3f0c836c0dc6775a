// One kernel for each thing that hetckpt does not model and so can neither stop nor move to another kind of device: it
// runs as it came on NVIDIA GPUs, is stopped between launches, and is refused by name elsewhere. `--kernel` chooses.
//
// All results are whole numbers that the host computes, too.
#include "program.h"

#include <cooperative_groups.h>
#include <cuda/ptx>
#include <mma.h>

#include <unistd.h>

namespace cg = cooperative_groups;

constexpr uint32_t THREADS = 256, BLOCKS = 4, WORDS = THREADS * BLOCKS;

// What every kernel computes, in its own way, from word `i` of its input.
__host__ __device__ inline uint32_t expected(const uint32_t *in, uint32_t i)
{
    return in[i] * 3 + in[i ^ 1];
}

// Tensor cores: a product with a matrix that takes three of an element and one of its neighbour. Whole numbers up to
// 255 are exact in halves.
__global__ void tensor_core(const uint32_t *in, uint32_t *out)
{
    using namespace nvcuda;
    __shared__ __half a[256], b[256];
    __shared__ float c[256];
    const uint32_t first = blockIdx.x * 256;
    for (uint32_t i = threadIdx.x; i < 256; i += 32) {
        const uint32_t row = i / 16, column = i % 16;
        a[i] = __float2half(float(in[first + i] & 255));
        b[i] = __float2half(row == column ? 3.f : row == (column ^ 1) ? 1.f : 0.f);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.f);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
    __syncwarp();
    for (uint32_t i = threadIdx.x; i < 256; i += 32)
        out[first + i] = uint32_t(c[i]);
}

// A texture object over linear memory.
__global__ void texture(cudaTextureObject_t words, uint32_t *out)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    out[i] = tex1Dfetch<uint32_t>(words, int(i)) * 3 + tex1Dfetch<uint32_t>(words, int(i ^ 1));
}

// The device's own heap.
__global__ void device_malloc(const uint32_t *in, uint32_t *out)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    volatile uint32_t *pair = static_cast<uint32_t *>(malloc(2 * sizeof(uint32_t)));
    if (!pair)
        return;
    pair[0] = in[i];
    pair[1] = in[i ^ 1];
    out[i] = pair[0] * 3 + pair[1];
    free(const_cast<uint32_t *>(pair));
}

struct Factor {
    __device__ virtual uint32_t of(uint32_t value) const = 0;
    __device__ virtual ~Factor() = default;
};
struct One : Factor {
    __device__ uint32_t of(uint32_t value) const override { return value; }
};
struct Three : Factor {
    __device__ uint32_t of(uint32_t value) const override { return value * 3; }
};

// Objects whose functions are found by the tables that their constructors leave in shared memory.
__global__ void virtual_call(const uint32_t *in, uint32_t *out)
{
    __shared__ alignas(8) unsigned char storage[2][16];
    if (threadIdx.x == 0) {
        new (storage[in[0] & 1]) Three;
        new (storage[~in[0] & 1]) One;
    }
    __syncthreads();
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const auto *three = reinterpret_cast<const Factor *>(storage[in[0] & 1]);
    const auto *one = reinterpret_cast<const Factor *>(storage[~in[0] & 1]);
    out[i] = three->of(in[i]) + one->of(in[i ^ 1]);
}

// Blocks of a cluster reach each other's shared memory: the neighbour's word goes to the other block and comes back.
__global__ void __cluster_dims__(2) cluster(const uint32_t *in, uint32_t *out)
{
    __shared__ uint32_t neighbours[THREADS];
    cg::cluster_group group = cg::this_cluster();
    const uint32_t other = group.block_rank() ^ 1, i = blockIdx.x * THREADS + threadIdx.x;
    group.map_shared_rank(neighbours, other)[threadIdx.x] = in[i ^ 1];
    group.sync();
    const uint32_t mine = *group.map_shared_rank(&neighbours[threadIdx.x], other);
    group.sync();
    out[i] = in[i] * 3 + mine;
}

// A bulk copy from global to shared memory, which a memory barrier object awaits.
__global__ void bulk_copy(const uint32_t *in, uint32_t *out)
{
    namespace ptx = cuda::ptx;
    __shared__ alignas(16) uint32_t words[THREADS];
    __shared__ uint64_t barrier;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&barrier, +THREADS);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    uint64_t token;
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, words, in + blockIdx.x * THREADS, sizeof words,
                           &barrier);
        token = ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                               sizeof words);
    } else {
        token = ptx::mbarrier_arrive(&barrier);
    }
    while (!ptx::mbarrier_try_wait(&barrier, token)) {
    }
    out[blockIdx.x * THREADS + threadIdx.x] = words[threadIdx.x] * 3 + words[threadIdx.x ^ 1];
}

// A barrier of its own for each half of a block.
__global__ void named_barrier(const uint32_t *in, uint32_t *out)
{
    __shared__ uint32_t words[THREADS];
    const uint32_t half = threadIdx.x / (THREADS / 2), i = blockIdx.x * THREADS + threadIdx.x;
    words[threadIdx.x] = in[i];
    asm volatile("bar.sync %0, %1;" ::"r"(half + 1), "n"(THREADS / 2) : "memory");
    out[i] = words[threadIdx.x] * 3 + words[threadIdx.x ^ 1];
}

const char *const NAMES[] = {"tensor_core", "texture",   "device_malloc", "virtual_call",
                             "cluster",     "bulk_copy", "named_barrier"};
constexpr uint32_t NUM_KERNELS = sizeof NAMES / sizeof *NAMES;

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "unmodelled", "kernels of what hetckpt does not model",
                              {{"kernel", 0, 0, NUM_KERNELS - 1,
                                "tensor core, texture, malloc, virtual call, cluster, bulk copy, named barrier"},
                               {"rounds", 100, 1, 1u << 20, "launches, 10 ms apart"}});
    const uint32_t kernel = uint32_t(arguments["kernel"]);
    uint32_t *in, *out;
    CHECK_CUDA(cudaMalloc(&in, sizeof(uint32_t) * WORDS));
    CHECK_CUDA(cudaMalloc(&out, sizeof(uint32_t) * WORDS));
    cudaTextureObject_t object = 0;
    if (!strcmp(NAMES[kernel], "texture")) {
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeLinear;
        resource.res.linear.devPtr = in;
        resource.res.linear.desc = cudaCreateChannelDesc<uint32_t>();
        resource.res.linear.sizeInBytes = sizeof(uint32_t) * WORDS;
        cudaTextureDesc description = {};
        CHECK_CUDA(cudaCreateTextureObject(&object, &resource, &description, nullptr));
    }
    std::vector<uint32_t> words(WORDS), results(WORDS);
    Digest digest;
    bool correct = true;
    for (uint32_t round = 0; round < arguments["rounds"] && correct; ++round) {
        // Each round's input is made of the results of the one before.
        for (uint32_t i = 0; i < WORDS; ++i)
            words[i] = (results[i] + i * 7 + round) & 255;
        CHECK_CUDA(cudaMemcpy(in, words.data(), sizeof(uint32_t) * WORDS, cudaMemcpyHostToDevice));
        CHECK_CUDA(cudaMemset(out, 0, sizeof(uint32_t) * WORDS));
        switch (kernel) {
        case 0: tensor_core<<<BLOCKS, 32>>>(in, out); break;
        case 1: texture<<<BLOCKS, THREADS>>>(object, out); break;
        case 2: device_malloc<<<BLOCKS, THREADS>>>(in, out); break;
        case 3: virtual_call<<<BLOCKS, THREADS>>>(in, out); break;
        case 4: cluster<<<BLOCKS, THREADS>>>(in, out); break;
        case 5: bulk_copy<<<BLOCKS, THREADS>>>(in, out); break;
        default: named_barrier<<<BLOCKS, THREADS>>>(in, out); break;
        }
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpy(results.data(), out, sizeof(uint32_t) * WORDS, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < WORDS && correct; ++i)
            if (results[i] != expected(words.data(), i))
                correct = mismatch(NAMES[kernel], i, results[i], expected(words.data(), i));
        digest.add(results);
        arguments.progress("round", round);
        usleep(10000);
    }
    return finish(arguments, digest, correct);
}
