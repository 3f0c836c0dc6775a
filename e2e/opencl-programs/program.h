// What every OpenCL test program shares: named arguments, checked calls, a device, a program with its kernels, a digest of
// the results and the last line, which are those of the CUDA test programs.
//
// Standard output must be the same whether or not the program was stopped and continued elsewhere; `--progress` goes to
// standard error.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_PASS = 0, EXIT_FAIL = 1, EXIT_ERROR = 2 };

// One named argument, `--name VALUE`, with its permitted range.
struct argument {
    const char *name;
    uint64_t value;
    uint64_t min;
    uint64_t max;
};

static const char *program_name;
static bool wants_progress;

static inline void fail(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s %s\n", program_name, what, detail);
    exit(EXIT_ERROR);
}

// Reads the command line into `known`, whose last has no name.
static inline void read_arguments(int argc, char **argv, const char *name, struct argument *known)
{
    program_name = name;
    for (int i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "--progress")) {
            wants_progress = true;
            continue;
        }
        struct argument *argument = known;
        while (argument->name && (strncmp(argv[i], "--", 2) || strcmp(argv[i] + 2, argument->name)))
            ++argument;
        if (!argument->name)
            fail("unknown argument", argv[i]);
        if (++i == argc)
            fail("no value for", argv[i - 1]);
        char *end = NULL;
        argument->value = strtoull(argv[i], &end, 10);
        if (*argv[i] < '0' || *argv[i] > '9' || *end || argument->value < argument->min || argument->value > argument->max)
            fail("not a number in its range:", argv[i]);
    }
}

// Tells a watching harness how far the program is.
static inline void progress(const char *what)
{
    if (wants_progress)
        fprintf(stderr, "%s: %s\n", program_name, what);
}

// Ends the program if a call does not give the status that it must.
static inline void expect(const char *what, cl_int got, cl_int expected)
{
    if (got == expected)
        return;
    fprintf(stderr, "%s gives %d, expected %d\n", what, got, expected);
    exit(EXIT_FAIL);
}

#define EXPECT(call, status) expect(#call, call, status)
// For calls that give an object, and their status in `status`.
#define EXPECT_NO_OBJECT(call, expected) ((void)(call), expect(#call, status, expected))
#define EXPECT_TRUE(condition) ((condition) ? (void)0 : fail("not true:", #condition))

