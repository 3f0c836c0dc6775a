//! Operands at the edges of formats: what is flushed, what the `.approx` functions make of huge and tiny operands, and
//! what is not a number, copied and calculated.

use hetckpt_ir::entity::{RegId, Span};
use hetckpt_ir::inst::{
    Address, AddressBase, AluOp, Comparison, Guard, Inst, Modifiers, Op, Operand, Ordering, Rounding,
};
use hetckpt_ir::types::{Space, Type, Width};

use crate::bench::{Bench, IntoOperand, NUM_OPERANDS, NUM_THREADS, width_of};
use crate::implementation::Implementation;
use crate::operands::{Random, floats, operands};

const NONE: Modifiers = Modifiers {
    rounding: None,
    approx: false,
    full: false,
    ftz: false,
    sat: false,
};
const FTZ: Modifiers = Modifiers { ftz: true, ..NONE };
const APPROX: Modifiers = Modifiers { approx: true, ..NONE };
const ROUNDINGS: [Rounding; 4] = [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp];

fn new_bench(tested: &dyn Implementation) -> Bench<'_> {
    let mut bench = Bench::new(tested);
    bench.kernel.name = "edges".to_owned();
    bench
}

fn single(bits: u64) -> f64 {
    f64::from(f32::from_bits(u32::try_from(bits).unwrap()))
}

/// A single whose product with `a`, or quotient into it, is next to the smallest normal number.
fn partner(random: &mut Random, a: f32) -> f32 {
    let near = (f64::from(f32::MIN_POSITIVE) / f64::from(a)) as f32;
    let steps = (random.next() % 5) as u32;
    f32::from_bits((near.to_bits() + steps).saturating_sub(2))
}

/// Singles of any sign whose products are next to the smallest normal number, and two more of any size next to it. Some
/// have no product within half of the last bit below it.
pub fn near_the_smallest(seed: u64, spares_the_last_bit: bool) -> Vec<u64> {
    let mut random = Random(seed);
    let smallest = f64::from(f32::MIN_POSITIVE);
    let mut all = Vec::new();
    for _ in 0..NUM_THREADS {
        let (a, b) = loop {
            let exponent = 90 + random.next() % 60;
            let a = f32::from_bits(u32::try_from(exponent << 23 | random.next() >> 41).unwrap());
            let b = partner(&mut random, a);
            let ratio = f64::from(a) * f64::from(b) / smallest;
            // Less than half of the last bit of single precision below it.
            let is_between = (1.0 - f64::from(f32::EPSILON) / 4.0..1.0).contains(&ratio);
            if b.is_normal() && !(spares_the_last_bit && is_between) {
                break (a, b);
            }
        };
        let sign = random.next();
        let c = [0, 1 << 31, 0, 0][(sign >> 8 & 3) as usize];
        let quotient = (f64::from(a) * smallest) as f32;
        let signed = |x: f32, bit: u64| u64::from(x.to_bits()) ^ (sign >> bit & 1) << 31;
        all.extend([signed(a, 0), signed(b, 1), c, signed(quotient, 2)]);
    }
    all
}

/// A GPU rounds a result to 24 bits, whatever its size, and looks at that.
pub fn results_below_the_smallest_normal_number_in_full_precision_are_flushed(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    for rounding in ROUNDINGS {
        let mods = Modifiers {
            rounding: Some(rounding),
            ..FTZ
        };
        bench.alu(AluOp::Mul, Type::F32, mods, 2);
        // What is next to the smallest normal number times the first operand, by that.
        let [a, quotient] = [0, 3].map(|i| bench.operand(i, Type::F32).into_operand());
        let dst = bench.kernel.add_register(Width::W32);
        bench.push(Op::Alu {
            op: AluOp::Div,
            ty: Type::F32,
            mods,
            dst,
            srcs: vec![quotient, a],
        });
        bench.result(format!("div.f32 {mods:?}"), dst, Type::F32);
    }
    bench.check(&near_the_smallest(1, false));
}

pub fn sums_below_the_smallest_normal_number_in_full_precision_are_flushed(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    for rounding in ROUNDINGS {
        for sat in [false, true] {
            let mods = Modifiers {
                rounding: Some(rounding),
                sat,
                ..FTZ
            };
            bench.alu(AluOp::Fma, Type::F32, mods, 3);
        }
    }
    bench.check(&near_the_smallest(2, true));
}

pub fn halves_below_the_smallest_normal_number_in_full_precision_are_flushed(tested: &dyn Implementation) {
    check_halves(tested, Type::F16);
}

