// _Z13reduce_valuesPKjPyjj
#pragma OPENCL FP_CONTRACT OFF

#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
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
    __local ulong2 *shared_memory)
{
    bool p4, p19, p28, p29, p31, p37, p38, p40, p42;
    uint r2, r3, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14;
    uint r17, r23, r30, r32, r33, r41, r43;
    ulong d0, d1, d15, d16, d18, d20, d21, d22, d24, d25, d26, d27;
    ulong d34, d35, d36, d39, d44, d45, d46;
    __local uchar *const shared = (__local uchar *)shared_memory;

    d0 = params.param_0; // line 28
    d1 = params.param_1; // line 29
    r2 = params.param_2; // line 30
    r3 = params.param_3; // line 31
    p4 = as_int(r3) == 0; // line 32
    if (p4) { // line 33
        d18 = 0ul; // line 110
    } else {
        r5 = (uint)get_local_size(0); // line 35
        r6 = (uint)get_group_id(0); // line 36
        r7 = (uint)get_local_id(0); // line 37
        r8 = r6 * r5 + r7; // line 38
        r9 = r7 << 3; // line 39
        r10 = 0ul; // line 40
        r11 = r10 + r9; // line 41
        r12 = r5 >> 1; // line 42
        r13 = (uint)get_num_groups(0); // line 43
        r14 = r13 * r5; // line 44
        d15 = d0; // line 45
        d16 = 0ul; // line 46
        r17 = 0u; // line 47
        d18 = d16; // line 48
        for (;;) {
            p19 = r8 >= r2; // line 51
            d20 = d16; // line 52
            if (!p19) { // line 53
                d21 = (ulong)r17 * (ulong)2u; // line 55
                d22 = d21 | 1ul; // line 56
                d20 = 0ul; // line 57
                r23 = r8; // line 58
                for (;;) {
                    d24 = (ulong)r23 * (ulong)4u; // line 61
                    d25 = d15 + d24; // line 62
                    d26 = GLOBAL(u32, d25); // line 63
                    d27 = d22 * d26; // line 64
                    d20 = d27 + d20; // line 65
                    r23 = r23 + r14; // line 66
                    p28 = r23 < r2; // line 67
                    if (!p28) break; // line 68
                }
            }
            SHARED(u64, r11) = d20; // line 71
            block_barrier(); // line 72
            p29 = as_int(r12) == 0; // line 73
            if (!p29) { // line 74
                r30 = r12; // line 76
                for (;;) {
                    p31 = r7 >= r30; // line 79
                    if (!p31) { // line 80
                        r32 = r30 << 3; // line 82
                        r33 = r11 + r32; // line 83
                        d34 = SHARED(u64, r11); // line 84
                        d35 = SHARED(u64, r33); // line 85
                        d36 = d34 + d35; // line 86
                        SHARED(u64, r11) = d36; // line 87
                    }
                    block_barrier(); // line 90
                    r30 = r30 >> 1; // line 91
                    p37 = as_int(r30) != 0; // line 92
                    if (!p37) break; // line 93
                }
            }
            p38 = as_int(r7) != 0; // line 96
            d39 = 0ul; // line 97
            if (!p38) { // line 98
                d39 = SHARED(u64, 0ul); // line 100
            }
            d18 = d39 + d18; // line 103
            r17 = r17 + 1u; // line 104
            p40 = r17 < r3; // line 105
            if (!p40) break; // line 106
        }
    }
    r41 = (uint)get_local_id(0); // line 113
    p42 = as_int(r41) != 0; // line 114
    if (!p42) { // line 115
        r43 = (uint)get_group_id(0); // line 117
        d44 = d1; // line 118
        d45 = (ulong)r43 * (ulong)8u; // line 119
        d46 = d44 + d45; // line 120
        GLOBAL(u64, d46) = d18; // line 121
    }
    return; // line 124
}
