// Threads call functions by address, round after round: virtual ones of objects that another kernel has made, ones from
// a table, and one that the host has read out of a variable. Half of the objects change their kind in each round.
#include "program.h"

#include <new>

constexpr uint32_t THREADS = 64;

struct Step {
    uint32_t seed;
    __host__ __device__ explicit Step(uint32_t seed) : seed(seed) {}
    __host__ __device__ virtual uint32_t of(uint32_t value) const = 0;
};
struct Rotation : Step {
    __host__ __device__ explicit Rotation(uint32_t seed) : Step(seed) {}
    __host__ __device__ uint32_t of(uint32_t value) const override { return (value << 7 | value >> 25) + seed; }
};
struct Product : Step {
    __host__ __device__ explicit Product(uint32_t seed) : Step(seed) {}
    __host__ __device__ uint32_t of(uint32_t value) const override { return value * (2 * seed + 1) + 12345; }
};
// By way of the other two.
struct Both : Step {
    __host__ __device__ explicit Both(uint32_t seed) : Step(seed) {}
    __host__ __device__ uint32_t of(uint32_t value) const override
    {
        return Rotation(seed).of(value) ^ Product(seed).of(value);
    }
};

constexpr size_t ROOM = 16;
static_assert(sizeof(Both) <= ROOM, "objects fit");

// A step of one of the kinds, at `room`.
__host__ __device__ inline Step *make(void *room, uint32_t kind, uint32_t seed)
{
    switch (kind % 3) {
    case 0:
        return new (room) Rotation(seed);
    case 1:
        return new (room) Product(seed);
    default:
        return new (room) Both(seed);
    }
}

typedef uint32_t (*Mixer)(uint32_t, uint32_t);
__host__ __device__ uint32_t sum(uint32_t a, uint32_t b)
{
    return a + b;
}
__host__ __device__ uint32_t difference(uint32_t a, uint32_t b)
{
    return a - 3 * b;
}
__host__ __device__ uint32_t exclusive(uint32_t a, uint32_t b)
{
    return a ^ b;
}
__device__ Mixer device_mixers[] = {sum, difference};
__device__ Mixer chosen = exclusive;

__global__ void construct(unsigned char *rooms)
{
    make(rooms + threadIdx.x * ROOM, threadIdx.x, threadIdx.x);
}

__host__ __device__ inline uint32_t round_of(Step *step, uint32_t value, uint64_t round, const Mixer *mixers,
                                             Mixer last)
{
    return last(mixers[(value >> 5) % 2](step->of(value), uint32_t(round)), step->seed);
}

__global__ void walk(unsigned char *rooms, uint32_t *out, uint64_t rounds, Mixer last)
{
    const uint32_t i = threadIdx.x;
    Step *step = reinterpret_cast<Step *>(rooms + i * ROOM);
    uint32_t value = i;
#pragma unroll 1
    for (uint64_t round = 0; round < rounds; ++round) {
        value = round_of(step, value, round, device_mixers, last);
        if (i % 2 && round % 16 == 15)
            step = make(rooms + i * ROOM, value, i);
    }
    out[i] = value;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "virtual_calls", "threads call functions by address",
                              {{"rounds", 100, 1, UINT64_MAX / 2, "rounds of each thread"}});
    const uint64_t rounds = arguments["rounds"];
    DeviceArray<unsigned char> rooms(THREADS * ROOM);
    DeviceArray<uint32_t> out(THREADS);
    Mixer last;
    CHECK_CUDA(cudaMemcpyFromSymbol(&last, chosen, sizeof last));
    construct<<<1, THREADS>>>(rooms.get());
    CHECK_LAUNCH();
    walk<<<1, THREADS>>>(rooms.get(), out.get(), rounds, last);
    CHECK_LAUNCH();
    const std::vector<uint32_t> got = out.to_host();

    bool correct = true;
    const Mixer mixers[] = {sum, difference};
    // One thread in seven, to save the host time: they are of all kinds, and of both halves.
    for (uint32_t i = 0; i < THREADS && correct; i += 7) {
        alignas(16) unsigned char room[ROOM];
        Step *step = make(room, i, i);
        uint32_t value = i;
        for (uint64_t round = 0; round < rounds; ++round) {
            value = round_of(step, value, round, mixers, exclusive);
            if (i % 2 && round % 16 == 15)
                step = make(room, value, i);
        }
        if (got[i] != value)
            correct = mismatch("value", i, got[i], value);
    }
    Digest digest;
    digest.add(got);
    return finish(arguments, digest, correct);
}
