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

static uint ptx_atom_dec_u32_global(volatile __global uint *at, uint value)
{
    uint old = *at;
    for (;;) {
        const uint found = atomic_cmpxchg(at, old, old == 0 || old > value ? value : old - 1);
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

static ulong ptx_atom_min_u64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, min(old, value));
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_max_u64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, max(old, value));
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_min_s64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, as_ulong(min(as_long(old), as_long(value))));
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_max_s64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, as_ulong(max(as_long(old), as_long(value))));
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_and_b64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, old & value);
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_or_b64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, old | value);
        if (found == old) return old;
        old = found;
    }
}

static ulong ptx_atom_xor_b64_global(volatile __global ulong *at, ulong value)
{
    ulong old = *at;
    for (;;) {
        const ulong found = atom_cmpxchg(at, old, old ^ value);
        if (found == old) return old;
        old = found;
    }
}

// Half a word: the other half stays as it is.
static ushort ptx_atom_cas_b16_global(volatile __global ushort *at, ushort expected, ushort value)
{
    volatile __global uint *const word = (volatile __global uint *)((size_t)at & ~(size_t)3);
    const uint shift = 8 * ((size_t)at & 2);
    uint old = *word;
    for (;;) {
        const ushort half_word = (ushort)(old >> shift);
        if (half_word != expected) return half_word;
        const uint found = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)value << shift);
        if (found == old) return half_word;
        old = found;
    }
}
