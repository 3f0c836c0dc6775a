// Kernels that wait for a time to pass: one by the timer, one by the clock in many short waits.
#include "program.h"
#include "xorshift.h"

#include <ctime>

constexpr uint32_t WAITS = 64;

__device__ uint64_t globaltimer()
{
    uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

__global__ void wait_by_timer(uint32_t *states, uint64_t nanoseconds)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t start = globaltimer();
    while (globaltimer() - start < nanoseconds)
        ;
    states[thread] = xorshift32(states[thread]);
}

// A clock is the device's own: where a kernel goes on on another it jumps, to and fro, and a wait is over.
__global__ void wait_by_clock(uint32_t *states, uint64_t cycles)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    for (uint32_t wait = 0; wait < WAITS; ++wait) {
        const uint64_t start = clock64();
        while (static_cast<uint64_t>(clock64()) - start < cycles)
            ;
        const uint32_t short_start = clock();
        while (static_cast<uint32_t>(clock()) == short_start)
            ;
        state = xorshift32(state);
    }
    states[thread] = state;
}

static uint64_t host_nanoseconds()
{
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "clocks", "runs kernels that wait for a time to pass",
                              {{"blocks", 2, 1, 1u << 20, "thread blocks"},
                               {"threads", 1, 1, 1024, "threads of each block"},
                               {"milliseconds", 100, 0, 1u << 20, "that are waited, about twice"}});
    const uint32_t blocks = arguments["blocks"], threads = arguments["threads"];
    const uint64_t nanoseconds = arguments["milliseconds"] * 1000000;

    std::vector<uint32_t> start(blocks * threads);
    for (uint32_t i = 0; i < start.size(); ++i)
        start[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_states(start);
    const uint64_t before = host_nanoseconds();
    wait_by_timer<<<blocks, threads>>>(device_states.get(), nanoseconds);
    CHECK_LAUNCH();
    arguments.progress("launched", 0);
    CHECK_CUDA(cudaDeviceSynchronize());
    const bool waited = host_nanoseconds() - before >= nanoseconds;
    if (!waited)
        fprintf(stderr, "clocks: the kernel ended before its time had passed\n");
    int kilohertz;
    CHECK_CUDA(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
    wait_by_clock<<<blocks, threads>>>(device_states.get(), arguments["milliseconds"] * kilohertz / WAITS);
    CHECK_LAUNCH();
    arguments.progress("launched", 1);
    CHECK_CUDA(cudaDeviceSynchronize());
    const std::vector<uint32_t> states = device_states.to_host();

    const XorshiftJump jump(1 + WAITS);
    bool correct = waited;
    for (uint32_t i = 0; i < states.size() && correct; ++i)
        if (states[i] != jump(start[i]))
            correct = mismatch("states", i, states[i], jump(start[i]));
    Digest digest;
    digest.add(states);
    return finish(arguments, digest, correct);
}
