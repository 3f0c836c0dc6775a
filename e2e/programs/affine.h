// Steps of linear congruential generators, and many of them at once.
#pragma once

#include <cstdint>

struct Affine {
    uint32_t factor, summand;
};

// First one affine map, then another.
inline Affine after(Affine first, Affine second)
{
    return {first.factor * second.factor, first.summand * second.factor + second.summand};
}

// `times` applications of an affine map as one.
inline Affine power(Affine affine, uint64_t times)
{
    Affine result{1, 0};
    for (; times; times >>= 1) {
        if (times & 1)
            result = after(result, affine);
        affine = after(affine, affine);
    }
    return result;
}
