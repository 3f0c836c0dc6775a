// Matrix multiplication through 16 x 16 tiles in shared memory; the product is formed `iterations` times and summed.
#include <cmath>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t TILE = 16;

// sums[row][column] = iterations * (a b)[row][column]; each product in float, their sum in double.
__global__ void matmul(const float *__restrict__ a, const float *__restrict__ b, double *__restrict__ sums, uint32_t n,
                       uint32_t iterations)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    const uint32_t row = blockIdx.y * TILE + threadIdx.y;
    const uint32_t column = blockIdx.x * TILE + threadIdx.x;

    double total = 0.0;
    for (uint32_t pass = 0; pass < iterations; ++pass) {
        float product = 0.0f;
        for (uint32_t base = 0; base < n; base += TILE) {
            const uint32_t a_column = base + threadIdx.x, b_row = base + threadIdx.y;
            tile_a[threadIdx.y][threadIdx.x] = row < n && a_column < n ? a[row * n + a_column] : 0.0f;
            tile_b[threadIdx.y][threadIdx.x] = b_row < n && column < n ? b[b_row * n + column] : 0.0f;
            __syncthreads();
            for (uint32_t k = 0; k < TILE; ++k)
                product += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
            __syncthreads();
        }
        total += product;
    }
    if (row < n && column < n)
        sums[row * n + column] = total;
}

// Compares one element with a product in double; the bound is that of any order of n float additions.
static bool element_is_right(const std::vector<float> &a, const std::vector<float> &b, double sum, uint32_t n,
                             uint32_t iterations, uint32_t row, uint32_t column)
{
    double expected = 0.0, magnitude = 0.0;
    for (uint32_t k = 0; k < n; ++k) {
        const double term = static_cast<double>(a[row * n + k]) * b[k * n + column];
        expected += term;
        magnitude += std::fabs(term);
    }
    const double tolerance = iterations * magnitude * n * std::ldexp(1.0, -23);
    if (std::fabs(sum - iterations * expected) <= tolerance)
        return true;
    return mismatch("sums", row * n + column, sum, iterations * expected);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "matmul", "multiplies two square matrices, many times over",
                              {{"n", 128, 1, 16384, "rows and columns"},
                               {"iterations", 4, 0, UINT32_MAX, "products inside the kernel"}});
    const uint32_t n = arguments["n"], iterations = arguments["iterations"];

    std::vector<float> a(n * n), b(n * n);
    for (uint32_t i = 0; i < n * n; ++i) {
        a[i] = signed_unit(xorshift32_seed(2 * i));
        b[i] = signed_unit(xorshift32_seed(2 * i + 1));
    }
    DeviceArray<float> device_a(a), device_b(b);
    DeviceArray<double> device_sums(n * n);
    const dim3 grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE), block(TILE, TILE);
    matmul<<<grid, block>>>(device_a.get(), device_b.get(), device_sums.get(), n, iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<double> sums = device_sums.to_host();

    bool correct = true;
    uint32_t random = 1;
    for (uint32_t sample = 0; sample < 512 && correct; ++sample) {
        random = xorshift32(random);
        const uint32_t element = sample == 0 ? n * n - 1 : random % (n * n);
        correct = element_is_right(a, b, sums[element], n, iterations, element / n, element % n);
    }
    Digest digest;
    digest.add(sums);
    return finish(arguments, digest, correct);
}
