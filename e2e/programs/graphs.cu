// Work recorded as graphs and launched again and again: one captured from two streams that wait for one another, one
// built node by node and changed between its launches.
//
// The kernels step linear congruential generators, so any number of steps has a closed form for the check.
#include <utility>

#include "affine.h"
#include "program.h"

constexpr uint32_t THREADS = 128;

__global__ void step(uint32_t *values, uint32_t n, Affine affine, uint64_t rounds)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t value = values[i];
    for (uint64_t round = 0; round < rounds; ++round)
        value = value * affine.factor + affine.summand;
    values[i] = value;
}

__global__ void mix(uint32_t *left, uint32_t *right, uint32_t n)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    left[i] ^= right[i] >> 3;
    right[i] += left[i];
}

__global__ void add(uint32_t *values, const uint32_t *summands, uint32_t n, uint32_t factor)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] += summands[i] * factor;
}

// What functions of the host that the graphs call have seen, in order.
struct Seen {
    const uint32_t *place;
    std::vector<uint32_t> values;
};

static void CUDART_CB look(void *argument)
{
    Seen *seen = static_cast<Seen *>(argument);
    seen->values.push_back(*seen->place);
}

struct Arrays {
    uint32_t *left, *right, *scratch, *total;
    uint32_t n;
};

static const Affine FIRST{1664525, 1013904223}, SECOND{22695477, 1}, THIRD{134775813, 1};

// Two streams that go their own ways and meet; what comes out is copied to the host, which looks at it.
static cudaGraph_t capture(const Arrays &arrays, Affine affine, uint64_t rounds, uint32_t *pinned, Seen *seen)
{
    cudaStream_t main, side;
    cudaEvent_t fork, join;
    CHECK_CUDA(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    const uint32_t blocks = (arrays.n + THREADS - 1) / THREADS;
    CHECK_CUDA(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaEventRecord(fork, main));
    CHECK_CUDA(cudaStreamWaitEvent(side, fork, 0));
    step<<<blocks, THREADS, 0, main>>>(arrays.left, arrays.n, affine, rounds);
    CHECK_LAUNCH();
    step<<<blocks, THREADS, 0, side>>>(arrays.right, arrays.n, SECOND, rounds);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaEventRecord(join, side));
    CHECK_CUDA(cudaStreamWaitEvent(main, join, 0));
    mix<<<blocks, THREADS, 0, main>>>(arrays.left, arrays.right, arrays.n);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyAsync(pinned, arrays.left, sizeof(uint32_t), cudaMemcpyDeviceToHost, main));
    CHECK_CUDA(cudaLaunchHostFunc(main, look, seen));
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(main, &graph));
    CHECK_CUDA(cudaStreamDestroy(main));
    CHECK_CUDA(cudaStreamDestroy(side));
    CHECK_CUDA(cudaEventDestroy(fork));
    CHECK_CUDA(cudaEventDestroy(join));
    return graph;
}

// The nodes of the graph that is built by hand.
struct Built {
    cudaGraph_t graph;
    cudaGraphNode_t adding, inner;
};

static cudaKernelNodeParams adding(Arrays &arrays, const uint32_t *&summands, uint32_t &factor, void *(&arguments)[4])
{
    arguments[0] = &arrays.total;
    arguments[1] = &summands;
    arguments[2] = &arrays.n;
    arguments[3] = &factor;
    cudaKernelNodeParams params{};
    params.func = reinterpret_cast<void *>(add);
    params.gridDim = dim3((arrays.n + THREADS - 1) / THREADS);
    params.blockDim = dim3(THREADS);
    params.kernelParams = arguments;
    return params;
}

// total += scratch, where scratch is filled and then copied over by `left`; an inner graph adds `right` too; the host
// has a look at ordinary memory.
static Built build(Arrays &arrays, uint32_t *pageable, Seen *seen)
{
    Built built{};
    CHECK_CUDA(cudaGraphCreate(&built.graph, 0));
    cudaGraphNode_t filling, copying, meeting, reading, looking;
    cudaMemsetParams fill{};
    fill.dst = arrays.scratch;
    fill.elementSize = sizeof(uint32_t);
    fill.value = 7;
    fill.width = arrays.n;
    fill.height = 1;
    CHECK_CUDA(cudaGraphAddMemsetNode(&filling, built.graph, nullptr, 0, &fill));
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&copying, built.graph, &filling, 1, arrays.scratch, arrays.left,
                                        arrays.n / 2 * sizeof(uint32_t), cudaMemcpyDeviceToDevice));
    const uint32_t *summands = arrays.scratch;
    uint32_t factor = 1;
    void *arguments[4];
    cudaKernelNodeParams params = adding(arrays, summands, factor, arguments);
    CHECK_CUDA(cudaGraphAddKernelNode(&built.adding, built.graph, &copying, 1, &params));
    cudaGraph_t inner;
    CHECK_CUDA(cudaGraphCreate(&inner, 0));
    summands = arrays.right;
    factor = 3;
    cudaGraphNode_t more;
    CHECK_CUDA(cudaGraphAddKernelNode(&more, inner, nullptr, 0, &params));
    CHECK_CUDA(cudaGraphAddChildGraphNode(&built.inner, built.graph, &built.adding, 1, inner));
    CHECK_CUDA(cudaGraphDestroy(inner));
    const cudaGraphNode_t before[] = {built.adding, built.inner};
    CHECK_CUDA(cudaGraphAddEmptyNode(&meeting, built.graph, before, 2));
    CHECK_CUDA(cudaGraphAddMemcpyNode1D(&reading, built.graph, &meeting, 1, pageable, arrays.total,
                                        sizeof(uint32_t), cudaMemcpyDeviceToHost));
    cudaHostNodeParams host{look, seen};
    CHECK_CUDA(cudaGraphAddHostNode(&looking, built.graph, &reading, 1, &host));
    return built;
}

