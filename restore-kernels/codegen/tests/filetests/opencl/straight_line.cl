// scale
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
typedef uint u32 __attribute__((may_alias));

typedef struct {
    uchar param_0; // flag
    uchar before_1[7];
    ulong param_1; // values
    uint param_2; // factor
    uint param_3; // count
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt_scale(
    __global uchar *arena,
    ulong arena_base,
    params_type params,
    __global uint *counts,
    __global const volatile uint *pause,
    uint4 grid,
    __global uint *turned_away
    MORE_ARENAS)
{
    bool p7;
    uint r1, r2, r3, r4, r5, r6, r11, r12;
    ulong d0, d8, d9, d10;
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
    d0 = params.param_1; // line 20
    r1 = params.param_2; // line 21
    r2 = params.param_3; // line 22
    r3 = ctaid_x; // line 23
    r4 = (uint)get_local_size(0); // line 24
    r5 = (uint)get_local_id(0); // line 25
    r6 = r3 * r4 + r5; // line 26
    p7 = r6 >= r2; // line 27
    if (!p7) { // line 28
        d8 = d0; // line 30
        d9 = (long)as_int(r6) * (long)4; // line 31
        d10 = d8 + d9; // line 32
        r11 = GLOBAL(u32, d10); // line 34
        r12 = as_uint(as_float(r11) * as_float(r1)); // line 35
        GLOBAL(u32, d10 - 4ul) = r12; // line 36
    }
    return; // line 39
}
