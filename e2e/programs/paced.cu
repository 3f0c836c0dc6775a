// Kernels whose threads sleep between their steps: one, or one in each of several streams, all at the same time. They take as long as
// they are told to, on a busy machine too, and leave the processor to others.
#include <algorithm>
#include <memory>

#include "paced_work.h"

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "paced", "runs kernels that sleep most of the time",
                              {{"blocks", 64, 1, 1u << 20, "thread blocks of each kernel"},
                               {"streams", 0, 0, 64, "streams with a kernel each; 0: one kernel in the default stream"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of each thread, each with a sleep of 0.1 ms"}});
    const uint32_t num_streams = arguments["streams"];
    std::vector<std::unique_ptr<PacedWork>> works;
    for (uint32_t number = 0; number < std::max(num_streams, 1u); ++number)
        works.push_back(std::make_unique<PacedWork>(number, arguments["blocks"], arguments["iterations"]));
    for (const std::unique_ptr<PacedWork> &work : works) {
        cudaStream_t stream = nullptr;
        if (num_streams > 0)
            CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        work->launch(stream);
    }
    arguments.progress("launched");
    CHECK_CUDA(cudaDeviceSynchronize());
    Digest digest;
    bool correct = true;
    for (const std::unique_ptr<PacedWork> &work : works)
        correct = correct && work->is_right(digest);
    return finish(arguments, digest, correct);
}
