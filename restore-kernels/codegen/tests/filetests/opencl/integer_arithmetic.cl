// integers
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

static int ptx_div_s32(int a, int b)
{
    if (b == 0) return -1;
    return b == -1 ? as_int(0u - as_uint(a)) : a / b;
}

static ulong ptx_rem_u64(ulong a, ulong b)
{
    return b == 0 ? 0xfffffffffffffffful : a % b;
}

// Positions and lengths beyond 255: the 32-bit forms look at 8 bits, the 64-bit forms at all.
static uint ptx_bfe_u32(uint a, uint position, uint length)
{
    position &= 255;
    length &= 255;
    const uint field = position > 31 ? 0 : a >> position;
    return length > 31 ? field : field & ((1u << length) - 1);
}

static uint ptx_bfe_s32(int number, uint position, uint length)
{
    const uint a = as_uint(number);
    position &= 255;
    length &= 255;
    if (length == 0) return 0;
    const uint sign = 0u - (a >> min(position + length - 1, 31u) & 1);
    const uint kept = position > 31 ? 0 : min(length, 32 - position);
    const uint mask = kept > 31 ? 0xffffffffu : (1u << kept) - 1;
    const uint field = position > 31 ? 0 : a >> position;
    return (field & mask) | (sign & ~mask);
}

__kernel void hetckpt_integers(
    __global uchar *arena,
    ulong arena_base,
    __global uint *counts,
    __global const volatile uint *pause,
    uint4 grid,
    __global uint *turned_away
    MORE_ARENAS)
{
    ushort s0, s3, s14;
    uint r1, r4, r6, r8, r11, r12, r16, r17, r18, r19, r20, r21;
    uint r22, r23, r24, r25, r26, r27, r28;
    ulong d2, d5, d7, d9, d10, d13, d15;
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
    s0 = (ushort)((ushort)0xffff); // line 11
    r1 = 0xfffffffeu; // line 12
    d2 = 0xfffffffffffffffdul; // line 13
    s3 = (ushort)((uint)s0 + 0x9c40u); // line 14
    r4 = add_sat(as_int(r1), 5); // line 15
    d5 = d2 - 0x7ffffffffffffffful; // line 16
    r6 = r1 * r4; // line 17
    r6 = mul_hi(r1, r4); // line 18
    d7 = mul_hi(d2, d5); // line 19
    r8 = (int)as_short(s0) * 4; // line 20
    d9 = (ulong)r1 * (ulong)8u; // line 21
    d10 = d2 * d5 + d7; // line 22
    r11 = as_uint(mul_hi(as_int(r1), as_int(r4))) + r6; // line 23
    d10 = (ulong)((ulong)r1 * (ulong)r4) + d9; // line 24
    r12 = ptx_div_s32(as_int(r1), as_int(r4)); // line 25
    d13 = ptx_rem_u64(d2, d5); // line 26
    r12 = min(as_int(r1), 8); // line 27
    s14 = (ushort)(max((uint)s0, 3u)); // line 28
    r12 = abs(as_int(r1)); // line 29
    d15 = 0ul - d2; // line 30
    r16 = abs_diff(r1, r4) + 19u; // line 31
    r17 = ptx_bfe_s32(as_int(r1), 0u, 8u); // line 32
    r18 = ptx_bfe_u32(r4, 0u, 8u);
    r19 = r17 * r18 + r6;
    r20 = ptx_bfe_s32(as_int(r1), 8u, 8u);
    r21 = ptx_bfe_u32(r4, 8u, 8u);
    r22 = r20 * r21 + r19;
    r23 = ptx_bfe_s32(as_int(r1), 16u, 8u);
    r24 = ptx_bfe_u32(r4, 16u, 8u);
    r25 = r23 * r24 + r22;
    r26 = ptx_bfe_s32(as_int(r1), 24u, 8u);
    r27 = ptx_bfe_u32(r4, 24u, 8u);
    r28 = r26 * r27 + r25;
    r16 = r28;
    return; // line 33
}
