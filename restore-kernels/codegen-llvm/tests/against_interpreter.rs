//! Arithmetic of compiled code against the reference interpreter, operation by operation, on edge cases and random
//! operands. What is not a number must be one on both sides; its payload is left open.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "calls compiled code")]

use hetckpt_abi::cpu_block::{CpuBlock, CpuRegion, region_symbol};
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_cpu_codegen::compile::compile;
use hetckpt_cpu_codegen::loaded::LoadedObject;
use hetckpt_interp::{GlobalMemory, Launch, run};
use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{RegId, Span};
use hetckpt_ir::inst::{
    Address, AddressBase, AluOp, Comparison, Inst, Modifiers, Op, Operand, Ordering, Rounding, SpecialReg,
};
use hetckpt_ir::kernel::{Kernel, Param};
use hetckpt_ir::types::{Dim3, Space, Type, Width};

const NUM_OPERANDS: u64 = 4;
const NUM_THREADS: u32 = 512;
const INPUT: u64 = 0x10_0000;
const OUTPUT: u64 = 0x100_0000;

/// A kernel that applies instructions to each thread's operands and stores the results.
struct Bench {
    kernel: Kernel,
    insts: Vec<Inst>,
    results: Vec<(String, Type)>,
    /// Address of this thread's operands and of its first result.
    input: RegId,
    output: RegId,
}

impl Bench {
    fn new() -> Self {
        let param = |name: &str, offset| Param {
            name: name.to_owned(),
            offset,
            size_bytes: 8,
            align_bytes: 8,
        };
        let kernel = Kernel {
            name: "bench".to_owned(),
            params: vec![param("input", 0), param("output", 8)],
            registers: vec![],
            blocks: vec![],
            shared: Default::default(),
            local: Default::default(),
            bounds: Default::default(),
            resume_points: vec![],
        };
        let mut bench = Self {
            kernel,
            insts: vec![],
            results: vec![],
            input: RegId(0),
            output: RegId(0),
        };
        let tid = bench.kernel.add_register(Width::W32);
        bench.push(Op::ReadSpecial {
            dst: tid,
            special: SpecialReg::Tid(hetckpt_ir::inst::Axis::X),
        });
        bench.input = bench.address(0, tid, NUM_OPERANDS * 8);
        bench.output = bench.address(8, tid, 8);
        bench
    }

    fn push(&mut self, op: Op) {
        self.insts.push(Inst {
            op,
            guard: None,
            span: Span {
                line: u32::try_from(self.results.len()).unwrap(),
            },
        });
    }

    fn address(&mut self, param: i64, tid: RegId, stride: u64) -> RegId {
        let base = self.kernel.add_register(Width::W64);
        let addr = Address {
            base: AddressBase::Absolute,
            offset: param,
        };
        self.push(Op::Load {
            space: Space::Param,
            ty: Type::U64,
            ordering: Ordering::Weak,
            dsts: vec![Some(base)],
            addr,
        });
        self.alu_into(
            AluOp::MadWide,
            Type::U32,
            Width::W64,
            &[tid.into_operand(), Operand::Imm(stride), Operand::Reg(base)],
        )
    }

    fn alu_into(&mut self, op: AluOp, ty: Type, width: Width, srcs: &[Operand]) -> RegId {
        let dst = self.kernel.add_register(width);
        self.push(Op::Alu {
            op,
            ty,
            mods: Modifiers::default(),
            dst,
            srcs: srcs.to_vec(),
        });
        dst
    }

    /// Operand `index` of the thread in a register of just the type's width.
    fn operand(&mut self, index: u64, ty: Type) -> RegId {
        let dst = self.kernel.add_register(width_of(ty));
        let addr = Address {
            base: AddressBase::Reg(self.input),
            offset: (index * 8).cast_signed(),
        };
        let ty = if ty.size_bytes() == 1 { Type::B16 } else { bits_of(ty) };
        self.push(Op::Load {
            space: Space::Global,
            ty,
            ordering: Ordering::Weak,
            dsts: vec![Some(dst)],
            addr,
        });
        dst
    }

