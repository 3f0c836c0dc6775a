// Roundings: 0 to nearest even, 1 to zero, 2 down, 3 up.

// Subnormal numbers become zero.
static uint ptx_ftz_f32(uint a)
{
    return (a & 0x7f800000u) == 0 ? a & 0x80000000u : a;
}

static ulong ptx_ftz_f64(ulong a)
{
    return (a & 0x7ff0000000000000ul) == 0 ? a & 0x8000000000000000ul : a;
}

static ushort ptx_ftz_f16(ushort a)
{
    return (a & 0x7c00) == 0 ? a & 0x8000 : a;
}

// Clamped to [0, 1]; what is not a number becomes 0.
static uint ptx_sat_f32(uint a)
{
    if (a >> 31 || a > 0x7f800000u) return 0;
    return min(a, 0x3f800000u);
}

static ulong ptx_sat_f64(ulong a)
{
    if (a >> 63 || a > 0x7ff0000000000000ul) return 0;
    return min(a, 0x3ff0000000000000ul);
}

static ushort ptx_sat_f16(ushort a)
{
    if (a > 0x7c00) return 0;
    return min(a, (ushort)0x3c00);
}

static ushort ptx_sat_bf16(ushort a)
{
    if (a > 0x7f80) return 0;
    return min(a, (ushort)0x3f80);
}

static uint ptx_abs_f32(uint a)
{
    return a << 1 > 0xff000000u ? 0x7fffffffu : a & 0x7fffffffu;
}

static uint ptx_neg_f32(uint a)
{
    return a << 1 > 0xff000000u ? 0x7fffffffu : a ^ 0x80000000u;
}

static ulong ptx_neg_f64(ulong a)
{
    return a << 1 > 0xffe0000000000000ul ? a : a ^ 0x8000000000000000ul;
}

static ushort ptx_abs_f16(ushort a)
{
    return (a & 0x7fff) > 0x7c00 ? 0x7fff : a & 0x7fff;
}

static ushort ptx_neg_f16(ushort a)
{
    return (a & 0x7fff) > 0x7c00 ? 0x7fff : a ^ 0x8000;
}

static ushort ptx_abs_bf16(ushort a)
{
    return (a & 0x7fff) > 0x7f80 ? 0x7fff : a & 0x7fff;
}

static ushort ptx_neg_bf16(ushort a)
{
    return (a & 0x7fff) > 0x7f80 ? 0x7fff : a ^ 0x8000;
}

// A number wins over what is not one; -0 is less than +0. Compared as integers that are in the numbers' order.
static uint ptx_min_f32(uint a, uint b)
{
    if (a << 1 > 0xff000000u) return b << 1 > 0xff000000u ? 0x7fffffffu : b;
    if (b << 1 > 0xff000000u) return a;
    const int x = as_int(a >> 31 ? a ^ 0x7fffffffu : a), y = as_int(b >> 31 ? b ^ 0x7fffffffu : b);
    return x < y ? a : b;
}

static uint ptx_max_f32(uint a, uint b)
{
    if (a << 1 > 0xff000000u) return b << 1 > 0xff000000u ? 0x7fffffffu : b;
    if (b << 1 > 0xff000000u) return a;
    const int x = as_int(a >> 31 ? a ^ 0x7fffffffu : a), y = as_int(b >> 31 ? b ^ 0x7fffffffu : b);
    return x < y ? b : a;
}

static ulong ptx_min_f64(ulong a, ulong b)
{
    if (a << 1 > 0xffe0000000000000ul) return b << 1 > 0xffe0000000000000ul ? 0x7ff8000000000000ul : b;
    if (b << 1 > 0xffe0000000000000ul) return a;
    const long x = as_long(a >> 63 ? a ^ 0x7ffffffffffffffful : a);
    const long y = as_long(b >> 63 ? b ^ 0x7ffffffffffffffful : b);
    return x < y ? a : b;
}

