/* What every program begins with: functions that the library lacks, and those that the offset of a launch changes.
 * The rewriting of PTX gives every kernel the parameter hetckpt_ndrange: three offsets and the number of dimensions. */
#define noinline
#define __noinline__
#define __hetckpt_ndrange(at) \
    ({ ulong value; __asm__("ld.param.u64 %0, [hetckpt_ndrange+" #at "];" : "=l"(value)); value; })
static inline __attribute__((always_inline)) size_t __hetckpt_global_offset(uint dimension)
{
    return dimension == 0   ? __hetckpt_ndrange(0)
           : dimension == 1 ? __hetckpt_ndrange(8)
           : dimension == 2 ? __hetckpt_ndrange(16)
                            : 0;
}
static inline __attribute__((always_inline)) size_t __hetckpt_global_id(uint dimension)
{
    return get_group_id(dimension) * get_local_size(dimension) + get_local_id(dimension) +
           __hetckpt_global_offset(dimension);
}
#define get_global_offset(dimension) __hetckpt_global_offset(dimension)
#define get_global_id(dimension) __hetckpt_global_id(dimension)
#define get_work_dim() ((uint)__hetckpt_ndrange(24))
#define mad_hi(a, b, c) (mul_hi(a, b) + (c))
#define native_sin(x) sin(x)
#define native_cos(x) cos(x)
#define native_tan(x) tan(x)
#define native_exp(x) exp(x)
#define native_exp2(x) exp2(x)
#define native_exp10(x) exp10(x)
#define native_log(x) log(x)
#define native_log2(x) log2(x)
#define native_log10(x) log10(x)
#define native_powr(x, y) powr(x, y)
#line 1 "program.cl"
