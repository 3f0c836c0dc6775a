__device__ unsigned table[16];
__constant__ unsigned factor;

extern "C" __global__ void machine(unsigned *out, unsigned times)
{
    out[threadIdx.x] += times * factor + table[threadIdx.x % 16];
}
