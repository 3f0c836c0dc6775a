// Inclusive scan with warp shuffles: tiles of 256 values first, then the tiles' sums, then the offsets are added.
//
// With `iterations` above 1 each tile is scanned that many times over before its last value counts as its sum.
#include <algorithm>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t TILE = 256;
constexpr uint32_t WARP = 32;
constexpr uint32_t FULL_WARP = 0xffffffffu;

// Inclusive sum over the lanes up to this one.
__device__ uint32_t warp_scan(uint32_t value)
{
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const uint32_t below = __shfl_up_sync(FULL_WARP, value, distance);
        if (lane >= distance)
            value += below;
    }
    return value;
}

// Inclusive sum over the block's threads up to this one.
__device__ uint32_t block_scan(uint32_t value)
{
    __shared__ uint32_t warp_sums[TILE / WARP];
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    value = warp_scan(value);
    if (lane == WARP - 1)
        warp_sums[warp] = value;
    __syncthreads();
    if (warp == 0) {
        const uint32_t sum = warp_scan(lane < TILE / WARP ? warp_sums[lane] : 0);
        if (lane < TILE / WARP)
            warp_sums[lane] = sum;
    }
    __syncthreads();
    if (warp > 0)
        value += warp_sums[warp - 1];
    __syncthreads();
    return value;
}

__global__ void scan_tiles(const uint32_t *__restrict__ in, uint32_t *__restrict__ out, uint32_t *__restrict__ tile_sums,
                           uint32_t n, uint32_t iterations)
{
    const uint32_t i = blockIdx.x * TILE + threadIdx.x;
    uint32_t value = i < n ? in[i] : 0;
    for (uint32_t pass = 0; pass < iterations; ++pass)
        value = block_scan(value);
    if (i < n)
        out[i] = value;
    if (threadIdx.x == TILE - 1)
        tile_sums[blockIdx.x] = value;
}

// One block scans all tile sums in place, a tile at a time.
__global__ void scan_tile_sums(uint32_t *tile_sums, uint32_t num_tiles)
{
    __shared__ uint32_t carry;
    if (threadIdx.x == 0)
        carry = 0;
    __syncthreads();
    for (uint32_t base = 0; base < num_tiles; base += TILE) {
        const uint32_t i = base + threadIdx.x;
        const uint32_t value = block_scan(i < num_tiles ? tile_sums[i] : 0) + carry;
        __syncthreads();
        if (i < num_tiles)
            tile_sums[i] = value;
        if (threadIdx.x == TILE - 1)
            carry = value;
        __syncthreads();
    }
}

__global__ void add_offsets(uint32_t *out, const uint32_t *tile_sums, uint32_t n)
{
    const uint32_t i = blockIdx.x * TILE + threadIdx.x;
    if (blockIdx.x > 0 && i < n)
        out[i] += tile_sums[blockIdx.x - 1];
}

using Tile = std::vector<uint32_t>;

// The first TILE coefficients of the product of two power series, modulo 2^32.
static Tile convolve(const Tile &a, const Tile &b)
{
    Tile product(TILE, 0);
    for (uint32_t i = 0; i < TILE; ++i)
        for (uint32_t j = 0; i + j < TILE; ++j)
            product[i + j] += a[i] * b[j];
    return product;
}

// Scanning k times is one convolution with the coefficients of 1 / (1 - x)^k.
static Tile repeated_scan(uint32_t iterations)
{
    Tile result(TILE, 0), power(TILE, 1);
    result[0] = 1;
    for (; iterations; iterations /= 2) {
        if (iterations % 2)
            result = convolve(result, power);
        power = convolve(power, power);
    }
    return result;
}

static bool is_right(const std::vector<uint32_t> &in, const std::vector<uint32_t> &out, uint32_t iterations)
{
    const Tile coefficients = repeated_scan(iterations);
    uint32_t offset = 0;
    for (size_t base = 0; base < in.size(); base += TILE) {
        Tile tile(TILE, 0);
        std::copy(in.begin() + base, in.begin() + std::min<size_t>(base + TILE, in.size()), tile.begin());
        tile = convolve(coefficients, tile);
        for (size_t i = base; i < base + TILE && i < in.size(); ++i)
            if (out[i] != tile[i - base] + offset)
                return mismatch("out", i, out[i], tile[i - base] + offset);
        offset += tile[TILE - 1];
    }
    return true;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "scan", "inclusive prefix sums of an array, many times over",
                              {{"n", 100000, 1, 1u << 26, "elements"},
                               {"iterations", 10, 1, UINT32_MAX, "scans of each tile inside the kernel"}});
    const uint32_t n = arguments["n"], iterations = arguments["iterations"];
    const uint32_t num_tiles = (n + TILE - 1) / TILE;

    std::vector<uint32_t> in(n);
    for (uint32_t i = 0; i < n; ++i)
        in[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_in(in), device_out(n), device_sums(num_tiles);
    const cudaStream_t stream = cudaStreamPerThread;
    scan_tiles<<<num_tiles, TILE, 0, stream>>>(device_in.get(), device_out.get(), device_sums.get(), n, iterations);
    CHECK_LAUNCH();
    scan_tile_sums<<<1, TILE, 0, stream>>>(device_sums.get(), num_tiles);
    CHECK_LAUNCH();
    add_offsets<<<num_tiles, TILE, 0, stream>>>(device_out.get(), device_sums.get(), n);
    CHECK_LAUNCH();
    arguments.progress("launched");
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<uint32_t> out = device_out.to_host();

    Digest digest;
    digest.add(out);
    return finish(arguments, digest, is_right(in, out, iterations));
}
