// _Z6matmulPKfS0_Pdjj
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
typedef uint u32 __attribute__((may_alias));
typedef ulong u64 __attribute__((may_alias));

// Kernels do not see the host's writes: they stop after so many looks.
static uint stop_asked(__global volatile uint *pause, uint look_price)
{
    if (*pause >> 31) return 1;
    if (!(atomic_add(pause, look_price) >> 31)) return 0;
    atomic_xchg(pause, 1u << 31);
    return 1;
}

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
    __global volatile uint *pause,
    uint look_price,
    uint4 grid,
    __global uint *turned_away,
    __global uchar *stopped,
    uint num_stopped
    MORE_ARENAS)
{
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
    __local uchar *const shared = (__local uchar *)shared_memory;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));

    __local uint told[1];
    __local uint round_words[16];
    uint turn = thread >> 31, row_turn = turn, vote_turn = turn;
    const uint block = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const uint ctaid_x = get_group_id(0), ctaid_y = get_group_id(1), ctaid_z = get_group_id(2);
    if (thread == 0) {
        told[0] = stop_asked(pause, look_price);
        for (uint i = 0; i < 16; i++) round_words[i] = 0;
    }
    block_barrier();
    if (told[0]) {
        if (thread == 0) turned_away[atomic_inc(&counts[0])] = block;
        return;
    }
    block_barrier();
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
            if (!p28) { // line 70
                r30 = 0u; // line 72
                r31 = 0u; // line 73
                r29 = r30; // line 74
                for (;;) {
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
                    for (;;) {
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
                        block_barrier(); // line 105
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
                        if (!p112) break; // line 157
                    }
                    p95 = r31 < r3; // line 156
                    if (!p95) break; // line 157
                    {
                        __local uint *const now = round_words + 4 * turn;
                        turn = turn + 1 & 3;
                        if (thread == 0) {
                            round_words[4 * turn + 2] = 0; round_words[4 * turn + 3] = 0;
                            if (stop_asked(pause, look_price)) {
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
                }
            }
            d96 = as_ulong((double)as_float(r29)); // line 160
            d14 = as_ulong(as_double(d14) + as_double(d96)); // line 161
            r25 = r25 + 1u; // line 162
            p97 = r25 < r4; // line 163
            if (!p97) break; // line 164
            r105 = r105 - 122u;
            p106 = as_int(r105) < 0;
            if (p106) {
                {
                    __local uint *const now = round_words + 4 * turn;
                    turn = turn + 1 & 3;
                    if (thread == 0) {
                        round_words[4 * turn + 2] = 0; round_words[4 * turn + 3] = 0;
                        if (stop_asked(pause, look_price)) {
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
            block_barrier();
        }
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
    return; // line 179
}
