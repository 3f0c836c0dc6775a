// Forks while its kernel runs. As with NVIDIA's driver, the child has no device: each of its calls gives error 3, at once, and
// whatever it does, its parent's work is not disturbed. It may then become another CUDA program by exec.
#include <cerrno>
#include <ctime>
#include <sys/wait.h>
#include <unistd.h>

#include "paced_work.h"

static void wait_ms(uint64_t milliseconds)
{
    for (uint64_t waited = 0; waited < milliseconds; waited += 10) {
        timespec left = {0, 10000000};
        while (nanosleep(&left, &left) == -1 && errno == EINTR) {
        }
    }
}

// True if calls of all kinds are refused with "initialization error".
static bool is_refused(void *parents_memory, const std::vector<uint32_t> &host, cudaStream_t stream)
{
    void *memory = nullptr;
    const cudaError_t results[] = {
        cudaMalloc(&memory, 64),
        cudaMemcpy(parents_memory, host.data(), host.size() * sizeof(uint32_t), cudaMemcpyHostToDevice),
        cudaMemset(parents_memory, 0, 64),
        cudaStreamSynchronize(stream),
        cudaStreamQuery(stream),
        cudaDeviceSynchronize(),
        cudaFree(parents_memory),
    };
    bool is_refused = true;
    for (size_t i = 0; i < sizeof results / sizeof *results; ++i)
        if (results[i] != cudaErrorInitializationError) {
            fprintf(stderr, "call %zu in the child gave %d (%s)\n", i, results[i], cudaGetErrorString(results[i]));
            is_refused = false;
        }
    paced<<<1, 1, 0, stream>>>(nullptr, 1, nullptr);
    return is_refused && cudaGetLastError() == cudaErrorInitializationError;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "fork_after_init", "forks while its kernel runs",
                              {{"children", 2, 1, 16, "processes forked while the kernel runs"},
                               {"child-ms", 300, 0, UINT32_MAX, "milliseconds that a child lives"},
                               {"exec", 0, 0, 1, "1: a child then becomes a CUDA program without children by exec"},
                               {"forks", 1, 0, 1, "0: no children"},
                               {"blocks", 16, 1, 1u << 20, "thread blocks"},
                               {"launches", 4, 1, UINT32_MAX, "launches"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of each thread in a launch"}});
    PacedWork work(0, arguments["blocks"], arguments["iterations"]);
    uint32_t *pinned = nullptr;
    CHECK_CUDA(cudaMallocHost(&pinned, 4096));
    pinned[0] = 42;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    std::vector<uint32_t> host(100000, 7);
    DeviceArray<uint32_t> untouched(host);
    for (uint32_t launch = 0; launch < arguments["launches"]; ++launch)
        work.launch(stream);

    std::vector<pid_t> children;
    for (uint32_t i = 0; arguments["forks"] && i < arguments["children"]; ++i) {
        const pid_t child = fork();
        if (child == -1)
            return EXIT_ERROR;
        if (child == 0) {
            const std::vector<uint32_t> junk(host.size(), 666);
            bool refused = is_refused(untouched.get(), junk, stream) && pinned[0] == 42;
            wait_ms(arguments["child-ms"]);
            refused = is_refused(untouched.get(), junk, stream) && refused && pinned[0] == 42;
            if (!refused)
                _exit(EXIT_FAIL);
            if (arguments["exec"]) {
                const std::string iterations = std::to_string(arguments["iterations"]);
                execl("/proc/self/exe", argv[0], "--forks", "0", "--iterations", iterations.c_str(), nullptr);
                _exit(EXIT_ERROR);
            }
            // With all exit handlers, the runtime's among them.
            exit(EXIT_PASS);
        }
        children.push_back(child);
    }
    arguments.progress("launched");
    // Calls of the parent while its children are there.
    for (uint32_t i = 0; i < 100; ++i)
        CHECK_CUDA(cudaMemset(untouched.get(), 7, 64));
    CHECK_CUDA(cudaStreamSynchronize(stream));

    Digest digest;
    bool correct = work.is_right(digest);
    const std::vector<uint32_t> left = untouched.to_host();
    for (uint32_t i = 16; i < left.size() && correct; ++i)
        if (left[i] != 7)
            correct = mismatch("untouched", i, left[i], 7u);
    for (const pid_t child : children) {
        int status = 0;
        while (waitpid(child, &status, 0) == -1 && errno == EINTR) {
        }
        if (status != 0) {
            fprintf(stderr, "a child ended with status %#x\n", status);
            correct = false;
        }
    }
    CHECK_CUDA(cudaFreeHost(pinned));
    // The second half of a child's life is not a result of its own.
    return arguments["forks"] ? finish(arguments, digest, correct) : correct ? EXIT_PASS : EXIT_FAIL;
}
