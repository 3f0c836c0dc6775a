// What texture and surface instructions do, for devices that have neither. `make sampler` compiles it to sampler.ptx,
// whose functions are inlined where PTX has such an instruction; hetckpt_abi::software_image has the layouts.
//
// Source: CUDA C++ Programming Guide, "Texture Fetching"; PTX ISA, "Texture Instructions" and "Surface Instructions".

#include <cstddef>

struct Level {
    unsigned long long base;
    unsigned long long slice_bytes;
    unsigned pitch_bytes;
    unsigned size[3];
};

struct Image {
    // Bytes of a component, what it is, and how many an element has.
    unsigned char component_bytes, kind, channels, reserved;
    unsigned flags;
    unsigned char modes[4];
    unsigned num_levels;
    float bias, least_level, greatest_level;
    unsigned reserved_word;
    unsigned border[4];
    Level levels[18];
};

enum { UNSIGNED, SIGNED, FLOAT };
enum { NORMALIZED_COORDINATES = 1, NORMALIZED_READS = 2, LINEAR = 4, LINEAR_BETWEEN_LEVELS = 8, BEYOND_IS_ZERO = 16 };
enum { WRAP, CLAMP, MIRROR, BORDER };

#define INLINE static __device__ __forceinline__

template <class T> INLINE T read(unsigned long long address)
{
    return __ldg(reinterpret_cast<const T *>(address));
}

#define FIELD(type, object, field) read<type>((object) + offsetof(Image, field))

INLINE unsigned long long level_at(unsigned long long object, unsigned level)
{
    return object + offsetof(Image, levels) + level * (unsigned long long)sizeof(Level);
}

#define OF_LEVEL(type, level, field) read<type>((level) + offsetof(Level, field))

INLINE float number(unsigned value)
{
    return __uint_as_float(value);
}

// An integer as part of the greatest one. Not all devices divide exactly; with the rest of a first attempt it is exact.
INLINE float whole_part_of(int value, float greatest, float inverse)
{
    float whole = (float)value, part = __fmul_rn(whole, inverse);
    return __fmaf_rn(__fmaf_rn(-part, greatest, whole), inverse, part);
}

// The same as a kernel gets it: the least of two's complement is -1, too.
INLINE unsigned part_of(int value, float greatest, float inverse)
{
    return __float_as_uint(fmaxf(whole_part_of(value, greatest, inverse), -1.0f));
}

template <bool is_for_filter> INLINE unsigned signed_part_of(int value, float greatest, float inverse)
{
    return is_for_filter ? __float_as_uint(whole_part_of(value, greatest, inverse)) : part_of(value, greatest, inverse);
}

// Component `component` of an element that is there, as a kernel gets it; or a filter, for which the least is less.
template <bool is_for_filter>
INLINE unsigned load(unsigned long long object, unsigned long long level, unsigned component, int x, int y, int z)
{
    unsigned format = FIELD(unsigned, object, component_bytes);
    unsigned bytes = format & 255, kind = format >> 8 & 255, channels = format >> 16 & 255;
    bool is_number = kind == FLOAT || (FIELD(unsigned, object, flags) & NORMALIZED_READS);
    if (component >= channels)
        return component < 3 ? 0 : is_number ? __float_as_uint(1.0f) : 1;
    unsigned long long address = OF_LEVEL(unsigned long long, level, base)
        + OF_LEVEL(unsigned long long, level, slice_bytes) * z
        + (unsigned long long)OF_LEVEL(unsigned, level, pitch_bytes) * y
        + (unsigned long long)(channels * x + component) * bytes;
    if (bytes == 4)
        return read<unsigned>(address);
    if (bytes == 2) {
        unsigned short found = read<unsigned short>(address);
        if (kind == FLOAT) {
            float value;
            asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(found));
            return __float_as_uint(value);
        }
        int wide = kind == SIGNED ? (int)(short)found : (int)found;
        if (!is_number)
            return wide;
        if (kind != SIGNED)
            return part_of(wide, 65535.0f, 1.0f / 65535.0f);
        return signed_part_of<is_for_filter>(wide, 32767.0f, 1.0f / 32767.0f);
    }
    unsigned char found = read<unsigned char>(address);
    int wide = kind == SIGNED ? (int)(signed char)found : (int)found;
    if (!is_number)
        return wide;
    if (kind != SIGNED)
        return part_of(wide, 255.0f, 1.0f / 255.0f);
    return signed_part_of<is_for_filter>(wide, 127.0f, 1.0f / 127.0f);
}

