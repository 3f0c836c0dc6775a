// Vector addition, repeated in place inside one kernel: sum += addend, `iterations` times, modulo 2^32.
#include "program.h"
#include "xorshift.h"

// The arrays may overlap as far as the compiler knows, so every pass loads and stores.
__global__ void vector_add(uint32_t *sum, const uint32_t *addend, uint32_t n, uint32_t iterations)
{
    const uint32_t stride = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        for (uint32_t pass = 0; pass < iterations; ++pass)
            sum[i] += addend[i];
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "vector_add", "adds one vector to another, many times over",
                              {{"n", 1 << 18, 1, 1u << 30, "elements"},
                               {"iterations", 50, 0, UINT32_MAX, "additions inside each kernel"},
                               {"launches", 2, 1, 1u << 20, "kernels, one after another"},
                               {"blocks", 256, 1, 65535, "thread blocks of each kernel"}});
    const uint32_t n = arguments["n"], iterations = arguments["iterations"], launches = arguments["launches"];

    std::vector<uint32_t> start(n), addend(n);
    for (uint32_t i = 0; i < n; ++i) {
        start[i] = xorshift32_seed(i);
        addend[i] = xorshift32(start[i]);
    }
    DeviceArray<uint32_t> device_sum(start), device_addend(addend);
    for (uint32_t launch = 0; launch < launches; ++launch) {
        vector_add<<<arguments["blocks"], 256>>>(device_sum.get(), device_addend.get(), n, iterations);
        CHECK_LAUNCH();
        arguments.progress("launched", launch);
    }
    const std::vector<uint32_t> sum = device_sum.to_host();

    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i) {
        const uint32_t expected = start[i] + addend[i] * iterations * launches;
        if (sum[i] != expected)
            correct = mismatch("sum", i, sum[i], expected);
    }
    Digest digest;
    digest.add(sum);
    return finish(arguments, digest, correct);
}
