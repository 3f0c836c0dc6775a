// atomics
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

#ifndef MORE_ARENAS
#define MORE_ARENAS
#define GLOBAL(type, address) (*(__global type *)(arena + ((address) - arena_base)))
#endif
#define SHARED(type, offset) (*(__local type *)(shared + (offset)))
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#if __OPENCL_C_VERSION__ >= 200
#define device_fence() atomic_work_item_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device)
#else
#define device_fence() mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif
typedef uchar u8 __attribute__((may_alias));

// Subnormal numbers become zero.
static uint ptx_ftz_f32(uint a)
{
    return (a & 0x7f800000u) == 0 ? a & 0x80000000u : a;
}

// In global memory subnormal numbers become zero.
static uint ptx_atom_add_ftz_f32_global(volatile __global uint *at, uint value)
{
    uint old = *at;
    for (;;) {
        const uint found = atomic_cmpxchg(at, old, ptx_ftz_f32(as_uint(as_float(ptx_ftz_f32(old)) + as_float(ptx_ftz_f32(value)))));
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
    __global uint *counts,
    __global const volatile uint *pause,
    uint4 grid,
    __global uint *turned_away
    MORE_ARENAS)
{
    uint r1, r2 = 0, r3 = 0, r6 = 0, r7;
    ulong d0, d4 = 0, d5, d8, d9;
    __local uchar *const shared = (__local uchar *)shared_memory;
    const uint block_size = get_local_size(0) * get_local_size(1) * get_local_size(2);
    const uint thread = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));

    __local uint told[1];
    __local uint round_words[16];
    uint turn = thread >> 31, row_turn = turn, vote_turn = turn;
    const uint block = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
    const uint ctaid_x = get_group_id(0), ctaid_y = get_group_id(1), ctaid_z = get_group_id(2);
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
    d0 = params.param_0; // line 17
    r1 = atomic_add((volatile __global uint *)&GLOBAL(u8, d0), 1u); // line 18
    atomic_add((volatile __global uint *)&GLOBAL(u8, 0x200000100000ul), r1); // line 19
    r1 = atomic_max((volatile __global int *)&GLOBAL(u8, d0 + 4ul), as_int(r2)); // line 20
    device_fence(); // line 21
    r1 = atomic_cmpxchg((volatile __global uint *)&GLOBAL(u8, d0), r2, r3);
    device_fence();
    d5 = atom_cmpxchg((volatile __global ulong *)&GLOBAL(u8, d0), d4, 0ul); // line 22
    r1 = atomic_xchg((volatile __global uint *)&GLOBAL(u8, d0), 0xffffffffu); // line 23
    r1 = ptx_atom_inc_u32_global((volatile __global uint *)&GLOBAL(u8, d0), 31u); // line 24
    r7 = ptx_atom_add_ftz_f32_global((volatile __global uint *)&GLOBAL(u8, d0), r6); // line 25
    d8 = ptx_atom_add_f64_global((volatile __global ulong *)&GLOBAL(u8, d0), 0x3ff0000000000000ul); // line 26
    d9 = ptx_atom_min_u64_local((volatile __local ulong *)&SHARED(u8, 0ul), d4); // line 27
    r1 = atomic_or((volatile __local uint *)&SHARED(u8, 4ul), 8u); // line 28
    r1 = atomic_add((volatile __global uint *)&GLOBAL(u8, d0), 1u); // line 29
    atomic_add((volatile __global uint *)&GLOBAL(u8, d0), 2u); // line 30
    device_fence(); // line 31
    atomic_and((volatile __local uint *)&SHARED(u8, 0ul), 3u);
    device_fence();
    return; // line 32
}
