#define THREADS 128

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void dense_relu(__global const float *restrict weights, __global const float *restrict bias,
                __global const float *restrict input, __global float *restrict output, uint width)
{
    __local float partial[THREADS];
    const uint thread = get_local_id(0), row = get_group_id(0);
    float sum = 0.0f;
    for (uint i = thread; i < width; i += THREADS)
        sum += weights[row * width + i] * input[i];
    partial[thread] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = THREADS / 2; half_size > 0; half_size /= 2) {
        if (thread < half_size) partial[thread] += partial[thread + half_size];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (thread == 0) output[row] = fmax(partial[0] + bias[row], 0.0f);
}
