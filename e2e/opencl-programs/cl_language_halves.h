// The part of cl_language.c that is about halves: vload_half and vstore_half in all their forms (OpenCL 1.2, 6.12.7), against a
// model that goes by a half's value.
#pragma once

#include "program.h"

#include <math.h>
#include <stdarg.h>

enum { HALF_WIDTHS = 6, ROUNDINGS = 5, VALUES = 4096 };

static const int half_widths[HALF_WIDTHS] = {1, 2, 3, 4, 8, 16};
static const char *const roundings[ROUNDINGS] = {"", "_rte", "_rtz", "_rtp", "_rtn"};

static double value_of_half(uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

// The half that `value` rounds to: of its two neighbours, which have the numbers n and n + 1, the right one.
static uint16_t half_of(double value, const char *rounding)
{
    if (isnan(value))
        return 0x7e00;
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const double size = fabs(value);
    uint16_t below = 0;
    for (int bit = 14; bit >= 0; --bit)
        if ((below | 1 << bit) <= 0x7c00 && value_of_half((uint16_t)(below | 1 << bit)) <= size)
            below = (uint16_t)(below | 1 << bit);
    if (below == 0x7c00 || value_of_half(below) == size)
        return sign | below;
    const bool is_up = !strcmp(rounding, "_rtp") ? !sign : !strcmp(rounding, "_rtn") ? sign != 0 : false;
    if (!strcmp(rounding, "_rtz") || !strcmp(rounding, "_rtp") || !strcmp(rounding, "_rtn"))
        return (uint16_t)(sign | (below + is_up));
    // To the nearest: beyond the largest half there would be 65536.
    const double above = below == 0x7bff ? 65536 : value_of_half((uint16_t)(below + 1)), middle = (value_of_half(below) + above) / 2;
    return (uint16_t)(sign | (below + (size > middle || (size == middle && below & 1))));
}

static bool is_half_nan(uint16_t half)
{
    return (half & 0x7fff) > 0x7c00;
}

static char *half_source;
static size_t half_source_size;

static void __attribute__((format(printf, 1, 2))) say_half(const char *format, ...)
{
    if (!half_source)
        half_source = allocate(1u << 16);
    va_list words;
    va_start(words, format);
    half_source_size += (size_t)vsnprintf(half_source + half_source_size, (1u << 16) - half_source_size, format, words);
    va_end(words);
}

// Kernel load_W_A: work-item i takes the sixteen halves of its own; what is left of a vector of three stays as it was.
static void write_load(int width, const char *aligned, const char *space)
{
    char n[12] = "";
    if (width > 1)
        snprintf(n, sizeof n, "%d", width);
    const int stride = *aligned && width == 3 ? 4 : width;
    say_half("kernel void load%s_%d_%s(%s const half *in, global float *out) {\n"
             "const size_t at = get_global_id(0) * 16;\n",
             aligned, width, space, strcmp(space, "constant") ? "global" : "constant");
    const char *from = "in + at";
    if (!strcmp(space, "local") || !strcmp(space, "private")) {
        say_half("%s ushort copy[16] __attribute__((aligned(32)));\n"
                 "for (int i = 0; i < 16; ++i) copy[i] = ((global const ushort *)in)[at + i];\n", space);
        from = !strcmp(space, "local") ? "(local half *)copy" : "(private half *)copy";
    }
    say_half("for (int i = 0; i + %d <= 16; i += %d) {\nfloat%s v = vload%s_half%s(i / %d, %s);\n", stride, stride, n, aligned, n, stride, from);
    if (width > 1)
        say_half("vstore%d(v, 0, out + at + i);\n}\n}\n", width);
    else
        say_half("out[at + i] = v;\n}\n}\n");
}

// Kernel store_T_W_AR, likewise.
static void write_store(int width, const char *aligned, const char *rounding, const char *type, const char *space)
{
    char n[12] = "";
    if (width > 1)
        snprintf(n, sizeof n, "%d", width);
    const int stride = *aligned && width == 3 ? 4 : width;
    say_half("kernel void store%s_%s_%d%s_%s(global const %s *in, global half *out) {\nconst size_t at = get_global_id(0) * 16;\n",
             aligned, type, width, rounding, space, type);
    const bool is_copied = strcmp(space, "global");
    if (is_copied)
        say_half("%s ushort copy[16] __attribute__((aligned(32)));\n"
                 "for (int i = 0; i < 16; ++i) copy[i] = ((global ushort *)out)[at + i];\n", space);
    say_half("for (int i = 0; i + %d <= 16; i += %d)\n", stride, stride);
    if (width > 1)
        say_half("vstore%s_half%s%s(vload%d(0, in + at + i), ", aligned, n, rounding, width);
    else
        say_half("vstore%s_half%s(in[at + i], ", aligned, rounding);
    if (is_copied)
        say_half("i / %d, (%s half *)copy);\nfor (int i = 0; i < 16; ++i) ((global ushort *)out)[at + i] = copy[i];\n}\n", stride, space);
    else
        say_half("i / %d, out + at);\n}\n", stride);
}

// A value near a half, or halfway between two; `is_float` has it be one of single precision.
static double value_near_halves(uint32_t *seed, bool is_float)
{
    *seed = xorshift32(*seed);
    const uint16_t half = (uint16_t)*seed;
    const double value = value_of_half(half), next = value_of_half((uint16_t)(half + 1));
    switch (*seed >> 16 & 7) {
    case 0:
        return value;
    case 1:
    case 2:
        return (value + next) / 2;
    case 3:
        return is_float ? nextafterf((float)((value + next) / 2), INFINITY) : nextafter((value + next) / 2, INFINITY);
    case 4:
        return is_float ? nextafterf((float)((value + next) / 2), -INFINITY) : nextafter((value + next) / 2, -INFINITY);
    case 5:
        return is_float ? (float)(value * (1 + 1e-6)) : value * (1 + 1e-12);
    case 6:
        return (half & 1 ? -1 : 1) * (65504 + (double)(*seed >> 24 & 63));
    default:
        return (half & 1 ? -1 : 1) * ldexp((double)(*seed >> 19), -36 - (half >> 1 & 7));
    }
}

static bool check_load(cl_command_queue queue, cl_program program, int width, const char *aligned, const char *space, cl_mem in, cl_mem out)
{
    char name[32];
    snprintf(name, sizeof name, "load%s_%d_%s", aligned, width, space);
    cl_kernel kernel = make_kernel(program, name);
    SET_ARGUMENT(kernel, 0, in);
    SET_ARGUMENT(kernel, 1, out);
    const size_t items = 65536 / 16, group = 1;
    const float untouched = -1;
    CHECK(clEnqueueFillBuffer(queue, out, &untouched, sizeof untouched, 0, 65536 * sizeof(float), 0, NULL, NULL));
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, strcmp(space, "local") ? NULL : &group, 0, NULL, NULL));
    float *got = allocate(65536 * sizeof *got);
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 65536 * sizeof *got, got, 0, NULL, NULL));
    bool correct = true;
    for (int i = 0; i < 65536; ++i) {
        const int stride = *aligned && width == 3 ? 4 : width, lane = i % 16;
        const bool is_loaded = lane / stride * stride + stride <= 16 && lane % stride < width;
        const double expected = is_loaded ? value_of_half((uint16_t)i) : -1;
        if (correct && !(isnan(expected) ? isnan(got[i]) : got[i] == expected && !signbit(got[i]) == !signbit(expected)))
            correct = mismatch(name, (uint64_t)i, got[i], expected);
    }
    free(got);
    CHECK(clReleaseKernel(kernel));
    return correct;
}

