__kernel void saxpy(float a, __global const float *x, __global float *y, uint n, uint iterations)
{
    const uint i = get_global_id(0);
    if (i >= n) return;
    for (uint pass = 0; pass < iterations; pass++)
        y[i] = a * x[i] + y[i];
}
