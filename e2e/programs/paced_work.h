// A piece of work that several programs share: xorshift steps in registers, checked against a jump of the same length. Its threads
// sleep between their steps, so that it takes as long on a busy machine and leaves the processor to others. After SIGUSR1 they
// sleep no more: who has seen enough need not wait for the rest.
#pragma once

#include <csignal>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t SLEEP_NANOSECONDS = 100000;

__global__ void paced(uint32_t *states, uint64_t iterations, const volatile uint32_t *hurry)
{
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = states[thread];
    for (uint64_t pass = 0; pass < iterations; ++pass) {
        state = xorshift32(state);
        if (!*hurry)
            __nanosleep(SLEEP_NANOSECONDS);
    }
    states[thread] = state;
}

// The word that SIGUSR1 sets, in memory that kernels see.
inline volatile uint32_t *hurry_word()
{
    static volatile uint32_t *const word = [] {
        void *memory = nullptr;
        CHECK_CUDA(cudaHostAlloc(&memory, sizeof(uint32_t), cudaHostAllocMapped));
        volatile uint32_t *made = static_cast<volatile uint32_t *>(memory);
        *made = 0;
        return made;
    }();
    return word;
}

// From now on SIGUSR1 makes kernels hurry. Gives the word's address for the device.
inline const volatile uint32_t *hurry_on_signal()
{
    void *device = nullptr;
    CHECK_CUDA(cudaHostGetDevicePointer(&device, const_cast<uint32_t *>(hurry_word()), 0));
    struct sigaction action = {};
    action.sa_handler = [](int) { *hurry_word() = 1; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    return static_cast<const volatile uint32_t *>(device);
}

// One launch of `paced` on its own stretch of seeds, so that no two pieces of work have the same result.
class PacedWork {
  public:
    static constexpr uint32_t THREADS = 2;

    PacedWork(uint32_t number, uint32_t blocks, uint64_t iterations)
        : iterations_(iterations), start_(make_start(number, blocks)), device_(start_), hurry_(hurry_on_signal())
    {
    }

    void launch(cudaStream_t stream)
    {
        const uint32_t blocks = static_cast<uint32_t>(start_.size() / THREADS);
        paced<<<blocks, THREADS, 0, stream>>>(device_.get(), iterations_, hurry_);
        CHECK_LAUNCH();
        ++launches_;
    }

    // Waits for all launches; true if each thread has done exactly its steps.
    bool is_right(Digest &digest) const
    {
        const std::vector<uint32_t> states = device_.to_host();
        // What SIGUSR1 would set is gone before the program is.
        signal(SIGUSR1, SIG_IGN);
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
    const volatile uint32_t *hurry_;
};
