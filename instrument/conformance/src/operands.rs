//! Operands: edge cases and repeatable random numbers.

use hetckpt_ir::types::Type;

use crate::bench::{NUM_OPERANDS, NUM_THREADS};

/// A small generator of repeatable numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn pick(&mut self, edge_cases: &[u64]) -> u64 {
        let index = usize::try_from(self.next() % (edge_cases.len() as u64 + 6)).unwrap();
        edge_cases
            .get(index)
            .copied()
            .unwrap_or_else(|| self.next() >> (self.0 % 64))
    }
}

pub fn operands_from(values: &[u64]) -> Vec<u64> {
    (0..(NUM_THREADS as usize) * NUM_OPERANDS as usize)
        .map(|i| values[i % values.len()])
        .collect()
}

pub fn operands(edge_cases: &[u64]) -> Vec<u64> {
    let mut random = Random(7);
    (0..u64::from(NUM_THREADS) * NUM_OPERANDS)
        .map(|_| random.pick(edge_cases))
        .collect()
}

pub fn integers() -> Vec<u64> {
    let mut cases = vec![
        0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 255, 256, 0x8421, 0x7531,
    ];
    for bits in [8, 16, 32, 64] {
        let top = 1u64 << (bits - 1);
        cases.extend([top, top - 1, top.wrapping_add(1), top.wrapping_mul(2).wrapping_sub(1)]);
    }
    cases.extend([u64::MAX, u64::MAX - 1, 1 << 32]);
    cases
}

/// Edge cases of each format, in the low bits.
pub fn floats(ty: Type) -> Vec<u64> {
    let numbers = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.0,
        2.5,
        3.5,
        0.1,
        1e-3,
        65504.0,
        65536.0,
        1e9,
        2_147_483_648.0,
        4_294_967_296.0,
        9_223_372_036_854_775_808.0,
        1e-40,
        1e-45,
        1.2e-38,
        3.4e38,
        1e300,
        1e-310,
        f64::INFINITY,
        f64::NAN,
        5.9e-8,
        6.1e-5,
        255.0,
        256.5,
        127.5,
        0.999_999_99,
    ];
    let mut cases = Vec::new();
    for number in numbers.iter().flat_map(|n| [*n, -n]) {
        let single = number as f32;
        cases.push(match ty {
            Type::F64 => number.to_bits(),
            Type::F32 => u64::from(single.to_bits()),
            Type::Bf16 | Type::Bf16x2 => {
                let half = u64::from(single.to_bits() >> 16);
                if ty == Type::Bf16 {
                    half
                } else {
                    half | half.rotate_left(3) << 16 & 0xffff_0000
                }
            }
            _ => {
                let half = u64::from(half_bits(single));
                if ty == Type::F16 {
                    half
                } else {
                    half | (half ^ 0x8100) << 16
                }
            }
        });
    }
    cases
}

/// Nearest half below in magnitude; good enough to hit the edge cases.
pub fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = u16::try_from(bits >> 16 & 0x8000).unwrap();
    let exponent = i32::try_from(bits >> 23 & 0xff).unwrap() - 127 + 15;
    let fraction = u16::try_from(bits >> 13 & 0x3ff).unwrap();
    sign | match exponent {
        e if e >= 143 => 0x7c00 | fraction,
        e if e >= 31 => 0x7bff,
        e if e <= 0 => (fraction | 0x400) >> (1 - e).min(15),
        e => u16::try_from(e).unwrap() << 10 | fraction,
    }
}
