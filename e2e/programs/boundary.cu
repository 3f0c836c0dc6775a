// What calls of the driver cost, one line of JSON for each: natively, and under `hetckpt run`.
//
//   boundary [--rounds N] [WHAT...]     WHAT: launch streams sync readback event graph malloc pageable pinned (all of
//                                             them);
//                                             wait: sleeps for 90 s
//
// Each figure is the median of N rounds (9), of copies of N / 2 + 3; microseconds a call, gigabytes a second. The
// results of the kernels are checked.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call) check(call, #call, __LINE__)

static void check(cudaError_t result, const char *call, int line)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s, line %d: %s\n", call, line, cudaGetErrorString(result));
    exit(1);
}

__global__ void count(unsigned *counter)
{
    if (counter && threadIdx.x == 0)
        atomicAdd(counter, 1u);
}

__global__ void nothing(unsigned *never)
{
    if (never && threadIdx.x > 4096)
        *never = 1;
}

__global__ void halve_and_add(float *a, const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] = a[i] * 0.5f + b[i];
}

static int rounds = 9;

static double seconds()
{
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Times `work` in rounds of `times`, and prints microseconds of one.
static void report(const char *what, int times, const std::function<void()> &work)
{
    std::vector<double> each;
    for (int round = 0; round < rounds; ++round) {
        double begin = seconds();
        for (int i = 0; i < times; ++i)
            work();
        CHECK(cudaDeviceSynchronize());
        each.push_back((seconds() - begin) / times * 1e6);
    }
    printf("{\"what\": \"%s\", \"us\": %.3f}\n", what, median(each));
    fflush(stdout);
}

static void report_copy(const char *what, void *to, const void *from, size_t bytes)
{
    std::vector<double> rates;
    for (int round = 0; round < rounds / 2 + 3; ++round) {
        double begin = seconds();
        CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
        rates.push_back(bytes / (seconds() - begin) / 1e9);
    }
    printf("{\"what\": \"%s\", \"gb_per_s\": %.2f}\n", what, median(rates));
    fflush(stdout);
}

static void launches(unsigned *counter)
{
    report("launch", 20000, [=] { nothing<<<1, 32>>>(nullptr); });
    unsigned before = 0, after = 0;
    CHECK(cudaMemcpy(&before, counter, sizeof before, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 1000; ++i)
        count<<<1, 32>>>(counter);
    CHECK(cudaMemcpy(&after, counter, sizeof after, cudaMemcpyDeviceToHost));
    if (after - before != 1000) {
        fprintf(stderr, "%u of 1000 launches have counted\n", after - before);
        exit(1);
    }
}

static void launches_over_streams()
{
    cudaStream_t streams[8];
    for (auto &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int next = 0;
    report("streams", 16000, [&] { nothing<<<1, 32, 0, streams[next++ % 8]>>>(nullptr); });
    for (auto stream : streams)
        CHECK(cudaStreamDestroy(stream));
}

static void launch_and_synchronize()
{
    report("sync", 3000, [] {
        nothing<<<1, 32>>>(nullptr);
        CHECK(cudaDeviceSynchronize());
    });
}

static void launches_and_read_back()
{
    const int n = 1 << 16;
    float *a, *b, got, *zeros = static_cast<float *>(calloc(n, sizeof(float)));
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaMemcpy(a, zeros, n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, zeros, n * sizeof(float), cudaMemcpyHostToDevice));
    report("readback", 2000, [&] {
        halve_and_add<<<n / 256, 256>>>(a, b, n);
        halve_and_add<<<n / 256, 256>>>(b, a, n);
        CHECK(cudaMemcpy(&got, a, sizeof got, cudaMemcpyDeviceToHost));
    });
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    free(zeros);
}

static void events_round_a_launch()
{
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    float milliseconds;
    report("event", 2000, [&] {
        CHECK(cudaEventRecord(begin));
        nothing<<<1, 32>>>(nullptr);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    });
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
}

// A graph of 100 launches, which has to count as many.
static void graphs(unsigned *counter)
{
    const unsigned nodes = 100, times = 200;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (unsigned i = 0; i < nodes; ++i)
        count<<<1, 32, 0, stream>>>(counter);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    unsigned before = 0, after = 0;
    CHECK(cudaMemcpy(&before, counter, sizeof before, cudaMemcpyDeviceToHost));
    // The first launches prepare something.
    for (unsigned i = 0; i < times; ++i) {
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    report("graph", times, [=] { CHECK(cudaGraphLaunch(executable, stream)); });
    report("graph_sync", times, [=] {
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
    });
    CHECK(cudaMemcpy(&after, counter, sizeof after, cudaMemcpyDeviceToHost));
    const unsigned wanted = nodes * times * (1 + 2 * rounds);
    if (after - before != wanted) {
        fprintf(stderr, "%u of %u launches in graphs have counted\n", after - before, wanted);
        exit(1);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

static void allocations()
{
    report("malloc", 300, [] {
        void *memory;
        CHECK(cudaMalloc(&memory, 1 << 20));
        CHECK(cudaFree(memory));
    });
}

static void copies(bool pinned)
{
    const size_t bytes = size_t(1) << 30;
    void *device, *host;
    CHECK(cudaMalloc(&device, bytes));
    if (pinned)
        CHECK(cudaMallocHost(&host, bytes));
    else
        host = malloc(bytes);
    memset(host, 0x5a, bytes);
    report_copy(pinned ? "pinned_in" : "pageable_in", device, host, bytes);
    memset(host, 0, bytes);
    report_copy(pinned ? "pinned_out" : "pageable_out", host, device, bytes);
    for (size_t i = 0; i < bytes; i += 4093)
        if (static_cast<char *>(host)[i] != 0x5a) {
            fprintf(stderr, "byte %zu came back wrong\n", i);
            exit(1);
        }
    CHECK(cudaFree(device));
    if (pinned)
        CHECK(cudaFreeHost(host));
    else
        free(host);
}

int main(int argc, char **argv)
{
    std::vector<std::string> wanted;
    for (int i = 1; i < argc; ++i)
        if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            rounds = std::max(1, atoi(argv[++i]));
        else
            wanted.push_back(argv[i]);
    auto want = [&](const char *what) {
        return wanted.empty() || std::find(wanted.begin(), wanted.end(), what) != wanted.end();
    };
    unsigned *counter;
    CHECK(cudaMalloc(&counter, sizeof *counter));
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    // What is built and set up at the first launch is not what is measured.
    nothing<<<1, 32>>>(nullptr);
    count<<<1, 32>>>(counter);
    CHECK(cudaDeviceSynchronize());
    if (wanted.size() == 1 && wanted[0] == "wait")
        std::this_thread::sleep_for(std::chrono::seconds(90));
    if (want("launch"))
        launches(counter);
    if (want("streams"))
        launches_over_streams();
    if (want("sync"))
        launch_and_synchronize();
    if (want("readback"))
        launches_and_read_back();
    if (want("event"))
        events_round_a_launch();
    if (want("graph"))
        graphs(counter);
    if (want("malloc"))
        allocations();
    if (want("pageable"))
        copies(false);
    if (want("pinned"))
        copies(true);
    CHECK(cudaFree(counter));
    printf("{\"what\": \"done\"}\n");
}
