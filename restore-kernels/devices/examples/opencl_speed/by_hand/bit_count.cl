#define WARP 32
#define THREADS 128

// The lanes of the warp that vote. OpenCL C 1.2 has no votes: bits are collected in local memory, in three words in turn, so
// that one can be cleared while another is read.
static uint ballot(bool vote, __local uint (*words)[THREADS / WARP], uint *turn)
{
    const uint thread = get_local_id(0), lane = thread % WARP, warp = thread / WARP;
    const uint now = *turn, next = now == 2 ? 0 : now + 1;
    if (lane == 0) words[next][warp] = 0;
    if (vote) atomic_or(&words[now][warp], 1u << lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    *turn = next;
    return words[now][warp];
}

// n is a multiple of the warp size; threads beyond it come to the barriers with the others.
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void bit_count(__global const uint *restrict words, __global uint *restrict ones, __global uint *restrict generations,
               uint n, uint iterations)
{
    __local uint votes[3][THREADS / WARP];
    const uint thread = get_local_id(0), lane = thread % WARP, i = get_global_id(0);
    if (thread < THREADS / WARP) votes[0][thread] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint turn = 0;
    uint word = i < n ? words[i] : 0, count = 0, marked = 0;
    for (uint pass = 0; pass < iterations; pass++) {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        for (uint bit = 0; bit < WARP; bit++) {
            const uint who = ballot(word >> bit & 1, votes, &turn);
            if (lane == bit) count += popcount(who);
        }
        if (ballot(word % 32 == 0, votes, &turn) != 0) marked += 1;
        if (ballot(word % 32 == 1, votes, &turn) == 0) marked += 1u << 16;
    }
    if (i < n) {
        ones[i] = count;
        if (lane == 0) generations[i / WARP] = marked;
    }
}