/// Products and sums of halves, or of pairs of them, next to the smallest normal number.
pub fn check_halves(tested: &dyn Implementation, ty: Type) {
    let mut random = Random(3);
    let mut half = || {
        // Products of these lie around 2^-14.
        let exponents = [7, 8, 9];
        let exponent = exponents[usize::try_from(random.next() % 3).unwrap()];
        let fraction = [0, 1, 0x3ff, 0x3fe, random.next() & 0x3ff][usize::try_from(random.next() % 5).unwrap()];
        fraction | exponent << 10 | random.next() >> 63 << 15
    };
    let operands: Vec<u64> = (0..NUM_THREADS)
        .flat_map(|_| [half() | half() << 16, half() | half() << 16, 0, 0])
        .collect();
    let mut bench = new_bench(tested);
    for sat in [false, true] {
        let mods = Modifiers {
            rounding: Some(Rounding::Rn),
            sat,
            ..FTZ
        };
        bench.alu(AluOp::Mul, ty, mods, 2);
        bench.alu(AluOp::Fma, ty, mods, 3);
    }
    bench.check(&operands);
}

/// Equal, not a number either, or within an absolute or relative error.
fn is_near(got: f64, want: f64, error: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= error * want.abs().max(1.0)
}

pub fn approximate_quotients_of_huge_divisors_are_zero(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    bench.compare = Box::new(|got, want, _| {
        let (got, want) = (single(got), single(want));
        is_near(got, want, 0.0)
            || (want.is_normal() && (got / want - 1.0).abs() < tested.approximation())
            || (got - want).abs() < f64::from(f32::MIN_POSITIVE) * 1.000_001 && want.abs() < 2e-38
    });
    for ftz in [false, true] {
        bench.alu(AluOp::Div, Type::F32, Modifiers { ftz, ..APPROX }, 2);
    }
    let mut cases: Vec<u64> = floats(Type::F32);
    cases.extend([
        0x7e80_0000,
        0x7e80_0001,
        0x7f00_0000,
        0x7f7f_ffff,
        0xfe80_0001,
        0xff00_0000,
    ]);
    cases.extend([0x7e7f_ffff, 0x0080_0000, 0x7f80_0000, 0xff80_0000, 0x3f80_0000]);
    bench.check(&operands(&cases).iter().map(|v| v & 0xffff_ffff).collect::<Vec<_>>());
}

pub fn gross_reciprocals_of_doubles_have_a_high_word_only(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    bench.compare = Box::new(|got, want, _| {
        let (x, y) = (f64::from_bits(got), f64::from_bits(want));
        (x.is_nan() && y.is_nan()) || got == want || (got & 0xffff_ffff == 0 && (x / y - 1.0).abs() < 4e-6)
    });
    for op in [AluOp::Rcp, AluOp::Rsqrt] {
        bench.alu(op, Type::F64, Modifiers { ftz: true, ..APPROX }, 1);
    }
    let mut cases = floats(Type::F64);
    cases.extend([0, 1, 1 << 63 | 1, 0x000f_ffff_ffff_ffff, 0x0010_0000_0000_0000]);
    // Around those whose reciprocals are subnormal.
    cases.extend([
        0x7fd0_0000_0000_0000,
        0x7fd0_0001_0000_0000,
        0x7fe0_0000_0000_0000,
        0xffef_ffff_ffff_ffff,
    ]);
    let mut random = Random(5);
    cases.extend((0..100).map(|_| random.next()));
    bench.check(&operands(&cases));
}

/// An H100's are within 2.7e-7 of the interpreter's, whatever the operand.
pub fn sine_and_cosine_of_large_and_subnormal_operands(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    bench.compare = Box::new(|got, want, _| is_near(single(got), single(want), 3e-7));
    for op in [AluOp::Sin, AluOp::Cos] {
        for ftz in [false, true] {
            bench.alu(op, Type::F32, Modifiers { ftz, ..APPROX }, 1);
        }
    }
    let mut random = Random(9);
    let mut cases = floats(Type::F32);
    cases.extend([
        0,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x01c9_0fda,
        0x01c9_0fdc,
        0x7f7f_ffff,
    ]);
    // From 315 to the largest.
    cases.extend((0..400).map(|_| 0x439d_8000 + random.next() % (0x7f7f_ffff - 0x439d_8000)));
    bench.check(&operands(&cases).iter().map(|v| v & 0xffff_ffff).collect::<Vec<_>>());
}

/// PTX bounds the absolute error between a half and two, and the relative one elsewhere.
pub fn logarithms_near_one(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    bench.compare = Box::new(|got, want, _| is_near(single(got), single(want), 5e-7));
    for ftz in [false, true] {
        bench.alu(AluOp::Lg2, Type::F32, Modifiers { ftz, ..APPROX }, 1);
    }
    let mut random = Random(10);
    let cases: Vec<u64> = (0..400)
        .map(|_| 0x3f80_0000 ^ (random.next() >> 41 & ((1 << (random.next() % 24)) - 1)))
        .collect();
    bench.check(&operands(&cases).iter().map(|v| v & 0xffff_ffff).collect::<Vec<_>>());
}

