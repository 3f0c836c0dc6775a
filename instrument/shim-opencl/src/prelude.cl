/* What every program begins with: functions that the library lacks or has wrong, and those that the offset of a launch changes.
 * The rewriting of PTX gives every kernel the parameter hetckpt_ndrange: three offsets and the number of dimensions.
 * Functions are C99's inline ones, which leave nothing behind in an object: OpenCL C 1.1 has no `static`. */
#undef __OPENCL_VERSION__
#define __OPENCL_VERSION__ 120
#define noinline
#define __noinline__
#define __hetckpt_function inline __attribute__((overloadable, always_inline))
#define __hetckpt_ndrange(at) \
    ({ ulong value; __asm__("ld.param.u64 %0, [hetckpt_ndrange+" #at "];" : "=l"(value)); value; })
__hetckpt_function size_t __hetckpt_global_offset(uint dimension)
{
    return dimension == 0   ? __hetckpt_ndrange(0)
           : dimension == 1 ? __hetckpt_ndrange(8)
           : dimension == 2 ? __hetckpt_ndrange(16)
                            : 0;
}
__hetckpt_function size_t __hetckpt_global_id(uint dimension)
{
    return get_group_id(dimension) * get_local_size(dimension) + get_local_id(dimension) +
           __hetckpt_global_offset(dimension);
}
#define get_global_offset(dimension) __hetckpt_global_offset(dimension)
#define get_global_id(dimension) __hetckpt_global_id(dimension)
#define get_work_dim() ((uint)__hetckpt_ndrange(24))

#define __hetckpt_widths(of, type) of(type) of(type##2) of(type##3) of(type##4) of(type##8) of(type##16)
#define __hetckpt_mad_hi_of(type) \
    __hetckpt_function type __hetckpt_mad_hi(type a, type b, type c) { return mul_hi(a, b) + c; }
__hetckpt_widths(__hetckpt_mad_hi_of, char) __hetckpt_widths(__hetckpt_mad_hi_of, uchar)
__hetckpt_widths(__hetckpt_mad_hi_of, short) __hetckpt_widths(__hetckpt_mad_hi_of, ushort)
__hetckpt_widths(__hetckpt_mad_hi_of, int) __hetckpt_widths(__hetckpt_mad_hi_of, uint)
__hetckpt_widths(__hetckpt_mad_hi_of, long) __hetckpt_widths(__hetckpt_mad_hi_of, ulong)
#define mad_hi __hetckpt_mad_hi

/* The library's lets differences overflow, which newer clangs take for something that cannot be. */
#define __hetckpt_abs_diff_of(type) \
    __hetckpt_function u##type __hetckpt_abs_diff(type a, type b) \
    { \
        return a > b ? as_u##type(a) - as_u##type(b) : as_u##type(b) - as_u##type(a); \
    }
#define __hetckpt_abs_diff_of_unsigned(type) \
    __hetckpt_function type __hetckpt_abs_diff(type a, type b) { return abs_diff(a, b); }
__hetckpt_widths(__hetckpt_abs_diff_of, char) __hetckpt_widths(__hetckpt_abs_diff_of_unsigned, uchar)
__hetckpt_widths(__hetckpt_abs_diff_of, short) __hetckpt_widths(__hetckpt_abs_diff_of_unsigned, ushort)
__hetckpt_widths(__hetckpt_abs_diff_of, int) __hetckpt_widths(__hetckpt_abs_diff_of_unsigned, uint)
__hetckpt_widths(__hetckpt_abs_diff_of, long) __hetckpt_widths(__hetckpt_abs_diff_of_unsigned, ulong)
#define abs_diff __hetckpt_abs_diff

/* The library's for long looks at the product's ends and not at the sum's. */
#define __hetckpt_mad_sat_of(type) \
    __hetckpt_function type __hetckpt_mad_sat(type a, type b, type c) { return mad_sat(a, b, c); }
__hetckpt_widths(__hetckpt_mad_sat_of, char) __hetckpt_widths(__hetckpt_mad_sat_of, uchar)
__hetckpt_widths(__hetckpt_mad_sat_of, short) __hetckpt_widths(__hetckpt_mad_sat_of, ushort)
__hetckpt_widths(__hetckpt_mad_sat_of, int) __hetckpt_widths(__hetckpt_mad_sat_of, uint)
__hetckpt_widths(__hetckpt_mad_sat_of, ulong)
__hetckpt_function long __hetckpt_mad_sat(long a, long b, long c)
{
    const ulong product = (ulong)a * (ulong)b, low = product + (ulong)c;
    const long high = (long)((ulong)mul_hi(a, b) + (ulong)(c >> 63) + (low < product));
    return high == (long)low >> 63 ? (long)low : high < 0 ? LONG_MIN : LONG_MAX;
}
#define __hetckpt_mad_sat_half(part) __hetckpt_mad_sat(a.part, b.part, c.part)
#define __hetckpt_mad_sat_by_halves(type) \
    __hetckpt_function type __hetckpt_mad_sat(type a, type b, type c) \
    { \
        return (type)(__hetckpt_mad_sat_half(lo), __hetckpt_mad_sat_half(hi)); \
    }
__hetckpt_mad_sat_by_halves(long2)
__hetckpt_function long3 __hetckpt_mad_sat(long3 a, long3 b, long3 c)
{
    return (long3)(__hetckpt_mad_sat_half(xy), __hetckpt_mad_sat_half(z));
}
__hetckpt_mad_sat_by_halves(long4) __hetckpt_mad_sat_by_halves(long8) __hetckpt_mad_sat_by_halves(long16)
#define mad_sat __hetckpt_mad_sat

/* Older clangs do not declare them to a device without half arithmetic, the library has them. */
#if __clang_major__ < 15
#define __hetckpt_half_to_float(space, n) \
    float##n __attribute__((overloadable)) vload_half##n(size_t, const space half *); \
    float##n __attribute__((overloadable)) vloada_half##n(size_t, const space half *);
#define __hetckpt_to_half(space, n, rounding) \
    void __attribute__((overloadable)) vstore_half##n##rounding(float##n, size_t, space half *); \
    void __attribute__((overloadable)) vstorea_half##n##rounding(float##n, size_t, space half *); \
    void __attribute__((overloadable)) vstore_half##n##rounding(double##n, size_t, space half *); \
    void __attribute__((overloadable)) vstorea_half##n##rounding(double##n, size_t, space half *);
#define __hetckpt_halves(space, n) \
    __hetckpt_half_to_float(space, n) __hetckpt_to_half(space, n, ) __hetckpt_to_half(space, n, _rte) \
    __hetckpt_to_half(space, n, _rtz) __hetckpt_to_half(space, n, _rtp) __hetckpt_to_half(space, n, _rtn)
#define __hetckpt_half_widths(of, space) of(space, ) of(space, 2) of(space, 3) of(space, 4) of(space, 8) of(space, 16)
__hetckpt_half_widths(__hetckpt_half_to_float, __constant) __hetckpt_half_widths(__hetckpt_halves, __global)
__hetckpt_half_widths(__hetckpt_halves, __local) __hetckpt_half_widths(__hetckpt_halves, __private)
#endif

/* The library's roundings up and down give 0 for what is smaller than the smallest half. */
#define __hetckpt_round(type, rounding, less_or_greater) \
    __hetckpt_function ushort __hetckpt_half##rounding(type x) \
    { \
        ushort bits; \
        vstore_half_rtz(x, 0, (__private half *)&bits); \
        return vload_half(0, (const __private half *)&bits) less_or_greater x ? bits + 1 : bits; \
    } \
    __hetckpt_round_by_halves(type, rounding, 2) \
    __hetckpt_function ushort3 __hetckpt_half##rounding(type##3 x) \
    { \
        return (ushort3)(__hetckpt_half##rounding(x.xy), __hetckpt_half##rounding(x.z)); \
    } \
    __hetckpt_round_by_halves(type, rounding, 4) __hetckpt_round_by_halves(type, rounding, 8) \
    __hetckpt_round_by_halves(type, rounding, 16)
#define __hetckpt_round_by_halves(type, rounding, n) \
    __hetckpt_function ushort##n __hetckpt_half##rounding(type##n x) \
    { \
        return (ushort##n)(__hetckpt_half##rounding(x.lo), __hetckpt_half##rounding(x.hi)); \
    }
__hetckpt_round(float, _rtp, <) __hetckpt_round(float, _rtn, >)
__hetckpt_round(double, _rtp, <) __hetckpt_round(double, _rtn, >)
#define __hetckpt_store_half(form, n, stride, rounding, type, space, store) \
    __hetckpt_function void __hetckpt_##form##n##rounding(type##n x, size_t offset, space half *p) \
    { \
        store(__hetckpt_half##rounding(x), 0, (space ushort *)p + offset * stride); \
    }
#define __hetckpt_store_halves(n, stride, aligned_stride, rounding, type, space, store) \
    __hetckpt_store_half(vstore_half, n, stride, rounding, type, space, store) \
    __hetckpt_store_half(vstorea_half, n, aligned_stride, rounding, type, space, store)
#define __hetckpt_store_one(x, offset, p) (*(p) = (x))
#define __hetckpt_store_widths(rounding, type, space) \
    __hetckpt_store_halves(, 1, 1, rounding, type, space, __hetckpt_store_one) \
    __hetckpt_store_halves(2, 2, 2, rounding, type, space, vstore2) \
    __hetckpt_store_halves(3, 3, 4, rounding, type, space, vstore3) \
    __hetckpt_store_halves(4, 4, 4, rounding, type, space, vstore4) \
    __hetckpt_store_halves(8, 8, 8, rounding, type, space, vstore8) \
    __hetckpt_store_halves(16, 16, 16, rounding, type, space, vstore16)
#define __hetckpt_store_spaces(rounding, type) \
    __hetckpt_store_widths(rounding, type, __global) __hetckpt_store_widths(rounding, type, __local) \
    __hetckpt_store_widths(rounding, type, __private)
__hetckpt_store_spaces(_rtp, float) __hetckpt_store_spaces(_rtn, float)
__hetckpt_store_spaces(_rtp, double) __hetckpt_store_spaces(_rtn, double)
#define vstore_half_rtp __hetckpt_vstore_half_rtp
#define vstore_half2_rtp __hetckpt_vstore_half2_rtp
#define vstore_half3_rtp __hetckpt_vstore_half3_rtp
#define vstore_half4_rtp __hetckpt_vstore_half4_rtp
#define vstore_half8_rtp __hetckpt_vstore_half8_rtp
#define vstore_half16_rtp __hetckpt_vstore_half16_rtp
#define vstorea_half_rtp __hetckpt_vstorea_half_rtp
#define vstorea_half2_rtp __hetckpt_vstorea_half2_rtp
#define vstorea_half3_rtp __hetckpt_vstorea_half3_rtp
#define vstorea_half4_rtp __hetckpt_vstorea_half4_rtp
#define vstorea_half8_rtp __hetckpt_vstorea_half8_rtp
#define vstorea_half16_rtp __hetckpt_vstorea_half16_rtp
#define vstore_half_rtn __hetckpt_vstore_half_rtn
#define vstore_half2_rtn __hetckpt_vstore_half2_rtn
#define vstore_half3_rtn __hetckpt_vstore_half3_rtn
#define vstore_half4_rtn __hetckpt_vstore_half4_rtn
#define vstore_half8_rtn __hetckpt_vstore_half8_rtn
#define vstore_half16_rtn __hetckpt_vstore_half16_rtn
#define vstorea_half_rtn __hetckpt_vstorea_half_rtn
#define vstorea_half2_rtn __hetckpt_vstorea_half2_rtn
#define vstorea_half3_rtn __hetckpt_vstorea_half3_rtn
#define vstorea_half4_rtn __hetckpt_vstorea_half4_rtn
#define vstorea_half8_rtn __hetckpt_vstorea_half8_rtn
#define vstorea_half16_rtn __hetckpt_vstorea_half16_rtn

#define native_sin sin
#define native_cos cos
#define native_tan tan
#define native_exp exp
#define native_exp2 exp2
#define native_exp10 exp10
#define native_log log
#define native_log2 log2
#define native_log10 log10
#define native_powr powr
#line 1 "program.cl"
