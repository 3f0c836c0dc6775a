// Each warp multiplies matrices of 8-bit integers and of halves, round after round, and adds the products up. Halves are
// small integers, and each round takes back what the one before it added: all sums are exact, on any device.
#include "program.h"

#include <mma.h>

using namespace nvcuda;

constexpr uint32_t SIDE = 16, TILE = SIDE * SIDE, WARPS = 4;

// Elements of a warp's matrices, from -2 to 2.
__host__ __device__ inline int first_factor(uint32_t warp, uint32_t row, uint32_t k)
{
    return int((warp + 7 * row + 3 * k) % 5) - 2;
}
__host__ __device__ inline int second_factor(uint32_t warp, uint32_t k, uint32_t column)
{
    return int((3 * warp + 2 * k + 11 * column) % 5) - 2;
}
__host__ __device__ inline int first_sum(uint32_t warp, uint32_t element)
{
    return int(warp * 31 + element);
}

__global__ void multiply(int32_t *ints, float *floats, uint64_t rounds)
{
    __shared__ signed char bytes[WARPS][2][TILE];
    __shared__ half halves[WARPS][3][TILE];
    const uint32_t own = threadIdx.x / 32, warp = blockIdx.x * WARPS + own;
    for (uint32_t i = threadIdx.x % 32; i < TILE; i += 32) {
        const int first = first_factor(warp, i / SIDE, i % SIDE), second = second_factor(warp, i / SIDE, i % SIDE);
        bytes[own][0][i] = first;
        bytes[own][1][i] = second;
        halves[own][0][i] = first;
        halves[own][1][i] = second;
        halves[own][2][i] = -first;
        ints[warp * TILE + i] = first_sum(warp, i);
        floats[warp * TILE + i] = first_sum(warp, i);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, signed char, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, signed char, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, int> sum;
    wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, half, wmma::row_major> half_a[2];
    wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, half, wmma::row_major> half_b;
    wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> half_sum;
    wmma::load_matrix_sync(a, bytes[own][0], SIDE);
    wmma::load_matrix_sync(b, bytes[own][1], SIDE);
    wmma::load_matrix_sync(sum, ints + warp * TILE, SIDE, wmma::mem_row_major);
    wmma::load_matrix_sync(half_a[0], halves[own][0], SIDE);
    wmma::load_matrix_sync(half_a[1], halves[own][2], SIDE);
    wmma::load_matrix_sync(half_b, halves[own][1], SIDE);
    wmma::load_matrix_sync(half_sum, floats + warp * TILE, SIDE, wmma::mem_row_major);
#pragma unroll 1
    for (uint64_t round = 0; round < rounds; ++round) {
        wmma::mma_sync(sum, a, b, sum);
        if (round & 1)
            wmma::mma_sync(half_sum, half_a[1], half_b, half_sum);
        else
            wmma::mma_sync(half_sum, half_a[0], half_b, half_sum);
    }
    wmma::store_matrix_sync(ints + warp * TILE, sum, SIDE, wmma::mem_row_major);
    wmma::store_matrix_sync(floats + warp * TILE, half_sum, SIDE, wmma::mem_row_major);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "tensor_cores", "warps multiply small matrices",
                              {{"blocks", 2, 1, 1u << 16, "blocks of four warps"},
                               {"rounds", 100, 1, UINT64_MAX / 2, "products that each warp adds up"}});
    const uint32_t warps = uint32_t(arguments["blocks"]) * WARPS, n = warps * TILE;
    const uint64_t rounds = arguments["rounds"];
    int32_t *device_ints;
    float *device_floats;
    CHECK_CUDA(cudaMalloc(&device_ints, n * sizeof(int32_t)));
    CHECK_CUDA(cudaMalloc(&device_floats, n * sizeof(float)));
    multiply<<<warps / WARPS, WARPS * 32>>>(device_ints, device_floats, rounds);
    CHECK_LAUNCH();
    std::vector<int32_t> ints(n);
    std::vector<float> floats(n);
    CHECK_CUDA(cudaMemcpy(ints.data(), device_ints, n * sizeof(int32_t), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(floats.data(), device_floats, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(device_ints));
    CHECK_CUDA(cudaFree(device_floats));

    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i) {
        const uint32_t warp = i / TILE, row = i % TILE / SIDE, column = i % SIDE;
        int product = 0;
        for (uint32_t k = 0; k < SIDE; ++k)
            product += first_factor(warp, row, k) * second_factor(warp, k, column);
        const int before = first_sum(warp, i % TILE);
        const int32_t expected = int32_t(uint32_t(before) + uint32_t(product) * uint32_t(rounds));
        const float expected_float = float(before + (rounds & 1 ? product : 0));
        if (ints[i] != expected)
            correct = mismatch("sum of integers", i, ints[i], expected);
        else if (floats[i] != expected_float)
            correct = mismatch("sum of halves", i, floats[i], expected_float);
    }
    Digest digest;
    digest.add(ints);
    digest.add(floats);
    return finish(arguments, digest, correct);
}
