// flow
#pragma OPENCL FP_CONTRACT OFF

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

// Kernels do not see the host's writes: they stop after so many looks.
static uint stop_asked(__global volatile uint *pause, uint look_price)
{
    if (*pause >> 31) return 1;
    if (!(atomic_add(pause, look_price) >> 31)) return 0;
    atomic_xchg(pause, 1u << 31);
    return 1;
}

typedef struct {
    uint param_0; // count
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt_flow(
    __global uchar *arena,
    ulong arena_base,
    params_type params,
    uint dynamic_shared_bytes,
    __global uint *counts,
    __global volatile uint *pause,
    uint look_price,
    uint4 grid,
    __global const uint *resumed,
    __global const uchar *resumed_slots,
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
    const uint group = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const bool goes_on = resumed != 0 && group < grid.w;
    const uint block = resumed != 0 ? resumed[group] : group;
    const uint ctaid_x = block % grid.x, ctaid_y = block / grid.x % grid.y;
    const uint ctaid_z = block / grid.x / grid.y;
    if (thread == 0) {
        told[0] = stop_asked(pause, look_price);
    }
    block_barrier();
    if (told[0]) {
        if (thread == 0) turned_away[atomic_inc(&counts[0])] = block;
        return;
    }
    uint point = 0;
    if (goes_on) {
        const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
        const ulong shared_at = ((registers_at + 10ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 0u + dynamic_shared_bytes) + 15ul & ~15ul);
        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
        __global const uchar *const slot = resumed_slots + group * slot_bytes;
        point = ((__global const uint *)slot)[thread] - 1;
        r0 = *(__global const uint *)(slot + registers_at + 0ul * block_size + 4ul * thread);
        p1 = *(__global const uchar *)(slot + registers_at + 8ul * block_size + 1ul * thread) != 0;
        r3 = *(__global const uint *)(slot + registers_at + 4ul * block_size + 4ul * thread);
        p5 = *(__global const uchar *)(slot + registers_at + 9ul * block_size + 1ul * thread) != 0;
    }
    switch (point) {
    case 0:
        r7 = 0x4000u;
        for (;;) {
            r0 = params.param_0; // line 13
            p1 = as_int(r0) == 0; // line 14
            if (p1) goto bb2_from_0; // line 15
            if (p1) break; // line 16
            for (;;) {
                r3 = r3 + 1u; // line 20
                p4 = r3 < r0; // line 23
                if (!p4) goto bb6_from_0; // line 24
                if (p5) goto bb8_from_0; // line 27
                p6 = as_int(r3) != 9; // line 29
                if (p6) break; // line 30
                r7 = r7 - 7u;
                p9 = as_int(r7) < 0;
                if (p9) {
                    if (stop_asked(pause, look_price)) {
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
                if (stop_asked(pause, look_price)) {
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
        goto bb11_from_0; // line 17
bb6_from_0:;
bb11_from_0:;
        if (!p1) { // line 36
            return;
        }
        return;
bb8_from_0:;
        counts[2] = 1; // line 27
        return;
bb2_from_0:;
        return; // line 15
    }
}
