// An exclusive sum by CUB, whose kernel looks back at other blocks.
#include <cstdio>
#include <vector>

#include <cub/cub.cuh>

int main()
{
    const int n = 1 << 16;
    std::vector<int> values(n, 1);
    int *in = nullptr, *out = nullptr;
    cudaMalloc(&in, n * sizeof(int));
    cudaMalloc(&out, n * sizeof(int));
    cudaMemcpy(in, values.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    void *scratch = nullptr;
    size_t scratch_bytes = 0;
    cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, in, out, n);
    cudaMalloc(&scratch, scratch_bytes);
    cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, in, out, n);
    bool is_right = cudaMemcpy(values.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess;
    for (int i = 0; i < n; ++i)
        is_right &= values[i] == i;
    std::puts(is_right ? "PASS" : "FAIL");
    return is_right ? 0 : 1;
}
