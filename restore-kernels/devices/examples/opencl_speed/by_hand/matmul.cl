#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define TILE 16

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(__global const float *restrict a, __global const float *restrict b, __global double *restrict sums, uint n,
            uint iterations)
{
    __local float tile_a[TILE][TILE];
    __local float tile_b[TILE][TILE];
    const uint x = get_local_id(0), y = get_local_id(1);
    const uint row = get_global_id(1), column = get_global_id(0);

    double total = 0.0;
    for (uint pass = 0; pass < iterations; pass++) {
        float product = 0.0f;
        for (uint base = 0; base < n; base += TILE) {
            tile_a[y][x] = row < n && base + x < n ? a[row * n + base + x] : 0.0f;
            tile_b[y][x] = base + y < n && column < n ? b[(base + y) * n + column] : 0.0f;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint k = 0; k < TILE; k++)
                product += tile_a[y][k] * tile_b[k][x];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        total += product;
    }
    if (row < n && column < n) sums[row * n + column] = total;
}
