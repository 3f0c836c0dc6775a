// OpenCL C's integer functions (OpenCL 1.2, 6.12.3) for all integer types and vector widths, against a model with 128-bit integers.
//
// Each work-item takes sixteen elements of each of its three inputs; a vector has the first of them. What is not defined by
// the specification (operands of mul24 and mad24 with more than 24 bits) is not asked for.
#include "program.h"

#include <stdarg.h>

typedef __int128 wide;

enum { LANES = 16, WIDTHS = 6, TYPES = 8, MOST_FUNCTIONS = 32 };

static const int widths[WIDTHS] = {1, 2, 3, 4, 8, 16};

struct type {
    const char *name;
    int bits;
    bool is_signed;
};

static const struct type types[TYPES] = {
    {"char", 8, true},  {"uchar", 8, false}, {"short", 16, true}, {"ushort", 16, false},
    {"int", 32, true},  {"uint", 32, false}, {"long", 64, true},  {"ulong", 64, false},
};

// The number that the low bits of `value` are in `type`.
static wide wrapped(wide value, struct type type)
{
    const wide modulus = (wide)1 << type.bits;
    value &= modulus - 1;
    return type.is_signed && value >= modulus / 2 ? value - modulus : value;
}

static wide lowest(struct type type)
{
    return type.is_signed ? -((wide)1 << (type.bits - 1)) : 0;
}

static wide highest(struct type type)
{
    return ((wide)1 << (type.bits - type.is_signed)) - 1;
}

static wide smaller(wide a, wide b)
{
    return a < b ? a : b;
}

static wide larger(wide a, wide b)
{
    return a > b ? a : b;
}

static wide saturated(wide value, struct type type)
{
    return smaller(larger(value, lowest(type)), highest(type));
}

static wide absolute(wide value, struct type type)
{
    (void)type;
    return value < 0 ? -value : value;
}

// Rounds down, also below zero.
static wide shifted_down(wide value, int bits)
{
    const wide divisor = (wide)1 << bits;
    return value / divisor - (value % divisor < 0);
}

static wide m_abs(wide a, wide b, wide c, struct type t) { (void)b, (void)c; return absolute(a, t); }
static wide m_abs_diff(wide a, wide b, wide c, struct type t) { (void)c; return absolute(a - b, t); }
static wide m_add_sat(wide a, wide b, wide c, struct type t) { (void)c; return saturated(a + b, t); }
static wide m_sub_sat(wide a, wide b, wide c, struct type t) { (void)c; return saturated(a - b, t); }
static wide m_hadd(wide a, wide b, wide c, struct type t) { (void)c, (void)t; return shifted_down(a + b, 1); }
static wide m_rhadd(wide a, wide b, wide c, struct type t) { (void)c, (void)t; return shifted_down(a + b + 1, 1); }
static wide m_clamp(wide a, wide b, wide c, struct type t) { (void)t; return smaller(larger(a, smaller(b, c)), larger(b, c)); }
static wide m_max(wide a, wide b, wide c, struct type t) { (void)c, (void)t; return larger(a, b); }
static wide m_min(wide a, wide b, wide c, struct type t) { (void)c, (void)t; return smaller(a, b); }

// Products of 64 bits do not fit where they are unsigned: the upper half is put together from parts.
static wide m_mul_hi(wide a, wide b, wide c, struct type t)
{
    (void)c;
    if (t.bits < 64 || t.is_signed)
        return shifted_down(a * b, t.bits);
    const unsigned __int128 product = (unsigned __int128)a * (unsigned __int128)b;
    return (wide)(product >> 64);
}

static wide m_mad_hi(wide a, wide b, wide c, struct type t) { return m_mul_hi(a, b, 0, t) + c; }

static wide m_mad_sat(wide a, wide b, wide c, struct type t)
{
    if (t.bits == 64 && !t.is_signed && m_mul_hi(a, b, 0, t))
        return highest(t);
    return saturated(a * b + c, t);
}

static wide m_rotate(wide a, wide b, wide c, struct type t)
{
    (void)c;
    const unsigned __int128 mask = ((unsigned __int128)1 << t.bits) - 1, bits = (unsigned __int128)a & mask;
    const int by = (int)((unsigned __int128)b & mask & (unsigned)(t.bits - 1));
    return (wide)((bits << by | bits >> (t.bits - by)) & mask);
}

static wide m_clz(wide a, wide b, wide c, struct type t)
{
    (void)b, (void)c;
    wide zeros = 0;
    while (zeros < t.bits && !(a >> (t.bits - 1 - zeros) & 1))
        ++zeros;
    return zeros;
}

static wide m_popcount(wide a, wide b, wide c, struct type t)
{
    (void)b, (void)c;
    wide ones = 0;
    for (int bit = 0; bit < t.bits; ++bit)
        ones += a >> bit & 1;
    return ones;
}

static wide low_24(wide value, struct type t)
{
    return wrapped(value, (struct type){NULL, 24, t.is_signed});
}

