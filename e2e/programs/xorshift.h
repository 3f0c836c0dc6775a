// Marsaglia's 32-bit xorshift generator: the programs' source of inputs and of work that cannot be optimised away.
#pragma once

#include <cstdint>

// One step; never yields 0 from a state that is not 0.
__host__ __device__ inline uint32_t xorshift32(uint32_t state)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

// A well mixed start state, not 0, for the `index`-th generator (Wang's integer hash).
__host__ __device__ inline uint32_t xorshift32_seed(uint32_t index)
{
    uint32_t x = index + 0x9e3779b9u;
    x = (x ^ 61u) ^ (x >> 16);
    x *= 9u;
    x ^= x >> 4;
    x *= 0x27d4eb2du;
    x ^= x >> 15;
    return x | 1u;
}

// A float in [-1, 1) from the upper 24 bits of a state.
inline float signed_unit(uint32_t state) { return static_cast<float>(static_cast<int32_t>(state) >> 8) / 8388608.0f; }

// The step is linear over GF(2), so any number of steps is one 32 x 32 bit matrix: runs of any length can be checked.
class XorshiftJump {
  public:
    explicit XorshiftJump(uint64_t steps)
    {
        uint32_t power[32];
        for (int bit = 0; bit < 32; ++bit) {
            column_[bit] = 1u << bit;
            power[bit] = xorshift32(1u << bit);
        }
        for (; steps; steps >>= 1) {
            if (steps & 1)
                multiply(power, column_);
            multiply(power, power);
        }
    }

    uint32_t operator()(uint32_t state) const { return apply(column_, state); }

  private:
    static uint32_t apply(const uint32_t (&matrix)[32], uint32_t state)
    {
        uint32_t result = 0;
        for (int bit = 0; bit < 32; ++bit)
            if (state >> bit & 1)
                result ^= matrix[bit];
        return result;
    }

    // right = left * right
    static void multiply(const uint32_t (&left)[32], uint32_t (&right)[32])
    {
        uint32_t product[32];
        for (int bit = 0; bit < 32; ++bit)
            product[bit] = apply(left, right[bit]);
        for (int bit = 0; bit < 32; ++bit)
            right[bit] = product[bit];
    }

    uint32_t column_[32]; // image of each single bit
};
