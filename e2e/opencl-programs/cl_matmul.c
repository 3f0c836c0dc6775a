// Matrix multiplication through tiles in local memory; the product is formed `iterations` times and summed.
#include <math.h>

#include "program.h"

#define TILE 16

static const char *const SOURCE =
    "__kernel void matmul(__global const float *restrict a, __global const float *restrict b,\n"
    "                     __global double *restrict sums, uint n, uint iterations, __local float *tile_a,\n"
    "                     __local float *tile_b)\n"
    "{\n"
    "    const uint x = get_local_id(0), y = get_local_id(1);\n"
    "    const uint row = get_global_id(1), column = get_global_id(0);\n"
    "    double total = 0.0;\n"
    "    for (uint pass = 0; pass < iterations; ++pass) {\n"
    "        float product = 0.0f;\n"
    "        for (uint base = 0; base < n; base += TILE) {\n"
    "            tile_a[y * TILE + x] = a[row * n + base + x];\n"
    "            tile_b[y * TILE + x] = b[(base + y) * n + column];\n"
    "            barrier(CLK_LOCAL_MEM_FENCE);\n"
    "            for (uint k = 0; k < TILE; ++k)\n"
    "                product += tile_a[y * TILE + k] * tile_b[k * TILE + x];\n"
    "            barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        }\n"
    "        total += product;\n"
    "    }\n"
    "    sums[row * n + column] = total;\n"
    "}\n";

static float signed_unit(uint32_t x)
{
    return (float)(int32_t)x / 2147483648.0f;
}

// Compares one element with a product in double; the bound is that of any order of n float additions.
static bool element_is_right(const float *a, const float *b, double sum, size_t n, uint64_t iterations, size_t element)
{
    double expected = 0.0, magnitude = 0.0;
    for (size_t k = 0; k < n; ++k) {
        const double term = (double)a[element / n * n + k] * b[k * n + element % n];
        expected += term;
        magnitude += fabs(term);
    }
    if (fabs(sum - iterations * expected) <= iterations * magnitude * n * ldexp(1.0, -23))
        return true;
    return mismatch("sums", element, sum, iterations * expected);
}

int main(int argc, char **argv)
{
    struct argument arguments[] = {{"tiles", 8, 1, 256}, {"iterations", 4, 1, UINT32_MAX}, {0}};
    read_arguments(argc, argv, "cl_matmul", arguments);
    const cl_uint n = (cl_uint)arguments[0].value * TILE, iterations = (cl_uint)arguments[1].value;
    const size_t count = (size_t)n * n;

    float *a = allocate(count * sizeof *a), *b = allocate(count * sizeof *b);
    double *sums = allocate(count * sizeof *sums);
    uint32_t random = 1;
    for (size_t i = 0; i < count; ++i) {
        a[i] = signed_unit(random = xorshift32(random));
        b[i] = signed_unit(random = xorshift32(random));
    }

    const struct device device = open_device();
    cl_command_queue queue = make_queue(device, 0);
    cl_program program = build(device, SOURCE, "-D TILE=16");
    cl_kernel kernel = make_kernel(program, "matmul");
    cl_mem device_a = make_buffer(device, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, count * sizeof *a, a);
    cl_mem device_b = make_buffer(device, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, count * sizeof *b, b);
    cl_mem device_sums = make_buffer(device, CL_MEM_WRITE_ONLY, count * sizeof *sums, NULL);
    SET_ARGUMENT(kernel, 0, device_a);
    SET_ARGUMENT(kernel, 1, device_b);
    SET_ARGUMENT(kernel, 2, device_sums);
    SET_ARGUMENT(kernel, 3, n);
    SET_ARGUMENT(kernel, 4, iterations);
    CHECK(clSetKernelArg(kernel, 5, TILE * TILE * sizeof(cl_float), NULL));
    CHECK(clSetKernelArg(kernel, 6, TILE * TILE * sizeof(cl_float), NULL));
    const size_t global[] = {n, n}, local[] = {TILE, TILE};
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
    CHECK(clFlush(queue));
    progress("launched");
    CHECK(clEnqueueReadBuffer(queue, device_sums, CL_TRUE, 0, count * sizeof *sums, sums, 0, NULL, NULL));

    bool correct = true;
    for (uint32_t sample = 0; sample < 512 && correct; ++sample) {
        const size_t element = sample == 0 ? count - 1 : (random = xorshift32(random)) % count;
        correct = element_is_right(a, b, sums[element], n, iterations, element);
    }
    CHECK(clReleaseMemObject(device_a));
    CHECK(clReleaseMemObject(device_b));
    CHECK(clReleaseMemObject(device_sums));
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseProgram(program));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(device.context));
    return finish(digest_of(EMPTY_DIGEST, sums, count * sizeof *sums), correct);
}
