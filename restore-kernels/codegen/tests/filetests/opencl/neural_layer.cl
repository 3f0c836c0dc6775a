// _Z10dense_reluPKfS0_S0_Pfj
#pragma OPENCL FP_CONTRACT OFF

#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
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
    __local ulong2 *shared_memory)
{
    bool p7, p19, p23, p27, p31, p35, p39, p43, p47;
    uint r4, r5, r6, r8, r9, r12, r17, r18, r20, r21, r22, r24;
    uint r25, r26, r28, r29, r30, r32, r33, r34, r36, r37, r38, r40;
    uint r41, r42, r44, r45, r46, r48, r49, r50, r51, r55, r56, r57;
    uint r58;
    ulong d0, d1, d2, d3, d10, d11, d13, d14, d15, d16, d52, d53;
    ulong d54, d59, d60;
    __local uchar *const shared = (__local uchar *)shared_memory;

    d0 = params.param_0; // line 31
    d1 = params.param_1; // line 32
    d2 = params.param_2; // line 33
    d3 = params.param_3; // line 34
    r4 = params.param_4; // line 35
    r5 = (uint)get_group_id(0); // line 36
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
            d13 = (ulong)r9 * (ulong)4u; // line 49
            d14 = d10 + d13; // line 50
            d15 = (ulong)r12 * (ulong)4u; // line 51
            d16 = d11 + d15; // line 52
            r17 = GLOBAL(u32, d16); // line 53
            r18 = GLOBAL(u32, d14); // line 54
            r8 = as_uint(fma(as_float(r18), as_float(r17), as_float(r8))); // line 55
            r9 = r9 + 128u; // line 56
            r12 = r12 + 128u; // line 57
            p19 = r12 < r4; // line 58
            if (!p19) break; // line 59
        }
    }
    r20 = r6 << 2; // line 62
    r21 = 0ul; // line 63
    r22 = r21 + r20; // line 64
    SHARED(u32, r22) = r8; // line 65
    block_barrier(); // line 66
    p23 = r6 > 63u; // line 67
    if (!p23) { // line 68
        r24 = SHARED(u32, r22); // line 70
        r25 = SHARED(u32, r22 + 256u); // line 71
        r26 = as_uint(as_float(r25) + as_float(r24)); // line 72
        SHARED(u32, r22) = r26; // line 73
    }
    block_barrier(); // line 76
    p27 = r6 > 31u; // line 77
    if (!p27) { // line 78
        r28 = SHARED(u32, r22); // line 80
        r29 = SHARED(u32, r22 + 128u); // line 81
        r30 = as_uint(as_float(r29) + as_float(r28)); // line 82
        SHARED(u32, r22) = r30; // line 83
    }
    block_barrier(); // line 86
    p31 = r6 > 15u; // line 87
    if (!p31) { // line 88
        r32 = SHARED(u32, r22); // line 90
        r33 = SHARED(u32, r22 + 64u); // line 91
        r34 = as_uint(as_float(r33) + as_float(r32)); // line 92
        SHARED(u32, r22) = r34; // line 93
    }
    block_barrier(); // line 96
    p35 = r6 > 7u; // line 97
    if (!p35) { // line 98
        r36 = SHARED(u32, r22); // line 100
        r37 = SHARED(u32, r22 + 32u); // line 101
        r38 = as_uint(as_float(r37) + as_float(r36)); // line 102
        SHARED(u32, r22) = r38; // line 103
    }
    block_barrier(); // line 106
    p39 = r6 > 3u; // line 107
    if (!p39) { // line 108
        r40 = SHARED(u32, r22); // line 110
        r41 = SHARED(u32, r22 + 16u); // line 111
        r42 = as_uint(as_float(r41) + as_float(r40)); // line 112
        SHARED(u32, r22) = r42; // line 113
    }
    block_barrier(); // line 116
    p43 = r6 > 1u; // line 117
    if (!p43) { // line 118
        r44 = SHARED(u32, r22); // line 120
        r45 = SHARED(u32, r22 + 8u); // line 121
        r46 = as_uint(as_float(r45) + as_float(r44)); // line 122
        SHARED(u32, r22) = r46; // line 123
    }
    block_barrier(); // line 126
    p47 = as_int(r6) != 0; // line 127
    if (!p47) { // line 128
        r48 = SHARED(u32, 4ul); // line 130
        r49 = SHARED(u32, r22); // line 131
        r50 = as_uint(as_float(r48) + as_float(r49)); // line 132
        SHARED(u32, r22) = r50; // line 133
    }
    block_barrier(); // line 136
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
    return; // line 152
}