static ulong ptx_max_f64(ulong a, ulong b)
{
    if (a << 1 > 0xffe0000000000000ul) return b << 1 > 0xffe0000000000000ul ? 0x7ff8000000000000ul : b;
    if (b << 1 > 0xffe0000000000000ul) return a;
    const long x = as_long(a >> 63 ? a ^ 0x7ffffffffffffffful : a);
    const long y = as_long(b >> 63 ? b ^ 0x7ffffffffffffffful : b);
    return x < y ? b : a;
}

static ushort ptx_min_f16(ushort a, ushort b)
{
    if ((a & 0x7fff) > 0x7c00) return (b & 0x7fff) > 0x7c00 ? 0x7fff : b;
    if ((b & 0x7fff) > 0x7c00) return a;
    const short x = as_short((ushort)(a >> 15 ? a ^ 0x7fff : a)), y = as_short((ushort)(b >> 15 ? b ^ 0x7fff : b));
    return x < y ? a : b;
}

static ushort ptx_max_f16(ushort a, ushort b)
{
    if ((a & 0x7fff) > 0x7c00) return (b & 0x7fff) > 0x7c00 ? 0x7fff : b;
    if ((b & 0x7fff) > 0x7c00) return a;
    const short x = as_short((ushort)(a >> 15 ? a ^ 0x7fff : a)), y = as_short((ushort)(b >> 15 ? b ^ 0x7fff : b));
    return x < y ? b : a;
}

static ushort ptx_min_bf16(ushort a, ushort b)
{
    return (ushort)(ptx_min_f32((uint)a << 16, (uint)b << 16) >> 16);
}

