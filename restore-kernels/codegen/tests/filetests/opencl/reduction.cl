// _Z13reduce_valuesPKjPyjj
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define FINISHED 0xffffffffu
typedef uint u32 __attribute__((may_alias));
typedef ulong u64 __attribute__((may_alias));

typedef struct {
    ulong param_0; // _Z13reduce_valuesPKjPyjj_param_0
    ulong param_1; // _Z13reduce_valuesPKjPyjj_param_1
    uint param_2; // _Z13reduce_valuesPKjPyjj_param_2
    uint param_3; // _Z13reduce_valuesPKjPyjj_param_3
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt__Z13reduce_valuesPKjPyjj(
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
    ulong kept_d[6];
    uint kept_r[10];
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
        const ulong shared_at = ((registers_at + 88ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
        __global const uchar *const slot = resumed_slots + group * slot_bytes;
        point = ((__global const uint *)slot)[thread] - 1;
        for (uint i = 0; i < 6; i++) kept_d[i] = ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread];
        for (uint i = 0; i < 10; i++) kept_r[i] = ((__global uint *)(slot + registers_at + (48ul + 4 * i) * block_size))[thread];
        for (uint i = thread; i < (0u + dynamic_shared_bytes + 15) / 16; i += block_size) shared_memory[i] = ((__global ulong2 *)(slot + shared_at))[i];
    }
    block_barrier();
    for (uint round = 0;; round++) {
        switch (point) {
            case 0: {
                ulong d0 = 0, d1 = 0, d15 = 0, d16 = 0, d18 = 0, d20 = 0;
                ulong d21 = 0, d22 = 0, d24 = 0, d25 = 0, d26 = 0, d27 = 0;
                ulong d44 = 0, d45 = 0, d46 = 0;
                uint r2 = 0, r3 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0;
                uint r9 = 0, r10 = 0, r11 = 0, r12 = 0, r13 = 0, r14 = 0;
                uint r17 = 0, r23 = 0, r41 = 0, r43 = 0, r47 = 0, r48 = 0;
                uint r49 = 0, r51 = 0, r52 = 0;
                bool p4 = 0, p19 = 0, p28 = 0, p42 = 0, p50 = 0, p53 = 0;
                bool p54 = 0, p55 = 0;
                d0 = params.param_0; // line 28
                d1 = params.param_1; // line 29
                r2 = params.param_2; // line 30
                r3 = params.param_3; // line 31
                p4 = as_int(r3) == 0; // line 32
                if (p4) { // line 33
                    d18 = 0ul; // line 110
                    r41 = (uint)get_local_id(0); // line 113
                    p42 = as_int(r41) != 0; // line 114
                    if (!p42) { // line 115
                        r43 = ctaid_x; // line 117
                        d44 = d1; // line 118
                        d45 = (ulong)r43 * (ulong)8u; // line 119
                        d46 = d44 + d45; // line 120
                        GLOBAL(u64, d46) = d18; // line 121
                    }
                    point = FINISHED; goto rest; // line 124
                } else {
                    r5 = (uint)get_local_size(0); // line 35
                    r6 = ctaid_x; // line 36
                    r7 = (uint)get_local_id(0); // line 37
                    r8 = r6 * r5 + r7; // line 38
                    r9 = r7 << 3; // line 39
                    r10 = 0ul; // line 40
                    r11 = r10 + r9; // line 41
                    r12 = r5 >> 1; // line 42
                    r13 = grid.x; // line 43
                    r14 = r13 * r5; // line 44
                    d15 = d0; // line 45
                    d16 = 0ul; // line 46
                    r17 = 0u; // line 47
                    d18 = d16; // line 48
                    p19 = r8 >= r2; // line 51
                    d20 = d16; // line 52
                    if (!p19) { // line 53
                        d21 = (ulong)r17 * (ulong)2u; // line 55
                        d22 = d21 | 1ul; // line 56
                        d20 = 0ul; // line 57
                        r23 = r8; // line 58
                        for (;;) {
                            r51 = r14 << 9;
                            r52 = r51 >> 9;
                            r48 = r2 - r23;
                            p53 = r23 < r2;
                            p54 = (r52 == r14) && p53;
                            p50 = (r48 > r51) && p54;
                            r49 = r23 + r51;
                            r47 = p50 ? r49 : r2;
                            for (;;) {
                                d24 = (ulong)r23 * (ulong)4u; // line 61
                                d25 = d15 + d24; // line 62
                                d26 = GLOBAL(u32, d25); // line 63
                                d27 = d22 * d26; // line 64
                                d20 = d27 + d20; // line 65
                                r23 = r23 + r14; // line 66
                                p55 = r23 < r47; // line 67
                                if (!p55) break; // line 68
                            }
                            p28 = r23 < r2; // line 67
                            if (!p28) break; // line 68
                            if (*pause) {
                                kept_d[zero + 0] = d1;
                                kept_r[zero + 0] = r2;
                                kept_r[zero + 1] = r3;
                                kept_r[zero + 2] = r7;
                                kept_r[zero + 3] = r8;
                                kept_r[zero + 4] = r11;
                                kept_r[zero + 5] = r12;
                                kept_r[zero + 6] = r14;
                                kept_d[zero + 1] = d15;
                                kept_d[zero + 2] = d16;
                                kept_r[zero + 7] = r17;
                                kept_d[zero + 3] = d18;
                                kept_d[zero + 4] = d20;
                                kept_d[zero + 5] = d22;
                                kept_r[zero + 8] = r23;
                                point = 5; goto rest;
                            }
                        }
                    }
                    SHARED(u64, r11) = d20; // line 71
                    kept_d[zero + 0] = d1;
                    kept_r[zero + 0] = r2;
                    kept_r[zero + 1] = r3;
                    kept_r[zero + 2] = r7;
                    kept_r[zero + 3] = r8;
                    kept_r[zero + 4] = r11;
                    kept_r[zero + 5] = r12;
                    kept_r[zero + 6] = r14;
                    kept_d[zero + 1] = d15;
                    kept_d[zero + 2] = d16;
                    kept_r[zero + 7] = r17;
                    kept_d[zero + 3] = d18;
                    point = 1; goto rest; // line 72
                }
            }
            case 2: {
                ulong d1 = kept_d[zero + 0], d15 = kept_d[zero + 1], d16 = kept_d[zero + 2], d18 = kept_d[zero + 3], d20 = 0, d21 = 0;
                ulong d22 = 0, d24 = 0, d25 = 0, d26 = 0, d27 = 0, d34 = 0;
                ulong d35 = 0, d36 = 0, d39 = 0, d44 = 0, d45 = 0, d46 = 0;
                uint r2 = kept_r[zero + 0], r3 = kept_r[zero + 1], r7 = kept_r[zero + 2], r8 = kept_r[zero + 3], r11 = kept_r[zero + 4], r12 = kept_r[zero + 5];
                uint r14 = kept_r[zero + 6], r17 = kept_r[zero + 7], r23 = 0, r30 = 0, r32 = 0, r33 = 0;
                uint r41 = 0, r43 = 0, r47 = 0, r48 = 0, r49 = 0, r51 = 0;
                uint r52 = 0;
                bool p19 = 0, p28 = 0, p29 = 0, p31 = 0, p38 = 0, p40 = 0;
                bool p42 = 0, p50 = 0, p53 = 0, p54 = 0, p55 = 0;
                p29 = as_int(r12) == 0; // line 73
                if (p29) { // line 74
                    p38 = as_int(r7) != 0; // line 96
                    d39 = 0ul; // line 97
                    if (!p38) { // line 98
                        d39 = SHARED(u64, 0ul); // line 100
                    }
                    d18 = d39 + d18; // line 103
                    r17 = r17 + 1u; // line 104
                    p40 = r17 < r3; // line 105
                    if (p40) { // line 106
                        p19 = r8 >= r2; // line 51
                        d20 = d16; // line 52
                        if (!p19) { // line 53
                            d21 = (ulong)r17 * (ulong)2u; // line 55
                            d22 = d21 | 1ul; // line 56
                            d20 = 0ul; // line 57
                            r23 = r8; // line 58
                            for (;;) {
                                r51 = r14 << 9;
                                r52 = r51 >> 9;
                                r48 = r2 - r23;
                                p53 = r23 < r2;
                                p54 = (r52 == r14) && p53;
                                p50 = (r48 > r51) && p54;
                                r49 = r23 + r51;
                                r47 = p50 ? r49 : r2;
                                for (;;) {
                                    d24 = (ulong)r23 * (ulong)4u; // line 61
                                    d25 = d15 + d24; // line 62
                                    d26 = GLOBAL(u32, d25); // line 63
                                    d27 = d22 * d26; // line 64
                                    d20 = d27 + d20; // line 65
                                    r23 = r23 + r14; // line 66
                                    p55 = r23 < r47; // line 67
                                    if (!p55) break; // line 68
                                }
                                p28 = r23 < r2; // line 67
                                if (!p28) break; // line 68
                                if (*pause) {
                                    kept_r[zero + 7] = r17;
                                    kept_d[zero + 3] = d18;
                                    kept_d[zero + 4] = d20;
                                    kept_d[zero + 5] = d22;
                                    kept_r[zero + 8] = r23;
                                    point = 5; goto rest;
                                }
                            }
                        }
                        SHARED(u64, r11) = d20; // line 71
                        kept_r[zero + 7] = r17;
                        kept_d[zero + 3] = d18;
                        point = 1; goto rest; // line 72
                    } else {
                        r41 = (uint)get_local_id(0); // line 113
                        p42 = as_int(r41) != 0; // line 114
                        if (!p42) { // line 115
                            r43 = ctaid_x; // line 117
                            d44 = d1; // line 118
                            d45 = (ulong)r43 * (ulong)8u; // line 119
                            d46 = d44 + d45; // line 120
                            GLOBAL(u64, d46) = d18; // line 121
                        }
                        point = FINISHED; goto rest; // line 124
                    }
                } else {
                    r30 = r12; // line 76
                    p31 = r7 >= r30; // line 79
                    if (!p31) { // line 80
                        r32 = r30 << 3; // line 82
                        r33 = r11 + r32; // line 83
                        d34 = SHARED(u64, r11); // line 84
                        d35 = SHARED(u64, r33); // line 85
                        d36 = d34 + d35; // line 86
                        SHARED(u64, r11) = d36; // line 87
                    }
                    kept_r[zero + 7] = r17;
                    kept_d[zero + 3] = d18;
                    kept_r[zero + 9] = r30;
                    point = 3; goto rest; // line 90
                }
            }
            case 4: {
                ulong d1 = kept_d[zero + 0], d15 = kept_d[zero + 1], d16 = kept_d[zero + 2], d18 = kept_d[zero + 3], d20 = 0, d21 = 0;
                ulong d22 = 0, d24 = 0, d25 = 0, d26 = 0, d27 = 0, d34 = 0;
                ulong d35 = 0, d36 = 0, d39 = 0, d44 = 0, d45 = 0, d46 = 0;
                uint r2 = kept_r[zero + 0], r3 = kept_r[zero + 1], r7 = kept_r[zero + 2], r8 = kept_r[zero + 3], r11 = kept_r[zero + 4], r14 = kept_r[zero + 6];
                uint r17 = kept_r[zero + 7], r23 = 0, r30 = kept_r[zero + 9], r32 = 0, r33 = 0, r41 = 0;
                uint r43 = 0, r47 = 0, r48 = 0, r49 = 0, r51 = 0, r52 = 0;
                bool p19 = 0, p28 = 0, p31 = 0, p37 = 0, p38 = 0, p40 = 0;
                bool p42 = 0, p50 = 0, p53 = 0, p54 = 0, p55 = 0;
                r30 = r30 >> 1; // line 91
                p37 = as_int(r30) != 0; // line 92
                if (p37) { // line 93
                    p31 = r7 >= r30; // line 79
                    if (!p31) { // line 80
                        r32 = r30 << 3; // line 82
                        r33 = r11 + r32; // line 83
                        d34 = SHARED(u64, r11); // line 84
                        d35 = SHARED(u64, r33); // line 85
                        d36 = d34 + d35; // line 86
                        SHARED(u64, r11) = d36; // line 87
                    }
                    kept_r[zero + 7] = r17;
                    kept_d[zero + 3] = d18;
                    kept_r[zero + 9] = r30;
                    point = 3; goto rest; // line 90
                } else {
                    p38 = as_int(r7) != 0; // line 96
                    d39 = 0ul; // line 97
                    if (!p38) { // line 98
                        d39 = SHARED(u64, 0ul); // line 100
                    }
                    d18 = d39 + d18; // line 103
                    r17 = r17 + 1u; // line 104
                    p40 = r17 < r3; // line 105
                    if (p40) { // line 106
                        p19 = r8 >= r2; // line 51
                        d20 = d16; // line 52
                        if (!p19) { // line 53
                            d21 = (ulong)r17 * (ulong)2u; // line 55
                            d22 = d21 | 1ul; // line 56
                            d20 = 0ul; // line 57
                            r23 = r8; // line 58
                            for (;;) {
                                r51 = r14 << 9;
                                r52 = r51 >> 9;
                                r48 = r2 - r23;
                                p53 = r23 < r2;
                                p54 = (r52 == r14) && p53;
                                p50 = (r48 > r51) && p54;
                                r49 = r23 + r51;
                                r47 = p50 ? r49 : r2;
                                for (;;) {
                                    d24 = (ulong)r23 * (ulong)4u; // line 61
                                    d25 = d15 + d24; // line 62
                                    d26 = GLOBAL(u32, d25); // line 63
                                    d27 = d22 * d26; // line 64
                                    d20 = d27 + d20; // line 65
                                    r23 = r23 + r14; // line 66
                                    p55 = r23 < r47; // line 67
                                    if (!p55) break; // line 68
                                }
                                p28 = r23 < r2; // line 67
                                if (!p28) break; // line 68
                                if (*pause) {
                                    kept_r[zero + 7] = r17;
                                    kept_d[zero + 3] = d18;
                                    kept_d[zero + 4] = d20;
                                    kept_d[zero + 5] = d22;
                                    kept_r[zero + 8] = r23;
                                    point = 5; goto rest;
                                }
                            }
                        }
                        SHARED(u64, r11) = d20; // line 71
                        kept_r[zero + 7] = r17;
                        kept_d[zero + 3] = d18;
                        point = 1; goto rest; // line 72
                    } else {
                        r41 = (uint)get_local_id(0); // line 113
                        p42 = as_int(r41) != 0; // line 114
                        if (!p42) { // line 115
                            r43 = ctaid_x; // line 117
                            d44 = d1; // line 118
                            d45 = (ulong)r43 * (ulong)8u; // line 119
                            d46 = d44 + d45; // line 120
                            GLOBAL(u64, d46) = d18; // line 121
                        }
                        point = FINISHED; goto rest; // line 124
                    }
                }
            }
            case 5: {
                ulong d15 = kept_d[zero + 1], d20 = kept_d[zero + 4], d22 = kept_d[zero + 5], d24 = 0, d25 = 0, d26 = 0;
                ulong d27 = 0;
                uint r2 = kept_r[zero + 0], r11 = kept_r[zero + 4], r14 = kept_r[zero + 6], r23 = kept_r[zero + 8], r47 = 0, r48 = 0;
                uint r49 = 0, r51 = 0, r52 = 0;
                bool p28 = 0, p50 = 0, p53 = 0, p54 = 0, p55 = 0;
                for (;;) {
                    r51 = r14 << 9;
                    r52 = r51 >> 9;
                    r48 = r2 - r23;
                    p53 = r23 < r2;
                    p54 = (r52 == r14) && p53;
                    p50 = (r48 > r51) && p54;
                    r49 = r23 + r51;
                    r47 = p50 ? r49 : r2;
                    for (;;) {
                        d24 = (ulong)r23 * (ulong)4u; // line 61
                        d25 = d15 + d24; // line 62
                        d26 = GLOBAL(u32, d25); // line 63
                        d27 = d22 * d26; // line 64
                        d20 = d27 + d20; // line 65
                        r23 = r23 + r14; // line 66
                        p55 = r23 < r47; // line 67
                        if (!p55) break; // line 68
                    }
                    p28 = r23 < r2; // line 67
                    if (!p28) break; // line 68
                    if (*pause) {
                        kept_d[zero + 4] = d20;
                        kept_r[zero + 8] = r23;
                        point = 5; goto rest;
                    }
                }
                SHARED(u64, r11) = d20; // line 71
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
            case FINISHED: case 3: case 1: break;
            default: now[1] = 1;
        }
        block_barrier();
        if (now[2]) {
            const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
            const ulong shared_at = ((registers_at + 88ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
            const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
            __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
            ((__global uint *)slot)[thread] = point + 1;
            if (thread == 0) *(__global uint *)(slot + claim_at) = block;
            for (uint i = 0; i < 6; i++) ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread] = kept_d[i];
            for (uint i = 0; i < 10; i++) ((__global uint *)(slot + registers_at + (48ul + 4 * i) * block_size))[thread] = kept_r[i];
            for (uint i = thread; i < (0u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
            break;
        }
        if (!now[0]) break;
        switch (point) {
            case 3: if (!now[1]) { point = 4; } break; // line 90
            case 1: if (!now[1]) { point = 2; } break; // line 72
        }
        point += zero;
    }
}