// Where element `at` of `size` is to be looked for; -1 if it is the border.
INLINE int place(int at, int size, unsigned mode)
{
    if ((unsigned)at < (unsigned)size)
        return at;
    if (mode == BORDER)
        return -1;
    // Then at most one element beyond either end: whole images have been taken off the coordinate.
    if (mode == WRAP)
        return at < 0 ? size - 1 : 0;
    return at < 0 ? 0 : size - 1;
}

// Where a coordinate is, in steps of 1/256 of an element; with `is_between` from the middle of an element on, without
// it at the beginning of one. The other two address modes are for normalized coordinates alone.
//
// As measured on an H200: normalized coordinates lose what is behind 21 bits, and half a step is rounded upwards.
INLINE int steps(float coordinate, int size, unsigned flags, bool is_between, unsigned &mode)
{
    if (!(flags & NORMALIZED_COORDINATES)) {
        mode = mode == BORDER ? BORDER : CLAMP;
        // So that one beyond is still an int.
        coordinate = fminf(fmaxf(coordinate, -4194304.0f), 4194304.0f);
        if (!is_between)
            return (int)floorf(coordinate) * 256;
        float fine = __fmul_rn(coordinate, 256.0f), below = floorf(fine);
        return (int)below + (__fsub_rn(fine, below) >= 0.5f) - 128;
    }
    if (mode == WRAP)
        coordinate = __fsub_rn(coordinate, floorf(coordinate));
    // Half a step.
    int half = 4096;
    bool is_rounded_up = false;
    if (mode == MIRROR) {
        float there = fabsf(coordinate), whole = floorf(there), part = __fsub_rn(there, whole);
        bool is_odd = __fmul_rn(whole, 0.5f) != floorf(__fmul_rn(whole, 0.5f));
        // In an image that is mirrored, upwards is downwards.
        half -= is_odd != coordinate < 0.0f;
        is_rounded_up = is_between && !is_odd && coordinate < 0.0f;
        coordinate = is_odd ? __fsub_rn(1.0f, part) : part;
    }
    coordinate = fminf(fmaxf(coordinate, -2.0f), 3.0f);
    coordinate = __fmul_rn(coordinate, 2097152.0f);
    long long fine = (long long)(int)(is_rounded_up ? ceilf(coordinate) : floorf(coordinate)) * size;
    return is_between ? (int)((fine - 1048576 + half) >> 13) : (int)(fine >> 21) * 256;
}

template <bool is_for_filter>
INLINE unsigned element(unsigned long long object, unsigned long long level, unsigned component, int x, int y, int z)
{
    if ((x | y | z) < 0)
        return read<unsigned>(object + offsetof(Image, border) + component * 4);
    return load<is_for_filter>(object, level, component, x, y, z);
}

INLINE unsigned num_slices(unsigned long long level)
{
    return read<unsigned>(level + offsetof(Level, size) + 8);
}

// The elements around a place: the first of each dimension, and in 1/256 how much the next one weighs.
template <int dimensions> struct Corners {
    int size[dimensions], first[dimensions], weight[dimensions];
    unsigned mode[dimensions];

    __device__ __forceinline__ Corners(unsigned long long object, unsigned long long level,
                                       const float (&coordinates)[dimensions], bool is_between)
    {
        unsigned flags = FIELD(unsigned, object, flags);
#pragma unroll
        for (int d = 0; d < dimensions; d++) {
            size[d] = (int)read<unsigned>(level + offsetof(Level, size) + d * 4);
            mode[d] = read<unsigned char>(object + offsetof(Image, modes) + d);
            int found = steps(coordinates[d], size[d], flags, is_between, mode[d]);
            first[d] = found >> 8;
            // Beyond an edge there is one element alone.
            bool is_alone = (mode[d] == CLAMP || mode[d] == MIRROR) && (unsigned)first[d] >= (unsigned)size[d] - 1;
            weight[d] = is_alone ? 0 : found & 255;
        }
    }

    __device__ __forceinline__ int find(int dimension, unsigned next) const
    {
        return place(first[dimension] + next, size[dimension], mode[dimension]);
    }
};