static ushort ptx_max_bf16(ushort a, ushort b)
{
    return (ushort)(ptx_max_f32((uint)a << 16, (uint)b << 16) >> 16);
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

static ulong ptx_from_signed(long a, uint fraction_bits, uint exponent_bits, uint rounding)
{
    return ptx_encode(a < 0, a < 0 ? 0ul - as_ulong(a) : as_ulong(a), 0, fraction_bits, exponent_bits, rounding);
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

static ushort ptx_f16_from_f32(float a)
{
    return (ushort)ptx_narrow_f32(as_uint(a), 10, 5, 0);
}

static ushort ptx_bf16_from_f32(float a)
{
    return (ushort)ptx_narrow_f32(as_uint(a), 7, 8, 0);
}

static float ptx_f32_from_f16(ushort a)
{
    const uint sign = (uint)(a & 0x8000) << 16, field = a >> 10 & 31, fraction = a & 0x3ff;
    if (field == 0) return as_float(as_uint((float)fraction * 0x1p-24f) | sign);
    return as_float(sign | (field == 31 ? 255u : field + 112) << 23 | fraction << 13);
}

static float ptx_f32_from_bf16(ushort a)
{
    return as_float((uint)a << 16);
}

// A result rounded to nearest, and what the exact one is more or less. Of numbers that are no doubles by nature, whose products and
// their errors are all doubles; for doubles there is `float64.cl`.
typedef struct {
    double value, error;
    bool is_minus_zero_rounded_down;
} ptx_inexact;

// A result that is not finite: if the operands are, the exact one is a number nearer to zero.
static ptx_inexact ptx_beyond(double value, bool from_finite)
{
    ptx_inexact x = {value, 0.0, false};
    if (isinf(value) && from_finite) x.error = value > 0 ? -1.0 : 1.0;
    return x;
}

static ptx_inexact ptx_exact(double a)
{
    ptx_inexact x = {a, 0.0, false};
    return x;
}

static ptx_inexact ptx_add_exact(double a, double b)
{
    const double value = a + b;
    if (!isfinite(value)) return ptx_beyond(value, isfinite(a) && isfinite(b));
    const double part = value - a;
    ptx_inexact x = {value, (a - (value - part)) + (b - part), signbit(a) || signbit(b)};
    return x;
}

static ptx_inexact ptx_mul_exact(double a, double b)
{
    const double value = a * b;
    if (!isfinite(value)) return ptx_beyond(value, isfinite(a) && isfinite(b));
    ptx_inexact x = {value, fma(a, b, -value), false};
    return x;
}

static ptx_inexact ptx_fma_exact(double a, double b, double c)
{
    const double value = fma(a, b, c);
    if (!isfinite(value)) return ptx_beyond(value, isfinite(a) && isfinite(b) && isfinite(c));
    const ptx_inexact product = ptx_mul_exact(a, b), sum = ptx_add_exact(product.value, c);
    ptx_inexact x = {value, (sum.value - value) + (sum.error + product.error), signbit(a * b) || signbit(c)};
    return x;
}

static ptx_inexact ptx_div_exact(double a, double b)
{
    const double value = a / b;
    if (!isfinite(value) || !isfinite(b)) return ptx_beyond(value, isfinite(a) && b != 0);
    const double remainder = fma(-value, b, a);
    ptx_inexact x = {value, b < 0 ? -remainder : remainder, false};
    return x;
}

static ptx_inexact ptx_sqrt_exact(double a)
{
    const double value = sqrt(a);
    ptx_inexact x = {value, isfinite(value) ? fma(-value, value, a) : 0.0, false};
    return x;
}

// The next number away from zero, or towards it.
static double ptx_outwards(double a)
{
    return as_double(as_ulong(a) + 1);
}

static double ptx_inwards(double a)
{
    return a == 0 ? as_double((as_ulong(a) ^ 0x8000000000000000ul) | 1) : as_double(as_ulong(a) - 1);
}

// Of the two doubles around the exact result the one with an odd last bit: rounding it again is exact.
static double ptx_to_odd(ptx_inexact x)
{
    if (x.error == 0 || isnan(x.value) || (as_ulong(x.value) & 1)) return x.value;
    if (isinf(x.value)) return x.value;
    return (x.error > 0) == (x.value > 0) ? ptx_outwards(x.value) : ptx_inwards(x.value);
}

static uint ptx_round_f32(ptx_inexact x, uint rounding)
{
    if (rounding == 2 && x.value == 0 && x.error == 0 && x.is_minus_zero_rounded_down) return 0x80000000u;
    return ptx_narrow_f64(as_ulong(ptx_to_odd(x)), 23, 8, rounding);
}

static ushort ptx_round_f16(ptx_inexact x, uint rounding)
{
    return (ushort)ptx_narrow_f64(as_ulong(ptx_to_odd(x)), 10, 5, rounding);
}

static ushort ptx_round_bf16(ptx_inexact x, uint rounding)
{
    return (ushort)ptx_narrow_f64(as_ulong(ptx_to_odd(x)), 7, 8, rounding);
}

// PTX says what it is of infinity; PoCL 3.1's own is less than 1 there.
static float ptx_tanh(float a)
{
    return fabs(a) > 16.0f ? copysign(1.0f, a) : tanh(a);
}

// The argument in turns, rounded to zero.
static float ptx_turns(float a)
{
    const float by = as_float(0x3e22f983u), turns = a * by, lost = fma(a, by, -turns);
    return (turns > 0 && lost < 0) || (turns < 0 && lost > 0) ? as_float(as_uint(turns) - 1) : turns;
}

// Beyond 100 times pi little is left of the argument in turns, and what is too small then is zero.
static float ptx_sin_approx(float a)
{
    const float turns = ptx_turns(a);
    if (fabs(turns) < as_float(0x800000u)) return copysign(0.0f, a);
    return fabs(a) <= 314.15927f ? sin(a) : sinpi(2.0f * (turns - rint(turns)));
}

static float ptx_cos_approx(float a)
{
    const float turns = ptx_turns(a);
    if (fabs(turns) < as_float(0x800000u)) return 1.0f;
    return fabs(a) <= 314.15927f ? cos(a) : cospi(2.0f * (turns - rint(turns)));
}

// The dividend by the divisor's reciprocal, which is zero where it would be subnormal.
static float ptx_div_approx(float a, float b)
{
    return fabs(b) > as_float(0x7e800000u) && !isinf(b) ? a * copysign(0.0f, b) : a / b;
}
