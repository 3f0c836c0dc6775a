//! Bytes of inputs and parameters.

/// A kernel argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// 32 bits.
    U32(u32),
    /// 64 bits.
    U64(u64),
    /// A float.
    F32(f32),
}

/// The parameter buffer: each argument at its natural alignment.
#[must_use]
pub fn params(args: &[Arg]) -> Vec<u8> {
    let mut out = Vec::new();
    for arg in args {
        let bytes = match arg {
            Arg::U32(v) => v.to_le_bytes().to_vec(),
            Arg::F32(v) => v.to_le_bytes().to_vec(),
            Arg::U64(v) => v.to_le_bytes().to_vec(),
        };
        out.resize(out.len().next_multiple_of(bytes.len()), 0);
        out.extend(bytes);
    }
    out
}

/// Address of a case's `i`-th buffer, in the range where the server puts allocations.
pub(super) fn address(i: u64) -> u64 {
    0x2000_0000_0000 + (i << 20)
}

/// The programs' seeds (`xorshift32_seed`) from `first` on.
pub(super) fn seeds(first: u32, n: usize) -> Vec<u32> {
    let seed = |i: u32| {
        let x = i.wrapping_add(0x9e37_79b9);
        let x = ((x ^ 61) ^ (x >> 16)).wrapping_mul(9);
        let x = (x ^ (x >> 4)).wrapping_mul(0x27d4_eb2d);
        (x ^ (x >> 15)) | 1
    };
    (first..).take(n).map(seed).collect()
}

/// Floats in [−1, 1) of 8 bits, so that sums of products are exact in any order.
pub(super) fn floats(first: u32, n: usize) -> Vec<f32> {
    let small = |seed: u32| f32::from(i16::from(seed.to_le_bytes()[3].cast_signed())) / 128.0;
    seeds(first, n).into_iter().map(small).collect()
}

pub(super) fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(super) fn u64s(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(super) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(super) fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
