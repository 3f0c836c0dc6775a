// _Z6matmulPKfS0_Pdjj
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

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
    ulong param_0; // _Z6matmulPKfS0_Pdjj_param_0
    ulong param_1; // _Z6matmulPKfS0_Pdjj_param_1
    ulong param_2; // _Z6matmulPKfS0_Pdjj_param_2
    uint param_3; // _Z6matmulPKfS0_Pdjj_param_3
    uint param_4; // _Z6matmulPKfS0_Pdjj_param_4
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt__Z6matmulPKfS0_Pdjj(
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
    uint kept_r[17];
    __local uint away_words[16];
    __local ulong common[4];
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
        const ulong shared_at = ((registers_at + 100ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 2048u + dynamic_shared_bytes) + 15ul & ~15ul);
        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
        __global const uchar *const slot = resumed_slots + group * slot_bytes;
        point = ((__global const uint *)slot)[thread] - 1;
        for (uint i = 0; i < 4; i++) kept_d[i] = ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread];
        for (uint i = 0; i < 17; i++) kept_r[i] = ((__global uint *)(slot + registers_at + (32ul + 4 * i) * block_size))[thread];
        for (uint i = thread; i < (2048u + dynamic_shared_bytes + 15) / 16; i += block_size) shared_memory[i] = ((__global ulong2 *)(slot + shared_at))[i];
    }
    block_barrier();
    uint landing = 0;
    for (uint round = 0;; round++) {
        switch (point) {
            case 0: {
                ulong d0 = 0, d1 = 0, d2 = 0, d14 = 0, d26 = 0, d27 = 0;
                ulong d39 = 0, d40 = 0, d46 = 0, d47 = 0, d96 = 0, d102 = 0;
                ulong d103 = 0, d104 = 0;
                uint r3 = 0, r4 = 0, r5 = 0, r6 = 0, r7 = 0, r8 = 0;
                uint r9 = 0, r10 = 0, r11 = 0, r12 = 0, r15 = 0, r16 = 0;
                uint r17 = 0, r18 = 0, r19 = 0, r20 = 0, r21 = 0, r22 = 0;
                uint r23 = 0, r24 = 0, r25 = 0, r29 = 0, r30 = 0, r31 = 0;
                uint r32 = 0, r33 = 0, r37 = 0, r38 = 0, r43 = 0, r45 = 0;
                uint r101 = 0, r105 = 0, r107 = 0, r108 = 0, r109 = 0;
                bool p13 = 0, p28 = 0, p34 = 0, p35 = 0, p36 = 0, p41 = 0;
                bool p42 = 0, p44 = 0, p97 = 0, p98 = 0, p99 = 0, p100 = 0;
                bool p106 = 0, p110 = 0, p111 = 0;
                d0 = params.param_0; // line 35
                d1 = params.param_1; // line 36
                d2 = params.param_2; // line 37
                r3 = params.param_3; // line 38
                r4 = params.param_4; // line 39
                r5 = ctaid_y; // line 40
                r6 = r5 << 4; // line 41
                r7 = (uint)get_local_id(1); // line 42
                r8 = r6 + r7; // line 43
                r9 = ctaid_x; // line 44
                r10 = r9 << 4; // line 45
                r11 = (uint)get_local_id(0); // line 46
                r12 = r10 + r11; // line 47
                p13 = as_int(r4) == 0; // line 48
                d14 = 0ul; // line 49
                if (!p13) { // line 50
                    r15 = r8 * r3; // line 52
                    r16 = r7 << 6; // line 53
                    r17 = 0ul; // line 54
                    r18 = r17 + r16; // line 55
                    r19 = r11 << 2; // line 56
                    r20 = r18 + r19; // line 57
                    r21 = 1024ul; // line 58
                    r22 = r21 + r16; // line 59
                    r23 = r22 + r19; // line 60
                    r24 = r21 + r19; // line 61
                    d14 = 0ul; // line 62
                    r25 = 0u; // line 63
                    d26 = d0; // line 64
                    d27 = d1; // line 65
                    r105 = 0x4000u;
                    for (;;) {
                        p28 = as_int(r3) == 0; // line 68
                        r29 = 0u; // line 69
                        if (!p28) break; // line 70
                        d96 = as_ulong((double)as_float(r29)); // line 160
                        d14 = as_ulong(as_double(d14) + as_double(d96)); // line 161
                        r25 = r25 + 1u; // line 162
                        p97 = r25 < r4; // line 163
                        if (!p97) goto bb13_from_0; // line 164
                        r105 = r105 - 122u;
                        p106 = as_int(r105) < 0;
                        if (p106) {
                            if (*pause) {
                                kept_d[zero + 0] = d2;
                                kept_r[zero + 0] = r3;
                                kept_r[zero + 1] = r4;
                                kept_r[zero + 2] = r7;
                                kept_r[zero + 3] = r8;
                                kept_r[zero + 4] = r11;
                                kept_r[zero + 5] = r12;
                                kept_d[zero + 1] = d14;
                                kept_r[zero + 6] = r15;
                                kept_r[zero + 7] = r18;
                                kept_r[zero + 8] = r20;
                                kept_r[zero + 9] = r23;
                                kept_r[zero + 10] = r24;
                                kept_r[zero + 11] = r25;
                                kept_d[zero + 2] = d26;
                                kept_d[zero + 3] = d27;
                                point = 5; goto rest;
                            }
                            r105 = 0x4000u;
                        }
                    }
                    r30 = 0u; // line 72
                    r31 = 0u; // line 73
                    r29 = r30; // line 74
                    r108 = r3 - r31;
                    p111 = r31 < r3;
                    p110 = (r108 > 2400u) && p111;
                    r109 = r31 + 2400u;
                    r107 = p110 ? r109 : r3;
                    r108 = p110 ? 2400u : r108;
                    r108 = p111 ? r108 : 0u;
                    r108 = r108 >> 4;
                    r108 = r108 * 109u;
                    r105 = r105 - r108;
                    r32 = r31 + r7; // line 77
                    r33 = r31 + r11; // line 78
                    p34 = r33 >= r3; // line 79
                    p35 = r8 >= r3; // line 80
                    p36 = p35 || p34; // line 81
                    r37 = r30; // line 82
                    if (!p36) { // line 83
                        r38 = r33 + r15; // line 85
                        d39 = (ulong)r38 * (ulong)4u; // line 86
                        d40 = d26 + d39; // line 87
                        r37 = GLOBAL(u32, d40); // line 88
                    }
                    SHARED(u32, r20) = r37; // line 91
                    p41 = r32 >= r3; // line 92
                    p42 = r12 >= r3; // line 93
                    r43 = 0u; // line 94
                    p44 = p42 || p41; // line 95
                    if (!p44) { // line 96
                        r45 = r32 * r3 + r12; // line 98
                        d46 = (ulong)r45 * (ulong)4u; // line 99
                        d47 = d27 + d46; // line 100
                        r43 = GLOBAL(u32, d47); // line 101
                    }
                    SHARED(u32, r23) = r43; // line 104
                    kept_d[zero + 0] = d2;
                    kept_r[zero + 0] = r3;
                    kept_r[zero + 1] = r4;
                    kept_r[zero + 2] = r7;
                    kept_r[zero + 3] = r8;
                    kept_r[zero + 4] = r11;
                    kept_r[zero + 5] = r12;
                    kept_d[zero + 1] = d14;
                    kept_r[zero + 6] = r15;
                    kept_r[zero + 7] = r18;
                    kept_r[zero + 8] = r20;
                    kept_r[zero + 9] = r23;
                    kept_r[zero + 10] = r24;
                    kept_r[zero + 11] = r25;
                    kept_d[zero + 2] = d26;
                    kept_d[zero + 3] = d27;
                    kept_r[zero + 12] = r29;
                    kept_r[zero + 13] = r30;
                    kept_r[zero + 14] = r31;
                    kept_r[zero + 15] = r105;
                    kept_r[zero + 16] = r107;
                    point = 1; goto rest; // line 105
bb13_from_0:;
                }
                p98 = r12 >= r3; // line 167
                p99 = r8 >= r3; // line 168
                p100 = p99 || p98; // line 169
                if (!p100) { // line 170
                    r101 = r8 * r3 + r12; // line 172
                    d102 = d2; // line 173
                    d103 = (ulong)r101 * (ulong)8u; // line 174
                    d104 = d102 + d103; // line 175
                    GLOBAL(u64, d104) = d14; // line 176
                }
                point = FINISHED; goto rest; // line 179
            }
            case 2: {
                uint r18 = kept_r[zero + 7], r24 = kept_r[zero + 10], r29 = kept_r[zero + 12], r48 = 0, r49 = 0, r50 = 0;
                uint r51 = 0, r52 = 0, r53 = 0, r54 = 0, r55 = 0, r56 = 0;
                uint r57 = 0, r58 = 0, r59 = 0, r60 = 0, r61 = 0, r62 = 0;
                uint r63 = 0, r64 = 0, r65 = 0, r66 = 0, r67 = 0, r68 = 0;
                uint r69 = 0, r70 = 0, r71 = 0, r72 = 0, r73 = 0, r74 = 0;
                uint r75 = 0, r76 = 0, r77 = 0, r78 = 0, r79 = 0, r80 = 0;
                uint r81 = 0, r82 = 0, r83 = 0, r84 = 0, r85 = 0, r86 = 0;
                uint r87 = 0, r88 = 0, r89 = 0, r90 = 0, r91 = 0, r92 = 0;
                uint r93 = 0, r94 = 0;
                r48 = SHARED(u32, r24); // line 106
                r49 = SHARED(u32, r18); // line 107
                r50 = as_uint(fma(as_float(r49), as_float(r48), as_float(r29))); // line 108
                r51 = SHARED(u32, r24 + 64u); // line 109
                r52 = SHARED(u32, r18 + 4u); // line 110
                r53 = as_uint(fma(as_float(r52), as_float(r51), as_float(r50))); // line 111
                r54 = SHARED(u32, r24 + 128u); // line 112
                r55 = SHARED(u32, r18 + 8u); // line 113
                r56 = as_uint(fma(as_float(r55), as_float(r54), as_float(r53))); // line 114
                r57 = SHARED(u32, r24 + 192u); // line 115
                r58 = SHARED(u32, r18 + 12u); // line 116
                r59 = as_uint(fma(as_float(r58), as_float(r57), as_float(r56))); // line 117
                r60 = SHARED(u32, r24 + 256u); // line 118
                r61 = SHARED(u32, r18 + 16u); // line 119
                r62 = as_uint(fma(as_float(r61), as_float(r60), as_float(r59))); // line 120
                r63 = SHARED(u32, r24 + 320u); // line 121
                r64 = SHARED(u32, r18 + 20u); // line 122
                r65 = as_uint(fma(as_float(r64), as_float(r63), as_float(r62))); // line 123
                r66 = SHARED(u32, r24 + 384u); // line 124
                r67 = SHARED(u32, r18 + 24u); // line 125
                r68 = as_uint(fma(as_float(r67), as_float(r66), as_float(r65))); // line 126
                r69 = SHARED(u32, r24 + 448u); // line 127
                r70 = SHARED(u32, r18 + 28u); // line 128
                r71 = as_uint(fma(as_float(r70), as_float(r69), as_float(r68))); // line 129
                r72 = SHARED(u32, r24 + 512u); // line 130
                r73 = SHARED(u32, r18 + 32u); // line 131
                r74 = as_uint(fma(as_float(r73), as_float(r72), as_float(r71))); // line 132
                r75 = SHARED(u32, r24 + 576u); // line 133
                r76 = SHARED(u32, r18 + 36u); // line 134
                r77 = as_uint(fma(as_float(r76), as_float(r75), as_float(r74))); // line 135
                r78 = SHARED(u32, r24 + 640u); // line 136
                r79 = SHARED(u32, r18 + 40u); // line 137
                r80 = as_uint(fma(as_float(r79), as_float(r78), as_float(r77))); // line 138
                r81 = SHARED(u32, r24 + 704u); // line 139
                r82 = SHARED(u32, r18 + 44u); // line 140
                r83 = as_uint(fma(as_float(r82), as_float(r81), as_float(r80))); // line 141
                r84 = SHARED(u32, r24 + 768u); // line 142
                r85 = SHARED(u32, r18 + 48u); // line 143
                r86 = as_uint(fma(as_float(r85), as_float(r84), as_float(r83))); // line 144
                r87 = SHARED(u32, r24 + 832u); // line 145
                r88 = SHARED(u32, r18 + 52u); // line 146
                r89 = as_uint(fma(as_float(r88), as_float(r87), as_float(r86))); // line 147
                r90 = SHARED(u32, r24 + 896u); // line 148
                r91 = SHARED(u32, r18 + 56u); // line 149
                r92 = as_uint(fma(as_float(r91), as_float(r90), as_float(r89))); // line 150
                r93 = SHARED(u32, r24 + 960u); // line 151
                r94 = SHARED(u32, r18 + 60u); // line 152
                r29 = as_uint(fma(as_float(r94), as_float(r93), as_float(r92))); // line 153
                kept_r[zero + 12] = r29;
                point = 3; goto rest; // line 154
            }
            case 4: {
                ulong d2 = kept_d[zero + 0], d14 = kept_d[zero + 1], d26 = kept_d[zero + 2], d27 = kept_d[zero + 3], d39 = 0, d40 = 0;
                ulong d46 = 0, d47 = 0, d96 = 0, d102 = 0, d103 = 0, d104 = 0;
                uint r3 = kept_r[zero + 0], r4 = kept_r[zero + 1], r7 = kept_r[zero + 2], r8 = kept_r[zero + 3], r11 = kept_r[zero + 4], r12 = kept_r[zero + 5];
                uint r15 = kept_r[zero + 6], r20 = kept_r[zero + 8], r23 = kept_r[zero + 9], r25 = kept_r[zero + 11], r29 = kept_r[zero + 12], r30 = kept_r[zero + 13];
                uint r31 = kept_r[zero + 14], r32 = 0, r33 = 0, r37 = 0, r38 = 0, r43 = 0;
                uint r45 = 0, r101 = 0, r105 = kept_r[zero + 15], r107 = kept_r[zero + 16], r108 = 0, r109 = 0;
                bool p28 = 0, p34 = 0, p35 = 0, p36 = 0, p41 = 0, p42 = 0;
                bool p44 = 0, p95 = 0, p97 = 0, p98 = 0, p99 = 0, p100 = 0;
                bool p106 = 0, p110 = 0, p111 = 0, p112 = 0;
                r31 = r31 + 16u; // line 155
                p112 = r31 < r107; // line 156
                if (!p112) { // line 157
                    p95 = r31 < r3; // line 156
                    if (p95) { // line 157
                        if (*pause) {
                            kept_d[zero + 1] = d14;
                            kept_r[zero + 11] = r25;
                            kept_r[zero + 12] = r29;
                            kept_r[zero + 13] = r30;
                            kept_r[zero + 14] = r31;
                            point = 6; goto rest;
                        }
                        r105 = 0x4000u;
                    } else {
                        for (;;) {
                            d96 = as_ulong((double)as_float(r29)); // line 160
                            d14 = as_ulong(as_double(d14) + as_double(d96)); // line 161
                            r25 = r25 + 1u; // line 162
                            p97 = r25 < r4; // line 163
                            if (!p97) break; // line 164
                            r105 = r105 - 122u;
                            p106 = as_int(r105) < 0;
                            if (p106) {
                                if (*pause) {
                                    kept_d[zero + 1] = d14;
                                    kept_r[zero + 11] = r25;
                                    point = 5; goto rest;
                                }
                                r105 = 0x4000u;
                            }
                            p28 = as_int(r3) == 0; // line 68
                            r29 = 0u; // line 69
                            if (!p28) goto bb3_from_4; // line 70
                        }
                        p98 = r12 >= r3; // line 167
                        p99 = r8 >= r3; // line 168
                        p100 = p99 || p98; // line 169
                        if (!p100) { // line 170
                            r101 = r8 * r3 + r12; // line 172
                            d102 = d2; // line 173
                            d103 = (ulong)r101 * (ulong)8u; // line 174
                            d104 = d102 + d103; // line 175
                            GLOBAL(u64, d104) = d14; // line 176
                        }
                        point = FINISHED; goto rest; // line 179
bb3_from_4:;
                        r30 = 0u; // line 72
                        r31 = 0u; // line 73
                        r29 = r30; // line 74
                    }
                    r108 = r3 - r31;
                    p111 = r31 < r3;
                    p110 = (r108 > 2400u) && p111;
                    r109 = r31 + 2400u;
                    r107 = p110 ? r109 : r3;
                    r108 = p110 ? 2400u : r108;
                    r108 = p111 ? r108 : 0u;
                    r108 = r108 >> 4;
                    r108 = r108 * 109u;
                    r105 = r105 - r108;
                }
                r32 = r31 + r7; // line 77
                r33 = r31 + r11; // line 78
                p34 = r33 >= r3; // line 79
                p35 = r8 >= r3; // line 80
                p36 = p35 || p34; // line 81
                r37 = r30; // line 82
                if (!p36) { // line 83
                    r38 = r33 + r15; // line 85
                    d39 = (ulong)r38 * (ulong)4u; // line 86
                    d40 = d26 + d39; // line 87
                    r37 = GLOBAL(u32, d40); // line 88
                }
                SHARED(u32, r20) = r37; // line 91
                p41 = r32 >= r3; // line 92
                p42 = r12 >= r3; // line 93
                r43 = 0u; // line 94
                p44 = p42 || p41; // line 95
                if (!p44) { // line 96
                    r45 = r32 * r3 + r12; // line 98
                    d46 = (ulong)r45 * (ulong)4u; // line 99
                    d47 = d27 + d46; // line 100
                    r43 = GLOBAL(u32, d47); // line 101
                }
                SHARED(u32, r23) = r43; // line 104
                kept_d[zero + 1] = d14;
                kept_r[zero + 11] = r25;
                kept_r[zero + 12] = r29;
                kept_r[zero + 13] = r30;
                kept_r[zero + 14] = r31;
                kept_r[zero + 15] = r105;
                kept_r[zero + 16] = r107;
                point = 1; goto rest; // line 105
            }
            case 5: {
                ulong d2 = kept_d[zero + 0], d14 = kept_d[zero + 1], d26 = kept_d[zero + 2], d27 = kept_d[zero + 3], d39 = 0, d40 = 0;
                ulong d46 = 0, d47 = 0, d96 = 0, d102 = 0, d103 = 0, d104 = 0;
                uint r3 = kept_r[zero + 0], r4 = kept_r[zero + 1], r7 = kept_r[zero + 2], r8 = kept_r[zero + 3], r11 = kept_r[zero + 4], r12 = kept_r[zero + 5];
                uint r15 = kept_r[zero + 6], r20 = kept_r[zero + 8], r23 = kept_r[zero + 9], r25 = kept_r[zero + 11], r29 = 0, r30 = 0;
                uint r31 = 0, r32 = 0, r33 = 0, r37 = 0, r38 = 0, r43 = 0;
                uint r45 = 0, r101 = 0, r105 = 0, r107 = 0, r108 = 0, r109 = 0;
                bool p28 = 0, p34 = 0, p35 = 0, p36 = 0, p41 = 0, p42 = 0;
                bool p44 = 0, p97 = 0, p98 = 0, p99 = 0, p100 = 0, p106 = 0;
                bool p110 = 0, p111 = 0;
                for (;;) {
                    r105 = 0x4000u;
                    for (;;) {
                        p28 = as_int(r3) == 0; // line 68
                        r29 = 0u; // line 69
                        if (!p28) goto bb3_from_5; // line 70
                        d96 = as_ulong((double)as_float(r29)); // line 160
                        d14 = as_ulong(as_double(d14) + as_double(d96)); // line 161
                        r25 = r25 + 1u; // line 162
                        p97 = r25 < r4; // line 163
                        if (!p97) goto bb13_from_5; // line 164
                        r105 = r105 - 122u;
                        p106 = as_int(r105) < 0;
                        if (p106) break;
                    }
                    if (*pause) {
                        kept_d[zero + 1] = d14;
                        kept_r[zero + 11] = r25;
                        point = 5; goto rest;
                    }
                }
bb3_from_5:;
                r30 = 0u; // line 72
                r31 = 0u; // line 73
                r29 = r30; // line 74
                r108 = r3 - r31;
                p111 = r31 < r3;
                p110 = (r108 > 2400u) && p111;
                r109 = r31 + 2400u;
                r107 = p110 ? r109 : r3;
                r108 = p110 ? 2400u : r108;
                r108 = p111 ? r108 : 0u;
                r108 = r108 >> 4;
                r108 = r108 * 109u;
                r105 = r105 - r108;
                r32 = r31 + r7; // line 77
                r33 = r31 + r11; // line 78
                p34 = r33 >= r3; // line 79
                p35 = r8 >= r3; // line 80
                p36 = p35 || p34; // line 81
                r37 = r30; // line 82
                if (!p36) { // line 83
                    r38 = r33 + r15; // line 85
                    d39 = (ulong)r38 * (ulong)4u; // line 86
                    d40 = d26 + d39; // line 87
                    r37 = GLOBAL(u32, d40); // line 88
                }
                SHARED(u32, r20) = r37; // line 91
                p41 = r32 >= r3; // line 92
                p42 = r12 >= r3; // line 93
                r43 = 0u; // line 94
                p44 = p42 || p41; // line 95
                if (!p44) { // line 96
                    r45 = r32 * r3 + r12; // line 98
                    d46 = (ulong)r45 * (ulong)4u; // line 99
                    d47 = d27 + d46; // line 100
                    r43 = GLOBAL(u32, d47); // line 101
                }
                SHARED(u32, r23) = r43; // line 104
                kept_d[zero + 1] = d14;
                kept_r[zero + 11] = r25;
                kept_r[zero + 12] = r29;
                kept_r[zero + 13] = r30;
                kept_r[zero + 14] = r31;
                kept_r[zero + 15] = r105;
                kept_r[zero + 16] = r107;
                point = 1; goto rest; // line 105
bb13_from_5:;
                p98 = r12 >= r3; // line 167
                p99 = r8 >= r3; // line 168
                p100 = p99 || p98; // line 169
                if (!p100) { // line 170
                    r101 = r8 * r3 + r12; // line 172
                    d102 = d2; // line 173
                    d103 = (ulong)r101 * (ulong)8u; // line 174
                    d104 = d102 + d103; // line 175
                    GLOBAL(u64, d104) = d14; // line 176
                }
                point = FINISHED; goto rest; // line 179
            }
            case 6: {
                ulong d26 = kept_d[zero + 2], d27 = kept_d[zero + 3], d39 = 0, d40 = 0, d46 = 0, d47 = 0;
                uint r3 = kept_r[zero + 0], r7 = kept_r[zero + 2], r8 = kept_r[zero + 3], r11 = kept_r[zero + 4], r12 = kept_r[zero + 5], r15 = kept_r[zero + 6];
                uint r20 = kept_r[zero + 8], r23 = kept_r[zero + 9], r30 = kept_r[zero + 13], r31 = kept_r[zero + 14], r32 = 0, r33 = 0;
                uint r37 = 0, r38 = 0, r43 = 0, r45 = 0, r105 = 0, r107 = 0;
                uint r108 = 0, r109 = 0;
                bool p34 = 0, p35 = 0, p36 = 0, p41 = 0, p42 = 0, p44 = 0;
                bool p110 = 0, p111 = 0;
                r105 = 0x4000u;
                r108 = r3 - r31;
                p111 = r31 < r3;
                p110 = (r108 > 2400u) && p111;
                r109 = r31 + 2400u;
                r107 = p110 ? r109 : r3;
                r108 = p110 ? 2400u : r108;
                r108 = p111 ? r108 : 0u;
                r108 = r108 >> 4;
                r108 = r108 * 109u;
                r105 = r105 - r108;
                r32 = r31 + r7; // line 77
                r33 = r31 + r11; // line 78
                p34 = r33 >= r3; // line 79
                p35 = r8 >= r3; // line 80
                p36 = p35 || p34; // line 81
                r37 = r30; // line 82
                if (!p36) { // line 83
                    r38 = r33 + r15; // line 85
                    d39 = (ulong)r38 * (ulong)4u; // line 86
                    d40 = d26 + d39; // line 87
                    r37 = GLOBAL(u32, d40); // line 88
                }
                SHARED(u32, r20) = r37; // line 91
                p41 = r32 >= r3; // line 92
                p42 = r12 >= r3; // line 93
                r43 = 0u; // line 94
                p44 = p42 || p41; // line 95
                if (!p44) { // line 96
                    r45 = r32 * r3 + r12; // line 98
                    d46 = (ulong)r45 * (ulong)4u; // line 99
                    d47 = d27 + d46; // line 100
                    r43 = GLOBAL(u32, d47); // line 101
                }
                SHARED(u32, r23) = r43; // line 104
                kept_r[zero + 15] = r105;
                kept_r[zero + 16] = r107;
                point = 1; goto rest; // line 105
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
            case FINISHED: case 1: case 3: break;
            default: now[1] = 1;
        }
        __local uint *const away = away_words + 4 * (round & 3);
        if (thread == 0) away_words[4 * (round + 1 & 3) + 0] = 0;
        if (point != 1) away[0] = 1;
        block_barrier();
        if (now[2]) {
            const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
            const ulong shared_at = ((registers_at + 100ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 2048u + dynamic_shared_bytes) + 15ul & ~15ul);
            const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
            __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
            ((__global uint *)slot)[thread] = point + 1;
            if (thread == 0) *(__global uint *)(slot + claim_at) = block;
            for (uint i = 0; i < 4; i++) ((__global ulong *)(slot + registers_at + (0ul + 8 * i) * block_size))[thread] = kept_d[i];
            for (uint i = 0; i < 17; i++) ((__global uint *)(slot + registers_at + (32ul + 4 * i) * block_size))[thread] = kept_r[i];
            for (uint i = thread; i < (2048u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
            break;
        }
        if (!now[0]) break;
        if (!away[0]) {
            landing = 1;
            break;
        }
        switch (point) {
            case 1: if (!now[1]) { point = 2; } break;
            case 3: if (!now[1]) { point = 4; } break; // line 154
        }
        point += zero;
    }
    if (landing == 1) {
        block_barrier();
        if (thread == 0) {
            for (uint i = 0; i < 16; i++) round_words[i] = 0;
            common[0] = kept_r[zero + 11];
            common[1] = kept_r[zero + 14];
            common[2] = kept_r[zero + 15];
            common[3] = kept_r[zero + 16];
        }
        block_barrier();
        uint turn = thread >> 31, row_turn = turn, vote_turn = turn;
        bool p13, p28, p34, p35, p36, p41, p42, p44, p95, p97, p98, p99;
        bool p100, p106, p110, p111, p112;
        uint r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r15, r16;
        uint r17, r18, r19, r20, r21, r22, r23, r24, r25, r29, r30, r31;
        uint r32, r33, r37, r38, r43, r45, r48, r49, r50, r51, r52, r53;
        uint r54, r55, r56, r57, r58, r59, r60, r61, r62, r63, r64, r65;
        uint r66, r67, r68, r69, r70, r71, r72, r73, r74, r75, r76, r77;
        uint r78, r79, r80, r81, r82, r83, r84, r85, r86, r87, r88, r89;
        uint r90, r91, r92, r93, r94, r101, r105, r107, r108, r109;
        ulong d0, d1, d2, d14, d26, d27, d39, d40, d46, d47, d96, d102;
        ulong d103, d104;
        d14 = kept_d[zero + 1];
        r25 = common[0];
        r29 = kept_r[zero + 12];
        r31 = common[1];
        r105 = common[2];
        r107 = common[3];
        d0 = params.param_0;
        d1 = params.param_1;
        d2 = params.param_2;
        r3 = params.param_3;
        r4 = params.param_4;
        r5 = ctaid_y;
        r6 = r5 << 4;
        r7 = (uint)get_local_id(1);
        r8 = r6 + r7;
        r9 = ctaid_x;
        r10 = r9 << 4;
        r11 = (uint)get_local_id(0);
        r12 = r10 + r11;
        r15 = r8 * r3;
        r16 = r7 << 6;
        r17 = 0ul;
        r18 = r17 + r16;
        r19 = r11 << 2;
        r20 = r18 + r19;
        r21 = 1024ul;
        r22 = r21 + r16;
        r23 = r22 + r19;
        r24 = r21 + r19;
        d26 = d0;
        d27 = d1;
        r30 = 0u;
        for (;;) {
            { // line 105
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
                    const ulong shared_at = ((registers_at + 100ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 2048u + dynamic_shared_bytes) + 15ul & ~15ul);
                    const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
                    __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
                    ((__global uint *)slot)[thread] = 2;
                    if (thread == 0) *(__global uint *)(slot + claim_at) = block;
                    *(__global ulong *)(slot + registers_at + 0ul * block_size + 8ul * thread) = d2;
                    *(__global uint *)(slot + registers_at + 32ul * block_size + 4ul * thread) = r3;
                    *(__global uint *)(slot + registers_at + 36ul * block_size + 4ul * thread) = r4;
                    *(__global uint *)(slot + registers_at + 40ul * block_size + 4ul * thread) = r7;
                    *(__global uint *)(slot + registers_at + 44ul * block_size + 4ul * thread) = r8;
                    *(__global uint *)(slot + registers_at + 48ul * block_size + 4ul * thread) = r11;
                    *(__global uint *)(slot + registers_at + 52ul * block_size + 4ul * thread) = r12;
                    *(__global ulong *)(slot + registers_at + 8ul * block_size + 8ul * thread) = d14;
                    *(__global uint *)(slot + registers_at + 56ul * block_size + 4ul * thread) = r15;
                    *(__global uint *)(slot + registers_at + 60ul * block_size + 4ul * thread) = r18;
                    *(__global uint *)(slot + registers_at + 64ul * block_size + 4ul * thread) = r20;
                    *(__global uint *)(slot + registers_at + 68ul * block_size + 4ul * thread) = r23;
                    *(__global uint *)(slot + registers_at + 72ul * block_size + 4ul * thread) = r24;
                    *(__global uint *)(slot + registers_at + 76ul * block_size + 4ul * thread) = r25;
                    *(__global ulong *)(slot + registers_at + 16ul * block_size + 8ul * thread) = d26;
                    *(__global ulong *)(slot + registers_at + 24ul * block_size + 8ul * thread) = d27;
                    *(__global uint *)(slot + registers_at + 80ul * block_size + 4ul * thread) = r29;
                    *(__global uint *)(slot + registers_at + 84ul * block_size + 4ul * thread) = r30;
                    *(__global uint *)(slot + registers_at + 88ul * block_size + 4ul * thread) = r31;
                    *(__global uint *)(slot + registers_at + 92ul * block_size + 4ul * thread) = r105;
                    *(__global uint *)(slot + registers_at + 96ul * block_size + 4ul * thread) = r107;
                    for (uint i = thread; i < (2048u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
                    return;
                }
            }
            {
                const uint zero = told[0];
                r7 = (uint)(get_local_id(1) + zero);
                r11 = (uint)(get_local_id(0) + zero);
                r16 = r7 << 6;
                r18 = r17 + r16;
                r19 = r11 << 2;
                r24 = r21 + r19;
            }
            r48 = SHARED(u32, r24); // line 106
            r49 = SHARED(u32, r18); // line 107
            r50 = as_uint(fma(as_float(r49), as_float(r48), as_float(r29))); // line 108
            r51 = SHARED(u32, r24 + 64u); // line 109
            r52 = SHARED(u32, r18 + 4u); // line 110
            r53 = as_uint(fma(as_float(r52), as_float(r51), as_float(r50))); // line 111
            r54 = SHARED(u32, r24 + 128u); // line 112
            r55 = SHARED(u32, r18 + 8u); // line 113
            r56 = as_uint(fma(as_float(r55), as_float(r54), as_float(r53))); // line 114
            r57 = SHARED(u32, r24 + 192u); // line 115
            r58 = SHARED(u32, r18 + 12u); // line 116
            r59 = as_uint(fma(as_float(r58), as_float(r57), as_float(r56))); // line 117
            r60 = SHARED(u32, r24 + 256u); // line 118
            r61 = SHARED(u32, r18 + 16u); // line 119
            r62 = as_uint(fma(as_float(r61), as_float(r60), as_float(r59))); // line 120
            r63 = SHARED(u32, r24 + 320u); // line 121
            r64 = SHARED(u32, r18 + 20u); // line 122
            r65 = as_uint(fma(as_float(r64), as_float(r63), as_float(r62))); // line 123
            r66 = SHARED(u32, r24 + 384u); // line 124
            r67 = SHARED(u32, r18 + 24u); // line 125
            r68 = as_uint(fma(as_float(r67), as_float(r66), as_float(r65))); // line 126
            r69 = SHARED(u32, r24 + 448u); // line 127
            r70 = SHARED(u32, r18 + 28u); // line 128
            r71 = as_uint(fma(as_float(r70), as_float(r69), as_float(r68))); // line 129
            r72 = SHARED(u32, r24 + 512u); // line 130
            r73 = SHARED(u32, r18 + 32u); // line 131
            r74 = as_uint(fma(as_float(r73), as_float(r72), as_float(r71))); // line 132
            r75 = SHARED(u32, r24 + 576u); // line 133
            r76 = SHARED(u32, r18 + 36u); // line 134
            r77 = as_uint(fma(as_float(r76), as_float(r75), as_float(r74))); // line 135
            r78 = SHARED(u32, r24 + 640u); // line 136
            r79 = SHARED(u32, r18 + 40u); // line 137
            r80 = as_uint(fma(as_float(r79), as_float(r78), as_float(r77))); // line 138
            r81 = SHARED(u32, r24 + 704u); // line 139
            r82 = SHARED(u32, r18 + 44u); // line 140
            r83 = as_uint(fma(as_float(r82), as_float(r81), as_float(r80))); // line 141
            r84 = SHARED(u32, r24 + 768u); // line 142
            r85 = SHARED(u32, r18 + 48u); // line 143
            r86 = as_uint(fma(as_float(r85), as_float(r84), as_float(r83))); // line 144
            r87 = SHARED(u32, r24 + 832u); // line 145
            r88 = SHARED(u32, r18 + 52u); // line 146
            r89 = as_uint(fma(as_float(r88), as_float(r87), as_float(r86))); // line 147
            r90 = SHARED(u32, r24 + 896u); // line 148
            r91 = SHARED(u32, r18 + 56u); // line 149
            r92 = as_uint(fma(as_float(r91), as_float(r90), as_float(r89))); // line 150
            r93 = SHARED(u32, r24 + 960u); // line 151
            r94 = SHARED(u32, r18 + 60u); // line 152
            r29 = as_uint(fma(as_float(r94), as_float(r93), as_float(r92))); // line 153
            block_barrier(); // line 154
            r31 = r31 + 16u; // line 155
            p112 = r31 < r107; // line 156
            if (!p112) { // line 157
                p95 = r31 < r3; // line 156
                if (p95) { // line 157
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
                            const ulong shared_at = ((registers_at + 100ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 2048u + dynamic_shared_bytes) + 15ul & ~15ul);
                            const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
                            __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
                            ((__global uint *)slot)[thread] = 7;
                            if (thread == 0) *(__global uint *)(slot + claim_at) = block;
                            *(__global ulong *)(slot + registers_at + 0ul * block_size + 8ul * thread) = d2;
                            *(__global uint *)(slot + registers_at + 32ul * block_size + 4ul * thread) = r3;
                            *(__global uint *)(slot + registers_at + 36ul * block_size + 4ul * thread) = r4;
                            *(__global uint *)(slot + registers_at + 40ul * block_size + 4ul * thread) = r7;
                            *(__global uint *)(slot + registers_at + 44ul * block_size + 4ul * thread) = r8;
                            *(__global uint *)(slot + registers_at + 48ul * block_size + 4ul * thread) = r11;
                            *(__global uint *)(slot + registers_at + 52ul * block_size + 4ul * thread) = r12;
                            *(__global ulong *)(slot + registers_at + 8ul * block_size + 8ul * thread) = d14;
                            *(__global uint *)(slot + registers_at + 56ul * block_size + 4ul * thread) = r15;
                            *(__global uint *)(slot + registers_at + 60ul * block_size + 4ul * thread) = r18;
                            *(__global uint *)(slot + registers_at + 64ul * block_size + 4ul * thread) = r20;
                            *(__global uint *)(slot + registers_at + 68ul * block_size + 4ul * thread) = r23;
                            *(__global uint *)(slot + registers_at + 72ul * block_size + 4ul * thread) = r24;
                            *(__global uint *)(slot + registers_at + 76ul * block_size + 4ul * thread) = r25;
                            *(__global ulong *)(slot + registers_at + 16ul * block_size + 8ul * thread) = d26;
                            *(__global ulong *)(slot + registers_at + 24ul * block_size + 8ul * thread) = d27;
                            *(__global uint *)(slot + registers_at + 80ul * block_size + 4ul * thread) = r29;
                            *(__global uint *)(slot + registers_at + 84ul * block_size + 4ul * thread) = r30;
                            *(__global uint *)(slot + registers_at + 88ul * block_size + 4ul * thread) = r31;
                            for (uint i = thread; i < (2048u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
                            return;
                        }
                    }
                    r105 = 0x4000u;
                } else {
                    for (;;) {
                        d96 = as_ulong((double)as_float(r29)); // line 160
                        d14 = as_ulong(as_double(d14) + as_double(d96)); // line 161
                        r25 = r25 + 1u; // line 162
                        p97 = r25 < r4; // line 163
                        if (!p97) goto bb13_from_1; // line 164
                        r105 = r105 - 122u;
                        p106 = as_int(r105) < 0;
                        if (p106) {
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
                                    const ulong shared_at = ((registers_at + 100ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 2048u + dynamic_shared_bytes) + 15ul & ~15ul);
                                    const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
                                    __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
                                    ((__global uint *)slot)[thread] = 6;
                                    if (thread == 0) *(__global uint *)(slot + claim_at) = block;
                                    *(__global ulong *)(slot + registers_at + 0ul * block_size + 8ul * thread) = d2;
                                    *(__global uint *)(slot + registers_at + 32ul * block_size + 4ul * thread) = r3;
                                    *(__global uint *)(slot + registers_at + 36ul * block_size + 4ul * thread) = r4;
                                    *(__global uint *)(slot + registers_at + 40ul * block_size + 4ul * thread) = r7;
                                    *(__global uint *)(slot + registers_at + 44ul * block_size + 4ul * thread) = r8;
                                    *(__global uint *)(slot + registers_at + 48ul * block_size + 4ul * thread) = r11;
                                    *(__global uint *)(slot + registers_at + 52ul * block_size + 4ul * thread) = r12;
                                    *(__global ulong *)(slot + registers_at + 8ul * block_size + 8ul * thread) = d14;
                                    *(__global uint *)(slot + registers_at + 56ul * block_size + 4ul * thread) = r15;
                                    *(__global uint *)(slot + registers_at + 60ul * block_size + 4ul * thread) = r18;
                                    *(__global uint *)(slot + registers_at + 64ul * block_size + 4ul * thread) = r20;
                                    *(__global uint *)(slot + registers_at + 68ul * block_size + 4ul * thread) = r23;
                                    *(__global uint *)(slot + registers_at + 72ul * block_size + 4ul * thread) = r24;
                                    *(__global uint *)(slot + registers_at + 76ul * block_size + 4ul * thread) = r25;
                                    *(__global ulong *)(slot + registers_at + 16ul * block_size + 8ul * thread) = d26;
                                    *(__global ulong *)(slot + registers_at + 24ul * block_size + 8ul * thread) = d27;
                                    for (uint i = thread; i < (2048u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
                                    return;
                                }
                            }
                            r105 = 0x4000u;
                        }
                        p28 = as_int(r3) == 0; // line 68
                        r29 = 0u; // line 69
                        if (!p28) break; // line 70
                        block_barrier();
                    }
                    r30 = 0u; // line 72
                    r31 = 0u; // line 73
                    r29 = r30; // line 74
                }
                r108 = r3 - r31;
                p111 = r31 < r3;
                p110 = (r108 > 2400u) && p111;
                r109 = r31 + 2400u;
                r107 = p110 ? r109 : r3;
                r108 = p110 ? 2400u : r108;
                r108 = p111 ? r108 : 0u;
                r108 = r108 >> 4;
                r108 = r108 * 109u;
                r105 = r105 - r108;
            }
            r32 = r31 + r7; // line 77
            r33 = r31 + r11; // line 78
            p34 = r33 >= r3; // line 79
            p35 = r8 >= r3; // line 80
            p36 = p35 || p34; // line 81
            r37 = r30; // line 82
            if (!p36) { // line 83
                r38 = r33 + r15; // line 85
                d39 = (ulong)r38 * (ulong)4u; // line 86
                d40 = d26 + d39; // line 87
                r37 = GLOBAL(u32, d40); // line 88
            }
            SHARED(u32, r20) = r37; // line 91
            p41 = r32 >= r3; // line 92
            p42 = r12 >= r3; // line 93
            r43 = 0u; // line 94
            p44 = p42 || p41; // line 95
            if (!p44) { // line 96
                r45 = r32 * r3 + r12; // line 98
                d46 = (ulong)r45 * (ulong)4u; // line 99
                d47 = d27 + d46; // line 100
                r43 = GLOBAL(u32, d47); // line 101
            }
            SHARED(u32, r23) = r43; // line 104
            block_barrier();
        }
bb13_from_1:;
        p98 = r12 >= r3; // line 167
        p99 = r8 >= r3; // line 168
        p100 = p99 || p98; // line 169
        if (!p100) { // line 170
            r101 = r8 * r3 + r12; // line 172
            d102 = d2; // line 173
            d103 = (ulong)r101 * (ulong)8u; // line 174
            d104 = d102 + d103; // line 175
            GLOBAL(u64, d104) = d14; // line 176
        }
        return; // line 179
    }
}