// What of `whole` goes to the upper one of two neighbours, of which it weighs `weight`; half a step goes there, too.
INLINE int upper_share(int whole, int weight)
{
    return (whole * weight + 128) >> 8;
}

// A number times 2^`exponent`, which is between -252 and 252.
INLINE float scaled(float value, int exponent)
{
    int half = exponent >> 1;
    value = __fmul_rn(value, __uint_as_float((unsigned)(127 + half) << 23));
    return __fmul_rn(value, __uint_as_float((unsigned)(127 + exponent - half) << 23));
}

// What a filter adds up, as an H200 does: integers of 16 bits; or numbers, of one plane after the other, that have lost
// what is behind 4 bits more than the greatest of their plane has, and that are rounded in the end, halves away from
// zero. Elements whose weight is zero do not take part.
struct Filter {
    unsigned kind, bytes;
    // Exponents as the bits of numbers have them.
    int greatest, greatest_of_plane;
    long long sum, sum_of_plane;

    __device__ __forceinline__ explicit Filter(unsigned format)
        : kind(format >> 8 & 255), bytes(format & 255), greatest(1), greatest_of_plane(1), sum(0), sum_of_plane(0)
    {
    }

    // Bits of a number.
    __device__ __forceinline__ int kept() const { return bytes == 2 ? 11 : 24; }

    __device__ __forceinline__ void look_at(unsigned found)
    {
        greatest_of_plane = max(greatest_of_plane, (int)(found >> 23 & 255));
    }

    // After all elements of the plane have been looked at.
    __device__ __forceinline__ void add(unsigned found, int share)
    {
        long long value;
        if (kind == FLOAT) {
            int exponent = (int)(found >> 23 & 255);
            unsigned mantissa = (found & 0x7fffff) | (exponent ? 0x800000 : 0);
            int lost = greatest_of_plane - max(exponent, 1);
            value = lost < 32 ? (long long)((unsigned long long)mantissa << 32 >> (52 - kept()) >> lost) : 0;
            value = found >> 31 ? -value : value;
        } else {
            float parts = bytes == 1 ? kind == SIGNED ? 127.0f : 255.0f : kind == SIGNED ? 32767.0f : 65535.0f;
            value = (int)rintf(__fmul_rn(number(found), parts)) * (bytes == 1 && kind != SIGNED ? 257 : 1);
        }
        sum_of_plane += value * share;
    }

    // Of planes together, 3 bits more are kept.
    __device__ __forceinline__ void end_plane()
    {
        int difference = kind == FLOAT ? greatest_of_plane - greatest : 0;
        if (difference > 0) {
            sum >>= min(difference, 63);
            greatest = greatest_of_plane;
        }
        sum += sum_of_plane << 3 >> min(max(-difference, 0), 63);
        sum_of_plane = 0;
        greatest_of_plane = 1;
    }

    __device__ __forceinline__ unsigned integer() const
    {
        int found = (int)(sum >> 3);
        if (bytes == 1 && kind == SIGNED)
            // From 127 * 256 to 32767.
            found += (found + 64 + (found >> 12 << 4)) >> 7;
        else
            found = (found + 128) >> 8;
        float parts = kind == SIGNED ? 32767.0f : 65535.0f;
        return part_of(found, parts, kind == SIGNED ? 1.0f / 32767.0f : 1.0f / 65535.0f);
    }

    __device__ __forceinline__ unsigned result() const
    {
        if (kind != FLOAT)
            return integer();
        if (sum == 0)
            return 0;
        // It is in steps of which a number as great as the greatest has 4 + 8 + 3 bits more than it keeps.
        unsigned long long size = sum < 0 ? -sum : sum;
        int exponent = greatest - 141 - kept(), digits = 64 - __clzll((long long)size);
        int surplus = max(max(digits - kept(), bytes == 2 ? -24 - exponent : 0), 0);
        size = (size + (1ull << surplus >> 1)) >> surplus;
        float value = scaled((float)size, exponent + surplus);
        return __float_as_uint(sum < 0 ? -value : value);
    }
};

