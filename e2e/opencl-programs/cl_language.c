// What OpenCL C allows and few programs use: helpers that ask for their place in the launch, kernels that call kernels, kernels
// without parameters, older versions of the language, shuffles and halves. Each result is compared with one computed here.
#include "program.h"


enum { ITEMS = 64, LANES = 16, SHUFFLES = 10 };

static const char CALLS[] =
    "#ifdef __IMAGE_SUPPORT__\n#error images\n#endif\n"
    "void count(global uint *out);\n"
    "size_t place(void) { return get_global_id(0) - get_global_offset(0); }\n"
    "__attribute__((noinline)) uint dimensions(void) { return get_work_dim(); }\n"
    "inline uint version(void) { return __OPENCL_VERSION__ * 1000 + __OPENCL_C_VERSION__; }\n"
    "kernel void nothing(void) {}\n"
    "kernel void nothing_too() { local int unused; unused = 1; barrier(CLK_LOCAL_MEM_FENCE); }\n"
    "kernel void reversed(global uint *out, local uint *turn) {\n"
    "    turn[get_local_id(0)] = (uint)get_global_id(0);\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    out[place()] = turn[get_local_size(0) - 1 - get_local_id(0)];\n"
    "}\n"
    "kernel void calls(global uint *out) {\n"
    "    local uint turn[64];\n"
    "    nothing();\n"
    "    reversed(out, turn);\n"
    "    barrier(CLK_GLOBAL_MEM_FENCE);\n"
    "    count(out + 64);\n"
    "    if (place() == 0) { out[65] = dimensions(); out[66] = version(); }\n"
    "}\n"
    "void count(global uint *out) { atomic_inc(out); }\n";

static const char OLDER[] = "uint twice(uint x) { return 2 * x; }\n"
                            "kernel void old(global uint *out) { out[get_global_id(0)] = twice(__OPENCL_C_VERSION__) + get_work_dim(); }\n";

static void launch(cl_command_queue queue, cl_kernel kernel, size_t offset, size_t items, size_t group)
{
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, &offset, &items, &group, 0, NULL, NULL));
}

static bool check_calls(struct device device, cl_command_queue queue)
{
    cl_uint got[67] = {0};
    bool correct = true;
    cl_program program = build(device, CALLS, "-Werror");
    cl_kernel calls = make_kernel(program, "calls"), nothing = make_kernel(program, "nothing"), too = make_kernel(program, "nothing_too");
    cl_mem out = make_buffer(device, CL_MEM_COPY_HOST_PTR, sizeof got, got);
    EXPECT_INFO((cl_uint)0, clGetKernelInfo, nothing, CL_KERNEL_NUM_ARGS);
    SET_ARGUMENT(calls, 0, out);
    launch(queue, nothing, 0, 8, 8);
    launch(queue, too, 0, 8, 8);
    launch(queue, calls, 1000, ITEMS, ITEMS);
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    for (cl_uint i = 0; i < ITEMS; ++i)
        if (got[i] != 1000 + ITEMS - 1 - i)
            correct = mismatch("calls", i, got[i], 1000 + ITEMS - 1 - i);
    if (got[64] != ITEMS || got[65] != 1 || got[66] != 120120)
        correct = mismatch("count, dimensions or version", got[64], got[65], got[66]);
    CHECK(clReleaseKernel(calls));
    CHECK(clReleaseKernel(nothing));
    CHECK(clReleaseKernel(too));
    CHECK(clReleaseProgram(program));
    for (cl_uint minor = 0; minor < 3; ++minor) {
        char options[32];
        snprintf(options, sizeof options, "-Werror -cl-std=CL1.%u", minor);
        program = build(device, OLDER, options);
        cl_kernel old = make_kernel(program, "old");
        SET_ARGUMENT(old, 0, out);
        launch(queue, old, 0, 1, 1);
        CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof *got, got, 0, NULL, NULL));
        if (*got != 2 * (100 + 10 * minor) + 1)
            correct = mismatch("version", minor, *got, 2 * (100 + 10 * minor) + 1);
        CHECK(clReleaseKernel(old));
        CHECK(clReleaseProgram(program));
    }
    CHECK(clReleaseMemObject(out));
    return correct;
}

// A shuffle of one or two vectors of `from` elements to one of `to`.
struct shuffle {
    const char *type, *mask;
    int bytes, from, to;
    bool of_two;
};

static const struct shuffle shuffles[SHUFFLES] = {
    {"char", "uchar", 1, 4, 4, false},   {"uchar", "uchar", 1, 16, 8, false}, {"char", "uchar", 1, 2, 16, true},
    {"short", "ushort", 2, 8, 4, true},  {"ushort", "ushort", 2, 4, 2, false}, {"int", "uint", 4, 4, 8, true},
    {"uint", "uint", 4, 8, 2, false},    {"long", "ulong", 8, 2, 4, true},    {"float", "uint", 4, 4, 4, false},
    {"double", "ulong", 8, 4, 2, true},
};

