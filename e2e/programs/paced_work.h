// A piece of work that several programs share: xorshift steps in registers, checked against a jump of the same length. Its threads
// sleep between their steps, so that it takes as long on a busy machine and leaves the processor to others.
#pragma once

#include "program.h"
#include "xorshift.h"

constexpr uint32_t SLEEP_NANOSECONDS = 100000;

__global__ void paced(uint32_t *states, uint64_t iterations)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    for (uint64_t pass = 0; pass < iterations; ++pass) {
        state = xorshift32(state);
        __nanosleep(SLEEP_NANOSECONDS);
    }
    states[thread] = state;
}

// One launch of `paced` on its own stretch of seeds, so that no two pieces of work have the same result.
class PacedWork {
  public:
    static constexpr uint32_t THREADS = 2;

    PacedWork(uint32_t number, uint32_t blocks, uint64_t iterations)
        : iterations_(iterations), start_(make_start(number, blocks)), device_(start_)
    {
    }

    void launch(cudaStream_t stream)
    {
        paced<<<static_cast<uint32_t>(start_.size() / THREADS), THREADS, 0, stream>>>(device_.get(), iterations_);
        CHECK_LAUNCH();
        ++launches_;
    }

    // Waits for all launches; true if each thread has done exactly its steps.
    bool is_right(Digest &digest) const
    {
        const std::vector<uint32_t> states = device_.to_host();
        const XorshiftJump jump(iterations_ * launches_);
        digest.add(states);
        for (uint32_t i = 0; i < states.size(); ++i)
            if (states[i] != jump(start_[i]))
                return mismatch("states", i, states[i], jump(start_[i]));
        return true;
    }

  private:
    static std::vector<uint32_t> make_start(uint32_t number, uint32_t blocks)
    {
        std::vector<uint32_t> start(blocks * THREADS);
        for (uint32_t i = 0; i < start.size(); ++i)
            start[i] = xorshift32_seed(i + number * 0x10001u);
        return start;
    }

    uint64_t iterations_;
    uint64_t launches_ = 0;
    std::vector<uint32_t> start_;
    DeviceArray<uint32_t> device_;
};