// An image read at `coordinates`, of which there are `dimensions`, with the filters between elements and between levels
// that it asks for. The slice is `layer` if slices are layers.
//
// As measured on an H200, weights are given out in 1/256: to levels or to the slices of a volume, then along x, then
// along y.
template <int dimensions>
INLINE unsigned sample(unsigned long long object, unsigned component, const float (&coordinates)[dimensions],
                       unsigned layer, float level)
{
    unsigned flags = FIELD(unsigned, object, flags);
    unsigned num_levels = FIELD(unsigned, object, num_levels);
    float greatest = fminf(FIELD(float, object, greatest_level), (float)(num_levels - 1));
    level = fminf(fmaxf(__fadd_rn(level, FIELD(float, object, bias)), FIELD(float, object, least_level)), greatest);
    bool is_between = num_levels > 1 && (flags & LINEAR_BETWEEN_LEVELS);
    level = fmaxf(is_between ? level : __fadd_rn(level, 0.5f), 0.0f);
    unsigned first_level = (unsigned)level;
    // What is behind 8 bits is lost.
    int part_of_next = is_between ? (int)__fmul_rn(__fsub_rn(level, floorf(level)), 256.0f) : 0;
    bool is_linear = flags & LINEAR;
    unsigned slices = dimensions == 3 && is_linear ? 2 : 1, num_planes = is_between ? 2 * slices : slices;
    unsigned num_corners = is_linear ? dimensions == 1 ? 2 : 4 : 1;
    float plain = 0.0f;
    Filter filter(FIELD(unsigned, object, component_bytes));
    int at[3] = {0, 0, 0};
    if (dimensions < 3)
        at[2] = (int)min(layer, num_slices(level_at(object, 0)) - 1);
#pragma unroll 1
    for (unsigned plane = 0; plane < num_planes; plane++) {
        unsigned next_level = plane >= slices, next_slice = plane - next_level * slices;
        unsigned long long shown = level_at(object, min(first_level + next_level, num_levels - 1));
        Corners<dimensions> corners(object, shown, coordinates, is_linear);
        int share = next_level ? part_of_next : 256 - part_of_next;
        if (dimensions == 3) {
            int upper = upper_share(share, corners.weight[2]);
            share = next_slice ? upper : share - upper;
            at[2] = corners.find(2, next_slice);
        }
        int right = upper_share(share, corners.weight[0]);
        // Each element twice: first for the greatest.
#pragma unroll 1
        for (unsigned step = 0; step < 2 * num_corners; step++) {
            bool is_right = step & 1 && is_linear, is_below = step & 2 && num_corners == 4;
            int part = is_right ? right : share - right;
            if (dimensions > 1) {
                // Half a step stays above on the left, and goes below on the right.
                int other = upper_share(part, is_right ? corners.weight[1] : 256 - corners.weight[1]);
                part = is_below == is_right ? other : part - other;
                at[1] = corners.find(1, is_below);
            }
            if (part == 0)
                continue;
            at[0] = corners.find(0, is_right);
            unsigned found = element<true>(object, shown, component, at[0], at[1], at[2]);
            if (num_corners == 1 && !is_between) {
                bool is_part = filter.kind == SIGNED && filter.bytes <= 2 && (flags & NORMALIZED_READS);
                return is_part ? __float_as_uint(fmaxf(number(found), -1.0f)) : found;
            }
            if (step >= num_corners) {
                filter.add(found, part);
            } else {
                plain = __fmaf_rn((float)part * 0.00390625f, number(found), plain);
                filter.look_at(found);
            }
        }
        // An infinity, or no number.
        if (filter.kind == FLOAT && filter.greatest_of_plane == 255)
            return __float_as_uint(plain);
        filter.end_plane();
    }
    return filter.result();
}

