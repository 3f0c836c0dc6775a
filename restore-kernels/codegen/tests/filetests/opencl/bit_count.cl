// _Z9bit_countPKjPjS1_jj
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
typedef uint u32 __attribute__((may_alias));

// Shift amounts clamp at the width.
static uint ptx_shl_32(uint a, uint amount)
{
    return amount > 31 ? 0 : a << amount;
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
    __global uint *turned_away,
    __global uchar *stopped,
    uint num_stopped
    MORE_ARENAS)
{
    bool p9, p15, p30, p34, p40, p43, p50, p53, p60, p63, p66, p68;
    bool p69, p72, p73, p75, p79, p85, p89, p90;
    uint r3, r4, r5, r6, r7, r8, r11, r16, r17, r18, r19, r20;
    uint r21, r22, r23, r24, r25, r26, r27, r28, r29, r31, r32, r33;
    uint r35, r36, r37, r38, r39, r41, r42, r44, r45, r46, r47, r48;
    uint r49, r51, r52, r54, r55, r56, r57, r58, r59, r61, r62, r64;
    uint r65, r67, r70, r71, r74, r80, r84, r86, r87, r88;
    ulong d0, d1, d2, d10, d12, d13, d14, d76, d77, d78, d81, d82;
    ulong d83;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
    const uint lane = thread & 31, warp_size = min(32u, block_size - (thread - lane));

    __local uint told[1];
    __local uint round_words[16];
    uint turn = thread >> 31, row_turn = turn, vote_turn = turn;
    __local uint ballots[4 * 32];
    const uint block = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const uint ctaid_x = get_group_id(0), ctaid_y = get_group_id(1), ctaid_z = get_group_id(2);
    if (thread == 0) {
        told[0] = *pause;
        for (uint i = 0; i < 16; i++) round_words[i] = 0;
        for (uint i = 0; i < 32; i++) ballots[i] = 0;
    }
    block_barrier();
    if (told[0]) {
        if (thread == 0) turned_away[atomic_inc(&counts[0])] = block;
        return;
    }
    block_barrier();
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
    const bool on_10 = !p9; // line 38
    uint present_10;
    {
        __local uint *const now = round_words + 4 * turn;
        turn = turn + 1 & 3;
        if (thread == 0) {
            round_words[4 * turn + 2] = 0; round_words[4 * turn + 3] = 0;
        }
        if (on_10) now[3] = 1;
        __local ulong *const row = lanes + (row_turn ? block_size : 0);
        row_turn = !row_turn;
        row[thread] = on_10;
        block_barrier();
        present_10 = ptx_ballot(row + (thread - lane), 0xffffffffu >> (32 - warp_size));
        if (!now[3]) return;
    }
    d10 = d0; // line 40
    r11 = r7 & 31u; // line 41
    d12 = (ulong)(r8); // line 42
    d13 = (ulong)r8 * (ulong)4u; // line 43
    d14 = d10 + d13; // line 44
    p15 = as_int(r4) == 0; // line 45
    r16 = 0u; // line 46
    r17 = r16; // line 47
    if (!p15) { // line 48
        r18 = 0; // line 50
        if (on_10) r18 = GLOBAL(u32, d14);
        r19 = 0u; // line 51
        r20 = r19; // line 52
        r17 = r19; // line 53
        r16 = r19; // line 54
        r84 = 0x4000u;
        for (;;) {
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
                        const uint members = present_10;
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
                        const uint members = present_10;
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
                        const uint members = present_10;
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
                        const uint members = present_10;
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
                        ((__global uint *)slot)[thread] = on_10 ? 15 : 0;
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
            { // line 113
                __local uint *const word = ballots + 32 * vote_turn + (thread >> 5);
                vote_turn = vote_turn + 1 & 3;
                if (lane == 0) ballots[32 * vote_turn + (thread >> 5)] = 0;
                if (p68) atomic_or(word, 1u << lane);
                block_barrier();
                const uint members = present_10;
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
                const uint members = present_10;
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
                        ((__global uint *)slot)[thread] = on_10 ? 14 : 0;
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
            block_barrier();
        }
        block_barrier();
    }
    block_barrier();
    d76 = d1; // line 125
    d77 = d12 << 2; // line 126
    d78 = d76 + d77; // line 127
    if (on_10) GLOBAL(u32, d78) = r16; // line 128
    p79 = as_int(r11) != 0; // line 129
    if (on_10 && !p79) { // line 130
        r80 = r8 >> 5; // line 132
        d81 = d2; // line 133
        d82 = (ulong)r80 * (ulong)4u; // line 134
        d83 = d81 + d82; // line 135
        GLOBAL(u32, d83) = r17; // line 136
    }
    return; // line 139
}
