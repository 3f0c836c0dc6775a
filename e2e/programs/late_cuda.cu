// Works on the host for a while before it makes its first CUDA call, and again between its two kernels: for dumps of a
// program that has no device yet, and of one whose device is idle.
#include <cerrno>
#include <ctime>

#include "program.h"
#include "xorshift.h"

__global__ void add_one(uint32_t *values, uint32_t n)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] += 1;
}

// Sleeps in short naps, so that one cut short by a signal or a restore costs nothing.
static void wait_ms(uint64_t milliseconds)
{
    for (uint64_t waited = 0; waited < milliseconds; waited += 10) {
        timespec left = {0, 10000000};
        while (nanosleep(&left, &left) == -1 && errno == EINTR) {
        }
    }
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "late_cuda", "makes its first CUDA call only after a while",
                              {{"n", 1 << 16, 1, 1u << 28, "elements"},
                               {"wait-ms", 50, 0, UINT32_MAX, "milliseconds before the first CUDA call"},
                               {"idle-ms", 0, 0, UINT32_MAX, "milliseconds between the two kernels"}});
    const uint32_t n = arguments["n"];

    std::vector<uint32_t> values(n);
    for (uint32_t i = 0; i < n; ++i)
        values[i] = xorshift32_seed(i);
    arguments.progress("waiting");
    wait_ms(arguments["wait-ms"]);
    arguments.progress("waited");

    DeviceArray<uint32_t> device_values(values);
    add_one<<<(n + 255) / 256, 256>>>(device_values.get(), n);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    arguments.progress("idle");
    wait_ms(arguments["idle-ms"]);
    add_one<<<(n + 255) / 256, 256>>>(device_values.get(), n);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> result = device_values.to_host();

    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i)
        if (result[i] != values[i] + 2)
            correct = mismatch("values", i, result[i], values[i] + 2);
    Digest digest;
    digest.add(result);
    return finish(arguments, digest, correct);
}