    /// Stores a result; `ty` says how it is compared.
    fn result(&mut self, name: String, reg: RegId, ty: Type) {
        let index = u64::try_from(self.results.len()).unwrap();
        let offset = (index * u64::from(NUM_THREADS) * 8).cast_signed();
        let stored = match self.kernel.width(reg) {
            Width::Pred => panic!("predicates are selected into words"),
            Width::W16 => Type::B16,
            Width::W32 => Type::B32,
            Width::W64 => Type::B64,
        };
        let addr = Address {
            base: AddressBase::Reg(self.output),
            offset,
        };
        self.push(Op::Store {
            space: Space::Global,
            ty: stored,
            ordering: Ordering::Weak,
            addr,
            srcs: vec![Operand::Reg(reg)],
        });
        self.results.push((name, ty));
    }

    fn alu(&mut self, op: AluOp, ty: Type, mods: Modifiers, num_srcs: u64) {
        let srcs: Vec<Operand> = (0..num_srcs)
            .map(|i| self.operand(i, source_type(op, ty, i)).into_operand())
            .collect();
        let result = result_type(op, ty);
        let dst = self.kernel.add_register(width_of(result));
        self.push(Op::Alu {
            op,
            ty,
            mods,
            dst,
            srcs,
        });
        self.result(format!("{op:?}.{} {mods:?}", ty.name()), dst, result);
    }

