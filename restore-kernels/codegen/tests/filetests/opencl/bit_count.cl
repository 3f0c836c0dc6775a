// _Z9bit_countPKjPjS1_jj
#pragma OPENCL FP_CONTRACT OFF

#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
typedef uint u32 __attribute__((may_alias));

// Shift amounts clamp at the width.
static uint ptx_shl_32(uint a, uint amount)
{
    return amount > 31 ? 0 : a << amount;
}

// All ones below a lane; 32 of them for 32.
static uint ptx_lanes_below(uint lanes)
{
    return lanes > 31 ? 0xffffffffu : (1u << lanes) - 1;
}

static uint ptx_ballot(__local const ulong *warp, uint members)
{
    uint mask = 0;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) mask |= (uint)(warp[i] != 0) << i;
    return mask;
}

typedef struct {
    ulong param_0; // _Z9bit_countPKjPjS1_jj_param_0
    ulong param_1; // _Z9bit_countPKjPjS1_jj_param_1
    ulong param_2; // _Z9bit_countPKjPjS1_jj_param_2
    uint param_3; // _Z9bit_countPKjPjS1_jj_param_3
    uint param_4; // _Z9bit_countPKjPjS1_jj_param_4
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt__Z9bit_countPKjPjS1_jj(
    __global uchar *arena,
    ulong arena_base,
    params_type params,
    __local ulong *lanes)
{
    bool p9 = 0, p15 = 0, p30 = 0, p34 = 0, p40 = 0, p43 = 0, p50 = 0, p53 = 0, p60 = 0, p63 = 0, p66 = 0, p68 = 0;
    bool p69 = 0, p72 = 0, p73 = 0, p75 = 0, p79 = 0, p84 = 0;
    uint r3 = 0, r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0, r11 = 0, r16 = 0, r17 = 0, r18 = 0, r19 = 0, r20 = 0;
    uint r21 = 0, r22 = 0, r23 = 0, r24 = 0, r25 = 0, r26 = 0, r27 = 0, r28 = 0, r29 = 0, r31 = 0, r32 = 0, r33 = 0;
    uint r35 = 0, r36 = 0, r37 = 0, r38 = 0, r39 = 0, r41 = 0, r42 = 0, r44 = 0, r45 = 0, r46 = 0, r47 = 0, r48 = 0;
    uint r49 = 0, r51 = 0, r52 = 0, r54 = 0, r55 = 0, r56 = 0, r57 = 0, r58 = 0, r59 = 0, r61 = 0, r62 = 0, r64 = 0;
    uint r65 = 0, r67 = 0, r70 = 0, r71 = 0, r74 = 0, r80 = 0;
    ulong d0 = 0, d1 = 0, d2 = 0, d10 = 0, d12 = 0, d13 = 0, d14 = 0, d76 = 0, d77 = 0, d78 = 0, d81 = 0, d82 = 0;
    ulong d83 = 0;
    bool absent = false;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
    const uint lane = thread & 31, warp_size = min(32u, block_size - (thread - lane));
    bool turn_of_lanes = false;
    __local uint reduction[3];
    uint turn = 0;
    if (thread == 0) reduction[0] = 0;
    block_barrier();

    d0 = params.param_0; // line 28
    d1 = params.param_1; // line 29
    d2 = params.param_2; // line 30
    r3 = params.param_3; // line 31
    r4 = params.param_4; // line 32
    r5 = (uint)get_local_size(0); // line 33
    r6 = (uint)get_group_id(0); // line 34
    r7 = (uint)get_local_id(0); // line 35
    r8 = r6 * r5 + r7; // line 36
    p9 = r8 >= r3; // line 37
    { // line 38
        if (!absent && !p9) atomic_inc(&reduction[turn]);
        if (thread == 0) reduction[turn == 2 ? 0 : turn + 1] = 0;
        block_barrier();
        p84 = reduction[turn] != 0;
        turn = turn == 2 ? 0 : turn + 1;
    }
    absent = absent || p9;
    if (p84) {
        d10 = d0; // line 40
        r11 = r7 & 31u; // line 41
        d12 = (ulong)(r8); // line 42
        d13 = (ulong)r8 * (ulong)4u; // line 43
        d14 = d10 + d13; // line 44
        p15 = as_int(r4) == 0; // line 45
        r16 = 0u; // line 46
        r17 = r16; // line 47
        if (!p15) { // line 48
            if (!absent) r18 = GLOBAL(u32, d14); // line 50
            r19 = 0u; // line 51
            r20 = r19; // line 52
            r17 = r19; // line 53
            r16 = r19; // line 54
            for (;;) {
                r21 = r18 << 13; // line 57
                r22 = r21 ^ r18; // line 58
                r23 = r22 >> 17; // line 59
                r24 = r23 ^ r22; // line 60
                r25 = r24 << 5; // line 61
                r18 = r25 ^ r24; // line 62
                r26 = r19; // line 63
                for (;;) {
                    r27 = 1u; // line 67
                    r28 = ptx_shl_32(r27, r26); // line 68
                    r29 = r28 & r18; // line 69
                    p30 = as_int(r29) != 0; // line 70
                    r31 = 0xffffffffu; // line 71
                    { // line 72
                        __local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);
                        row[thread] = p30;
                        row[2 * block_size + thread] = !absent;
                        block_barrier();
                        turn_of_lanes = !turn_of_lanes;
                        __local const ulong *const warp = row + (thread - lane);
                        const uint members = ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size));
                        r32 = ptx_ballot(warp, members);
                    }
                    r33 = popcount(r32); // line 73
                    p34 = as_int(r11) == as_int(r26); // line 74
                    r35 = p34 ? r33 : 0u; // line 75
                    r36 = r16 + r35; // line 76
                    r37 = 2u; // line 77
                    r38 = ptx_shl_32(r37, r26); // line 78
                    r39 = r38 & r18; // line 79
                    p40 = as_int(r39) != 0; // line 80
                    { // line 81
                        __local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);
                        row[thread] = p40;
                        row[2 * block_size + thread] = !absent;
                        block_barrier();
                        turn_of_lanes = !turn_of_lanes;
                        __local const ulong *const warp = row + (thread - lane);
                        const uint members = ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size));
                        r41 = ptx_ballot(warp, members);
                    }
                    r42 = r26 + 1u; // line 82
                    p43 = as_int(r11) == as_int(r42); // line 83
                    r44 = popcount(r41); // line 84
                    r45 = p43 ? r44 : 0u; // line 85
                    r46 = r36 + r45; // line 86
                    r47 = 4u; // line 87
                    r48 = ptx_shl_32(r47, r26); // line 88
                    r49 = r48 & r18; // line 89
                    p50 = as_int(r49) != 0; // line 90
                    { // line 91
                        __local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);
                        row[thread] = p50;
                        row[2 * block_size + thread] = !absent;
                        block_barrier();
                        turn_of_lanes = !turn_of_lanes;
                        __local const ulong *const warp = row + (thread - lane);
                        const uint members = ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size));
                        r51 = ptx_ballot(warp, members);
                    }
                    r52 = r26 + 2u; // line 92
                    p53 = as_int(r11) == as_int(r52); // line 93
                    r54 = popcount(r51); // line 94
                    r55 = p53 ? r54 : 0u; // line 95
                    r56 = r46 + r55; // line 96
                    r57 = 8u; // line 97
                    r58 = ptx_shl_32(r57, r26); // line 98
                    r59 = r58 & r18; // line 99
                    p60 = as_int(r59) != 0; // line 100
                    { // line 101
                        __local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);
                        row[thread] = p60;
                        row[2 * block_size + thread] = !absent;
                        block_barrier();
                        turn_of_lanes = !turn_of_lanes;
                        __local const ulong *const warp = row + (thread - lane);
                        const uint members = ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size));
                        r61 = ptx_ballot(warp, members);
                    }
                    r62 = r26 + 3u; // line 102
                    p63 = as_int(r11) == as_int(r62); // line 103
                    r64 = popcount(r61); // line 104
                    r65 = p63 ? r64 : 0u; // line 105
                    r16 = r56 + r65; // line 106
                    r26 = r26 + 4u; // line 107
                    p66 = as_int(r26) != 32; // line 108
                    if (!p66) break; // line 109
                }
                r67 = r24 & 31u; // line 111
                p68 = as_int(r67) == 0; // line 112
                { // line 113
                    __local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);
                    row[thread] = p68;
                    row[2 * block_size + thread] = !absent;
                    block_barrier();
                    turn_of_lanes = !turn_of_lanes;
                    __local const ulong *const warp = row + (thread - lane);
                    const uint members = ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size));
                    p69 = ptx_ballot(warp, members) != 0;
                }
                r70 = p69 ? 1u : 0u; // line 114
                r71 = r17 + r70; // line 115
                p72 = as_int(r67) != 1; // line 116
                { // line 117
                    __local ulong *const row = lanes + (turn_of_lanes ? block_size : 0);
                    row[thread] = p72;
                    row[2 * block_size + thread] = !absent;
                    block_barrier();
                    turn_of_lanes = !turn_of_lanes;
                    __local const ulong *const warp = row + (thread - lane);
                    const uint members = ptx_ballot(warp + 2 * block_size, ptx_lanes_below(warp_size));
                    p73 = ptx_ballot(warp, members) == members;
                }
                r74 = r71 + 0x10000u; // line 118
                r17 = p73 ? r74 : r71; // line 119
                r20 = r20 + 1u; // line 120
                p75 = r20 < r4; // line 121
                if (!p75) break; // line 122
            }
        }
        d76 = d1; // line 125
        d77 = d12 << 2; // line 126
        d78 = d76 + d77; // line 127
        if (!absent) GLOBAL(u32, d78) = r16; // line 128
        p79 = as_int(r11) != 0; // line 129
        if (absent) goto bb9; // line 130
        if (!p79) {
            r80 = r8 >> 5; // line 132
            d81 = d2; // line 133
            d82 = (ulong)r80 * (ulong)4u; // line 134
            d83 = d81 + d82; // line 135
            if (!absent) GLOBAL(u32, d83) = r17; // line 136
        }
    }
bb9:;
    return; // line 139
}
