// Programs in parts, and programs from binaries: clCompileProgram with headers, clLinkProgram to libraries and executables, and
// clCreateProgramWithBinary with what a program gave, whole and damaged.
#include "program.h"

enum { ITEMS = 32 };

static const char SCALE_HEADER[] = "#include <more/sizes.h>\nfloat scaled(float x);\nextern constant float factors[FACTORS];\n";
static const char SIZES_HEADER[] = "#define FACTORS 2\n";
static const char SCALE[] = "#include \"scale.h\"\n"
                            "constant float factors[FACTORS] = {2, 3};\n"
                            "static float own(float x) { return x * factors[0] + sqrt(BASE); }\n"
                            "float scaled(float x) { return own(x) + (float)get_global_id(0); }\n";
static const char SHIFT[] = "static float own(float x) { return x + 1; }\nfloat shifted(float x) { return own(x); }\n";
static const char MAIN[] = "#include \"scale.h\"\n"
                           "float shifted(float x);\n"
                           "kernel void first(global float *values, local float *scratch) {\n"
                           "    scratch[get_local_id(0)] = shifted(values[get_global_id(0)]);\n"
                           "    barrier(CLK_LOCAL_MEM_FENCE);\n"
                           "    values[get_global_id(0)] = scaled(scratch[get_local_id(0)]) * factors[1];\n"
                           "}\n"
                           "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void second(global float *values) {\n"
                           "    values[get_global_id(0)] = -1;\n}\n";

static cl_program from_source(struct device device, const char *source)
{
    cl_int status;
    cl_program program = clCreateProgramWithSource(device.context, 1, &source, NULL, &status);
    CHECK(status);
    return program;
}

static void expect_type(cl_program program, struct device device, cl_program_binary_type type)
{
    EXPECT_INFO(type, clGetProgramBuildInfo, program, device.id, CL_PROGRAM_BINARY_TYPE);
}

static cl_program compiled(struct device device, const char *source, const char *options)
{
    const char *names[] = {"scale.h", "more/sizes.h"};
    cl_program headers[] = {from_source(device, SCALE_HEADER), from_source(device, SIZES_HEADER)};
    cl_program program = from_source(device, source);
    const cl_int status = clCompileProgram(program, 1, &device.id, options, 2, headers, names, NULL, NULL);
    if (status != CL_SUCCESS)
        print_build_log(program, device.id);
    CHECK(status);
    CHECK(clReleaseProgram(headers[0]));
    CHECK(clReleaseProgram(headers[1]));
    expect_type(program, device, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    return program;
}

static cl_program linked(struct device device, const char *options, cl_uint count, const cl_program *parts)
{
    cl_int status;
    cl_program program = clLinkProgram(device.context, 1, &device.id, options, count, parts, NULL, NULL, &status);
    CHECK(status);
    EXPECT_INFO((cl_build_status)CL_BUILD_SUCCESS, clGetProgramBuildInfo, program, device.id, CL_PROGRAM_BUILD_STATUS);
    return program;
}

struct bytes {
    unsigned char *bytes;
    size_t size;
};

static struct bytes binary_of(cl_program program)
{
    struct bytes binary;
    CHECK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof binary.size, &binary.size, NULL));
    EXPECT_TRUE(binary.size > 0);
    binary.bytes = allocate(binary.size);
    EXPECT(clGetProgramInfo(program, CL_PROGRAM_BINARIES, 1, &binary.bytes, NULL), CL_INVALID_VALUE);
    CHECK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary.bytes, &binary.bytes, NULL));
    return binary;
}

static cl_program from_binary(struct device device, struct bytes binary, cl_int expected)
{
    cl_int status, of_binary = 1;
    const unsigned char *bytes = binary.bytes;
    cl_program program = clCreateProgramWithBinary(device.context, 1, &device.id, &binary.size, &bytes, &of_binary, &status);
    EXPECT(status, expected);
    EXPECT(of_binary, expected);
    EXPECT_TRUE(!program == (expected != CL_SUCCESS));
    return program;
}

// The program again, by way of its binary.
static cl_program again(struct device device, cl_program program)
{
    struct bytes binary = binary_of(program);
    cl_program other = from_binary(device, binary, CL_SUCCESS);
    free(binary.bytes);
    CHECK(clReleaseProgram(program));
    return other;
}

