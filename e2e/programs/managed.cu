// Host and kernels take turns on managed memory: each steps every element of an array. Threads of all kernels, and the
// host where it is told to, count in a managed variable while kernels run.
//
// Both step linear congruential generators, so any number of turns has a closed form for the check.
#include "affine.h"
#include "program.h"

#include <unistd.h>

constexpr uint32_t THREADS = 256;
constexpr Affine KERNELS = {1664525, 1013904223}, HOST = {22695477, 1};

constexpr unsigned long long BEGIN = 7;
__managed__ unsigned long long counter = BEGIN;

__global__ void step(uint32_t *values, uint64_t n, uint64_t rounds)
{
    const uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    if (i >= n)
        return;
    uint32_t value = values[i];
    for (uint64_t round = 0; round < rounds; ++round)
        value = value * KERNELS.factor + KERNELS.summand;
    values[i] = value;
    atomicAdd_system(&counter, 1ull);
}

static void check_managed(const void *data)
{
    cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, data));
    if (attributes.type != cudaMemoryTypeManaged || attributes.hostPointer != data || attributes.devicePointer != data) {
        fprintf(stderr, "the memory is not known as managed\n");
        exit(EXIT_ERROR);
    }
}

// System calls reach the memory, too.
static void send_around(void *data, size_t bytes)
{
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], data, bytes) != ssize_t(bytes)) {
        perror("write");
        exit(EXIT_ERROR);
    }
    memset(data, 0, bytes);
    if (read(ends[0], data, bytes) != ssize_t(bytes)) {
        perror("read");
        exit(EXIT_ERROR);
    }
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "managed", "host and kernels take turns on managed memory",
                              {{"n", 100000, 1, UINT32_MAX, "elements"},
                               {"turns", 3, 1, 1u << 20, "turns of each side"},
                               {"rounds", 100, 1, UINT64_MAX, "steps of each element in a turn of the kernels"},
                               {"beside", 0, 0, 1u << 30, "times that the host counts while each kernel runs"}});
    const uint64_t n = arguments["n"], turns = arguments["turns"], rounds = arguments["rounds"];
    uint32_t *values;
    CHECK_CUDA(cudaMallocManaged(&values, n * sizeof(uint32_t)));
    check_managed(values);
    check_managed(&counter);
    int device;
    CHECK_CUDA(cudaGetDevice(&device));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
#if CUDART_VERSION >= 13000
    const cudaMemLocation here{cudaMemLocationTypeDevice, device};
    CHECK_CUDA(cudaMemAdvise(values, n * sizeof(uint32_t), cudaMemAdviseSetPreferredLocation, here));
    CHECK_CUDA(cudaMemPrefetchAsync(values, n * sizeof(uint32_t), here, 0, stream));
#else
    CHECK_CUDA(cudaMemAdvise(values, n * sizeof(uint32_t), cudaMemAdviseSetPreferredLocation, device));
    CHECK_CUDA(cudaMemPrefetchAsync(values, n * sizeof(uint32_t), device, stream));
#endif
    for (uint64_t i = 0; i < n; ++i)
        values[i] = uint32_t(i * 2654435761u);
    if (counter != BEGIN) {
        fprintf(stderr, "a managed variable does not have its initial value\n");
        return EXIT_ERROR;
    }

    for (uint64_t turn = 1; turn <= turns; ++turn) {
        step<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(values, n, rounds);
        CHECK_LAUNCH();
        for (uint64_t count = 0; count < arguments["beside"]; ++count)
            __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
        CHECK_CUDA(cudaStreamSynchronize(stream));
        send_around(values + n / 2, n < 1024 ? sizeof *values : 4096 / 2);
        for (uint64_t i = 0; i < n; ++i)
            values[i] = values[i] * HOST.factor + HOST.summand;
        arguments.progress("turn", turn);
    }

    const unsigned long long expected_count = BEGIN + turns * (n + arguments["beside"]);
    bool correct = counter == expected_count || mismatch("counter", 0, counter, expected_count);
    const Affine all = power(after(power(KERNELS, rounds), HOST), turns);
    for (uint64_t i = 0; i < n && correct; ++i) {
        const uint32_t expected = uint32_t(i * 2654435761u) * all.factor + all.summand;
        if (values[i] != expected)
            correct = mismatch("value", i, values[i], expected);
    }
    Digest digest;
    digest.add(values, n * sizeof(uint32_t));
    digest.add(&counter, sizeof counter);
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(values));
    return finish(arguments, digest, correct);
}