static bool check_store(cl_command_queue queue, cl_program program, int width, const char *aligned, const char *rounding, const char *type,
                        const char *space, const double *values, cl_mem in, cl_mem out)
{
    char name[40];
    snprintf(name, sizeof name, "store%s_%s_%d%s_%s", aligned, type, width, rounding, space);
    cl_kernel kernel = make_kernel(program, name);
    SET_ARGUMENT(kernel, 0, in);
    SET_ARGUMENT(kernel, 1, out);
    const size_t items = VALUES / 16, group = 1;
    const uint16_t untouched = 0x1234;
    CHECK(clEnqueueFillBuffer(queue, out, &untouched, sizeof untouched, 0, VALUES * sizeof untouched, 0, NULL, NULL));
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, strcmp(space, "local") ? NULL : &group, 0, NULL, NULL));
    uint16_t got[VALUES];
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    CHECK(clReleaseKernel(kernel));
    for (int i = 0; i < VALUES; ++i) {
        const int stride = *aligned && width == 3 ? 4 : width, lane = i % 16;
        const bool is_stored = lane / stride * stride + stride <= 16 && lane % stride < width;
        const uint16_t expected = is_stored ? half_of(values[i], rounding) : untouched;
        if (is_half_nan(expected) ? !is_half_nan(got[i]) : got[i] != expected)
            return mismatch(name, (uint64_t)i, got[i], expected);
    }
    return true;
}

