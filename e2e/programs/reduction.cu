// Sum of an array by a tree in dynamic shared memory, then a second kernel over the blocks' partial sums.
//
// Pass p sums values[i] * (2 p + 1); the odd numbers below 2 R add up to R^2, so R passes give R^2 times the plain sum.
#include "program.h"
#include "xorshift.h"

using Sum = unsigned long long; // modulo 2^64

// Sum over the block in thread 0, 0 in the others. The block size must be a power of two.
__device__ Sum block_sum(Sum value, Sum *sums)
{
    const uint32_t thread = threadIdx.x;
    sums[thread] = value;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half)
            sums[thread] += sums[thread + half];
        __syncthreads();
    }
    return thread == 0 ? sums[0] : 0; // needs no barrier after it: only thread 0 writes there next
}

__global__ void reduce_values(const uint32_t *values, Sum *partial, uint32_t n, uint32_t iterations)
{
    extern __shared__ Sum sums[];
    const uint32_t stride = gridDim.x * blockDim.x;
    Sum total = 0;
    for (uint32_t pass = 0; pass < iterations; ++pass) {
        Sum value = 0;
        for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
            value += static_cast<Sum>(values[i]) * (2 * static_cast<Sum>(pass) + 1);
        total += block_sum(value, sums);
    }
    if (threadIdx.x == 0)
        partial[blockIdx.x] = total;
}

__global__ void reduce_partial(const Sum *partial, Sum *result, uint32_t count)
{
    extern __shared__ Sum sums[];
    Sum value = 0;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        value += partial[i];
    value = block_sum(value, sums);
    if (threadIdx.x == 0)
        *result = value;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "reduction", "sums an array, many times over",
                              {{"n", 1 << 18, 1, 1u << 30, "elements"},
                               {"iterations", 40, 0, UINT32_MAX, "sums inside the kernel"},
                               {"blocks", 64, 1, 65535, "thread blocks of the first kernel"}});
    const uint32_t n = arguments["n"], iterations = arguments["iterations"], blocks = arguments["blocks"];
    constexpr uint32_t THREADS = 256;

    std::vector<uint32_t> values(n);
    Sum expected = 0;
    for (uint32_t i = 0; i < n; ++i) {
        values[i] = xorshift32_seed(i);
        expected += values[i];
    }
    expected *= static_cast<Sum>(iterations) * iterations;

    DeviceArray<uint32_t> device_values(values);
    DeviceArray<Sum> device_partial(blocks), device_result(1);
    reduce_values<<<blocks, THREADS, THREADS * sizeof(Sum)>>>(device_values.get(), device_partial.get(), n, iterations);
    CHECK_LAUNCH();
    reduce_partial<<<1, THREADS, THREADS * sizeof(Sum)>>>(device_partial.get(), device_result.get(), blocks);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<Sum> partial = device_partial.to_host(), result = device_result.to_host();

    const bool correct = result[0] == expected || mismatch("result", 0, result[0], expected);
    Digest digest;
    digest.add(partial);
    digest.add(result);
    return finish(arguments, digest, correct);
}
