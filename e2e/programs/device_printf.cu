// Kernels that print and that assert: one thread tells how far it is, at the beginning, half-way and at the end of each launch.
#include "program.h"
#include "xorshift.h"

#include <cassert>

__device__ void tell(const char *when, uint32_t launch, uint64_t pass, uint32_t state)
{
    printf("launch %u, %s: %08x after %llu steps, %.3f of all\n", launch, when, state, (unsigned long long)pass,
           state / 4294967296.0);
}

__global__ void report(uint32_t *states, uint64_t iterations, uint32_t launch, uint32_t bad)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    if (thread == 0)
        tell("at first", launch, 0, state);
    for (uint64_t pass = 0; pass < iterations; ++pass) {
        if (thread == 0 && pass == iterations / 2)
            tell("half-way", launch, pass, state);
        state = xorshift32(state);
    }
    if (thread == 0)
        printf("done\n");
    assert(thread != bad);
    states[thread] = state;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "device_printf", "runs kernels that print",
                              {{"blocks", 8, 1, 1u << 20, "thread blocks"},
                               {"threads", 64, 1, 1024, "threads of each block"},
                               {"launches", 2, 1, 1000, "launches"},
                               {"fails", UINT32_MAX, 0, UINT32_MAX, "thread whose assertion fails"},
                               {"iterations", 10000, 0, UINT64_MAX, "steps of each thread in each launch"}});
    const uint32_t blocks = arguments["blocks"], threads = arguments["threads"], launches = arguments["launches"];
    const uint64_t iterations = arguments["iterations"];

    std::vector<uint32_t> start(blocks * threads);
    for (uint32_t i = 0; i < start.size(); ++i)
        start[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_states(start);
    for (uint32_t launch = 0; launch < launches; ++launch) {
        printf("launch %u\n", launch);
        report<<<blocks, threads>>>(device_states.get(), iterations, launch, arguments["fails"]);
        CHECK_LAUNCH();
        arguments.progress("launched", launch);
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    const std::vector<uint32_t> states = device_states.to_host();

    const XorshiftJump jump(iterations * launches);
    bool correct = true;
    for (uint32_t i = 0; i < states.size() && correct; ++i)
        if (states[i] != jump(start[i]))
            correct = mismatch("states", i, states[i], jump(start[i]));
    Digest digest;
    digest.add(states);
    return finish(arguments, digest, correct);
}