static wide m_mul24(wide a, wide b, wide c, struct type t) { (void)c; return low_24(a, t) * low_24(b, t); }
static wide m_mad24(wide a, wide b, wide c, struct type t) { return low_24(a, t) * low_24(b, t) + c; }

// The two halves of an upsampled value, which has twice the bits.
static wide m_upsample_low(wide a, wide b, wide c, struct type t) { (void)a, (void)c, (void)t; return b; }
static wide m_upsample_high(wide a, wide b, wide c, struct type t) { (void)b, (void)c, (void)t; return a; }

static wide m_idiom(wide a, wide b, wide c, struct type t) { return m_rotate(a, b, c, t); }

struct function {
    const char *name;
    // T, U and W are the vector's type, its unsigned one and that of elements twice as wide; S casts to T; B is an element's bits.
    const char *expression;
    wide (*model)(wide a, wide b, wide c, struct type type);
    int least_bits, most_bits;
    bool of_vectors, of_unsigned;
};

#define EVERY 8, 64, false, false

static const struct function functions[] = {
    {"abs", "abs(a)", m_abs, EVERY},
    {"abs_diff", "abs_diff(a, b)", m_abs_diff, EVERY},
    {"add_sat", "add_sat(a, b)", m_add_sat, EVERY},
    {"sub_sat", "sub_sat(a, b)", m_sub_sat, EVERY},
    {"hadd", "hadd(a, b)", m_hadd, EVERY},
    {"rhadd", "rhadd(a, b)", m_rhadd, EVERY},
    {"clamp", "clamp(a, min(b, c), max(b, c))", m_clamp, EVERY},
    {"clamp by scalars", "clamp(a, min(b, c).s0, max(b, c).s0)", m_clamp, 8, 64, true, false},
    {"max", "max(a, b)", m_max, EVERY},
    {"max of scalar", "max(a, b.s0)", m_max, 8, 64, true, false},
    {"min", "min(a, b)", m_min, EVERY},
    {"min of scalar", "min(a, b.s0)", m_min, 8, 64, true, false},
    {"mul_hi", "mul_hi(a, b)", m_mul_hi, EVERY},
    {"mad_hi", "mad_hi(a, b, c)", m_mad_hi, EVERY},
    {"mad_sat", "mad_sat(a, b, c)", m_mad_sat, EVERY},
    {"rotate", "rotate(a, b)", m_rotate, EVERY},
    {"clz", "clz(a)", m_clz, EVERY},
    {"popcount", "popcount(a)", m_popcount, EVERY},
    {"mul24", "mul24(a << 8 >> 8, b << 8 >> 8)", m_mul24, 32, 32, false, false},
    {"mad24", "mad24(a << 8 >> 8, b << 8 >> 8, c)", m_mad24, 32, 32, false, false},
    {"upsample, lower half", "upsample(a, AS_U(b))", m_upsample_low, 8, 32, false, false},
    {"upsample, upper half", "upsample(a, AS_U(b)) >> BITS", m_upsample_high, 8, 32, false, false},
    {"left or right shift", "a << (b & (BITS - 1)) | a >> (-b & (BITS - 1))", m_idiom, 32, 64, false, true},
};

enum { FUNCTIONS = sizeof functions / sizeof *functions };

static bool has(const struct function *function, struct type type, int width)
{
    return function->least_bits <= type.bits && type.bits <= function->most_bits && (width > 1 || !function->of_vectors) &&
           (!type.is_signed || !function->of_unsigned);
}

static char *source;
static size_t source_size;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    const int size = vsnprintf(NULL, 0, format, words);
    va_end(words);
    source = realloc(source, source_size + (size_t)size + 1);
    if (!source)
        fail("out of", "memory");
    va_start(words, format);
    vsnprintf(source + source_size, (size_t)size + 1, format, words);
    va_end(words);
    source_size += (size_t)size;
}

// One kernel: all functions of a type, for one width.
static void write_kernel(struct type type, int width)
{
    char vector[16] = "", unsigned_name[16];
    if (width > 1)
        snprintf(vector, sizeof vector, "%d", width);
    snprintf(unsigned_name, sizeof unsigned_name, "%s%s", type.is_signed ? "u" : "", type.name);
    say("#define BITS %d\n#define AS_U as_%s%s\n", type.bits, unsigned_name, vector);
    say("kernel void %s_%d(global const %s *in, global %s *out, uint items) {\n"
        "const size_t at = get_global_id(0) * 16;\n", type.name, width, type.name, type.name);
    const char *names = "abc";
    for (int i = 0; i < 3; ++i)
        if (width > 1)
            say("const %s%d %c = vload%d(0, in + %d * items * 16 + at);\n", type.name, width, names[i], width, i);
        else
            say("const %s %c = in[%d * items * 16 + at];\n", type.name, names[i], i);
    for (int i = 0; i < FUNCTIONS; ++i) {
        if (!has(&functions[i], type, width))
            continue;
        const char *expression = functions[i].expression;
        if (width > 1)
            say("vstore%d(convert_%s%d(%s), 0, out + %d * items * 16 + at);\n", width, type.name, width, expression, i);
        else
            say("out[%d * items * 16 + at] = (%s)(%s);\n", i, type.name, expression);
    }
    say("}\n#undef BITS\n#undef AS_U\n");
}