// Every width has both forms of both types; roundings take turns, and scalars have them all.
#define FOR_EACH_STORE(call)                                                                                           \
    for (int w = 0; w < HALF_WIDTHS; ++w)                                                                              \
        for (int r = 0; r < ROUNDINGS; ++r)                                                                            \
            for (int t = 0; t < 2; ++t) {                                                                              \
                const char *type = t ? "double" : "float";                                                             \
                if (w == 0 || (w + t) % ROUNDINGS == r)                                                                \
                    call(half_widths[w], "", roundings[r], type, "global");                                            \
                if (w > 0 && (w + t + 2) % ROUNDINGS == r)                                                             \
                    call(half_widths[w], "a", roundings[r], type, "global");                                           \
                if (w == 1 + t && r == 0) {                                                                            \
                    call(half_widths[w], "", roundings[r], type, "local");                                             \
                    call(half_widths[w], "a", roundings[r], type, "private");                                          \
                }                                                                                                      \
            }

#define FOR_EACH_LOAD(call)                                                                                            \
    for (int w = 0; w < HALF_WIDTHS; ++w) {                                                                            \
        call(half_widths[w], "", "global");                                                                            \
        if (w > 0)                                                                                                     \
            call(half_widths[w], "a", "global");                                                                       \
        if (w < 3)                                                                                                     \
            call(half_widths[w], "", w == 0 ? "constant" : w == 1 ? "local" : "private");                              \
    }

static bool check_halves(struct device device, cl_command_queue queue)
{
    FOR_EACH_LOAD(write_load)
    FOR_EACH_STORE(write_store)
    cl_program program = build(device, half_source, NULL);
    free(half_source);

    uint16_t *halves = allocate(65536 * sizeof *halves);
    for (int i = 0; i < 65536; ++i)
        halves[i] = (uint16_t)i;
    // The values of floats, and those of doubles.
    double *values[2] = {allocate(VALUES * sizeof **values), allocate(VALUES * sizeof **values)};
    float *floats = allocate(VALUES * sizeof *floats);
    uint32_t seed = 3;
    for (int i = 0; i < VALUES; ++i) {
        values[0][i] = floats[i] = (float)value_near_halves(&seed, true);
        values[1][i] = value_near_halves(&seed, false);
    }
    cl_mem all = make_buffer(device, CL_MEM_COPY_HOST_PTR, 65536 * sizeof *halves, halves);
    cl_mem out = make_buffer(device, CL_MEM_READ_WRITE, 65536 * sizeof(float), NULL);
    cl_mem of_float = make_buffer(device, CL_MEM_COPY_HOST_PTR, VALUES * sizeof *floats, floats);
    cl_mem of_double = make_buffer(device, CL_MEM_COPY_HOST_PTR, VALUES * sizeof **values, values[1]);
    bool correct = true;
#define CHECK_LOAD(width, aligned, space) correct = check_load(queue, program, width, aligned, space, all, out) && correct
#define CHECK_STORE(width, aligned, rounding, type, space)                                                             \
    correct = check_store(queue, program, width, aligned, rounding, type, space, values[t], t ? of_double : of_float, out) && correct
    FOR_EACH_LOAD(CHECK_LOAD)
    FOR_EACH_STORE(CHECK_STORE)
    CHECK(clReleaseMemObject(all));
    CHECK(clReleaseMemObject(out));
    CHECK(clReleaseMemObject(of_float));
    CHECK(clReleaseMemObject(of_double));
    CHECK(clReleaseProgram(program));
    free(halves);
    free(values[0]);
    free(values[1]);
    free(floats);
    return correct;
}