    /// Runs both ways on `operands` and compares.
    fn check(mut self, operands: &[u64]) {
        let insts = std::mem::take(&mut self.insts);
        self.kernel.blocks = vec![BasicBlock {
            insts,
            terminator: Terminator::Exit,
            span: Span::default(),
        }];
        let output_bytes = self.results.len() * NUM_THREADS as usize * 8;
        let mut output = vec![0u64; output_bytes / 8];
        let program = Program::from_start(self.kernel);
        run_compiled(&program, operands, &mut output);
        let expected = interpret(&program, operands, output_bytes);
        let mut wrong = Vec::new();
        for (i, (name, ty)) in self.results.iter().enumerate() {
            for thread in 0..NUM_THREADS as usize {
                let at = i * NUM_THREADS as usize + thread;
                let (got, want) = (output[at], expected[at]);
                if !same(got, want, *ty) {
                    let operands = &operands[thread * NUM_OPERANDS as usize..][..NUM_OPERANDS as usize];
                    wrong.push(format!("{name} of {operands:#x?}: {got:#x} instead of {want:#x}"));
                    break;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

trait IntoOperand {
    fn into_operand(self) -> Operand;
}

impl IntoOperand for RegId {
    fn into_operand(self) -> Operand {
        Operand::Reg(self)
    }
}

fn width_of(ty: Type) -> Width {
    match ty.size_bytes() {
        1 | 2 => Width::W16,
        4 => Width::W32,
        _ => Width::W64,
    }
}

fn bits_of(ty: Type) -> Type {
    match ty.size_bytes() {
        2 => Type::B16,
        4 => Type::B32,
        _ => Type::B64,
    }
}

fn result_type(op: AluOp, ty: Type) -> Type {
    match (op, ty.size_bytes()) {
        (AluOp::MulWide | AluOp::MadWide, 2) => Type::B32,
        (AluOp::MulWide | AluOp::MadWide, _) => Type::B64,
        (AluOp::Popc | AluOp::Clz | AluOp::Bfind | AluOp::BfindShiftAmt, _) => Type::B32,
        _ => ty,
    }
}

fn source_type(op: AluOp, ty: Type, index: u64) -> Type {
    match (op, index) {
        (AluOp::Shl | AluOp::Shr, 1) | (AluOp::Bfe, 1 | 2) | (AluOp::Bfi, 2 | 3) => Type::B32,
        (AluOp::MadWide, 2) => result_type(op, ty),
        _ => ty,
    }
}

fn same(got: u64, want: u64, ty: Type) -> bool {
    let is_nan = |v: u64| match ty {
        Type::F16 => v & 0x7fff > 0x7c00,
        Type::Bf16 => v & 0x7fff > 0x7f80,
        Type::F32 => v & 0x7fff_ffff > 0x7f80_0000,
        Type::F64 => v & (u64::MAX >> 1) > 0x7ff << 52,
        _ => false,
    };
    match ty {
        Type::F16x2 | Type::Bf16x2 => {
            let part = if ty == Type::F16x2 { Type::F16 } else { Type::Bf16 };
            same(got & 0xffff, want & 0xffff, part) && same(got >> 16, want >> 16, part)
        }
        _ => got == want || (is_nan(got) && is_nan(want)),
    }
}

fn run_compiled(program: &Program, operands: &[u64], output: &mut [u64]) {
    let compiled = compile(program).unwrap_or_else(|e| panic!("{e}"));
    let object = LoadedObject::new(&compiled.object).unwrap();
    let symbol = object.symbol(&region_symbol(0)).unwrap();
    // SAFETY: region functions have this signature.
    let region = unsafe { std::mem::transmute::<*const std::ffi::c_void, CpuRegion>(symbol) };
    let params = [operands.as_ptr() as u64, output.as_mut_ptr() as u64];
    let mut points = vec![0u32; NUM_THREADS as usize];
    let (mut trapped, pause) = (0u32, 0u32);
    let block = CpuBlock {
        global: std::ptr::null_mut(),
        pause: &raw const pause,
        params: params.as_ptr().cast(),
        resume_points: points.as_mut_ptr(),
        registers: std::ptr::null_mut(),
        shared: std::ptr::null_mut(),
        local: std::ptr::null_mut(),
        trapped: &raw mut trapped,
        num_threads: NUM_THREADS,
        dynamic_shared_bytes: 0,
        block_dim: [NUM_THREADS, 1, 1],
        grid_dim: [1; 3],
        block_index: [0; 3],
        reserved: 0,
    };
    // SAFETY: the kernel reads and writes the operands and the output only.
    unsafe { region(&raw const block, 0, NUM_THREADS) };
    assert!(points.iter().all(|&p| p == u32::MAX));
}

fn interpret(program: &Program, operands: &[u64], output_bytes: usize) -> Vec<u64> {
    let mut memory = GlobalMemory::new();
    memory.map(INPUT, operands.iter().flat_map(|v| v.to_le_bytes()).collect());
    memory.map(OUTPUT, vec![0; output_bytes]);
    let params: Vec<u8> = [INPUT, OUTPUT].iter().flat_map(|v| v.to_le_bytes()).collect();
    let layout = ThreadStateLayout::new(&program.kernel);
    let block = Dim3 {
        x: NUM_THREADS,
        y: 1,
        z: 1,
    };
    let launch = Launch::new(program, &layout, Dim3 { x: 1, y: 1, z: 1 }, block, &params);
    run(launch, &mut memory).unwrap_or_else(|e| panic!("{e}"));
    memory
        .range(OUTPUT)
        .unwrap()
        .chunks(8)
        .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
        .collect()
}

/// A small generator of repeatable numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
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

fn operands(edge_cases: &[u64]) -> Vec<u64> {
    let mut random = Random(7);
    (0..u64::from(NUM_THREADS) * NUM_OPERANDS)
        .map(|_| random.pick(edge_cases))
        .collect()
}

fn integers() -> Vec<u64> {
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
fn floats(ty: Type) -> Vec<u64> {
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
fn half_bits(value: f32) -> u16 {
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

const SIGNED_AND_NOT: [Type; 6] = [Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];

#[test]
fn integer_arithmetic() {
    let none = Modifiers::default();
    let sat = Modifiers { sat: true, ..none };
    let mut bench = Bench::new();
    for ty in SIGNED_AND_NOT {
        for op in [
            AluOp::Add,
            AluOp::Sub,
            AluOp::Mul,
            AluOp::MulHi,
            AluOp::Div,
            AluOp::Rem,
            AluOp::Min,
            AluOp::Max,
        ] {
            bench.alu(op, ty, none, 2);
        }
        for op in [AluOp::Mad, AluOp::MadHi, AluOp::Sad] {
            bench.alu(op, ty, none, 3);
        }
        if ty.is_signed() {
            bench.alu(AluOp::Abs, ty, none, 1);
            bench.alu(AluOp::Neg, ty, none, 1);
        }
        if ty.size_bytes() < 8 {
            bench.alu(AluOp::MulWide, ty, none, 2);
            bench.alu(AluOp::MadWide, ty, none, 3);
        }
        bench.alu(AluOp::Shr, ty, none, 2);
    }
    bench.alu(AluOp::Add, Type::S32, sat, 2);
    bench.alu(AluOp::Sub, Type::S32, sat, 2);
    bench.alu(AluOp::MadHi, Type::S32, sat, 3);
    bench.check(&operands(&integers()));
}

#[test]
fn logic_and_bit_fields() {
    let none = Modifiers::default();
    let mut bench = Bench::new();
    for ty in [Type::B16, Type::B32, Type::B64] {
        for op in [AluOp::And, AluOp::Or, AluOp::Xor, AluOp::Shl] {
            bench.alu(op, ty, none, 2);
        }
        bench.alu(AluOp::Not, ty, none, 1);
        bench.alu(AluOp::Cnot, ty, none, 1);
    }
    for ty in [Type::U32, Type::S32, Type::U64, Type::S64] {
        for op in [AluOp::Popc, AluOp::Clz, AluOp::Brev, AluOp::Bfind, AluOp::BfindShiftAmt] {
            bench.alu(op, ty, none, 1);
        }
        bench.alu(AluOp::Bfe, ty, none, 3);
        bench.alu(AluOp::Bfi, ty, none, 4);
    }
    for op in [
        AluOp::ShfLWrap,
        AluOp::ShfLClamp,
        AluOp::ShfRWrap,
        AluOp::ShfRClamp,
        AluOp::Prmt,
    ] {
        bench.alu(op, Type::B32, none, 3);
    }
    bench.alu(AluOp::BmskClamp, Type::B32, none, 2);
    bench.alu(AluOp::BmskWrap, Type::B32, none, 2);
    for table in 0..256 {
        let mut srcs: Vec<Operand> = (0..3).map(|i| bench.operand(i, Type::B32).into_operand()).collect();
        srcs.push(Operand::Imm(table));
        let dst = bench.alu_into(AluOp::Lop3, Type::B32, Width::W32, &srcs);
        bench.result(format!("lop3 {table:#x}"), dst, Type::B32);
    }
    bench.check(&operands(&integers()));
}

#[test]
fn floating_point() {
    let modes = [
        None,
        Some(Rounding::Rn),
        Some(Rounding::Rz),
        Some(Rounding::Rm),
        Some(Rounding::Rp),
    ];
    for ty in [Type::F32, Type::F64] {
        let mut bench = Bench::new();
        for rounding in modes {
            for (ftz, sat) in [(false, false), (true, false), (false, true), (true, true)] {
                if ty == Type::F64 && (ftz || sat) {
                    continue;
                }
                let mods = Modifiers {
                    rounding,
                    ftz,
                    sat,
                    ..Modifiers::default()
                };
                for op in [AluOp::Add, AluOp::Sub, AluOp::Mul] {
                    bench.alu(op, ty, mods, 2);
                }
                bench.alu(AluOp::Fma, ty, mods, 3);
                if !sat {
                    bench.alu(AluOp::Div, ty, mods, 2);
                    bench.alu(AluOp::Rcp, ty, mods, 1);
                    bench.alu(AluOp::Sqrt, ty, mods, 1);
                }
            }
        }
        for ftz in [false, true] {
            let mods = Modifiers {
                ftz: ftz && ty == Type::F32,
                ..Modifiers::default()
            };
            bench.alu(AluOp::Min, ty, mods, 2);
            bench.alu(AluOp::Max, ty, mods, 2);
            bench.alu(AluOp::Abs, ty, mods, 1);
            bench.alu(AluOp::Neg, ty, mods, 1);
        }
        bench.alu(AluOp::Copysign, ty, Modifiers::default(), 2);
        // The interpreter finds directed roundings of f64 from error terms, which near underflow are not exact.
        let is_usual = |v: &u64| ty == Type::F32 || *v << 1 == 0 || (200..1800).contains(&(v >> 52 & 0x7ff));
        let mut values: Vec<u64> = floats(ty).into_iter().filter(is_usual).collect();
        if ty == Type::F64 {
            let mut random = Random(3);
            values.extend((0..2000).map(|_| random.next() >> 6 | 0x3c << 56 ^ random.next() << 63));
        }
        bench.check(&operands(&values));
    }
}

#[test]
fn half_precision() {
    for ty in [Type::F16, Type::F16x2, Type::Bf16, Type::Bf16x2] {
        let mut bench = Bench::new();
        let none = Modifiers::default();
        bench.alu(AluOp::Fma, ty, none, 3);
        for op in [AluOp::Add, AluOp::Sub, AluOp::Mul, AluOp::Min, AluOp::Max] {
            bench.alu(op, ty, none, 2);
        }
        bench.alu(AluOp::Abs, ty, none, 1);
        bench.alu(AluOp::Neg, ty, none, 1);
        bench.check(&operands(&floats(ty)));
    }
}

#[test]
fn comparisons() {
    use Comparison as C;
    let ordered = [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge];
    let float_only = [C::Equ, C::Neu, C::Ltu, C::Leu, C::Gtu, C::Geu, C::Num, C::Nan];
    for ty in [
        Type::U16,
        Type::S16,
        Type::U32,
        Type::S32,
        Type::U64,
        Type::S64,
        Type::F16,
        Type::F32,
        Type::F64,
    ] {
        let mut bench = Bench::new();
        let extra: &[C] = if ty.is_float() {
            &float_only
        } else {
            &[C::Lo, C::Ls, C::Hi, C::Hs]
        };
        let extra = if ty.is_signed() { &[] } else { extra };
        for &cmp in ordered.iter().chain(extra) {
            let (a, b) = (bench.operand(0, ty).into_operand(), bench.operand(1, ty).into_operand());
            let (dst, dst_not) = (
                bench.kernel.add_register(Width::Pred),
                bench.kernel.add_register(Width::Pred),
            );
            bench.push(Op::Setp {
                cmp,
                ty,
                ftz: false,
                dst,
                dst_not: Some(dst_not),
                a,
                b,
                combine: None,
            });
            for (pred, what) in [(dst, "setp"), (dst_not, "setp|q")] {
                let word = bench.kernel.add_register(Width::W32);
                bench.push(Op::Selp {
                    ty: Type::B32,
                    dst: word,
                    a: Operand::Imm(5),
                    b: Operand::Imm(9),
                    pred,
                });
                bench.result(format!("{what}.{cmp:?}.{}", ty.name()), word, Type::B32);
            }
            for dst_ty in [Type::U32, Type::F32] {
                let word = bench.kernel.add_register(Width::W32);
                bench.push(Op::Set {
                    cmp,
                    dst_ty,
                    ty,
                    ftz: false,
                    dst: word,
                    a,
                    b,
                });
                bench.result(format!("set.{cmp:?}.{}.{}", dst_ty.name(), ty.name()), word, dst_ty);
            }
        }
        let cases = if ty.is_float() { floats(ty) } else { integers() };
        bench.check(&operands(&cases));
    }
}

#[test]
fn conversions() {
    let integer_types = [
        Type::U8,
        Type::S8,
        Type::U16,
        Type::S16,
        Type::U32,
        Type::S32,
        Type::U64,
        Type::S64,
    ];
    let float_types = [Type::F16, Type::F32, Type::F64];
    let none = Modifiers::default();
    let convert = |to: Type, from: Type, mods: Modifiers, bench: &mut Bench| {
        let src = bench.operand(0, from).into_operand();
        let dst = bench.kernel.add_register(width_of(to));
        bench.push(Op::Cvt {
            dst_ty: to,
            src_ty: from,
            mods,
            dst,
            src,
        });
        bench.result(format!("cvt.{}.{} {mods:?}", to.name(), from.name()), dst, to);
    };
    for from in integer_types {
        let mut bench = Bench::new();
        for to in integer_types {
            convert(to, from, none, &mut bench);
            convert(to, from, Modifiers { sat: true, ..none }, &mut bench);
        }
        for to in float_types {
            for rounding in [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp] {
                convert(
                    to,
                    from,
                    Modifiers {
                        rounding: Some(rounding),
                        ..none
                    },
                    &mut bench,
                );
            }
        }
        bench.check(&operands(&integers()));
    }
    for from in float_types {
        let mut bench = Bench::new();
        for to in integer_types {
            for rounding in [Rounding::Rni, Rounding::Rzi, Rounding::Rmi, Rounding::Rpi] {
                convert(
                    to,
                    from,
                    Modifiers {
                        rounding: Some(rounding),
                        ..none
                    },
                    &mut bench,
                );
            }
        }
        for to in float_types {
            let roundings: &[Rounding] = match from.size_bytes().cmp(&to.size_bytes()) {
                std::cmp::Ordering::Equal => &[Rounding::Rni, Rounding::Rzi, Rounding::Rmi, Rounding::Rpi],
                std::cmp::Ordering::Greater => &[Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp],
                std::cmp::Ordering::Less => &[],
            };
            let mods = roundings.iter().map(|r| Modifiers {
                rounding: Some(*r),
                ..none
            });
            for mods in mods.chain(roundings.is_empty().then_some(none)) {
                convert(to, from, mods, &mut bench);
                convert(to, from, Modifiers { sat: true, ..mods }, &mut bench);
            }
        }
        bench.check(&operands(&floats(from)));
    }
}
