// _Z9bit_countPKjPjS1_jj
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define FINISHED 0xffffffffu
typedef uint u32 __attribute__((may_alias));

// Shift amounts clamp at the width.
static uint ptx_shl_32(uint a, uint amount)
{
    return amount > 31 ? 0 : a << amount;
}

// Lanes of a warp that are at a resume point, and those that have not ended.
static uint2 ptx_lanes_waiting(__local const uint *points, uint warp_size, uint point)
{
    uint2 lanes = (uint2)(0, 0);
    for (uint i = 0; i < warp_size; i++) {
        lanes.x |= (uint)(points[i] == point) << i;
        lanes.y |= (uint)(points[i] != 0xffffffffu) << i;
    }
    return lanes;
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
    __local ulong2 *shared_memory,
    uint dynamic_shared_bytes,
    __local ulong *lanes,
    __global uint *counts,
    __global const volatile uint *pause,
    uint4 grid,
    __global const uint *resumed,
    __global const uchar *resumed_slots,
    __global uint *turned_away,
    __global uchar *stopped,
    uint num_stopped
    MORE_ARENAS)
{
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
    const uint lane = thread & 31, warp_size = min(32u, block_size - (thread - lane));

    __local uint told[1];
    __local uint round_words[16];
    const uint zero = grid.w >> 31;
    ulong kept_d[3];
    uint kept_r[21];
    uchar kept_p[8];
    __local uint away_words[16];
    __local uint ballots[4 * 32];
    __local ulong common[2];
    const uint group = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const bool goes_on = resumed != 0 && group < grid.w;
    const uint block = resumed != 0 ? resumed[group] : group;
    const uint ctaid_x = block % grid.x, ctaid_y = block / grid.x % grid.y;
    const uint ctaid_z = block / grid.x / grid.y;
    if (thread == 0) {
        told[0] = *pause;
        for (uint i = 0; i < 16; i++) round_words[i] = 0;
        for (uint i = 0; i < 16; i++) away_words[i] = 0;
    }
    block_barrier();
    if (told[0]) {
        if (thread == 0) turned_away[atomic_inc(&counts[0])] = block;
        return;
    }
    block_barrier();
    uint point = 0;
    if (goes_on) {
        const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
        const ulong shared_at = ((registers_at + 116ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
        __global const uchar *const slot = resumed_slots + group * slot_bytes;
        point = ((__global const uint *)slot)[thread] - 1;
        for (uint i = 0; i < 3; i++) kept_d[i] = ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread];
        for (uint i = 0; i < 21; i++) kept_r[i] = ((__global uint *)(slot + registers_at + (24ul + 4 * i) * block_size))[thread];
        for (uint i = 0; i < 8; i++) kept_p[i] = ((__global uchar *)(slot + registers_at + (108ul + 1 * i) * block_size))[thread];
        for (uint i = thread; i < (0u + dynamic_shared_bytes + 15) / 16; i += block_size) shared_memory[i] = ((__global ulong2 *)(slot + shared_at))[i];
    }
    block_barrier();
    uint landing = 0;
    for (uint round = 0;; round++) {
        switch (point) {
            case 0: {
                ulong d0 = 0, d1 = 0, d2 = 0, d10 = 0, d12 = 0, d13 = 0;
                ulong d14 = 0, d76 = 0, d77 = 0, d78 = 0, d81 = 0, d82 = 0;
                ulong d83 = 0;
                uint r3 = 0, r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0;
                uint r11 = 0, r16 = 0, r17 = 0, r18 = 0, r19 = 0, r20 = 0;
                uint r21 = 0, r22 = 0, r23 = 0, r24 = 0, r25 = 0, r26 = 0;
                uint r27 = 0, r28 = 0, r29 = 0, r31 = 0, r80 = 0, r84 = 0;
                uint r86 = 0, r87 = 0, r88 = 0;
                bool p9 = 0, p15 = 0, p30 = 0, p79 = 0, p89 = 0;
                d0 = params.param_0; // line 28
                d1 = params.param_1; // line 29
                d2 = params.param_2; // line 30
                r3 = params.param_3; // line 31
                r4 = params.param_4; // line 32
                r5 = (uint)get_local_size(0); // line 33
                r6 = ctaid_x; // line 34
                r7 = (uint)get_local_id(0); // line 35
                r8 = r6 * r5 + r7; // line 36
                p9 = r8 >= r3; // line 37
                if (!p9) { // line 38
                    d10 = d0; // line 40
                    r11 = r7 & 31u; // line 41
                    d12 = (ulong)(r8); // line 42
                    d13 = (ulong)r8 * (ulong)4u; // line 43
                    d14 = d10 + d13; // line 44
                    p15 = as_int(r4) == 0; // line 45
                    r16 = 0u; // line 46
                    r17 = r16; // line 47
                    if (p15) { // line 48
                        d76 = d1; // line 125
                        d77 = d12 << 2; // line 126
                        d78 = d76 + d77; // line 127
                        GLOBAL(u32, d78) = r16; // line 128
                        p79 = as_int(r11) != 0; // line 129
                        if (!p79) { // line 130
                            r80 = r8 >> 5; // line 132
                            d81 = d2; // line 133
                            d82 = (ulong)r80 * (ulong)4u; // line 134
                            d83 = d81 + d82; // line 135
                            GLOBAL(u32, d83) = r17; // line 136
                        }
                    } else {
                        r18 = GLOBAL(u32, d14); // line 50
                        r19 = 0u; // line 51
                        r20 = r19; // line 52
                        r17 = r19; // line 53
                        r16 = r19; // line 54
                        r84 = 0x4000u;
                        r21 = r18 << 13; // line 57
                        r22 = r21 ^ r18; // line 58
                        r23 = r22 >> 17; // line 59
                        r24 = r23 ^ r22; // line 60
                        r25 = r24 << 5; // line 61
                        r18 = r25 ^ r24; // line 62
                        r26 = r19; // line 63
                        r87 = 32u - r26;
                        p89 = r87 > 1284u;
                        r88 = r26 + 1284u;
                        r86 = p89 ? r88 : 32u;
                        r87 = p89 ? 1284u : r87;
                        r87 = r87 >> 2;
                        r87 = r87 * 51u;
                        r84 = r84 - r87;
                        r27 = 1u; // line 67
                        r28 = ptx_shl_32(r27, r26); // line 68
                        r29 = r28 & r18; // line 69
                        p30 = as_int(r29) != 0; // line 70
                        r31 = 0xffffffffu; // line 71
                        kept_d[zero + 0] = d1;
                        kept_d[zero + 1] = d2;
                        kept_r[zero + 0] = r4;
                        kept_r[zero + 1] = r8;
                        kept_r[zero + 2] = r11;
                        kept_d[zero + 2] = d12;
                        kept_r[zero + 3] = r16;
                        kept_r[zero + 4] = r17;
                        kept_r[zero + 5] = r18;
                        kept_r[zero + 6] = r19;
                        kept_r[zero + 7] = r20;
                        kept_r[zero + 8] = r24;
                        kept_r[zero + 9] = r26;
                        kept_p[zero + 0] = p30;
                        kept_r[zero + 19] = r84;
                        kept_r[zero + 20] = r86;
                        point = 1; goto rest; // line 72
                    }
                }
                point = FINISHED; goto rest; // line 139
            }
            case 2: {
                uint r11 = kept_r[zero + 2], r16 = kept_r[zero + 3], r18 = kept_r[zero + 5], r26 = kept_r[zero + 9], r32 = kept_r[zero + 10], r33 = 0;
                uint r35 = 0, r36 = 0, r37 = 0, r38 = 0, r39 = 0;
                bool p34 = 0, p40 = 0;
                r33 = popcount(r32); // line 73
                p34 = as_int(r11) == as_int(r26); // line 74
                r35 = p34 ? r33 : 0u; // line 75
                r36 = r16 + r35; // line 76
                r37 = 2u; // line 77
                r38 = ptx_shl_32(r37, r26); // line 78
                r39 = r38 & r18; // line 79
                p40 = as_int(r39) != 0; // line 80
                kept_r[zero + 11] = r36;
                kept_p[zero + 1] = p40;
                point = 5; goto rest; // line 81
            }
            case 4: {
                uint r17 = kept_r[zero + 4], r67 = kept_r[zero + 17], r70 = 0, r71 = 0;
                bool p69 = kept_p[zero + 5] != 0, p72 = 0;
                r70 = p69 ? 1u : 0u; // line 114
                r71 = r17 + r70; // line 115
                p72 = as_int(r67) != 1; // line 116
                kept_r[zero + 18] = r71;
                kept_p[zero + 6] = p72;
                point = 7; goto rest; // line 117
            }
            case 6: {
                uint r11 = kept_r[zero + 2], r18 = kept_r[zero + 5], r26 = kept_r[zero + 9], r36 = kept_r[zero + 11], r41 = kept_r[zero + 12], r42 = 0;
                uint r44 = 0, r45 = 0, r46 = 0, r47 = 0, r48 = 0, r49 = 0;
                bool p43 = 0, p50 = 0;
                r42 = r26 + 1u; // line 82
                p43 = as_int(r11) == as_int(r42); // line 83
                r44 = popcount(r41); // line 84
                r45 = p43 ? r44 : 0u; // line 85
                r46 = r36 + r45; // line 86
                r47 = 4u; // line 87
                r48 = ptx_shl_32(r47, r26); // line 88
                r49 = r48 & r18; // line 89
                p50 = as_int(r49) != 0; // line 90
                kept_r[zero + 13] = r46;
                kept_p[zero + 2] = p50;
                point = 9; goto rest; // line 91
            }
            case 8: {
                ulong d1 = kept_d[zero + 0], d2 = kept_d[zero + 1], d12 = kept_d[zero + 2], d76 = 0, d77 = 0, d78 = 0;
                ulong d81 = 0, d82 = 0, d83 = 0;
                uint r4 = kept_r[zero + 0], r8 = kept_r[zero + 1], r11 = kept_r[zero + 2], r16 = kept_r[zero + 3], r17 = 0, r18 = kept_r[zero + 5];
                uint r19 = kept_r[zero + 6], r20 = kept_r[zero + 7], r21 = 0, r22 = 0, r23 = 0, r24 = 0;
                uint r25 = 0, r26 = 0, r27 = 0, r28 = 0, r29 = 0, r31 = 0;
                uint r71 = kept_r[zero + 18], r74 = 0, r80 = 0, r84 = kept_r[zero + 19], r86 = 0, r87 = 0;
                uint r88 = 0;
                bool p30 = 0, p73 = kept_p[zero + 7] != 0, p75 = 0, p79 = 0, p85 = 0, p89 = 0;
                r74 = r71 + 0x10000u; // line 118
                r17 = p73 ? r74 : r71; // line 119
                r20 = r20 + 1u; // line 120
                p75 = r20 < r4; // line 121
                if (p75) { // line 122
                    r84 = r84 - 75u;
                    p85 = as_int(r84) < 0;
                    if (p85) {
                        if (*pause) {
                            kept_r[zero + 4] = r17;
                            kept_r[zero + 5] = r18;
                            kept_r[zero + 7] = r20;
                            point = 13; goto rest;
                        }
                        r84 = 0x4000u;
                    }
                    r21 = r18 << 13; // line 57
                    r22 = r21 ^ r18; // line 58
                    r23 = r22 >> 17; // line 59
                    r24 = r23 ^ r22; // line 60
                    r25 = r24 << 5; // line 61
                    r18 = r25 ^ r24; // line 62
                    r26 = r19; // line 63
                    r87 = 32u - r26;
                    p89 = r87 > 1284u;
                    r88 = r26 + 1284u;
                    r86 = p89 ? r88 : 32u;
                    r87 = p89 ? 1284u : r87;
                    r87 = r87 >> 2;
                    r87 = r87 * 51u;
                    r84 = r84 - r87;
                    r27 = 1u; // line 67
                    r28 = ptx_shl_32(r27, r26); // line 68
                    r29 = r28 & r18; // line 69
                    p30 = as_int(r29) != 0; // line 70
                    r31 = 0xffffffffu; // line 71
                    kept_r[zero + 4] = r17;
                    kept_r[zero + 5] = r18;
                    kept_r[zero + 7] = r20;
                    kept_r[zero + 8] = r24;
                    kept_r[zero + 9] = r26;
                    kept_p[zero + 0] = p30;
                    kept_r[zero + 19] = r84;
                    kept_r[zero + 20] = r86;
                    point = 1; goto rest; // line 72
                } else {
                    d76 = d1; // line 125
                    d77 = d12 << 2; // line 126
                    d78 = d76 + d77; // line 127
                    GLOBAL(u32, d78) = r16; // line 128
                    p79 = as_int(r11) != 0; // line 129
                    if (!p79) { // line 130
                        r80 = r8 >> 5; // line 132
                        d81 = d2; // line 133
                        d82 = (ulong)r80 * (ulong)4u; // line 134
                        d83 = d81 + d82; // line 135
                        GLOBAL(u32, d83) = r17; // line 136
                    }
                    point = FINISHED; goto rest; // line 139
                }
            }
            case 10: {
                uint r11 = kept_r[zero + 2], r18 = kept_r[zero + 5], r26 = kept_r[zero + 9], r46 = kept_r[zero + 13], r51 = kept_r[zero + 14], r52 = 0;
                uint r54 = 0, r55 = 0, r56 = 0, r57 = 0, r58 = 0, r59 = 0;
                bool p53 = 0, p60 = 0;
                r52 = r26 + 2u; // line 92
                p53 = as_int(r11) == as_int(r52); // line 93
                r54 = popcount(r51); // line 94
                r55 = p53 ? r54 : 0u; // line 95
                r56 = r46 + r55; // line 96
                r57 = 8u; // line 97
                r58 = ptx_shl_32(r57, r26); // line 98
                r59 = r58 & r18; // line 99
                p60 = as_int(r59) != 0; // line 100
                kept_r[zero + 15] = r56;
                kept_p[zero + 3] = p60;
                point = 11; goto rest; // line 101
            }
            case 12: {
                uint r11 = kept_r[zero + 2], r16 = 0, r18 = kept_r[zero + 5], r24 = kept_r[zero + 8], r26 = kept_r[zero + 9], r27 = 0;
                uint r28 = 0, r29 = 0, r31 = 0, r56 = kept_r[zero + 15], r61 = kept_r[zero + 16], r62 = 0;
                uint r64 = 0, r65 = 0, r67 = 0, r84 = kept_r[zero + 19], r86 = kept_r[zero + 20], r87 = 0;
                uint r88 = 0;
                bool p30 = 0, p63 = 0, p66 = 0, p68 = 0, p89 = 0, p90 = 0;
                r62 = r26 + 3u; // line 102
                p63 = as_int(r11) == as_int(r62); // line 103
                r64 = popcount(r61); // line 104
                r65 = p63 ? r64 : 0u; // line 105
                r16 = r56 + r65; // line 106
                r26 = r26 + 4u; // line 107
                p90 = as_int(r26) != as_int(r86); // line 108
                if (!p90) { // line 109
                    p66 = as_int(r26) != 32; // line 108
                    if (p66) { // line 109
                        if (*pause) {
                            kept_r[zero + 3] = r16;
                            kept_r[zero + 9] = r26;
                            point = 14; goto rest;
                        }
                        r84 = 0x4000u;
                        r87 = 32u - r26;
                        p89 = r87 > 1284u;
                        r88 = r26 + 1284u;
                        r86 = p89 ? r88 : 32u;
                        r87 = p89 ? 1284u : r87;
                        r87 = r87 >> 2;
                        r87 = r87 * 51u;
                        r84 = r84 - r87;
                    } else {
                        r67 = r24 & 31u; // line 111
                        p68 = as_int(r67) == 0; // line 112
                        kept_r[zero + 3] = r16;
                        kept_r[zero + 17] = r67;
                        kept_p[zero + 4] = p68;
                        kept_r[zero + 19] = r84;
                        point = 3; goto rest; // line 113
                    }
                }
                r27 = 1u; // line 67
                r28 = ptx_shl_32(r27, r26); // line 68
                r29 = r28 & r18; // line 69
                p30 = as_int(r29) != 0; // line 70
                r31 = 0xffffffffu; // line 71
                kept_r[zero + 3] = r16;
                kept_r[zero + 9] = r26;
                kept_p[zero + 0] = p30;
                kept_r[zero + 19] = r84;
                kept_r[zero + 20] = r86;
                point = 1; goto rest; // line 72
            }
            case 13: {
                uint r18 = kept_r[zero + 5], r19 = kept_r[zero + 6], r21 = 0, r22 = 0, r23 = 0, r24 = 0;
                uint r25 = 0, r26 = 0, r27 = 0, r28 = 0, r29 = 0, r31 = 0;
                uint r84 = 0, r86 = 0, r87 = 0, r88 = 0;
                bool p30 = 0, p89 = 0;
                r84 = 0x4000u;
                r21 = r18 << 13; // line 57
                r22 = r21 ^ r18; // line 58
                r23 = r22 >> 17; // line 59
                r24 = r23 ^ r22; // line 60
                r25 = r24 << 5; // line 61
                r18 = r25 ^ r24; // line 62
                r26 = r19; // line 63
                r87 = 32u - r26;
                p89 = r87 > 1284u;
                r88 = r26 + 1284u;
                r86 = p89 ? r88 : 32u;
                r87 = p89 ? 1284u : r87;
                r87 = r87 >> 2;
                r87 = r87 * 51u;
                r84 = r84 - r87;
                r27 = 1u; // line 67
                r28 = ptx_shl_32(r27, r26); // line 68
                r29 = r28 & r18; // line 69
                p30 = as_int(r29) != 0; // line 70
                r31 = 0xffffffffu; // line 71
                kept_r[zero + 5] = r18;
                kept_r[zero + 8] = r24;
                kept_r[zero + 9] = r26;
                kept_p[zero + 0] = p30;
                kept_r[zero + 19] = r84;
                kept_r[zero + 20] = r86;
                point = 1; goto rest; // line 72
            }
            case 14: {
                uint r18 = kept_r[zero + 5], r26 = kept_r[zero + 9], r27 = 0, r28 = 0, r29 = 0, r31 = 0;
                uint r84 = 0, r86 = 0, r87 = 0, r88 = 0;
                bool p30 = 0, p89 = 0;
                r84 = 0x4000u;
                r87 = 32u - r26;
                p89 = r87 > 1284u;
                r88 = r26 + 1284u;
                r86 = p89 ? r88 : 32u;
                r87 = p89 ? 1284u : r87;
                r87 = r87 >> 2;
                r87 = r87 * 51u;
                r84 = r84 - r87;
                r27 = 1u; // line 67
                r28 = ptx_shl_32(r27, r26); // line 68
                r29 = r28 & r18; // line 69
                p30 = as_int(r29) != 0; // line 70
                r31 = 0xffffffffu; // line 71
                kept_p[zero + 0] = p30;
                kept_r[zero + 19] = r84;
                kept_r[zero + 20] = r86;
                point = 1; goto rest; // line 72
            }
        }
    rest:;
        __local uint *const now = round_words + 4 * (round & 3);
        if (thread == 0) {
            __local uint *const next = round_words + 4 * (round + 1 & 3);
            next[0] = 0; next[1] = 0; next[2] = 0; next[3] = 0;
            if (*pause) {
                const uint slot = atomic_inc(&counts[1]);
                if (slot < num_stopped) now[2] = slot + 1;
                else atomic_dec(&counts[1]);
            }
        }
        if (point != FINISHED) now[0] = 1;
        switch (point) {
            case FINISHED: break;
            default: now[1] = 1;
        }
        __local ulong *const values = lanes + (round & 1 ? block_size : 0);
        __local uint *const points = (__local uint *)(lanes + 2 * block_size) + (round & 1 ? block_size : 0);
        points[thread] = point;
        switch (point) {
            case 1: values[thread] = kept_p[zero + 0]; break;
            case 3: values[thread] = kept_p[zero + 4]; break;
            case 5: values[thread] = kept_p[zero + 1]; break;
            case 7: values[thread] = kept_p[zero + 6]; break;
            case 9: values[thread] = kept_p[zero + 2]; break;
            case 11: values[thread] = kept_p[zero + 3]; break;
        }
        __local uint *const away = away_words + 4 * (round & 3);
        if (thread == 0) away_words[4 * (round + 1 & 3) + 0] = 0;
        if (point != 3) away[0] = 1;
        block_barrier();
        if (now[2]) {
            const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
            const ulong shared_at = ((registers_at + 116ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
            const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
            __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
            ((__global uint *)slot)[thread] = point + 1;
            if (thread == 0) *(__global uint *)(slot + claim_at) = block;
            for (uint i = 0; i < 3; i++) ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread] = kept_d[i];
            for (uint i = 0; i < 21; i++) ((__global uint *)(slot + registers_at + (24ul + 4 * i) * block_size))[thread] = kept_r[i];
            for (uint i = 0; i < 8; i++) ((__global uchar *)(slot + registers_at + (108ul + 1 * i) * block_size))[thread] = kept_p[i];
            for (uint i = thread; i < (0u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
            break;
        }
        if (!now[0]) break;
        if (!away[0]) {
            if (thread == 0) {
                common[0] = kept_r[zero + 7];
                common[1] = kept_r[zero + 19];
            }
            block_barrier();
            if (common[0] != kept_r[zero + 7] || common[1] != kept_r[zero + 19]) away[0] = 2;
            block_barrier();
            if (!away[0]) {
                landing = 1;
                break;
            }
        }
        const uint first = thread - lane;
        const uint2 here = ptx_lanes_waiting(points + first, warp_size, point);
        __local const ulong *const warp = values + first;
        switch (point) {
            case 1: {
                const uint members = here.x;
                if (here.y & ~members) break;
                kept_r[zero + 10] = ptx_ballot(warp, members);
                point = 2;
                break;
            }
            case 3: { // line 113
                if (away[0] == 1 && round < 4096) break;
                const uint members = here.x;
                if (here.y & ~members) break;
                kept_p[zero + 5] = ptx_ballot(warp, members) != 0;
                point = 4;
                break;
            }
            case 5: { // line 81
                const uint members = here.x;
                if (here.y & ~members) break;
                kept_r[zero + 12] = ptx_ballot(warp, members);
                point = 6;
                break;
            }
            case 7: { // line 117
                const uint members = here.x;
                if (here.y & ~members) break;
                kept_p[zero + 7] = ptx_ballot(warp, members) == members;
                point = 8;
                break;
            }
            case 9: { // line 91
                const uint members = here.x;
                if (here.y & ~members) break;
                kept_r[zero + 14] = ptx_ballot(warp, members);
                point = 10;
                break;
            }
            case 11: { // line 101
                const uint members = here.x;
                if (here.y & ~members) break;
                kept_r[zero + 16] = ptx_ballot(warp, members);
                point = 12;
                break;
            }
        }
        point += zero;
    }
    if (landing == 1) {
        block_barrier();
        if (thread == 0) {
            for (uint i = 0; i < 16; i++) round_words[i] = 0;
            for (uint i = 0; i < 32; i++) ballots[i] = 0;
            common[0] = kept_r[zero + 7];
            common[1] = kept_r[zero + 19];
        }
        block_barrier();
        uint turn = thread >> 31, row_turn = turn, vote_turn = turn;
        bool p9, p15, p30, p34, p40, p43, p50, p53, p60, p63, p66, p68;
        bool p69, p72, p73, p75, p79, p85, p89, p90;
        uint r3, r4, r5, r6, r7, r8, r11, r16, r17, r18, r19, r20;
        uint r21, r22, r23, r24, r25, r26, r27, r28, r29, r31, r32, r33;
        uint r35, r36, r37, r38, r39, r41, r42, r44, r45, r46, r47, r48;
        uint r49, r51, r52, r54, r55, r56, r57, r58, r59, r61, r62, r64;
        uint r65, r67, r70, r71, r74, r80, r84, r86, r87, r88;
        ulong d0, d1, d2, d10, d12, d13, d14, d76, d77, d78, d81, d82;
        ulong d83;
        r16 = kept_r[zero + 3];
        r17 = kept_r[zero + 4];
        r18 = kept_r[zero + 5];
        r20 = common[0];
        r67 = kept_r[zero + 17];
        p68 = kept_p[zero + 4] != 0;
        r84 = common[1];
        d1 = params.param_1;
        d2 = params.param_2;
        r4 = params.param_4;
        r5 = (uint)get_local_size(0);
        r6 = ctaid_x;
        r7 = (uint)get_local_id(0);
        r8 = r6 * r5 + r7;
        r11 = r7 & 31u;
        d12 = (ulong)(r8);
        r19 = 0u;
        for (;;) {
            { // line 113
                __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                vote_turn = vote_turn + 1 & 3;
                if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                if (p68) atomic_or(word, 1u << lane);
                block_barrier();
                const uint members = 0xffffffffu >> (32 - warp_size);
                const uint votes = *word & members;
                p69 = votes != 0;
            }
            r70 = p69 ? 1u : 0u; // line 114
            r71 = r17 + r70; // line 115
            p72 = as_int(r67) != 1; // line 116
            { // line 117
                __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                vote_turn = vote_turn + 1 & 3;
                if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                if (p72) atomic_or(word, 1u << lane);
                block_barrier();
                const uint members = 0xffffffffu >> (32 - warp_size);
                const uint votes = *word & members;
                p73 = votes == members;
            }
            r74 = r71 + 0x10000u; // line 118
            r17 = p73 ? r74 : r71; // line 119
            r20 = r20 + 1u; // line 120
            p75 = r20 < r4; // line 121
            if (!p75) break; // line 122
            r84 = r84 - 75u;
            p85 = as_int(r84) < 0;
            if (p85) {
                {
                    __local uint *const now = round_words + 4 * turn;
                    turn = turn + 1 & 3;
                    if (thread == 0) {
                        round_words[4 * turn + 2] = 0; round_words[4 * turn + 3] = 0;
                        if (*pause) {
                            const uint slot = atomic_inc(&counts[1]);
                            if (slot < num_stopped) now[2] = slot + 1;
                            else atomic_dec(&counts[1]);
                        }
                    }
                    block_barrier();
                    if (now[2]) {
                        const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
                        const ulong shared_at = ((registers_at + 116ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
                        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
                        __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
                        ((__global uint *)slot)[thread] = 14;
                        if (thread == 0) *(__global uint *)(slot + claim_at) = block;
                        *(__global ulong *)(slot + registers_at + 0ul * block_size + 8ul * thread) = d1;
                        *(__global ulong *)(slot + registers_at + 8ul * block_size + 8ul * thread) = d2;
                        *(__global uint *)(slot + registers_at + 24ul * block_size + 4ul * thread) = r4;
                        *(__global uint *)(slot + registers_at + 28ul * block_size + 4ul * thread) = r8;
                        *(__global uint *)(slot + registers_at + 32ul * block_size + 4ul * thread) = r11;
                        *(__global ulong *)(slot + registers_at + 16ul * block_size + 8ul * thread) = d12;
                        *(__global uint *)(slot + registers_at + 36ul * block_size + 4ul * thread) = r16;
                        *(__global uint *)(slot + registers_at + 40ul * block_size + 4ul * thread) = r17;
                        *(__global uint *)(slot + registers_at + 44ul * block_size + 4ul * thread) = r18;
                        *(__global uint *)(slot + registers_at + 48ul * block_size + 4ul * thread) = r19;
                        *(__global uint *)(slot + registers_at + 52ul * block_size + 4ul * thread) = r20;
                        for (uint i = thread; i < (0u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
                        return;
                    }
                }
                r84 = 0x4000u;
            }
            r21 = r18 << 13; // line 57
            r22 = r21 ^ r18; // line 58
            r23 = r22 >> 17; // line 59
            r24 = r23 ^ r22; // line 60
            r25 = r24 << 5; // line 61
            r18 = r25 ^ r24; // line 62
            r26 = r19; // line 63
            for (;;) {
                r87 = 32u - r26;
                p89 = r87 > 1284u;
                r88 = r26 + 1284u;
                r86 = p89 ? r88 : 32u;
                r87 = p89 ? 1284u : r87;
                r87 = r87 >> 2;
                r87 = r87 * 51u;
                r84 = r84 - r87;
                for (;;) {
                    r27 = 1u; // line 67
                    r28 = ptx_shl_32(r27, r26); // line 68
                    r29 = r28 & r18; // line 69
                    p30 = as_int(r29) != 0; // line 70
                    r31 = 0xffffffffu; // line 71
                    { // line 72
                        __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                        vote_turn = vote_turn + 1 & 3;
                        if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                        if (p30) atomic_or(word, 1u << lane);
                        block_barrier();
                        const uint members = 0xffffffffu >> (32 - warp_size);
                        const uint votes = *word & members;
                        r32 = votes;
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
                        __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                        vote_turn = vote_turn + 1 & 3;
                        if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                        if (p40) atomic_or(word, 1u << lane);
                        block_barrier();
                        const uint members = 0xffffffffu >> (32 - warp_size);
                        const uint votes = *word & members;
                        r41 = votes;
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
                        __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                        vote_turn = vote_turn + 1 & 3;
                        if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                        if (p50) atomic_or(word, 1u << lane);
                        block_barrier();
                        const uint members = 0xffffffffu >> (32 - warp_size);
                        const uint votes = *word & members;
                        r51 = votes;
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
                        __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                        vote_turn = vote_turn + 1 & 3;
                        if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                        if (p60) atomic_or(word, 1u << lane);
                        block_barrier();
                        const uint members = 0xffffffffu >> (32 - warp_size);
                        const uint votes = *word & members;
                        r61 = votes;
                    }
                    r62 = r26 + 3u; // line 102
                    p63 = as_int(r11) == as_int(r62); // line 103
                    r64 = popcount(r61); // line 104
                    r65 = p63 ? r64 : 0u; // line 105
                    r16 = r56 + r65; // line 106
                    r26 = r26 + 4u; // line 107
                    p90 = as_int(r26) != as_int(r86); // line 108
                    if (!p90) break; // line 109
                }
                p66 = as_int(r26) != 32; // line 108
                if (!p66) break; // line 109
                {
                    __local uint *const now = round_words + 4 * turn;
                    turn = turn + 1 & 3;
                    if (thread == 0) {
                        round_words[4 * turn + 2] = 0; round_words[4 * turn + 3] = 0;
                        if (*pause) {
                            const uint slot = atomic_inc(&counts[1]);
                            if (slot < num_stopped) now[2] = slot + 1;
                            else atomic_dec(&counts[1]);
                        }
                    }
                    block_barrier();
                    if (now[2]) {
                        const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
                        const ulong shared_at = ((registers_at + 116ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
                        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
                        __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
                        ((__global uint *)slot)[thread] = 15;
                        if (thread == 0) *(__global uint *)(slot + claim_at) = block;
                        *(__global ulong *)(slot + registers_at + 0ul * block_size + 8ul * thread) = d1;
                        *(__global ulong *)(slot + registers_at + 8ul * block_size + 8ul * thread) = d2;
                        *(__global uint *)(slot + registers_at + 24ul * block_size + 4ul * thread) = r4;
                        *(__global uint *)(slot + registers_at + 28ul * block_size + 4ul * thread) = r8;
                        *(__global uint *)(slot + registers_at + 32ul * block_size + 4ul * thread) = r11;
                        *(__global ulong *)(slot + registers_at + 16ul * block_size + 8ul * thread) = d12;
                        *(__global uint *)(slot + registers_at + 36ul * block_size + 4ul * thread) = r16;
                        *(__global uint *)(slot + registers_at + 40ul * block_size + 4ul * thread) = r17;
                        *(__global uint *)(slot + registers_at + 44ul * block_size + 4ul * thread) = r18;
                        *(__global uint *)(slot + registers_at + 48ul * block_size + 4ul * thread) = r19;
                        *(__global uint *)(slot + registers_at + 52ul * block_size + 4ul * thread) = r20;
                        *(__global uint *)(slot + registers_at + 56ul * block_size + 4ul * thread) = r24;
                        *(__global uint *)(slot + registers_at + 60ul * block_size + 4ul * thread) = r26;
                        for (uint i = thread; i < (0u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
                        return;
                    }
                }
                r84 = 0x4000u;
            }
            r67 = r24 & 31u; // line 111
            p68 = as_int(r67) == 0; // line 112
            block_barrier();
        }
        d76 = d1; // line 125
        d77 = d12 << 2; // line 126
        d78 = d76 + d77; // line 127
        GLOBAL(u32, d78) = r16; // line 128
        p79 = as_int(r11) != 0; // line 129
        if (!p79) { // line 130
            r80 = r8 >> 5; // line 132
            d81 = d2; // line 133
            d82 = (ulong)r80 * (ulong)4u; // line 134
            d83 = d81 + d82; // line 135
            GLOBAL(u32, d83) = r17; // line 136
        }
        return; // line 139
    }
}
