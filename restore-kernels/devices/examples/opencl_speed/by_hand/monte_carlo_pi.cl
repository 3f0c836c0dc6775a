#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define NUM_RINGS 8
#define RADIUS_BITS 15
#define CIRCLE (1u << (2 * RADIUS_BITS))
#define RING_SHIFT (2 * RADIUS_BITS - 3)

__kernel void monte_carlo_pi(__global uint *inside, uint iterations, __global ulong *ring_totals,
                             __global ulong *pull_total)
{
    const uint thread = get_global_id(0);
    uint x = thread + 0x9e3779b9u;
    x = (x ^ 61u) ^ (x >> 16);
    x *= 9u;
    x ^= x >> 4;
    x *= 0x27d4eb2du;
    x ^= x >> 15;
    uint state = x | 1u, in_circle = 0, pulls = 0, rings[NUM_RINGS] = {0};
    for (uint pass = 0; pass < iterations; pass++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        uint x = state >> 17, y = state >> 2 & 0x7fff;
        uint square = x * x + y * y;
        if (square < CIRCLE) {
            in_circle++;
        } else {
            do {
                x -= x >> 4;
                y -= y >> 5;
                square = x * x + y * y;
                pulls++;
            } while (square >= CIRCLE);
        }
        rings[square >> RING_SHIFT]++;
    }
    inside[thread] = in_circle;
    atom_add(pull_total, (ulong)pulls);
    for (uint ring = 0; ring < NUM_RINGS; ring++)
        atom_add(&ring_totals[ring], (ulong)rings[ring]);
}