// An element: often one near the ends of the type, or a small number as for shifts.
static wide element(uint32_t *seed, struct type type)
{
    uint64_t bits = 0;
    for (int i = 0; i < 2; ++i)
        bits = bits << 32 | (*seed = xorshift32(*seed));
    const wide near = wrapped((wide)(bits >> 8 & 7) - 3, type);
    switch (bits & 3) {
    case 0:
        return wrapped((bits & 4 ? lowest(type) : highest(type)) + near, type);
    case 1:
        return wrapped((wide)(bits >> 8 & 127) - 64, type);
    default:
        return wrapped((wide)bits, type);
    }
}

static wide read_element(const unsigned char *bytes, size_t index, struct type type)
{
    uint64_t bits = 0;
    memcpy(&bits, bytes + index * (size_t)(type.bits / 8), (size_t)(type.bits / 8));
    return wrapped((wide)bits, type);
}

// What a function gives at a lane, of a vector of this width.
static wide expected(const struct function *function, const unsigned char *in, size_t items, size_t item, int lane, struct type type)
{
    wide operands[3];
    for (size_t i = 0; i < 3; ++i)
        operands[i] = read_element(in, (i * items + item) * LANES + (size_t)(function->of_vectors && i ? 0 : lane), type);
    return wrapped(function->model(operands[0], operands[1], operands[2], type), type);
}

static uint64_t run(struct device device, cl_command_queue queue, cl_program program, struct type type, size_t items, bool *correct)
{
    const size_t element_bytes = (size_t)(type.bits / 8), count = items * LANES;
    unsigned char *in = allocate(3 * count * element_bytes), *out = allocate(FUNCTIONS * count * element_bytes);
    uint32_t seed = 1;
    for (size_t i = 0; i < 3 * count; ++i) {
        const wide value = element(&seed, type);
        memcpy(in + i * element_bytes, &value, element_bytes);
    }
    cl_mem from = make_buffer(device, CL_MEM_COPY_HOST_PTR, 3 * count * element_bytes, in);
    cl_mem to = make_buffer(device, CL_MEM_READ_WRITE, FUNCTIONS * count * element_bytes, NULL);
    uint64_t digest = EMPTY_DIGEST;
    for (int w = 0; w < WIDTHS; ++w) {
        char name[16];
        snprintf(name, sizeof name, "%s_%d", type.name, widths[w]);
        cl_kernel kernel = make_kernel(program, name);
        const cl_uint number = (cl_uint)items;
        SET_ARGUMENT(kernel, 0, from);
        SET_ARGUMENT(kernel, 1, to);
        SET_ARGUMENT(kernel, 2, number);
        CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
        CHECK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, FUNCTIONS * count * element_bytes, out, 0, NULL, NULL));
        CHECK(clReleaseKernel(kernel));
        for (size_t f = 0; f < FUNCTIONS; ++f) {
            bool is_right = true;
            for (size_t i = 0; i < items && has(&functions[f], type, widths[w]); ++i)
                for (int lane = 0; lane < widths[w]; ++lane) {
                    const wide got = read_element(out, (f * items + i) * LANES + (size_t)lane, type);
                    const wide wanted = expected(&functions[f], in, items, i, lane, type);
                    digest = digest_of(digest, &got, element_bytes);
                    if (got != wanted && is_right) {
                        fprintf(stderr, "%s of %s, width %d: ", functions[f].name, type.name, widths[w]);
                        is_right = mismatch("item", i, (double)got, (double)wanted);
                    }
                }
            *correct = *correct && is_right;
        }
    }
    CHECK(clReleaseMemObject(from));
    CHECK(clReleaseMemObject(to));
    free(in);
    free(out);
    return digest;
}

int main(int argc, char **argv)
{
    struct argument arguments[] = {{"items", 128, 1, 1u << 16}, {0}};
    read_arguments(argc, argv, "cl_integers", arguments);
    struct device device = open_device();
    cl_command_queue queue = make_queue(device, 0);
    for (int t = 0; t < TYPES; ++t)
        for (int w = 0; w < WIDTHS; ++w)
            write_kernel(types[t], widths[w]);
    cl_program program = build(device, source, "-Werror");
    bool correct = true;
    uint64_t digest = EMPTY_DIGEST;
    for (int t = 0; t < TYPES; ++t) {
        const uint64_t one = run(device, queue, program, types[t], arguments[0].value, &correct);
        digest = digest_of(digest, &one, sizeof one);
    }
    free(source);
    CHECK(clReleaseProgram(program));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(device.context));
    return finish(digest, correct);
}
