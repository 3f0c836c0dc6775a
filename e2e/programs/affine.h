// Steps of linear congruential generators, and many of them at once.
#pragma once

#include <cstdint>

struct Affine {
    uint32_t factor, summand;
};

// `times` applications of an affine map as one.
inline Affine power(Affine affine, uint64_t times)
{
    Affine result{1, 0};
    for (; times; times >>= 1) {
        if (times & 1)
            result = {result.factor * affine.factor, result.summand * affine.factor + affine.summand};
        affine = {affine.factor * affine.factor, affine.summand * affine.factor + affine.summand};
    }
    return result;
}
