// Threads that sit in calls of every kind that can wait, each for work of its own: synchronising a stream, an event or the
// device, asking in a loop, copying to pageable and pinned memory, launching faster than the device works, sending more data than
// fits on the way, waiting for a host function. For dumps that find a thread in each of them.
#include <atomic>
#include <pthread.h>
#include <sched.h>

#include "paced_work.h"

static const Arguments *arguments_ptr;
static std::atomic<uint32_t> threads_failed;

struct Worker {
    uint32_t number;
    Digest digest;
};

static void CUDART_CB set_flag(void *flag) { static_cast<std::atomic<bool> *>(flag)->store(true); }

__global__ void add_one(uint32_t *word) { *word += 1; }

static void *run(void *argument)
{
    Worker &worker = *static_cast<Worker *>(argument);
    const Arguments &arguments = *arguments_ptr;
    const uint32_t way = worker.number % 9;
    PacedWork work(worker.number, arguments["blocks"], arguments["iterations"]);
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, worker.number & 8 ? cudaEventBlockingSync : cudaEventDefault));
    uint32_t *pinned = nullptr;
    CHECK_CUDA(cudaMallocHost(&pinned, 1 << 16));
    DeviceArray<uint32_t> word(std::vector<uint32_t>(1 << 14));
    std::vector<uint32_t> host(1 << 14, 1);
    std::vector<uint32_t> much(way == 7 ? arguments["send-mib"] << 18 : 1), much_back(much.size());
    DeviceArray<uint32_t> device_much(much);
    bool is_right = true;
    const uint32_t rounds = arguments["rounds"];
    for (uint32_t round = 0; round < rounds; ++round) {
        work.launch(stream);
        std::atomic<bool> is_called(false);
        switch (way) {
        case 0:
            CHECK_CUDA(cudaStreamSynchronize(stream));
            break;
        case 1:
            CHECK_CUDA(cudaEventRecord(event, stream));
            CHECK_CUDA(cudaEventSynchronize(event));
            break;
        case 2:
            CHECK_CUDA(cudaDeviceSynchronize());
            break;
        case 3:
            while (cudaStreamQuery(stream) == cudaErrorNotReady)
                sched_yield();
            break;
        case 4:
            CHECK_CUDA(cudaMemcpyAsync(host.data(), word.get(), word.bytes(), cudaMemcpyDeviceToHost, stream));
            CHECK_CUDA(cudaStreamSynchronize(stream));
            is_right = host[1] == 0 && is_right;
            break;
        case 5:
            CHECK_CUDA(cudaMemcpyAsync(pinned, word.get(), word.bytes(), cudaMemcpyDeviceToHost, stream));
            CHECK_CUDA(cudaEventRecord(event, stream));
            while (cudaEventQuery(event) == cudaErrorNotReady)
                sched_yield();
            is_right = pinned[1] == 0 && is_right;
            break;
        case 6:
            for (uint32_t i = 0; i < arguments["burst"]; ++i)
                add_one<<<1, 1, 0, stream>>>(word.get());
            CHECK_LAUNCH();
            CHECK_CUDA(cudaStreamSynchronize(stream));
            break;
        case 7:
            for (uint32_t i = 0; i < much.size(); ++i)
                much[i] = xorshift32_seed(i + round);
            CHECK_CUDA(cudaMemcpyAsync(device_much.get(), much.data(), device_much.bytes(), cudaMemcpyHostToDevice, stream));
            CHECK_CUDA(cudaMemcpyAsync(much_back.data(), device_much.get(), device_much.bytes(), cudaMemcpyDeviceToHost, stream));
            CHECK_CUDA(cudaStreamSynchronize(stream));
            is_right = much == much_back && is_right;
            break;
        default:
            CHECK_CUDA(cudaLaunchHostFunc(stream, set_flag, &is_called));
            while (!is_called)
                sched_yield();
            CHECK_CUDA(cudaStreamSynchronize(stream));
            break;
        }
    }
    is_right = work.is_right(worker.digest) && is_right;
    if (way == 6) {
        const uint32_t sum = word.to_host()[0], expected = rounds * static_cast<uint32_t>(arguments["burst"]);
        is_right = is_right && (sum == expected || mismatch("word", worker.number, sum, expected));
    }
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(stream));
    if (!is_right)
        ++threads_failed;
    return nullptr;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "blocked_threads", "has a thread in every kind of call that waits",
                              {{"threads", 9, 1, 64, "threads; nine have one of each kind"},
                               {"rounds", 4, 1, UINT32_MAX, "pieces of work of each thread"},
                               {"send-mib", 48, 1, 1024, "what the thread that sends much sends in each round"},
                               {"burst", 2000, 1, UINT32_MAX, "launches of the thread that launches in bursts"},
                               {"blocks", 8, 1, 1u << 20, "thread blocks"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of each thread of a block in a launch"}});
    arguments_ptr = &arguments;
    std::vector<Worker> workers(arguments["threads"]);
    std::vector<pthread_t> threads(workers.size());
    for (uint32_t i = 0; i < workers.size(); ++i) {
        workers[i].number = i;
        if (pthread_create(&threads[i], nullptr, run, &workers[i]))
            return EXIT_ERROR;
    }
    arguments.progress("started");
    Digest digest;
    for (uint32_t i = 0; i < workers.size(); ++i) {
        pthread_join(threads[i], nullptr);
        const uint64_t value = workers[i].digest.value();
        digest.add(&value, sizeof value);
    }
    return finish(arguments, digest, threads_failed == 0);
}