// Runs the linked program; its results are exact.
static bool is_right(struct device device, cl_command_queue queue, cl_program program)
{
    float values[ITEMS];
    for (int i = 0; i < ITEMS; ++i)
        values[i] = (float)i;
    cl_mem buffer = make_buffer(device, CL_MEM_COPY_HOST_PTR, sizeof values, values);
    cl_kernel first = make_kernel(program, "first"), second = make_kernel(program, "second");
    const size_t items = ITEMS, group = 8, offset = 16;
    SET_ARGUMENT(first, 0, buffer);
    CHECK(clSetKernelArg(first, 1, group * sizeof(float), NULL));
    CHECK(clEnqueueNDRangeKernel(queue, first, 1, NULL, &items, &group, 0, NULL, NULL));
    SET_ARGUMENT(second, 0, buffer);
    const size_t eight = 8, four = 4;
    EXPECT(clEnqueueNDRangeKernel(queue, second, 1, &offset, &eight, &four, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    CHECK(clEnqueueNDRangeKernel(queue, second, 1, &offset, &eight, &group, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    EXPECT_TEXT("first;second", clGetProgramInfo, program, CL_PROGRAM_KERNEL_NAMES);
    CHECK(clReleaseKernel(first));
    CHECK(clReleaseKernel(second));
    CHECK(clReleaseMemObject(buffer));
    for (int i = 0; i < ITEMS; ++i) {
        const float expected = i >= 16 && i < 24 ? -1 : (((float)i + 1) * 2 + 3 + (float)i) * 3;
        if (values[i] != expected)
            return mismatch("values", (uint64_t)i, values[i], expected);
    }
    return true;
}

// What is damaged, cut off or none at all is refused.
static void check_damaged(struct device device, cl_program program)
{
    struct bytes binary = binary_of(program);
    const size_t size = binary.size, places[] = {0, 7, 8, 12, 16, 47, 48, size / 2, size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
        binary.bytes[places[i]] ^= 0x40;
        from_binary(device, binary, CL_INVALID_BINARY);
        binary.bytes[places[i]] ^= 0x40;
        if (places[i] > 0)
            from_binary(device, (struct bytes){binary.bytes, places[i]}, CL_INVALID_BINARY);
    }
    from_binary(device, (struct bytes){binary.bytes, 0}, CL_INVALID_VALUE);
    from_binary(device, (struct bytes){NULL, size}, CL_INVALID_VALUE);
    unsigned char other[] = "\177ELF\2\1\1";
    from_binary(device, (struct bytes){other, sizeof other}, CL_INVALID_BINARY);
    free(binary.bytes);
}

static void check_refusals(struct device device, cl_program object)
{
    cl_int status;
    cl_program source = from_source(device, "#include \"none.h\"\n"), unresolved = compiled(device, MAIN, ""), twice[] = {object, object};
    const char *out = "../out.h";
    cl_program none = NULL;
    EXPECT(clCompileProgram(source, 0, NULL, "", 0, NULL, NULL, NULL, NULL), CL_COMPILE_PROGRAM_FAILURE);
    EXPECT_INFO((cl_build_status)CL_BUILD_ERROR, clGetProgramBuildInfo, source, device.id, CL_PROGRAM_BUILD_STATUS);
    EXPECT(clCompileProgram(source, 0, NULL, "-cl-no-such-option", 0, NULL, NULL, NULL, NULL), CL_INVALID_COMPILER_OPTIONS);
    EXPECT(clCompileProgram(source, 0, NULL, "", 1, NULL, &out, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clCompileProgram(source, 0, NULL, "", 0, NULL, &out, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clCompileProgram(source, 0, NULL, "", 1, &object, &out, NULL, NULL), CL_COMPILE_PROGRAM_FAILURE);
#define LINK(options, count, parts) clLinkProgram(device.context, 0, NULL, options, count, parts, NULL, NULL, &status)
    EXPECT_NO_OBJECT(LINK("", 1, &source), CL_INVALID_OPERATION);
    EXPECT_NO_OBJECT(LINK("", 0, NULL), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(LINK("", 1, &none), CL_INVALID_PROGRAM);
    EXPECT_NO_OBJECT(LINK("-cl-std=CL1.2", 1, &object), CL_INVALID_LINKER_OPTIONS);
    EXPECT_NO_OBJECT(LINK("", 2, twice), CL_LINK_PROGRAM_FAILURE);
    EXPECT_NO_OBJECT(LINK("", 1, &unresolved), CL_LINK_PROGRAM_FAILURE);
    CHECK(clReleaseProgram(source));
    CHECK(clReleaseProgram(unresolved));
}

int main(int argc, char **argv)
{
    struct argument arguments[] = {{0}};
    read_arguments(argc, argv, "cl_separate", arguments);
    struct device device = open_device();
    cl_command_queue queue = make_queue(device, 0);
    cl_int status;
    EXPECT_INFO((cl_bool)CL_TRUE, clGetDeviceInfo, device.id, CL_DEVICE_LINKER_AVAILABLE);
    // Objects and libraries go through their binaries too.
    cl_program scale = compiled(device, SCALE, "-D BASE=9.0f"), shift = compiled(device, SHIFT, "-cl-std=CL1.2");
    cl_program main_object = again(device, compiled(device, MAIN, ""));
    expect_type(main_object, device, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    EXPECT(clBuildProgram(main_object, 0, NULL, "", NULL, NULL), CL_INVALID_BINARY);
    const cl_program of_library[] = {scale, shift};
    cl_program library = again(device, linked(device, "-create-library -enable-link-options", 2, of_library));
    expect_type(library, device, CL_PROGRAM_BINARY_TYPE_LIBRARY);
    const cl_program all[] = {main_object, library};
    cl_program whole = linked(device, "-cl-no-signed-zeroes", 2, all);
    expect_type(whole, device, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    EXPECT(clBuildProgram(whole, 0, NULL, "", NULL, NULL), CL_INVALID_OPERATION);
    bool correct = is_right(device, queue, whole);
    check_damaged(device, whole);
    check_refusals(device, scale);

    // An executable can be run once it is built, twice over.
    cl_program copy = again(device, again(device, whole));
    expect_type(copy, device, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    EXPECT_TEXT("", clGetProgramInfo, copy, CL_PROGRAM_SOURCE);
    EXPECT_NO_OBJECT(clCreateKernel(copy, "first", &status), CL_INVALID_PROGRAM_EXECUTABLE);
    EXPECT(clBuildProgram(copy, 0, NULL, "-O7", NULL, NULL), CL_INVALID_BUILD_OPTIONS);
    copy = again(device, linked(device, "", 2, all));
    CHECK(clBuildProgram(copy, 1, &device.id, "-cl-mad-enable", NULL, NULL));
    correct = is_right(device, queue, copy) && correct;

    CHECK(clReleaseProgram(copy));
    CHECK(clReleaseProgram(main_object));
    CHECK(clReleaseProgram(library));
    CHECK(clReleaseProgram(scale));
    CHECK(clReleaseProgram(shift));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(device.context));
    return finish(EMPTY_DIGEST, correct);
}