/// Stores a register as a number of single precision.
fn store_single(bench: &mut Bench, name: &str, reg: RegId) {
    let index = bench.results.len() as u64;
    bench.push(Op::Store {
        space: Space::Global,
        ty: Type::F32,
        ordering: Ordering::Weak,
        addr: Address {
            base: AddressBase::Reg(bench.output),
            offset: (index * u64::from(NUM_THREADS) * 8).cast_signed(),
        },
        srcs: vec![Operand::Reg(reg)],
    });
    bench.results.push((name.to_owned(), Type::F32));
}

/// Results that are not a number have one form; what was loaded or moved keeps its bits, in whatever register both come
/// together.
pub fn what_is_not_a_number_is_canonical_only_where_it_was_calculated(tested: &dyn Implementation) {
    let mut bench = new_bench(tested);
    let ty = Type::F32;
    let alu = |bench: &mut Bench, op, srcs: Vec<Operand>| {
        let dst = bench.kernel.add_register(Width::W32);
        bench.push(Op::Alu {
            op,
            ty: if op == AluOp::Xor { Type::B32 } else { ty },
            mods: Modifiers {
                rounding: (op == AluOp::Sqrt).then_some(Rounding::Rn),
                ..NONE
            },
            dst,
            srcs,
        });
        dst
    };
    let [a, b] = [0, 1].map(|i| bench.operand(i, ty));
    let sum = alu(&mut bench, AluOp::Add, vec![a.into_operand(), b.into_operand()]);
    let root = alu(&mut bench, AluOp::Sqrt, vec![a.into_operand()]);
    let sign = alu(&mut bench, AluOp::Copysign, vec![sum.into_operand(), a.into_operand()]);
    let magnitude = alu(&mut bench, AluOp::Copysign, vec![a.into_operand(), sum.into_operand()]);
    let chosen = bench.kernel.add_register(Width::Pred);
    let choice = bench.operand(2, Type::B32).into_operand();
    bench.push(Op::Setp {
        cmp: Comparison::Lt,
        ty: Type::U32,
        ftz: false,
        dst: chosen,
        dst_not: None,
        a: choice,
        b: Operand::Imm(0x8000_0000),
        combine: None,
    });
    let [either, moved, selected] = [0; 3].map(|_| bench.kernel.add_register(Width::W32));
    let mov = |bench: &mut Bench, dst, src: RegId, guard| {
        bench.insts.push(Inst {
            op: Op::Mov {
                ty: Type::F32,
                dst,
                src: src.into_operand(),
            },
            guard,
            span: Span::default(),
        });
    };
    let guard = Guard {
        pred: chosen,
        negated: false,
    };
    mov(&mut bench, either, a, None);
    mov(&mut bench, either, sum, Some(guard));
    mov(&mut bench, moved, either, None);
    bench.push(Op::Selp {
        ty: Type::B32,
        dst: selected,
        a: b.into_operand(),
        b: root.into_operand(),
        pred: chosen,
    });
    let word = alu(&mut bench, AluOp::Xor, vec![moved.into_operand(), Operand::Imm(0)]);
    let wide = bench.kernel.add_register(width_of(Type::F64));
    bench.push(Op::Cvt {
        dst_ty: Type::F64,
        src_ty: ty,
        mods: NONE,
        dst: wide,
        src: sum.into_operand(),
    });
    let named = [
        ("loaded", a),
        ("sum", sum),
        ("root", root),
        ("sign of a sum", sign),
        ("magnitude of a sum", magnitude),
        ("either", either),
        ("moved", moved),
        ("selected", selected),
        ("word", word),
    ];
    for (name, reg) in named {
        store_single(&mut bench, name, reg);
        bench.result(name.to_owned(), reg, Type::B32);
    }
    // Its payload is that of the single.
    bench.result("wide".to_owned(), wide, Type::B64);
    let mut cases = floats(ty);
    cases.extend([
        0x7f80_0001,
        0xff81_2345,
        0x7fc1_2345,
        0xffff_ffff,
        0x7fff_ffff,
        0xff80_0000,
        0x7f80_0000,
    ]);
    let values: Vec<u64> = operands(&cases).iter().map(|v| v & 0xffff_ffff).collect();
    assert_eq!(values.len() as u64, u64::from(NUM_THREADS) * NUM_OPERANDS);
    bench.check(&values);
}
