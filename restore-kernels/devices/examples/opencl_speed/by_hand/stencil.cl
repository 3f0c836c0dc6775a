// The plate has n x n inner points and a border; a row has n + 2 points.
__kernel void heat_step(__global const float *restrict now, __global float *restrict next, uint n, float rate)
{
    const uint column = get_global_id(0) + 1, row = get_global_id(1) + 1;
    if (column > n || row > n) return;
    const uint width = n + 2, i = row * width + column;
    const float centre = now[i];
    const float around = (now[i - 1] + now[i + 1]) + (now[i - width] + now[i + width]);
    next[i] = centre + rate * (around - 4.0f * centre);
}

__kernel void peak_bits(__global const float *restrict now, uint n, __global uint *restrict peak)
{
    __local uint block_peak;
    const uint column = get_global_id(0) + 1, row = get_global_id(1) + 1;
    const bool first = get_local_id(0) == 0 && get_local_id(1) == 0;
    if (first) block_peak = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (column <= n && row <= n) atomic_max(&block_peak, as_uint(now[row * (n + 2) + column]));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (first) atomic_max(peak, block_peak);
}

__kernel void heat_up(__global float *now, uint count, float factor)
{
    const uint i = get_global_id(0);
    if (i < count) now[i] *= factor;
}
