// atomics
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define FINISHED 0xffffffffu
#define memory_fence() mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
typedef uchar u8 __attribute__((may_alias));

// Read-modify-writes that OpenCL C 1.2 has no function for, tried until nobody came between.
static uint ptx_atom_add_f32_global(volatile __global uint *at, uint value)
{
    uint old = *at;
    for (;;) {
        const uint found = atomic_cmpxchg(at, old, as_uint(as_float(old) + as_float(value)));
        if (found == old) return old;
        old = found;
    }
}

static uint ptx_atom_inc_u32_global(volatile __global uint *at, uint value)
{
    uint old = *at;
    for (;;) {
        const uint found = atomic_cmpxchg(at, old, old >= value ? 0 : old + 1);
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_add_f64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, as_ulong(as_double(old) + as_double(value)));
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_min_u64_local(volatile __local ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, min(old, value));
        if (found == old) return old;
        old = found;
    }
}

typedef struct {
    ulong param_0; // pointer
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt_atomics(
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
    uint num_stopped)
{
    __local uchar *const shared = (__local uchar *)shared_memory;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));

    __local uint told[1];
    __local uint round_words[16];
    const uint zero = grid.w >> 31;
    uint block = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const bool goes_on = resumed != 0 && block < grid.w;
    const uint group = block;
    if (resumed != 0) block = resumed[group];
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
    uint point = 0;
    if (goes_on) {
        const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
        const ulong shared_at = ((registers_at + 0ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 16u + dynamic_shared_bytes) + 15ul & ~15ul);
        const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
        __global const uchar *const slot = resumed_slots + group * slot_bytes;
        point = ((__global const uint *)slot)[thread] - 1;
        for (uint i = thread; i < (16u + dynamic_shared_bytes + 15) / 16; i += block_size) shared_memory[i] = ((__global ulong2 *)(slot + shared_at))[i];
    }
    block_barrier();
    for (uint round = 0;; round++) {
        switch (point) {
            case 0: {
                ulong d0 = 0, d4 = 0, d5 = 0, d8 = 0, d9 = 0;
                uint r1 = 0, r2 = 0, r3 = 0, r6 = 0, r7 = 0;
                d0 = params.param_0; // line 17
                r1 = atomic_add((volatile __global uint *)&GLOBAL(u8, d0), 1u); // line 18
                atomic_add((volatile __global uint *)&GLOBAL(u8, 0x200000100000ul), r1); // line 19
                r1 = atomic_max((volatile __global int *)&GLOBAL(u8, d0 + 4ul), as_int(r2)); // line 20
                memory_fence(); // line 21
                r1 = atomic_cmpxchg((volatile __global uint *)&GLOBAL(u8, d0), r2, r3);
                memory_fence();
                d5 = atom_cmpxchg((volatile __global ulong *)&GLOBAL(u8, d0), d4, 0ul); // line 22
                r1 = atomic_xchg((volatile __global uint *)&GLOBAL(u8, d0), 0xffffffffu); // line 23
                r1 = ptx_atom_inc_u32_global((volatile __global uint *)&GLOBAL(u8, d0), 31u); // line 24
                r7 = ptx_atom_add_f32_global((volatile __global uint *)&GLOBAL(u8, d0), r6); // line 25
                d8 = ptx_atom_add_f64_global((volatile __global ulong *)&GLOBAL(u8, d0), 0x3ff0000000000000ul); // line 26
                d9 = ptx_atom_min_u64_local((volatile __local ulong *)&SHARED(u8, 0ul), d4); // line 27
                r1 = atomic_or((volatile __local uint *)&SHARED(u8, 4ul), 8u); // line 28
                r1 = atomic_add((volatile __global uint *)&GLOBAL(u8, d0), 1u); // line 29
                atomic_add((volatile __global uint *)&GLOBAL(u8, d0), 2u); // line 30
                memory_fence(); // line 31
                atomic_and((volatile __local uint *)&SHARED(u8, 0ul), 3u);
                memory_fence();
                point = FINISHED; goto rest; // line 32
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
        block_barrier();
        if (now[2]) {
            const ulong claim_at = ((4ul * block_size) + 15ul & ~15ul), registers_at = claim_at + 16;
            const ulong shared_at = ((registers_at + 0ul * block_size) + 15ul & ~15ul), local_at = ((shared_at + 16u + dynamic_shared_bytes) + 15ul & ~15ul);
            const ulong slot_bytes = ((local_at + 0ul * block_size) + 127ul & ~127ul);
            __global uchar *const slot = stopped + (now[2] - 1) * slot_bytes;
            ((__global uint *)slot)[thread] = point + 1;
            if (thread == 0) *(__global uint *)(slot + claim_at) = block;
            for (uint i = thread; i < (16u + dynamic_shared_bytes + 15) / 16; i += block_size) ((__global ulong2 *)(slot + shared_at))[i] = shared_memory[i];
            break;
        }
        if (!now[0]) break;
        switch (point) {
        }
    }
}
