// _Z10dense_reluPKfS0_S0_Pfj
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define FINISHED 0xffffffffu
typedef uint u32 __attribute__((may_alias));

static uint ptx_max_f32(uint a, uint b)
{
    if (a << 1 > 0xff000000u) return b << 1 > 0xff000000u ? 0x7fffffffu : b;
    if (b << 1 > 0xff000000u) return a;
    const int x = as_int(a >> 31 ? a ^ 0x7fffffffu : a), y = as_int(b >> 31 ? b ^ 0x7fffffffu : b);
    return x < y ? b : a;
}

typedef struct {
    ulong param_0; // _Z10dense_reluPKfS0_S0_Pfj_param_0
    ulong param_1; // _Z10dense_reluPKfS0_S0_Pfj_param_1
    ulong param_2; // _Z10dense_reluPKfS0_S0_Pfj_param_2
    ulong param_3; // _Z10dense_reluPKfS0_S0_Pfj_param_3
    uint param_4; // _Z10dense_reluPKfS0_S0_Pfj_param_4
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt__Z10dense_reluPKfS0_S0_Pfj(
    __global uchar *arena,
    ulong arena_base,
    params_type params,
    __local ulong2 *shared_memory,
    uint dynamic_shared_bytes,
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
    __local uchar *const shared = (__local uchar *)shared_memory;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));

    __local uint told[1];
    __local uint round_words[16];
    const uint zero = grid.w >> 31;
    ulong kept_d[4];
    uint kept_r[7];
    uchar kept_p[1];
    const uint group = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const bool goes_on = resumed != 0 && group < grid.w;
    const uint block = resumed != 0 ? resumed[group] : group;
    const uint ctaid_x = block % grid.x, ctaid_y = block / grid.x % grid.y;
    const uint ctaid_z = block / grid.x / grid.y;
    if (thread == 0) {
        told[0] = *pause;
        for (uint i = 0; i < 16; i++) round_words[i] = 0;
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
        const ulong shared_at = ((registers_at + 61ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 512u + dynamic_shared_bytes) + 15ul & ~15ul);
        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
        __global const uchar *const slot = resumed_slots + group * slot_bytes;
        point = ((__global const uint *)slot)[thread] - 1;
        for (uint i = 0; i < 4; i++) kept_d[i] = ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread];
        for (uint i = 0; i < 7; i++) kept_r[i] = ((__global uint *)(slot + registers_at + (32ul + 4 * i) * block_size))[thread];
        for (uint i = 0; i < 1; i++) kept_p[i] = ((__global uchar *)(slot + registers_at + (60ul + 1 * i) * block_size))[thread];
        for (uint i = thread; i < (512u + dynamic_shared_bytes + 15) / 16; i += block_size) shared_memory[i] = ((__global ulong2 *)(slot + shared_at))[i];
    }
    block_barrier();
    for (uint round = 0;; round++) {
        switch (point) {
            case 0: {
                ulong d0 = 0, d1 = 0, d2 = 0, d3 = 0, d10 = 0, d11 = 0;
                ulong d13 = 0, d14 = 0, d15 = 0, d16 = 0;
                uint r4 = 0, r5 = 0, r6 = 0, r8 = 0, r9 = 0, r12 = 0;
                uint r17 = 0, r18 = 0, r20 = 0, r21 = 0, r22 = 0, r61 = 0;
                uint r62 = 0, r63 = 0;
                bool p7 = 0, p19 = 0, p64 = 0, p65 = 0, p66 = 0;
                d0 = params.param_0; // line 31
                d1 = params.param_1; // line 32
                d2 = params.param_2; // line 33
                d3 = params.param_3; // line 34
                r4 = params.param_4; // line 35
                r5 = ctaid_x; // line 36
                r6 = (uint)get_local_id(0); // line 37
                p7 = r6 >= r4; // line 38
                r8 = 0u; // line 39
                if (!p7) { // line 40
                    r9 = r5 * r4 + r6; // line 42
                    d10 = d0; // line 43
                    d11 = d2; // line 44
                    r8 = 0u; // line 45
                    r12 = r6; // line 46
                    for (;;) {
                        r62 = r4 - r12;
                        p65 = r12 < r4;
                        p64 = (r62 > 0xc780u) && p65;
                        r63 = r12 + 0xc780u;
                        r61 = p64 ? r63 : r4;
                        for (;;) {
                            d13 = (ulong)r9 * (ulong)4u; // line 49
                            d14 = d10 + d13; // line 50
                            d15 = (ulong)r12 * (ulong)4u; // line 51
                            d16 = d11 + d15; // line 52
                            r17 = GLOBAL(u32, d16); // line 53
                            r18 = GLOBAL(u32, d14); // line 54
                            r8 = as_uint(fma(as_float(r18), as_float(r17), as_float(r8))); // line 55
                            r9 = r9 + 128u; // line 56
                            r12 = r12 + 128u; // line 57
                            p66 = r12 < r61; // line 58
                            if (!p66) break; // line 59
                        }
                        p19 = r12 < r4; // line 58
                        if (!p19) break; // line 59
                        if (*pause) {
                            kept_d[zero + 0] = d1;
                            kept_d[zero + 1] = d3;
                            kept_r[zero + 0] = r4;
                            kept_r[zero + 1] = r5;
                            kept_r[zero + 2] = r6;
                            kept_r[zero + 3] = r8;
                            kept_r[zero + 4] = r9;
                            kept_d[zero + 2] = d10;
                            kept_d[zero + 3] = d11;
                            kept_r[zero + 5] = r12;
                            point = 17; goto rest;
                        }
                    }
                }
                r20 = r6 << 2; // line 62
                r21 = 0ul; // line 63
                r22 = r21 + r20; // line 64
                SHARED(u32, r22) = r8; // line 65
                kept_d[zero + 0] = d1;
                kept_d[zero + 1] = d3;
                kept_r[zero + 1] = r5;
                kept_r[zero + 2] = r6;
                kept_r[zero + 6] = r22;
                point = 1; goto rest; // line 66
            }
            case 2: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r24 = 0, r25 = 0, r26 = 0;
                bool p23 = 0;
                p23 = r6 > 63u; // line 67
                if (!p23) { // line 68
                    r24 = SHARED(u32, r22); // line 70
                    r25 = SHARED(u32, r22 + 256u); // line 71
                    r26 = as_uint(as_float(r25) + as_float(r24)); // line 72
                    SHARED(u32, r22) = r26; // line 73
                }
                point = 3; goto rest; // line 76
            }
            case 4: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r28 = 0, r29 = 0, r30 = 0;
                bool p27 = 0;
                p27 = r6 > 31u; // line 77
                if (!p27) { // line 78
                    r28 = SHARED(u32, r22); // line 80
                    r29 = SHARED(u32, r22 + 128u); // line 81
                    r30 = as_uint(as_float(r29) + as_float(r28)); // line 82
                    SHARED(u32, r22) = r30; // line 83
                }
                point = 5; goto rest; // line 86
            }
            case 6: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r32 = 0, r33 = 0, r34 = 0;
                bool p31 = 0;
                p31 = r6 > 15u; // line 87
                if (!p31) { // line 88
                    r32 = SHARED(u32, r22); // line 90
                    r33 = SHARED(u32, r22 + 64u); // line 91
                    r34 = as_uint(as_float(r33) + as_float(r32)); // line 92
                    SHARED(u32, r22) = r34; // line 93
                }
                point = 7; goto rest; // line 96
            }
            case 8: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r36 = 0, r37 = 0, r38 = 0;
                bool p35 = 0;
                p35 = r6 > 7u; // line 97
                if (!p35) { // line 98
                    r36 = SHARED(u32, r22); // line 100
                    r37 = SHARED(u32, r22 + 32u); // line 101
                    r38 = as_uint(as_float(r37) + as_float(r36)); // line 102
                    SHARED(u32, r22) = r38; // line 103
                }
                point = 9; goto rest; // line 106
            }
            case 10: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r40 = 0, r41 = 0, r42 = 0;
                bool p39 = 0;
                p39 = r6 > 3u; // line 107
                if (!p39) { // line 108
                    r40 = SHARED(u32, r22); // line 110
                    r41 = SHARED(u32, r22 + 16u); // line 111
                    r42 = as_uint(as_float(r41) + as_float(r40)); // line 112
                    SHARED(u32, r22) = r42; // line 113
                }
                point = 11; goto rest; // line 116
            }
            case 12: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r44 = 0, r45 = 0, r46 = 0;
                bool p43 = 0;
                p43 = r6 > 1u; // line 117
                if (!p43) { // line 118
                    r44 = SHARED(u32, r22); // line 120
                    r45 = SHARED(u32, r22 + 8u); // line 121
                    r46 = as_uint(as_float(r45) + as_float(r44)); // line 122
                    SHARED(u32, r22) = r46; // line 123
                }
                point = 13; goto rest; // line 126
            }
            case 14: {
                uint r6 = kept_r[zero + 2], r22 = kept_r[zero + 6], r48 = 0, r49 = 0, r50 = 0;
                bool p47 = 0;
                p47 = as_int(r6) != 0; // line 127
                if (!p47) { // line 128
                    r48 = SHARED(u32, 4ul); // line 130
                    r49 = SHARED(u32, r22); // line 131
                    r50 = as_uint(as_float(r48) + as_float(r49)); // line 132
                    SHARED(u32, r22) = r50; // line 133
                }
                kept_p[zero + 0] = p47;
                point = 15; goto rest; // line 136
            }
            case 16: {
                ulong d1 = kept_d[zero + 0], d3 = kept_d[zero + 1], d52 = 0, d53 = 0, d54 = 0, d59 = 0;
                ulong d60 = 0;
                uint r5 = kept_r[zero + 1], r51 = 0, r55 = 0, r56 = 0, r57 = 0, r58 = 0;
                bool p47 = kept_p[zero + 0] != 0;
                if (!p47) { // line 137
                    r51 = SHARED(u32, 0ul); // line 139
                    d52 = d1; // line 140
                    d53 = (ulong)r5 * (ulong)4u; // line 141
                    d54 = d52 + d53; // line 142
                    r55 = GLOBAL(u32, d54); // line 143
                    r56 = as_uint(as_float(r51) + as_float(r55)); // line 144
                    r57 = 0u; // line 145
                    r58 = ptx_max_f32(r56, r57); // line 146
                    d59 = d3; // line 147
                    d60 = d59 + d53; // line 148
                    GLOBAL(u32, d60) = r58; // line 149
                }
                point = FINISHED; goto rest; // line 152
            }
            case 17: {
                ulong d10 = kept_d[zero + 2], d11 = kept_d[zero + 3], d13 = 0, d14 = 0, d15 = 0, d16 = 0;
                uint r4 = kept_r[zero + 0], r6 = kept_r[zero + 2], r8 = kept_r[zero + 3], r9 = kept_r[zero + 4], r12 = kept_r[zero + 5], r17 = 0;
                uint r18 = 0, r20 = 0, r21 = 0, r22 = 0, r61 = 0, r62 = 0;
                uint r63 = 0;
                bool p19 = 0, p64 = 0, p65 = 0, p66 = 0;
                for (;;) {
                    r62 = r4 - r12;
                    p65 = r12 < r4;
                    p64 = (r62 > 0xc780u) && p65;
                    r63 = r12 + 0xc780u;
                    r61 = p64 ? r63 : r4;
                    for (;;) {
                        d13 = (ulong)r9 * (ulong)4u; // line 49
                        d14 = d10 + d13; // line 50
                        d15 = (ulong)r12 * (ulong)4u; // line 51
                        d16 = d11 + d15; // line 52
                        r17 = GLOBAL(u32, d16); // line 53
                        r18 = GLOBAL(u32, d14); // line 54
                        r8 = as_uint(fma(as_float(r18), as_float(r17), as_float(r8))); // line 55
                        r9 = r9 + 128u; // line 56
                        r12 = r12 + 128u; // line 57
                        p66 = r12 < r61; // line 58
                        if (!p66) break; // line 59
                    }
                    p19 = r12 < r4; // line 58
                    if (!p19) break; // line 59
                    if (*pause) {
                        kept_r[zero + 3] = r8;
                        kept_r[zero + 4] = r9;
                        kept_r[zero + 5] = r12;
                        point = 17; goto rest;
                    }
                }
                r20 = r6 << 2; // line 62
                r21 = 0ul; // line 63
                r22 = r21 + r20; // line 64
                SHARED(u32, r22) = r8; // line 65
                kept_r[zero + 6] = r22;
                point = 1; goto rest; // line 66
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
            case FINISHED: case 3: case 5: case 7: case 9: case 11: case 13: case 15: case 1: break;
            default: now[1] = 1;
        }
        block_barrier();
        if (now[2]) {
            const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
            const ulong shared_at = ((registers_at + 61ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 512u + dynamic_shared_bytes) + 15ul & ~15ul);
            const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
            __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
            ((__global uint *)slot)[thread] = point + 1;
            if (thread == 0) *(__global uint *)(slot + claim_at) = block;
            for (uint i = 0; i < 4; i++) ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread] = kept_d[i];
            for (uint i = 0; i < 7; i++) ((__global uint *)(slot + registers_at + (32ul + 4 * i) * block_size))[thread] = kept_r[i];
            for (uint i = 0; i < 1; i++) ((__global uchar *)(slot + registers_at + (60ul + 1 * i) * block_size))[thread] = kept_p[i];
            for (uint i = thread; i < (512u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
            break;
        }
        if (!now[0]) break;
        switch (point) {
            case 3: if (!now[1]) { point = 4; } break; // line 76
            case 5: if (!now[1]) { point = 6; } break; // line 86
            case 7: if (!now[1]) { point = 8; } break; // line 96
            case 9: if (!now[1]) { point = 10; } break; // line 106
            case 11: if (!now[1]) { point = 12; } break; // line 116
            case 13: if (!now[1]) { point = 14; } break; // line 126
            case 15: if (!now[1]) { point = 16; } break; // line 136
            case 1: if (!now[1]) { point = 2; } break; // line 66
        }
        point += zero;
    }
}
