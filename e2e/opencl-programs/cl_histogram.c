// A histogram by atomics in local memory, added up by atomics in global memory. In pass p a value counts for the bin that is
// p further, so that no two of 256 passes are the same.
#include "program.h"

#define BINS 256
#define GROUP 128

static const char *const SOURCE =
    "__constant uint LAST_BIN = BINS - 1;\n"
    "__kernel void histogram(__global const uchar *values, __global uint *bins, uint n, uint iterations)\n"
    "{\n"
    "    __local uint own[BINS];\n"
    "    for (uint i = get_local_id(0); i < BINS; i += get_local_size(0))\n"
    "        own[i] = 0;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint pass = 0; pass < iterations; ++pass)\n"
    "        for (uint i = get_global_id(0); i < n; i += get_global_size(0))\n"
    "            atomic_inc(&own[(values[i] + pass) & LAST_BIN]);\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint i = get_local_id(0); i < BINS; i += get_local_size(0))\n"
    "        atomic_add(&bins[i], own[i]);\n"
    "}\n";

int main(int argc, char **argv)
{
    struct argument arguments[] = {{"n", 20000, 1, 1u << 28}, {"groups", 8, 1, 65536}, {"iterations", 20, 1, UINT32_MAX}, {0}};
    read_arguments(argc, argv, "cl_histogram", arguments);
    const cl_uint n = (cl_uint)arguments[0].value, iterations = (cl_uint)arguments[2].value;

    cl_uchar *values = allocate(n);
    uint32_t random = 7, counts[BINS] = {0}, expected[BINS], got[BINS];
    for (size_t i = 0; i < n; ++i) {
        random = xorshift32(random);
        // Low values are frequent.
        values[i] = (cl_uchar)((random >> 8) % ((random & 255) + 1));
        ++counts[values[i]];
    }

    const struct device device = open_device();
    cl_command_queue queue = make_queue(device, 0);
    cl_program program = build(device, SOURCE, "-DBINS=256");
    cl_kernel kernel = make_kernel(program, "histogram");
    cl_mem device_values = make_buffer(device, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, n, values);
    cl_mem device_bins = make_buffer(device, CL_MEM_READ_WRITE, sizeof got, NULL);
    const cl_uint zero = 0;
    CHECK(clEnqueueFillBuffer(queue, device_bins, &zero, sizeof zero, 0, sizeof got, 0, NULL, NULL));
    SET_ARGUMENT(kernel, 0, device_values);
    SET_ARGUMENT(kernel, 1, device_bins);
    SET_ARGUMENT(kernel, 2, n);
    SET_ARGUMENT(kernel, 3, iterations);
    const size_t local = GROUP, global = GROUP * arguments[1].value;
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    CHECK(clFlush(queue));
    progress("launched");
    CHECK(clEnqueueReadBuffer(queue, device_bins, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));

    bool correct = true;
    for (uint32_t bin = 0; bin < BINS; ++bin) {
        // Every 256 passes each value has counted once for each bin.
        expected[bin] = iterations / BINS * n;
        for (uint32_t pass = 0; pass < iterations % BINS; ++pass)
            expected[bin] += counts[(bin - pass) % BINS];
        if (correct && got[bin] != expected[bin])
            correct = mismatch("bins", bin, got[bin], expected[bin]);
    }
    CHECK(clReleaseMemObject(device_values));
    CHECK(clReleaseMemObject(device_bins));
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseProgram(program));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(device.context));
    return finish(digest_of(EMPTY_DIGEST, got, sizeof got), correct);
}
