// Directed roundings of doubles: the sign of what rounding to nearest has lost. Operands and result are scaled by powers of two
// first, so that no product is too great, and nothing that is lost too small, for a double.

// a = result * 2^exponent, and the result's magnitude is in [1, 2); zero is left as it is, and counts as very small.
static double ptx_split(double a, int *exponent)
{
    ulong fraction = as_ulong(a) & 0xffffffffffffful;
    int field = (int)(as_ulong(a) >> 52 & 2047);
    *exponent = -10000;
    if (field == 0 && fraction == 0) return a;
    if (field == 0) {
        const int shift = (int)clz(fraction) - 11;
        fraction = fraction << shift & 0xffffffffffffful;
        field = 1 - shift;
    }
    *exponent = field - 1023;
    return as_double((as_ulong(a) & 0x8000000000000000ul) | 0x3ff0000000000000ul | fraction);
}

// a * 2^exponent. What would be less than 2^-400 becomes about that, as what is so small beside the rest has but a sign.
static double ptx_scaled(double a, int exponent)
{
    int own;
    const double part = ptx_split(a, &own);
    if (part == 0) return a;
    return as_double((as_ulong(part) & 0x800ffffffffffffful) | (ulong)(max(own + exponent, -400) + 1023) << 52);
}

// The sum, and what it has lost.
static double ptx_two_sum(double a, double b, double *lost)
{
    const double sum = a + b, part = sum - a;
    *lost = (a - (sum - part)) + (b - part);
    return sum;
}

// A number with the sign of high + low + more - value, where low is less than a unit in the last place of high (Shewchuk,
// "Adaptive Precision Floating-Point Arithmetic", grow-expansion).
static double ptx_sign_of_sum(double high, double low, double more, double value)
{
    double a, b, c, d, e;
    const double sum = ptx_two_sum(ptx_two_sum(more, low, &a), high, &b);
    d = ptx_two_sum(ptx_two_sum(ptx_two_sum(-value, a, &c), b, &e), sum, &a);
    return d != 0 ? d : a != 0 ? a : e != 0 ? e : c;
}

static ptx_inexact ptx_add_f64(double a, double b)
{
    const double value = a + b;
    if (!isfinite(value)) return ptx_beyond(value, isfinite(a) && isfinite(b));
    const bool is_less = fabs(a) < fabs(b);
    const double great = is_less ? b : a, small = is_less ? a : b;
    ptx_inexact x = {value, small - (value - great), signbit(a) || signbit(b)};
    return x;
}

static ptx_inexact ptx_fma_f64(double a, double b, double c)
{
    const double value = fma(a, b, c);
    if (!isfinite(value)) return ptx_beyond(value, isfinite(a) && isfinite(b) && isfinite(c));
    ptx_inexact x = {value, 0.0, signbit(a) != signbit(b) || signbit(c)};
    if (a == 0 || b == 0) return x;
    int i, j, k;
    const double s = ptx_split(a, &i), t = ptx_split(b, &j);
    ptx_split(c, &k);
    const int greatest = max(i + j, k);
    const double u = ptx_scaled(s, i + j - greatest), high = u * t;
    x.error = ptx_sign_of_sum(high, fma(u, t, -high), ptx_scaled(c, -greatest), ptx_scaled(value, -greatest));
    return x;
}

static ptx_inexact ptx_mul_f64(double a, double b)
{
    ptx_inexact x = ptx_fma_f64(a, b, 0.0);
    x.value = a * b;
    x.is_minus_zero_rounded_down = false;
    return x;
}

static ptx_inexact ptx_div_f64(double a, double b)
{
    const double value = a / b;
    if (!isfinite(value) || !isfinite(b)) return ptx_beyond(value, isfinite(a) && b != 0);
    int i, j;
    const double s = ptx_split(a, &i), t = ptx_split(b, &j);
    const double remainder = a == 0 ? 0.0 : fma(-ptx_scaled(value, j - i), t, s);
    ptx_inexact x = {value, b < 0 ? -remainder : remainder, false};
    return x;
}

static ptx_inexact ptx_sqrt_f64(double a)
{
    const double value = sqrt(a);
    ptx_inexact x = {value, 0.0, false};
    if (!isfinite(value) || value == 0) return x;
    int i;
    ptx_split(a, &i);
    i &= ~1;
    const double root = ptx_scaled(value, -i / 2);
    x.error = fma(-root, root, ptx_scaled(a, -i));
    return x;
}

static ulong ptx_round_f64(ptx_inexact x, uint rounding)
{
    const double value = x.value;
    if (isnan(value)) return as_ulong(value);
    if (rounding == 2 && value == 0 && x.error == 0 && x.is_minus_zero_rounded_down) return 0x8000000000000000ul;
    if (rounding == 0 || x.error == 0) return as_ulong(value);
    if (value == 0) {
        if (rounding == 2 && x.error < 0) return 0x8000000000000001ul;
        return rounding == 3 && x.error > 0 ? 1 : as_ulong(value);
    }
    const bool is_too_great = x.error < 0, is_positive = value > 0;
    const bool moves = rounding == 1 ? is_too_great == is_positive : rounding == 2 ? is_too_great : !is_too_great;
    if (!moves) return as_ulong(value);
    return is_too_great == is_positive ? as_ulong(ptx_inwards(value)) : as_ulong(ptx_outwards(value));
}
