//! Roundings of `f64` in a direction over the whole range: products beyond it, and rests below it.
//!
//! Not among what is compared with recordings of a GPU, as are `modifiers` and, elsewhere, `contended`.

use hetckpt_ir::inst::{AluOp, Modifiers, Rounding};
use hetckpt_ir::types::Type;

use crate::bench::{Bench, NUM_OPERANDS, NUM_THREADS};
use crate::implementation::Implementation;
use crate::operands::Random;

/// A number of any size, often near the ends of the range, often with few bits.
fn number(random: &mut Random) -> f64 {
    let bits = random.next();
    let fraction = match bits % 4 {
        0 => 0,
        1 => bits & 0xf_8000_0000_001f,
        _ => bits & 0xf_ffff_ffff_ffff,
    };
    let field = match bits >> 8 & 3 {
        0 => bits >> 20 & 3,
        1 => 2047 - (bits >> 20 & 3),
        2 => 512 + (bits >> 20 & 1023),
        _ => bits >> 20 & 2047,
    };
    f64::from_bits(fraction | field << 52 | bits & 1 << 63)
}

/// Operands for a thread: for half of them, the third cancels the product of the first two up to what rounding loses,
/// or the first is a quotient's neighbour.
fn thread(random: &mut Random) -> [f64; NUM_OPERANDS as usize] {
    let [a, b, c] = [0; 3].map(|_| number(random));
    match random.next() % 6 {
        0 => [a, b, -(a * b), c],
        1 => [a, b, (-(a * b)).next_up(), c],
        // The product alone is beyond the range.
        2 => [f64::MAX, 2.0, -f64::MAX.next_down(), c],
        // Remainders below the range.
        3 => [
            f64::from_bits(random.next() >> 12),
            f64::from_bits(random.next() >> 12),
            c,
            c,
        ],
        _ => [a, b, c, c],
    }
}

pub fn doubles_of_all_sizes_in_a_direction(tested: &dyn Implementation) {
    for seed in 0..4 {
        let mut bench = Bench::new(tested);
        for rounding in [Rounding::Rz, Rounding::Rm, Rounding::Rp] {
            let mods = Modifiers {
                rounding: Some(rounding),
                ..Modifiers::default()
            };
            for op in [AluOp::Add, AluOp::Sub, AluOp::Mul, AluOp::Div] {
                bench.alu(op, Type::F64, mods, 2);
            }
            bench.alu(AluOp::Fma, Type::F64, mods, 3);
            bench.alu(AluOp::Rcp, Type::F64, mods, 1);
            bench.alu(AluOp::Sqrt, Type::F64, mods, 1);
        }
        let mut random = Random(seed);
        let operands: Vec<u64> = (0..NUM_THREADS)
            .flat_map(|_| thread(&mut random).map(f64::to_bits))
            .collect();
        bench.check(&operands);
    }
}
