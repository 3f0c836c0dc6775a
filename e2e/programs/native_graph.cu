// A graph of fills, copies and launches of machine code in two branches, launched again and again, and changed now and
// then. Its kernel
// leaves everything as it is, so the results are right on a stand-in for the driver, which runs no kernels, too.
#include "program.h"

#include <unistd.h>

constexpr uint32_t WORDS = 256;

__global__ void keep(uint32_t *words, uint32_t factor)
{
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    words[at] = words[at] * factor - words[at] * (factor - 1);
}

// What the graph works on: each of its steps fills `scratch` and copies it to a place of its own in `placed`.
struct Arrays {
    uint32_t *input, *scratch, *placed, *output;
};

static cudaGraph_t capture(const Arrays &arrays, uint32_t steps, uint32_t summand, cudaStream_t stream,
                           cudaStream_t branch)
{
    cudaEvent_t fork, join;
    CHECK_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaEventRecord(fork, stream));
    CHECK_CUDA(cudaStreamWaitEvent(branch, fork));
    CHECK_CUDA(cudaMemcpyAsync(arrays.output, arrays.input, sizeof(uint32_t) * WORDS, cudaMemcpyDeviceToDevice,
                               branch));
    keep<<<1, WORDS, 0, branch>>>(arrays.output, steps);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaEventRecord(join, branch));
    for (uint32_t step = 0; step < steps; ++step) {
        // A fill writes bytes.
        CHECK_CUDA(cudaMemsetAsync(arrays.scratch, step + summand, sizeof(uint32_t) * WORDS, stream));
        keep<<<1, WORDS, 0, stream>>>(arrays.scratch, step + 1);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaMemcpyAsync(arrays.placed + step * WORDS, arrays.scratch, sizeof(uint32_t) * WORDS,
                                   cudaMemcpyDeviceToDevice, stream));
    }
    CHECK_CUDA(cudaStreamWaitEvent(stream, join));
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaEventDestroy(fork));
    CHECK_CUDA(cudaEventDestroy(join));
    return graph;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "native_graph", "a graph of machine code, fills and copies",
                              {{"rounds", 200, 1, 1u << 20, "rounds of five launches"},
                               {"steps", 100, 1, 10000, "fills, launches and copies in the graph"},
                               {"pause", 5000, 0, 1u << 20, "microseconds between rounds"}});
    const uint32_t steps = arguments["steps"];
    Arrays arrays{};
    CHECK_CUDA(cudaMalloc(&arrays.input, sizeof(uint32_t) * WORDS));
    CHECK_CUDA(cudaMalloc(&arrays.scratch, sizeof(uint32_t) * WORDS));
    CHECK_CUDA(cudaMalloc(&arrays.placed, sizeof(uint32_t) * WORDS * steps));
    CHECK_CUDA(cudaMalloc(&arrays.output, sizeof(uint32_t) * WORDS));
    cudaStream_t stream, other, branch;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&branch, cudaStreamNonBlocking));
    uint32_t summand = 0;
    cudaGraph_t graph = capture(arrays, steps, summand, stream, branch);
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    std::vector<uint32_t> input(WORDS), output(WORDS), placed(WORDS * steps);
    bool correct = true;
    Digest digest;
    for (uint32_t round = 0; round < arguments["rounds"] && correct; ++round) {
        arguments.progress("round", round);
        if (round % 16 == 15) {
            CHECK_CUDA(cudaGraphDestroy(graph));
            graph = capture(arrays, steps, ++summand, stream, branch);
            cudaGraphExecUpdateResultInfo info{};
            CHECK_CUDA(cudaGraphExecUpdate(executable, graph, &info));
        }
        for (uint32_t i = 0; i < WORDS; ++i)
            input[i] = round * 2654435761u + i;
        CHECK_CUDA(cudaMemcpy(arrays.input, input.data(), sizeof(uint32_t) * WORDS, cudaMemcpyHostToDevice));
        CHECK_CUDA(cudaMemset(arrays.placed, 0xff, sizeof(uint32_t) * WORDS * steps));
        CHECK_CUDA(cudaDeviceSynchronize());
        for (uint32_t launch = 0; launch < 5; ++launch)
            CHECK_CUDA(cudaGraphLaunch(executable, round % 3 == 2 ? other : stream));
        CHECK_CUDA(cudaDeviceSynchronize());
        CHECK_CUDA(cudaMemcpy(output.data(), arrays.output, sizeof(uint32_t) * WORDS, cudaMemcpyDeviceToHost));
        CHECK_CUDA(cudaMemcpy(placed.data(), arrays.placed, sizeof(uint32_t) * WORDS * steps, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < WORDS && correct; ++i)
            if (output[i] != input[i])
                correct = mismatch("output", i, output[i], input[i]);
        for (uint32_t i = 0; i < WORDS * steps && correct; ++i) {
            const uint32_t want = (i / WORDS + summand) % 256 * 0x01010101u;
            if (placed[i] != want)
                correct = mismatch("placed", i, placed[i], want);
        }
        digest.add(placed);
        if (arguments["pause"])
            usleep(arguments["pause"]);
    }
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    arguments.progress("done");
    return finish(arguments, digest, correct);
}
