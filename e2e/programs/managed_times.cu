// Times what host and kernels take for managed memory: each phase, in milliseconds, to standard error.
#include "affine.h"
#include "program.h"

#include <chrono>

constexpr uint32_t THREADS = 256;
constexpr Affine STEP = {1664525, 1013904223};

__global__ void count(uint32_t *flag)
{
    ++*flag;
}

__global__ void step(uint32_t *values, uint64_t n)
{
    const uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    if (i < n)
        values[i] = values[i] * STEP.factor + STEP.summand;
}

template <typename Work> static void timed(const char *what, Work work)
{
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    fprintf(stderr, "%-48s %10.3f ms\n", what, took.count());
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "managed_times", "what host and kernels take for managed memory",
                              {{"n", 1 << 20, 1024, UINT32_MAX, "elements"},
                               {"launches", 20, 1, 1u << 20, "kernels in a row"},
                               {"looks", 1000, 1, 1u << 20, "kernels after each of which the host looks at a flag"}});
    const uint64_t n = arguments["n"], launches = arguments["launches"];
    uint32_t *values, *flag, *warm;
    CHECK_CUDA(cudaMalloc(&warm, THREADS * sizeof *warm));
    uint64_t steps = 0;
    const auto kernels = [&](uint64_t count) {
        for (uint64_t launch = 0; launch < count; ++launch) {
            step<<<(n + THREADS - 1) / THREADS, THREADS>>>(values, n);
            CHECK_LAUNCH();
        }
        CHECK_CUDA(cudaDeviceSynchronize());
        steps += count;
    };
    step<<<1, THREADS>>>(warm, THREADS);
    CHECK_CUDA(cudaDeviceSynchronize());

    timed("allocation", [&] { CHECK_CUDA(cudaMallocManaged(&values, n * sizeof *values)); });
    timed("host writes all", [&] {
        for (uint64_t i = 0; i < n; ++i)
            values[i] = uint32_t(i);
    });
    timed("a kernel", [&] { kernels(1); });
    timed("kernels in a row", [&] { kernels(launches); });
    uint64_t sum = 0;
    const auto read_all = [&] {
        for (uint64_t i = 0; i < n; ++i)
            sum += values[i];
    };
    timed("host reads all", read_all);
    timed("host reads all again", read_all);
    timed("a kernel after that", [&] { kernels(1); });
    timed("host reads one value", [&] { sum += values[n / 2]; });
    timed("a kernel after that", [&] { kernels(1); });
    timed("host writes one value", [&] { values[n / 2] += 0; });
    timed("a kernel after that", [&] { kernels(1); });

    CHECK_CUDA(cudaMallocManaged(&flag, sizeof *flag));
    *flag = 0;
    uint32_t seen = 0;
    timed("kernels, and the host looks at a flag after each", [&] {
        for (uint64_t look = 0; look < arguments["looks"]; ++look) {
            count<<<1, 1>>>(flag);
            CHECK_CUDA(cudaDeviceSynchronize());
            seen = *flag;
        }
    });
    timed("the same, and sets it back", [&] {
        for (uint64_t look = 0; look < arguments["looks"]; ++look) {
            *flag = seen - uint32_t(look);
            count<<<1, 1>>>(flag);
            CHECK_CUDA(cudaDeviceSynchronize());
        }
    });
    if (*flag != 2)
        mismatch("flag", 0, *flag, uint32_t(2));

    const Affine all = power(STEP, steps);
    bool correct = *flag == 2;
    for (uint64_t i = 0; i < n && correct; ++i) {
        const uint32_t expected = uint32_t(i) * all.factor + all.summand;
        if (values[i] != expected)
            correct = mismatch("value", i, values[i], expected);
    }
    Digest digest;
    digest.add(values, n * sizeof *values);
    digest.add(&sum, sizeof sum);
    timed("release", [&] { CHECK_CUDA(cudaFree(values)); });
    return finish(arguments, digest, correct);
}
