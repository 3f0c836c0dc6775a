// One kernel that does nothing but integer steps in registers, for as long as asked: for measuring how soon it stops.
#include "program.h"
#include "xorshift.h"

__global__ void spin(uint32_t *states, uint64_t iterations)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    for (uint64_t pass = 0; pass < iterations; ++pass)
        state = xorshift32(state);
    states[thread] = state;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "spin", "runs one long kernel of integer arithmetic",
                              {{"blocks", 64, 1, 1u << 20, "thread blocks"},
                               {"threads", 128, 1, 1024, "threads of each block"},
                               {"iterations", 10000, 0, UINT64_MAX, "steps of each thread"}});
    const uint32_t blocks = arguments["blocks"], threads = arguments["threads"];
    const uint64_t iterations = arguments["iterations"];

    std::vector<uint32_t> start(blocks * threads);
    for (uint32_t i = 0; i < start.size(); ++i)
        start[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_states(start);
    spin<<<blocks, threads>>>(device_states.get(), iterations);
    CHECK_LAUNCH();
    arguments.progress("launched");
    const std::vector<uint32_t> states = device_states.to_host();

    const XorshiftJump jump(iterations);
    bool correct = true;
    for (uint32_t i = 0; i < states.size() && correct; ++i)
        if (states[i] != jump(start[i]))
            correct = mismatch("states", i, states[i], jump(start[i]));
    Digest digest;
    digest.add(states);
    return finish(arguments, digest, correct);
}