static bool check_shuffles(struct device device, cl_command_queue queue)
{
    static char source[8192];
    size_t size = 0;
    for (int i = 0; i < SHUFFLES; ++i) {
        const struct shuffle *s = &shuffles[i];
        size += (size_t)snprintf(source + size, sizeof source - size,
                                 "kernel void shuffle_%d(global const %s%d *in, global const %s%d *masks, global %s%d *out) {\n"
                                 "const size_t i = get_global_id(0);\n"
                                 "out[i] = %s(in[2 * i], %s masks[i]);\n}\n",
                                 i, s->type, s->from, s->mask, s->to, s->type, s->to, s->of_two ? "shuffle2" : "shuffle",
                                 s->of_two ? "in[2 * i + 1]," : "");
    }
    // A vector that is indexed by a variable takes the same way through the compiler as shuffles.
    size += (size_t)snprintf(source + size, sizeof source - size,
                             "kernel void indexed(global const uchar4 *in, global uchar *out) {\n"
                             "const size_t i = get_global_id(0);\nuchar4 v = in[i];\nshort4 w = convert_short4(in[i]) * (short)257;\n"
                             "out[2 * i] = v[i & 3];\nout[2 * i + 1] = (uchar)(w[i >> 1 & 3] >> 8);\n}\n");
    cl_program program = build(device, source, NULL);
    bool correct = true;
    const size_t most = ITEMS * 2 * LANES * 8;
    unsigned char *in = allocate(most), *masks = allocate(most), *got = allocate(most);
    uint32_t seed = 7;
    for (size_t i = 0; i < most; ++i) {
        in[i] = (unsigned char)(seed = xorshift32(seed));
        masks[i] = (unsigned char)(seed >> 16);
    }
    cl_mem inputs = make_buffer(device, CL_MEM_COPY_HOST_PTR, most, in), mask = make_buffer(device, CL_MEM_COPY_HOST_PTR, most, masks);
    cl_mem out = make_buffer(device, CL_MEM_READ_WRITE, most, NULL);
    for (int i = 0; i < SHUFFLES; ++i) {
        const struct shuffle *s = &shuffles[i];
        const size_t bytes = (size_t)s->bytes, from = (size_t)s->from, to = (size_t)s->to;
        char name[16];
        snprintf(name, sizeof name, "shuffle_%d", i);
        cl_kernel kernel = make_kernel(program, name);
        SET_ARGUMENT(kernel, 0, inputs);
        SET_ARGUMENT(kernel, 1, mask);
        SET_ARGUMENT(kernel, 2, out);
        launch(queue, kernel, 0, ITEMS, ITEMS);
        CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, most, got, 0, NULL, NULL));
        for (size_t item = 0; item < ITEMS; ++item)
            for (size_t lane = 0; lane < to; ++lane) {
                const size_t at = item * to + lane;
                // Masks are little-endian and no vector has more than 32 elements to choose from.
                const size_t chosen = masks[at * bytes] & (from * (s->of_two ? 2 : 1) - 1);
                if (memcmp(got + at * bytes, in + (item * 2 * from + chosen) * bytes, bytes))
                    correct = mismatch(name, at, got[at * bytes], in[(item * 2 * from + chosen) * bytes]);
            }
        CHECK(clReleaseKernel(kernel));
    }
    cl_kernel indexed = make_kernel(program, "indexed");
    SET_ARGUMENT(indexed, 0, inputs);
    SET_ARGUMENT(indexed, 1, out);
    launch(queue, indexed, 0, ITEMS, ITEMS);
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, most, got, 0, NULL, NULL));
    for (size_t i = 0; i < ITEMS; ++i)
        if (got[2 * i] != in[4 * i + (i & 3)] || got[2 * i + 1] != in[4 * i + (i >> 1 & 3)])
            correct = mismatch("indexed", i, got[2 * i], in[4 * i + (i & 3)]);
    CHECK(clReleaseKernel(indexed));
    CHECK(clReleaseMemObject(inputs));
    CHECK(clReleaseMemObject(mask));
    CHECK(clReleaseMemObject(out));
    CHECK(clReleaseProgram(program));
    free(in);
    free(masks);
    free(got);
    return correct;
}

#include "cl_language_halves.h"

int main(int argc, char **argv)
{
    struct argument arguments[] = {{0}};
    read_arguments(argc, argv, "cl_language", arguments);
    struct device device = open_device();
    cl_command_queue queue = make_queue(device, 0);
    bool correct = check_calls(device, queue);
    correct = check_shuffles(device, queue) && correct;
    correct = check_halves(device, queue) && correct;
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(device.context));
    return finish(EMPTY_DIGEST, correct);
}
