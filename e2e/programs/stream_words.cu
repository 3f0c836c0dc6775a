// Streams that wait for words: one for a word of pinned memory that the host writes, another for a word of device memory
// that the first writes, each before a kernel.
#include "program.h"

#include <cuda.h>
#include <unistd.h>

constexpr uint32_t WORDS = 1024, THREADS = 256;

__global__ void step(uint32_t *values)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = values[i] * 1664525u + 1013904223u;
}

__global__ void gather(const uint32_t *values, uint32_t *sums)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] += values[i] ^ values[i ^ 1];
}

// The driver's function of this name.
template <typename Function> static Function *driver_function(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
    if (status != cudaDriverEntryPointSuccess) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(EXIT_ERROR);
    }
    return reinterpret_cast<Function *>(found);
}

static void check_driver(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "error %d\n", int(result));
        exit(EXIT_ERROR);
    }
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "stream_words", "streams wait for words",
                              {{"rounds", 100, 1, 1u << 20, "rounds of 10 ms each"}});
    auto *const wait_value = driver_function<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWaitValue32");
    auto *const write_value =
        driver_function<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWriteValue32");
    cudaStream_t first, second;
    CHECK_CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    uint32_t *host_word, *device_word, *values, *sums;
    CHECK_CUDA(cudaMallocHost(&host_word, sizeof *host_word));
    CHECK_CUDA(cudaMalloc(&device_word, sizeof *device_word));
    CHECK_CUDA(cudaMalloc(&values, WORDS * sizeof *values));
    CHECK_CUDA(cudaMalloc(&sums, WORDS * sizeof *sums));
    *host_word = 0;
    CHECK_CUDA(cudaMemset(device_word, 0, sizeof *device_word));
    CHECK_CUDA(cudaMemset(sums, 0, WORDS * sizeof *sums));
    std::vector<uint32_t> model(WORDS), model_sums(WORDS), results(WORDS);
    for (uint32_t i = 0; i < WORDS; ++i)
        model[i] = i * 2654435761u;
    CHECK_CUDA(cudaMemcpy(values, model.data(), WORDS * sizeof *values, cudaMemcpyHostToDevice));

    bool correct = true;
    Digest digest;
    for (uint32_t round = 1; round <= arguments["rounds"] && correct; ++round) {
        check_driver(wait_value(second, CUdeviceptr(device_word), round, CU_STREAM_WAIT_VALUE_EQ));
        gather<<<WORDS / THREADS, THREADS, 0, second>>>(values, sums);
        CHECK_LAUNCH();
        check_driver(wait_value(first, CUdeviceptr(host_word), round, CU_STREAM_WAIT_VALUE_GEQ));
        step<<<WORDS / THREADS, THREADS, 0, first>>>(values);
        CHECK_LAUNCH();
        check_driver(write_value(first, CUdeviceptr(device_word), round, 0));
        arguments.progress("round", round);
        usleep(10000);
        for (cudaStream_t stream : {first, second})
            if (cudaStreamQuery(stream) != cudaErrorNotReady) {
                fprintf(stderr, "a stream did not wait\n");
                return EXIT_ERROR;
            }
        __atomic_store_n(host_word, round, __ATOMIC_RELEASE);
        CHECK_CUDA(cudaStreamSynchronize(second));
        for (uint32_t &value : model)
            value = value * 1664525u + 1013904223u;
        for (uint32_t i = 0; i < WORDS; ++i)
            model_sums[i] += model[i] ^ model[i ^ 1];
        CHECK_CUDA(cudaMemcpy(results.data(), sums, WORDS * sizeof *sums, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < WORDS && correct; ++i)
            if (results[i] != model_sums[i])
                correct = mismatch("sum", i, results[i], model_sums[i]);
        digest.add(results);
    }
    CHECK_CUDA(cudaFreeHost(host_word));
    for (uint32_t *memory : {device_word, values, sums})
        CHECK_CUDA(cudaFree(memory));
    return finish(arguments, digest, correct);
}
