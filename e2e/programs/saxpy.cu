// SAXPY, y = a x + y, repeated in place inside one kernel, one thread per element.
//
// All values are small multiples of 1/4, so every sum is exact, fused or not, as long as it stays below 2^22; hence
// the limit on `iterations`.
#include "program.h"
#include "xorshift.h"

__global__ void saxpy(float a, const float *x, float *y, uint32_t n, uint32_t iterations)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    for (uint32_t pass = 0; pass < iterations; ++pass)
        y[i] = a * x[i] + y[i];
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "saxpy", "y = a x + y, many times over",
                              {{"n", 1 << 18, 1, 1u << 30, "elements"},
                               {"iterations", 100, 0, 4000000, "passes inside the kernel"}});
    const uint32_t n = arguments["n"], iterations = arguments["iterations"];
    const float a = 0.5f;

    std::vector<float> x(n), start(n);
    for (uint32_t i = 0; i < n; ++i) {
        const uint32_t random = xorshift32_seed(i);
        x[i] = 0.5f * static_cast<float>(1 + (random >> 30));     // 0.5 to 2
        start[i] = 0.25f * static_cast<float>(random >> 8 & 255); // 0 to 63.75
    }
    DeviceArray<float> device_x(x), device_y(start);
    saxpy<<<(n + 255) / 256, 256>>>(a, device_x.get(), device_y.get(), n, iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<float> y = device_y.to_host();

    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i) {
        const float expected = static_cast<float>(start[i] + static_cast<double>(iterations) * a * x[i]);
        if (y[i] != expected)
            correct = mismatch("y", i, y[i], expected);
    }
    Digest digest;
    digest.add(y);
    return finish(arguments, digest, correct);
}
