//! A kernel made of single instructions, run both ways.

use hetckpt_abi::program::Program;
use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{RegId, Span};
use hetckpt_ir::inst::{Address, AddressBase, AluOp, Axis, Inst, Modifiers, Op, Operand, Ordering, SpecialReg};
use hetckpt_ir::kernel::{Kernel, Param};
use hetckpt_ir::types::{Space, Type, Width};

use crate::implementation::{Implementation, Shape};
use crate::reference::interpret;

pub const NUM_OPERANDS: u64 = 4;
pub const NUM_THREADS: u32 = 512;

/// When two results of a type count as the same.
type Comparison<'a> = Box<dyn Fn(u64, u64, Type) -> bool + 'a>;

/// A kernel that applies instructions to each thread's operands and stores the results.
pub struct Bench<'a> {
    tested: &'a dyn Implementation,
    pub kernel: Kernel,
    pub insts: Vec<Inst>,
    pub results: Vec<(String, Type)>,
    /// Names of results that may differ.
    pub left_open: Vec<String>,
    /// Address of this thread's operands and of its first result.
    pub input: RegId,
    pub output: RegId,
    /// By default, [`same`].
    pub compare: Comparison<'a>,
}

impl<'a> Bench<'a> {
    pub fn new(tested: &'a dyn Implementation) -> Self {
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
            multiplies_matrices: false,
            reads_images: false,
            holds_functions: false,
            has_call_stack: false,
            resume_points: vec![],
        };
        let has_canonical_nans = tested.has_canonical_nans();
        let mut bench = Self {
            tested,
            kernel,
            insts: vec![],
            results: vec![],
            left_open: vec![],
            input: RegId(0),
            output: RegId(0),
            compare: Box::new(move |got, want, ty| same(got, want, ty, has_canonical_nans)),
        };
        // Linear index: x + nx * (y + ny * z).
        let special = |bench: &mut Bench, special| {
            let dst = bench.kernel.add_register(Width::W32);
            bench.push(Op::ReadSpecial { dst, special });
            Operand::Reg(dst)
        };
        let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| special(&mut bench, SpecialReg::Tid(axis)));
        let (nx, ny) = (
            special(&mut bench, SpecialReg::Ntid(Axis::X)),
            special(&mut bench, SpecialReg::Ntid(Axis::Y)),
        );
        let row = bench.alu_into(AluOp::Mad, Type::U32, Width::W32, &[z, ny, y]);
        let tid = bench.alu_into(AluOp::Mad, Type::U32, Width::W32, &[Operand::Reg(row), nx, x]);
        bench.input = bench.address(0, tid, NUM_OPERANDS * 8);
        bench.output = bench.address(8, tid, 8);
        bench
    }

    pub fn push(&mut self, op: Op) {
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

    pub fn alu_into(&mut self, op: AluOp, ty: Type, width: Width, srcs: &[Operand]) -> RegId {
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
    pub fn operand(&mut self, index: u64, ty: Type) -> RegId {
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
    pub fn result(&mut self, name: String, reg: RegId, ty: Type) {
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

    pub fn alu(&mut self, op: AluOp, ty: Type, mods: Modifiers, num_srcs: u64) {
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
    pub fn check(self, operands: &[u64]) {
        self.check_in([NUM_THREADS, 1, 1], operands);
    }

    /// As [`Self::check`], with a block of other dimensions.
    pub fn check_in(mut self, dimensions: [u32; 3], operands: &[u64]) {
        let insts = std::mem::take(&mut self.insts);
        self.kernel.blocks = vec![BasicBlock {
            insts,
            terminator: Terminator::Exit,
            span: Span::default(),
        }];
        let mut output = vec![0u64; self.results.len() * NUM_THREADS as usize];
        let program = Program::from_start(self.kernel);
        let shape = Shape::one_block(dimensions);
        if !self.tested.run(&program, shape, operands, &mut output) {
            return;
        }
        let expected = interpret(&program, shape, operands, &vec![0; output.len()]);
        let mut wrong = Vec::new();
        let results = self.results.iter().enumerate();
        for (i, (name, ty)) in results.filter(|(_, (name, _))| !self.left_open.contains(name)) {
            for thread in 0..NUM_THREADS as usize {
                let at = i * NUM_THREADS as usize + thread;
                let (got, want) = (output[at], expected[at]);
                if !(self.compare)(got, want, *ty) {
                    let operands = &operands[thread * NUM_OPERANDS as usize..][..NUM_OPERANDS as usize];
                    wrong.push(format!("{name} of {operands:#x?}: {got:#x} instead of {want:#x}"));
                    break;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

pub trait IntoOperand {
    fn into_operand(self) -> Operand;
}

impl IntoOperand for RegId {
    fn into_operand(self) -> Operand {
        Operand::Reg(self)
    }
}

pub fn width_of(ty: Type) -> Width {
    match ty.size_bytes() {
        1 | 2 => Width::W16,
        4 => Width::W32,
        _ => Width::W64,
    }
}

pub fn bits_of(ty: Type) -> Type {
    match ty.size_bytes() {
        2 => Type::B16,
        4 => Type::B32,
        _ => Type::B64,
    }
}

pub fn result_type(op: AluOp, ty: Type) -> Type {
    match (op, ty.size_bytes()) {
        (AluOp::MulWide | AluOp::MadWide, 2) => Type::B32,
        (AluOp::MulWide | AluOp::MadWide, _) => Type::B64,
        (AluOp::Popc | AluOp::Clz | AluOp::Bfind | AluOp::BfindShiftAmt, _) => Type::B32,
        _ => ty,
    }
}

pub fn source_type(op: AluOp, ty: Type, index: u64) -> Type {
    match (op, index) {
        (AluOp::Shl | AluOp::Shr, 1) | (AluOp::Bfe, 1 | 2) | (AluOp::Bfi, 2 | 3) => Type::B32,
        (AluOp::MadWide, 2) => result_type(op, ty),
        _ => ty,
    }
}

/// Equal, or not a number either.
fn same(got: u64, want: u64, ty: Type, has_canonical_nans: bool) -> bool {
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
            same(got & 0xffff, want & 0xffff, part, has_canonical_nans)
                && same(got >> 16, want >> 16, part, has_canonical_nans)
        }
        // In `f64` the payload is an operand's, and which operand's is left open.
        _ if has_canonical_nans && ty != Type::F64 => got == want,
        _ => got == want || (is_nan(got) && is_nan(want)),
    }
}
