// flow
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

typedef struct {
    uint param_0; // count
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt_flow(
    __global uchar *arena,
    ulong arena_base,
    params_type params,
    __global uint *counts,
    __global const volatile uint *pause,
    uint4 grid,
    __global uint *turned_away,
    __global uchar *stopped,
    uint num_stopped
    MORE_ARENAS)
{
    bool p1, p4, p5 = 0, p6, p8, p9;
    uint r0, r3 = 0, r7;
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
    r7 = 0x4000u;
    for (;;) {
        r0 = params.param_0; // line 13
        p1 = as_int(r0) == 0; // line 14
        if (p1) goto bb2; // line 15
        if (p1) break; // line 16
        for (;;) {
            r3 = r3 + 1u; // line 20
            p4 = r3 < r0; // line 23
            if (!p4) goto bb6; // line 24
            if (p5) goto bb8; // line 27
            p6 = as_int(r3) != 9; // line 29
            if (p6) break; // line 30
            r7 = r7 - 7u;
            p9 = as_int(r7) < 0;
            if (p9) {
                if (*pause) {
                    const uint record = atomic_inc(&counts[1]);
                    if (record < num_stopped) {
                        __global uchar *const at = stopped + (ulong)record * 32;
                        *(__global uint4 *)at = (uint4)(block, thread, 2, 0);
                        *(__global uint *)(at + 16) = r0;
                        *(__global uchar *)(at + 24) = p1;
                        *(__global uint *)(at + 20) = r3;
                        *(__global uchar *)(at + 25) = p5;
                        return;
                    }
                    atomic_dec(&counts[1]);
                }
                r7 = 0x4000u;
            }
        }
        r7 = r7 - 11u;
        p8 = as_int(r7) < 0;
        if (p8) {
            if (*pause) {
                const uint record = atomic_inc(&counts[1]);
                if (record < num_stopped) {
                    __global uchar *const at = stopped + (ulong)record * 32;
                    *(__global uint4 *)at = (uint4)(block, thread, 1, 0);
                    *(__global uint *)(at + 20) = r3;
                    *(__global uchar *)(at + 25) = p5;
                    return;
                }
                atomic_dec(&counts[1]);
            }
            r7 = 0x4000u;
        }
    }
    goto bb11; // line 17
bb6:;
bb11:;
    if (!p1) { // line 36
        return;
    }
    return;
bb8:;
    counts[2] = 1; // line 27
    return;
bb2:;
    return; // line 15
}