// A query gives this value, and its size.
#define EXPECT_INFO(expected, function, ...)                                                                           \
    do {                                                                                                               \
        __typeof__(expected) got_;                                                                                     \
        size_t size_ = 0;                                                                                              \
        CHECK(function(__VA_ARGS__, sizeof got_, &got_, &size_));                                                      \
        if (size_ != sizeof got_ || got_ != (expected))                                                                \
            fail(#function " is not " #expected ":", #__VA_ARGS__);                                                    \
    } while (0)

#define EXPECT_TEXT(expected, function, ...)                                                                           \
    do {                                                                                                               \
        char got_[256];                                                                                                \
        size_t size_ = 0;                                                                                              \
        CHECK(function(__VA_ARGS__, sizeof got_, got_, &size_));                                                       \
        if (size_ != sizeof expected || strcmp(got_, expected))                                                        \
            fail(#function " is not " #expected " but", got_);                                                         \
    } while (0)

// Retaining counts one more, releasing one less. How many the implementation holds itself is its own affair.
#define EXPECT_COUNTED(type, object, function, name)                                                                   \
    do {                                                                                                               \
        cl_uint before_;                                                                                               \
        CHECK(function(object, name, sizeof before_, &before_, NULL));                                                 \
        CHECK(clRetain##type(object));                                                                                 \
        EXPECT_INFO(before_ + 1, function, object, name);                                                              \
        CHECK(clRelease##type(object));                                                                                \
        EXPECT_INFO(before_, function, object, name);                                                                  \
    } while (0)

// Ends the program with the failed call's text and status.
#define CHECK(call) check((call), #call, __LINE__)

static inline void check(cl_int status, const char *call, int line)
{
    if (status == CL_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: %s: OpenCL error %d\n", program_name, line, call, status);
    exit(EXIT_ERROR);
}

static inline void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        fail("out of", "memory");
    return memory;
}

// The first device there is, in a context.
struct device {
    cl_device_id id;
    cl_context context;
};

static inline struct device open_device(void)
{
    cl_platform_id platform;
    struct device device;
    cl_int status;
    CHECK(clGetPlatformIDs(1, &platform, NULL));
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device.id, NULL));
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    device.context = clCreateContext(properties, 1, &device.id, NULL, NULL, &status);
    CHECK(status);
    return device;
}

static inline cl_command_queue make_queue(struct device device, cl_command_queue_properties properties)
{
    cl_int status;
    cl_command_queue queue = clCreateCommandQueue(device.context, device.id, properties, &status);
    CHECK(status);
    return queue;
}

static inline cl_mem make_buffer(struct device device, cl_mem_flags flags, size_t bytes, void *host)
{
    cl_int status;
    cl_mem buffer = clCreateBuffer(device.context, flags, bytes, host, &status);
    CHECK(status);
    return buffer;
}

static inline cl_mem make_sub_buffer(cl_mem buffer, size_t origin, size_t size)
{
    cl_int status;
    const cl_buffer_region region = {origin, size};
    cl_mem sub = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    CHECK(status);
    return sub;
}

// Says what the compiler said.
static inline void print_build_log(cl_program program, cl_device_id device)
{
    size_t size = 0;
    CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
    char *log = allocate(size);
    CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL));
    fprintf(stderr, "%s", log);
    free(log);
}

static inline cl_program build(struct device device, const char *source, const char *options)
{
    cl_int status;
    cl_program program = clCreateProgramWithSource(device.context, 1, &source, NULL, &status);
    CHECK(status);
    status = clBuildProgram(program, 1, &device.id, options, NULL, NULL);
    if (status != CL_SUCCESS)
        print_build_log(program, device.id);
    CHECK(status);
    return program;
}

static inline cl_kernel make_kernel(cl_program program, const char *name)
{
    cl_int status;
    cl_kernel kernel = clCreateKernel(program, name, &status);
    CHECK(status);
    return kernel;
}

#define SET_ARGUMENT(kernel, index, value) CHECK(clSetKernelArg(kernel, index, sizeof(value), &(value)))

static inline uint32_t xorshift32(uint32_t x)
{
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

// value * factor + summand, modulo 2^32.
struct step {
    uint32_t factor;
    uint32_t summand;
};

// `iterations` steps in one.
static inline struct step repeated(uint32_t iterations)
{
    struct step all = {1, 0}, power = {1664525u, 1013904223u};
    for (; iterations; iterations /= 2) {
        if (iterations % 2)
            all = (struct step){all.factor * power.factor, all.summand * power.factor + power.summand};
        power = (struct step){power.factor * power.factor, power.summand * power.factor + power.summand};
    }
    return all;
}

// 64-bit FNV-1a over raw bytes.
static inline uint64_t digest_of(uint64_t digest, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < size; ++i)
        digest = (digest ^ byte[i]) * 0x100000001b3u;
    return digest;
}

static const uint64_t EMPTY_DIGEST = 0xcbf29ce484222325u;

// Prints the one line that tests compare and returns the exit code.
static inline int finish(uint64_t digest, bool correct)
{
    printf("%s: digest %016" PRIx64 " %s\n", program_name, digest, correct ? "PASS" : "FAIL");
    return correct ? EXIT_PASS : EXIT_FAIL;
}

// Says on standard error which element is wrong; returns false for use as a check's result.
static inline bool mismatch(const char *what, uint64_t index, double got, double expected)
{
    fprintf(stderr, "%s[%" PRIu64 "] is %.17g, expected %.17g\n", what, index, got, expected);
    return false;
}