// Whole elements, and no filter. Beyond linear memory there are zeros.
template <int dimensions>
INLINE unsigned fetch(unsigned long long object, unsigned component, const int (&coordinates)[dimensions],
                      unsigned layer, int level_number)
{
    unsigned num_levels = FIELD(unsigned, object, num_levels);
    unsigned long long level = level_at(object, (unsigned)min(max(level_number, 0), (int)num_levels - 1));
    bool is_zero_beyond = FIELD(unsigned, object, flags) & BEYOND_IS_ZERO;
    int at[3] = {0, 0, 0};
    if (dimensions < 3)
        at[2] = (int)min(layer, num_slices(level) - 1);
#pragma unroll
    for (int d = 0; d < dimensions; d++) {
        int size = (int)read<unsigned>(level + offsetof(Level, size) + d * 4);
        unsigned mode = read<unsigned char>(object + offsetof(Image, modes) + d);
        if (is_zero_beyond && (unsigned)coordinates[d] >= (unsigned)size)
            return 0;
        at[d] = place(coordinates[d], size, mode == BORDER ? BORDER : CLAMP);
    }
    return element<false>(object, level, component, at[0], at[1], at[2]);
}

// The face of a cube that a direction points to, and where on it.
INLINE int face_of(float x, float y, float z, float (&on_face)[2])
{
    float ax = fabsf(x), ay = fabsf(y), az = fabsf(z), s, t, m;
    int face;
    if (ax >= ay && ax >= az) {
        face = x < 0.0f;
        m = ax, s = x < 0.0f ? z : -z, t = -y;
    } else if (ay >= az) {
        face = 2 + (y < 0.0f);
        m = ay, s = x, t = y < 0.0f ? -z : z;
    } else {
        face = 4 + (z < 0.0f);
        m = az, s = z < 0.0f ? -x : x, t = -y;
    }
    on_face[0] = __fmul_rn(__fadd_rn(__fdividef(s, m), 1.0f), 0.5f);
    on_face[1] = __fmul_rn(__fadd_rn(__fdividef(t, m), 1.0f), 0.5f);
    return face;
}

extern "C" {

__device__ unsigned __hetckpt_img_tex_1d(unsigned long long object, unsigned component, float level, float x)
{
    return sample<1>(object, component, {x}, 0, level);
}

__device__ unsigned __hetckpt_img_tex_2d(unsigned long long object, unsigned component, float level, float x, float y)
{
    return sample<2>(object, component, {x, y}, 0, level);
}

__device__ unsigned __hetckpt_img_tex_3d(unsigned long long object, unsigned component, float level, float x, float y,
                                         float z)
{
    return sample<3>(object, component, {x, y, z}, 0, level);
}

__device__ unsigned __hetckpt_img_tex_a1d(unsigned long long object, unsigned component, float level, unsigned layer,
                                          float x)
{
    return sample<1>(object, component, {x}, layer, level);
}

__device__ unsigned __hetckpt_img_tex_a2d(unsigned long long object, unsigned component, float level, unsigned layer,
                                          float x, float y)
{
    return sample<2>(object, component, {x, y}, layer, level);
}

__device__ unsigned __hetckpt_img_tex_cube(unsigned long long object, unsigned component, float level, float x, float y,
                                           float z)
{
    float on_face[2];
    int face = face_of(x, y, z, on_face);
    return sample<2>(object, component, on_face, face, level);
}

__device__ unsigned __hetckpt_img_tex_acube(unsigned long long object, unsigned component, float level, unsigned layer,
                                            float x, float y, float z)
{
    float on_face[2];
    int face = face_of(x, y, z, on_face);
    unsigned cubes = num_slices(level_at(object, 0)) / 6;
    return sample<2>(object, component, on_face, 6 * min(layer, cubes - 1) + face, level);
}

__device__ unsigned __hetckpt_img_fetch_1d(unsigned long long object, unsigned component, int level, int x)
{
    return fetch<1>(object, component, {x}, 0, level);
}

__device__ unsigned __hetckpt_img_fetch_2d(unsigned long long object, unsigned component, int level, int x, int y)
{
    return fetch<2>(object, component, {x, y}, 0, level);
}

__device__ unsigned __hetckpt_img_fetch_3d(unsigned long long object, unsigned component, int level, int x, int y,
                                           int z)
{
    return fetch<3>(object, component, {x, y, z}, 0, level);
}

__device__ unsigned __hetckpt_img_fetch_a1d(unsigned long long object, unsigned component, int level, unsigned layer,
                                            int x)
{
    return fetch<1>(object, component, {x}, layer, level);
}

__device__ unsigned __hetckpt_img_fetch_a2d(unsigned long long object, unsigned component, int level, unsigned layer,
                                            int x, int y)
{
    return fetch<2>(object, component, {x, y}, layer, level);
}

// One component of the four elements that a linear filter would use, from the lower left one anticlockwise; `corner`
// says of which.
__device__ unsigned __hetckpt_img_tld4_2d(unsigned long long object, unsigned component, unsigned corner, float x,
                                          float y)
{
    unsigned long long level = level_at(object, 0);
    unsigned flags = FIELD(unsigned, object, flags);
    float coordinates[2] = {x, y};
    int at[2];
    unsigned is_upper[2] = {corner == 1 || corner == 2, corner < 2};
#pragma unroll
    for (int d = 0; d < 2; d++) {
        int size = (int)read<unsigned>(level + offsetof(Level, size) + d * 4);
        unsigned mode = read<unsigned char>(object + offsetof(Image, modes) + d);
        int found = steps(coordinates[d], size, flags, true, mode);
        at[d] = place((found >> 8) + (int)is_upper[d], size, mode);
    }
    return element<false>(object, level, component, at[0], at[1], 0);
}

// Width, height, depth or layers of the first level.
__device__ unsigned __hetckpt_img_size(unsigned long long object, unsigned dimension)
{
    return read<unsigned>(level_at(object, 0) + offsetof(Level, size) + dimension * 4);
}

__device__ unsigned __hetckpt_img_num_levels(unsigned long long object)
{
    return FIELD(unsigned, object, num_levels);
}

}

