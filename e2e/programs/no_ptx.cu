// A long kernel that is built as machine code only (no PTX in the program): it can be stopped nowhere but at its end.
#include "program.h"
#include "xorshift.h"

__global__ void machine_code_only(uint32_t *states, uint64_t iterations)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    for (uint64_t pass = 0; pass < iterations; ++pass)
        state = xorshift32(state);
    states[thread] = state;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "no_ptx", "runs one long kernel that has no PTX",
                              {{"blocks", 64, 1, 1u << 20, "thread blocks of 128 threads"},
                               {"iterations", 10000, 0, UINT64_MAX, "steps of each thread"}});
    const uint32_t blocks = arguments["blocks"];
    const uint64_t iterations = arguments["iterations"];
    constexpr uint32_t THREADS = 128;

    std::vector<uint32_t> start(blocks * THREADS);
    for (uint32_t i = 0; i < start.size(); ++i)
        start[i] = xorshift32_seed(i);
    DeviceArray<uint32_t> device_states(start);
    machine_code_only<<<blocks, THREADS>>>(device_states.get(), iterations);
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
