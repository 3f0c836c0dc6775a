// The sum of the block's values for thread 0, 0 for the others.
static ulong block_sum(ulong value, __local ulong *sums)
{
    const uint thread = get_local_id(0);
    sums[thread] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = get_local_size(0) / 2; half_size > 0; half_size /= 2) {
        if (thread < half_size) sums[thread] += sums[thread + half_size];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return thread == 0 ? sums[0] : 0;
}

__kernel void reduce_values(__global const uint *values, __global ulong *partial, uint n, uint iterations,
                            __local ulong *sums)
{
    const uint stride = get_global_size(0);
    ulong total = 0;
    for (uint pass = 0; pass < iterations; pass++) {
        ulong value = 0;
        for (uint i = get_global_id(0); i < n; i += stride)
            value += (ulong)values[i] * (2 * (ulong)pass + 1);
        total += block_sum(value, sums);
    }
    if (get_local_id(0) == 0) partial[get_group_id(0)] = total;
}

__kernel void reduce_partial(__global const ulong *partial, __global ulong *result, uint count, __local ulong *sums)
{
    ulong value = 0;
    for (uint i = get_local_id(0); i < count; i += get_local_size(0))
        value += partial[i];
    value = block_sum(value, sums);
    if (get_local_id(0) == 0) *result = value;
}