static bool counts(cudaGraph_t graph, size_t nodes, size_t edges)
{
    size_t got = 0;
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &got));
    if (got != nodes)
        return mismatch<uint64_t>("number of nodes", 0, got, nodes);
#if CUDART_VERSION >= 13000
    CHECK_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &got));
#else
    CHECK_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, &got));
#endif
    return got == edges ? true : mismatch<uint64_t>("number of edges", 0, got, edges);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "graphs", "graphs, captured and built, launched and changed",
                              {{"n", 2048, 2, 1 << 24, "elements of each array"},
                               {"launches", 10, 2, 100000, "launches of each graph"},
                               {"rounds", 1000, 1, UINT64_MAX, "steps of each generator in a launch"}});
    const uint32_t n = arguments["n"], launches = arguments["launches"];
    const uint64_t rounds = arguments["rounds"];
    std::vector<uint32_t> left(n), right(n), total(n);
    for (uint32_t i = 0; i < n; ++i) {
        left[i] = i * 2654435761u;
        right[i] = ~i;
    }
    DeviceArray<uint32_t> device_left(left), device_right(right), device_scratch(n), device_total(total);
    Arrays arrays{device_left.get(), device_right.get(), device_scratch.get(), device_total.get(), n};
    uint32_t *pinned, pageable = 0;
    CHECK_CUDA(cudaMallocHost(&pinned, sizeof(uint32_t)));
    Seen of_captured{pinned, {}}, of_built{&pageable, {}};

    cudaGraph_t captured = capture(arrays, FIRST, rounds, pinned, &of_captured);
    Built built = build(arrays, &pageable, &of_built);
    bool correct = counts(captured, 5, 4) && counts(built.graph, 7, 7);
    cudaGraphExec_t run_captured, run_built;
    CHECK_CUDA(cudaGraphInstantiate(&run_captured, captured, 0));
    CHECK_CUDA(cudaGraphInstantiate(&run_built, built.graph, 0));
    // What can be launched does not depend on the graph it was made of; another is captured from anew.
    CHECK_CUDA(cudaGraphDestroy(captured));
    captured = capture(arrays, THIRD, rounds, pinned, &of_captured);

    cudaStream_t stream, other;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (uint32_t launch = 0; launch < launches; ++launch) {
        arguments.progress("launch", launch);
        if (launch == launches / 2) {
            cudaGraphExecUpdateResultInfo info{};
            CHECK_CUDA(cudaGraphExecUpdate(run_captured, captured, &info));
        }
        const bool elsewhere = launch % 3 == 2;
        if (elsewhere)
            CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_CUDA(cudaGraphLaunch(run_captured, elsewhere ? other : stream));
        if (elsewhere)
            CHECK_CUDA(cudaStreamSynchronize(other));
        const uint32_t *summands = arrays.scratch;
        uint32_t factor = launch + 1;
        void *places[4];
        cudaKernelNodeParams params = adding(arrays, summands, factor, places);
        CHECK_CUDA(cudaGraphExecKernelNodeSetParams(run_built, built.adding, &params));
        CHECK_CUDA(cudaGraphLaunch(run_built, stream));
    }
    CHECK_CUDA(cudaDeviceSynchronize());

    std::vector<uint32_t> want_captured, want_built;
    for (uint32_t launch = 0; launch < launches; ++launch) {
        const Affine first = power(launch < launches / 2 ? FIRST : THIRD, rounds), second = power(SECOND, rounds);
        for (uint32_t i = 0; i < n; ++i) {
            left[i] = left[i] * first.factor + first.summand;
            right[i] = right[i] * second.factor + second.summand;
            left[i] ^= right[i] >> 3;
            right[i] += left[i];
            total[i] += (i < n / 2 ? left[i] : 7) * (launch + 1) + right[i] * 3;
        }
        want_captured.push_back(left[0]);
        want_built.push_back(total[0]);
    }
    const std::pair<const std::vector<uint32_t> *, std::vector<uint32_t>> all[] = {
        {&left, device_left.to_host()},
        {&right, device_right.to_host()},
        {&total, device_total.to_host()},
        {&want_captured, of_captured.values},
        {&want_built, of_built.values},
    };
    Digest digest;
    for (const auto &[want, got] : all) {
        digest.add(got);
        if (got.size() != want->size())
            correct = mismatch<uint64_t>("number of values", 0, got.size(), want->size());
        for (uint32_t i = 0; i < got.size() && correct; ++i)
            if (got[i] != (*want)[i])
                correct = mismatch("value", i, got[i], (*want)[i]);
    }
    CHECK_CUDA(cudaGraphExecDestroy(run_captured));
    CHECK_CUDA(cudaGraphExecDestroy(run_built));
    CHECK_CUDA(cudaGraphDestroy(captured));
    CHECK_CUDA(cudaGraphDestroy(built.graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaFreeHost(pinned));
    return finish(arguments, digest, correct);
}
