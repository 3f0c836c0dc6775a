#define TILE 256
#define WARP 32

// The inclusive sum over the lanes up to this one. OpenCL C 1.2 has no shuffles: values go through two rows in turn.
static uint warp_scan(uint value, __local uint (*rows)[TILE])
{
    const uint thread = get_local_id(0), lane = thread % WARP;
    uint row = 0;
    for (uint distance = 1; distance < WARP; distance *= 2) {
        rows[row][thread] = value;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane >= distance) value += rows[row][thread - distance];
        row ^= 1;
    }
    return value;
}

// The inclusive sum over the block's threads up to this one. All threads come to the barriers of the second scan.
static uint block_scan(uint value, __local uint (*rows)[TILE], __local uint *warp_sums)
{
    const uint thread = get_local_id(0), lane = thread % WARP, warp = thread / WARP;
    value = warp_scan(value, rows);
    if (lane == WARP - 1) warp_sums[warp] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint sum = warp_scan(warp == 0 && lane < TILE / WARP ? warp_sums[lane] : 0, rows);
    if (warp == 0 && lane < TILE / WARP) warp_sums[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (warp > 0) value += warp_sums[warp - 1];
    barrier(CLK_LOCAL_MEM_FENCE);
    return value;
}

__kernel __attribute__((reqd_work_group_size(TILE, 1, 1)))
void scan_tiles(__global const uint *restrict in, __global uint *restrict out, __global uint *restrict tile_sums, uint n,
                uint iterations)
{
    __local uint rows[2][TILE], warp_sums[TILE / WARP];
    const uint i = get_global_id(0);
    uint value = i < n ? in[i] : 0;
    for (uint pass = 0; pass < iterations; pass++)
        value = block_scan(value, rows, warp_sums);
    if (i < n) out[i] = value;
    if (get_local_id(0) == TILE - 1) tile_sums[get_group_id(0)] = value;
}

// One block scans all tile sums in place, a tile at a time.
__kernel __attribute__((reqd_work_group_size(TILE, 1, 1)))
void scan_tile_sums(__global uint *tile_sums, uint num_tiles)
{
    __local uint rows[2][TILE], warp_sums[TILE / WARP], carry;
    const uint thread = get_local_id(0);
    if (thread == 0) carry = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint base = 0; base < num_tiles; base += TILE) {
        const uint i = base + thread;
        const uint value = block_scan(i < num_tiles ? tile_sums[i] : 0, rows, warp_sums) + carry;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < num_tiles) tile_sums[i] = value;
        if (thread == TILE - 1) carry = value;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

__kernel void add_offsets(__global uint *out, __global const uint *tile_sums, uint n)
{
    const uint i = get_global_id(0);
    if (get_group_id(0) > 0 && i < n) out[i] += tile_sums[get_group_id(0) - 1];
}