enum { ZERO, CLAMPED, TRAP };

// Address of `bytes` bytes of a surface; 0 if they are not there.
INLINE unsigned long long in_surface(unsigned long long object, int bytes, unsigned beyond, int x_bytes, int y, int z)
{
    unsigned long long level = level_at(object, 0);
    unsigned format = FIELD(unsigned, object, component_bytes);
    int row_bytes = (int)((format & 255) * (format >> 16 & 255) * OF_LEVEL(unsigned, level, size[0]));
    int at[3] = {x_bytes, y, z};
    int last[3] = {row_bytes - bytes, (int)OF_LEVEL(unsigned, level, size[1]) - 1,
                   (int)OF_LEVEL(unsigned, level, size[2]) - 1};
    bool is_beyond = false;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        is_beyond |= at[d] < 0 || at[d] > last[d];
        at[d] = min(max(at[d], 0), last[d]);
    }
    if (is_beyond && beyond != CLAMPED) {
        if (beyond == TRAP)
            asm volatile("trap;");
        return 0;
    }
    return OF_LEVEL(unsigned long long, level, base) + OF_LEVEL(unsigned long long, level, slice_bytes) * at[2]
        + (unsigned long long)OF_LEVEL(unsigned, level, pitch_bytes) * at[1] + at[0];
}

extern "C" {

// Bytes from `first` on, as many as `size`, of the `bytes` that are accessed at once.
__device__ unsigned __hetckpt_img_suld(unsigned long long object, unsigned bytes, unsigned first, unsigned size,
                                       unsigned beyond, int x_bytes, int y, int z)
{
    unsigned long long address = in_surface(object, bytes, beyond, x_bytes, y, z);
    if (address == 0)
        return 0;
    address += first;
    unsigned found;
    if (size == 1)
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(found) : "l"(address) : "memory");
    else if (size == 2)
        asm volatile("ld.global.u16 %0, [%1];" : "=r"(found) : "l"(address) : "memory");
    else
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(found) : "l"(address) : "memory");
    return found;
}

__device__ void __hetckpt_img_sust(unsigned long long object, unsigned bytes, unsigned first, unsigned size,
                                   unsigned beyond, int x_bytes, int y, int z, unsigned value)
{
    unsigned long long address = in_surface(object, bytes, beyond, x_bytes, y, z);
    if (address == 0)
        return;
    address += first;
    if (size == 1)
        asm volatile("st.global.u8 [%0], %1;" : : "l"(address), "r"(value) : "memory");
    else if (size == 2)
        asm volatile("st.global.u16 [%0], %1;" : : "l"(address), "r"(value) : "memory");
    else
        asm volatile("st.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

}
