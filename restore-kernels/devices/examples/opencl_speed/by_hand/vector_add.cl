__kernel void vector_add(__global uint *sum, __global const uint *addend, uint n, uint iterations)
{
    const uint stride = get_global_size(0);
    for (uint i = get_global_id(0); i < n; i += stride)
        for (uint pass = 0; pass < iterations; pass++)
            sum[i] += addend[i];
}
