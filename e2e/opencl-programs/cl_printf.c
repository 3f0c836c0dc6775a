// A kernel that prints: one work-item tells how far it is, at the beginning, half-way and at the end, with arguments of all kinds.
#include "program.h"

static const char *const SOURCE =
    "void tell(__constant char *when, uint pass, uint value)\n"
    "{\n"
    "    const uint4 bytes = (uint4)(value >> 24, value >> 16, value >> 8, value) & 255;\n"
    "    printf(\"%s: %08x after %u steps, %.3f of all, bytes %v4hlu, %v2hd\\n\", when, value, pass,\n"
    "           (float)value / 4294967296.0f, bytes, (short2)(-1, (short)bytes.w));\n"
    "}\n"
    "__kernel void report(__global uint *values, uint iterations)\n"
    "{\n"
    "    uint value = values[get_global_id(0)];\n"
    "    if (get_global_id(0) == 0)\n"
    "        tell(\"at first\", 0, value);\n"
    "    for (uint i = 0; i < iterations; ++i) {\n"
    "        if (get_global_id(0) == 0 && i == iterations / 2)\n"
    "            tell(\"half-way\", i, value);\n"
    "        value = value * 1664525u + 1013904223u;\n"
    "    }\n"
    "    if (get_global_id(0) == 0)\n"
    "        printf(\"done, 100 %% of %c%ld%c\\n\", '<', (long)iterations << 32, '>');\n"
    "    values[get_global_id(0)] = value;\n"
    "}\n";

int main(int argc, char **argv)
{
    struct argument arguments[] = {{"n", 512, 64, 1u << 24}, {"iterations", 1000, 0, UINT32_MAX}, {0}};
    read_arguments(argc, argv, "cl_printf", arguments);
    const size_t n = arguments[0].value / 64 * 64, bytes = n * sizeof(cl_uint);
    const cl_uint iterations = (cl_uint)arguments[1].value;

    cl_uint *values = allocate(bytes);
    for (size_t i = 0; i < n; ++i)
        values[i] = xorshift32((cl_uint)i + 1);
    const struct device device = open_device();
    cl_command_queue queue = make_queue(device, 0);
    cl_program program = build(device, SOURCE, NULL);
    cl_kernel kernel = make_kernel(program, "report");
    cl_mem buffer = make_buffer(device, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, values);
    SET_ARGUMENT(kernel, 0, buffer);
    SET_ARGUMENT(kernel, 1, iterations);
    const size_t local = 64;
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &n, &local, 0, NULL, NULL));
    CHECK(clFlush(queue));
    progress("launched");
    // What kernels print is there when they are waited for.
    CHECK(clFinish(queue));
    puts("finished");
    cl_uint *got = allocate(bytes);
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, got, 0, NULL, NULL));

    const struct step all = repeated(iterations);
    bool correct = true;
    for (size_t i = 0; i < n && correct; ++i)
        if (got[i] != values[i] * all.factor + all.summand)
            correct = mismatch("values", i, got[i], values[i] * all.factor + all.summand);
    CHECK(clReleaseMemObject(buffer));
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseProgram(program));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(device.context));
    return finish(digest_of(EMPTY_DIGEST, got, bytes), correct);
}
