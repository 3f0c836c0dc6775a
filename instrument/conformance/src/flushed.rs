//! What `.ftz` makes zero, beyond what is compared with recordings of a GPU (`edges`).

use hetckpt_ir::inst::{AluOp, Modifiers, Rounding};
use hetckpt_ir::types::Type;

use crate::bench::{Bench, NUM_OPERANDS, NUM_THREADS};
use crate::edges::{check_halves, near_the_smallest};
use crate::implementation::Implementation;
use crate::operands::Random;

fn rounded_and_flushed(tested: &dyn Implementation, op: AluOp, num_srcs: u64) -> Bench<'_> {
    let mut bench = Bench::new(tested);
    for rounding in [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp] {
        let mods = Modifiers {
            rounding: Some(rounding),
            ftz: true,
            ..Modifiers::default()
        };
        bench.alu(op, Type::F32, mods, num_srcs);
    }
    bench
}

/// The third operand as good as lost, or a few of the last bits of a subnormal number away from the smallest normal
/// one.
pub fn sums_within_the_last_bits_below_the_smallest_normal_number(tested: &dyn Implementation) {
    for seed in 0..4 {
        rounded_and_flushed(tested, AluOp::Fma, 3).check(&near_the_smallest(seed, false));
        let mut random = Random(seed);
        let small = |random: &mut Random| {
            let exponent = 127 - 75 + random.next() % 5;
            exponent << 23 | random.next() >> 41 | random.next() >> 63 << 31
        };
        let operands: Vec<u64> = (0..NUM_THREADS)
            .flat_map(|_| {
                let smallest = 0x0080_0000 | random.next() >> 63 << 31;
                [small(&mut random), small(&mut random), smallest + random.next() % 2, 0]
            })
            .collect();
        rounded_and_flushed(tested, AluOp::Fma, 3).check(&operands);
    }
}

/// Reciprocals of the least numbers whose reciprocals are too small, and of those next to them.
pub fn reciprocals_next_to_the_smallest_normal_number(tested: &dyn Implementation) {
    let operands: Vec<u64> = (0..u64::from(NUM_THREADS) * NUM_OPERANDS)
        .map(|i| (0x7e80_0000 + i / NUM_OPERANDS - 256) | (i / NUM_OPERANDS % 2) << 31)
        .collect();
    rounded_and_flushed(tested, AluOp::Rcp, 1).check(&operands);
}

pub fn pairs_of_halves_below_the_smallest_normal_number_in_full_precision(tested: &dyn Implementation) {
    check_halves(tested, Type::F16x2);
}
