// convert
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

// Subnormal numbers become zero.
static uint ptx_ftz_f32(uint a)
{
    return (a & 0x7f800000u) == 0 ? a & 0x80000000u : a;
}

// Clamped to [0, 1]; what is not a number becomes 0.
static uint ptx_sat_f32(uint a)
{
    if (a >> 31 || a > 0x7f800000u) return 0;
    return min(a, 0x3f800000u);
}

// significand * 2^exponent in a binary format.
static ulong ptx_encode(bool negative, ulong significand, int exponent, uint fraction_bits, uint exponent_bits, uint rounding)
{
    const ulong sign = (ulong)negative << (fraction_bits + exponent_bits);
    if (significand == 0) return sign;
    const int zeros = (int)clz(significand);
    significand <<= zeros;
    int field = exponent - zeros + 63 + (1 << (exponent_bits - 1)) - 1;
    uint drop = 63 - fraction_bits;
    if (field < 1) {
        drop += (uint)min(1 - field, 64);
        field = 1;
    }
    const ulong kept = drop > 63 ? 0 : significand >> drop;
    const ulong rest = drop > 63 ? significand : significand & ((1ul << drop) - 1);
    const ulong tie = 1ul << min(drop - 1, 63u);
    const bool outwards = rounding == (negative ? 2 : 3);
    const bool up = rounding == 0 ? drop < 65 && (rest > tie || (rest == tie && (kept & 1))) : outwards && rest != 0;
    const ulong result = ((ulong)(field - 1) << fraction_bits) + kept + (up ? 1 : 0);
    const ulong infinity = ((1ul << exponent_bits) - 1) << fraction_bits;
    if (result >= infinity) return sign | (rounding == 0 || outwards ? infinity : infinity - 1);
    return sign | result;
}

static ulong ptx_from_unsigned(ulong a, uint fraction_bits, uint exponent_bits, uint rounding)
{
    return ptx_encode(false, a, 0, fraction_bits, exponent_bits, rounding);
}

static uint ptx_narrow_f32(uint a, uint fraction_bits, uint exponent_bits, uint rounding)
{
    const uint field = a >> 23 & 255, fraction = a & 0x7fffffu;
    const uint sign = a >> 31 << (fraction_bits + exponent_bits);
    if (field == 255 && fraction != 0) return (1u << (fraction_bits + exponent_bits)) - 1;
    if (field == 255) return sign | ((1u << exponent_bits) - 1) << fraction_bits;
    const ulong significand = field == 0 ? fraction : fraction | 0x800000u;
    return (uint)ptx_encode(a >> 31, significand, (int)max(field, 1u) - 150, fraction_bits, exponent_bits, rounding);
}

static uint ptx_narrow_f64(ulong a, uint fraction_bits, uint exponent_bits, uint rounding)
{
    const uint field = (uint)(a >> 52) & 2047;
    const ulong fraction = a & 0xffffffffffffful;
    const uint sign = (uint)(a >> 63) << (fraction_bits + exponent_bits);
    if (field == 2047 && fraction != 0) return (1u << (fraction_bits + exponent_bits)) - 1;
    if (field == 2047) return sign | ((1u << exponent_bits) - 1) << fraction_bits;
    const ulong significand = field == 0 ? fraction : fraction | 0x10000000000000ul;
    return (uint)ptx_encode(a >> 63, significand, (int)max(field, 1u) - 1075, fraction_bits, exponent_bits, rounding);
}

// To nearest. What becomes subnormal the device may not keep, so integers do it.
static uint ptx_f32_from_f64(double a)
{
    return fabs(a) >= 0x1p-126 ? as_uint(convert_float_rte(a)) : ptx_narrow_f64(as_ulong(a), 23, 8, 0);
}

static float ptx_f32_from_f16(ushort a)
{
    const uint sign = (uint)(a & 0x8000) << 16, field = a >> 10 & 31, fraction = a & 0x3ff;
    if (field == 0) return as_float(as_uint((float)fraction * 0x1p-24f) | sign);
    return as_float(sign | (field == 31 ? 255u : field + 112) << 23 | fraction << 13);
}

__kernel void hetckpt_convert(
    __global uchar *arena,
    ulong arena_base,
    __global uint *counts,
    __global const volatile uint *pause,
    uint4 grid,
    __global uint *turned_away
    MORE_ARENAS)
{
    ushort s2, s4 = 0, s8, s9;
    uint r0 = 0, r3 = 0, r5, r6 = 0, r10;
    ulong d1, d7 = 0;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));

    __local uint told[1];
    const uint block = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const uint ctaid_x = get_group_id(0), ctaid_y = get_group_id(1), ctaid_z = get_group_id(2);
    if (thread == 0) {
        told[0] = *pause;
    }
    block_barrier();
    if (told[0]) {
        if (thread == 0) turned_away[atomic_inc(&counts[0])] = block;
        return;
    }
    d1 = (long)(as_int(r0)); // line 13
    r0 = (uint)(d1); // line 14
    s2 = (ushort)((ushort)(r0)); // line 15
    r0 = (int)((int)as_char((uchar)r3)); // line 16
    s2 = (ushort)((short)((int)as_char((uchar)s4))); // line 17
    r0 = (uint)(255u); // line 18
    r0 = (uint)((uint)s2); // line 19
    r5 = as_uint(convert_float_rte(as_int(r0))); // line 20
    r5 = (uint)ptx_from_unsigned(d1, 23, 8, 3); // line 21
    { // line 22
        const float x = as_float(r5);
        r0 = isnan(x) ? 0 : convert_int_sat_rtz(x);
    }
    { // line 23
        const float x = as_float(ptx_ftz_f32(r5));
        r0 = isnan(x) ? 0 : convert_int_sat_rtz(x);
    }
    r5 = as_uint(rint(as_float(r6))); // line 24
    { // line 25
        const double x = as_double(d7);
        d1 = isnan(x) ? as_long(0x8000000000000000ul) : convert_long_sat_rtn(x);
    }
    r5 = ptx_sat_f32(as_uint(as_float(r6))); // line 26
    d7 = as_ulong((double)as_float(r5)); // line 27
    r5 = ptx_f32_from_f64(as_double(d7)); // line 28
    s2 = (ushort)((ushort)ptx_narrow_f32(as_uint(as_float(r5)), 10, 5, 0)); // line 29
    r5 = as_uint(ptx_f32_from_f16(s2)); // line 30
    s2 = (ushort)((ushort)ptx_narrow_f32(as_uint(as_float(r5)), 7, 8, 0)); // line 31
    { // line 32
        const float x = ptx_f32_from_f16(s2);
        s4 = (ushort)(isnan(x) ? 0 : convert_uchar_sat_rtz(x));
    }
    s8 = (ushort)((ushort)ptx_narrow_f32(as_uint(as_float(r6)), 10, 5, 0)); // line 33
    s9 = (ushort)((ushort)ptx_narrow_f32(as_uint(as_float(r5)), 10, 5, 0));
    r0 = (uint)s8 << 0 | (uint)s9 << 16;
    r10 = (uint)get_local_id(0); // line 34
    d1 = (ulong)(r10);
    return; // line 35
}
