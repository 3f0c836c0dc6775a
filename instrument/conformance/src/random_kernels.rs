//! Random structured kernels for one thread: nested loops (counted and not), branches, breaks, stores of what is
//! computed, and in every fourth kernel steps.

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, RegId, Span};
use hetckpt_ir::inst::{
    Address, AddressBase, AluOp, Comparison, Guard, Inst, Modifiers, Op, Operand, Ordering, WarpOp,
};
use hetckpt_ir::kernel::{Kernel, LaunchBounds, LocalFrame, SharedSegment};
use hetckpt_ir::types::{Space, Type, Width};

use crate::random::Random;

/// Data registers `%r0`… that statements compute on.
const DATA: u32 = 5;

struct Builder {
    kernel: Kernel,
    at: BbId,
    random: Random,
    /// Where `break` goes, innermost last.
    exits: Vec<BbId>,
    stores: i64,
    has_steps: bool,
}

/// The kernel for a seed.
pub fn kernel(seed: u64) -> Kernel {
    let mut kernel = Kernel {
        name: "random".into(),
        params: Vec::new(),
        registers: vec![Width::W32; DATA as usize],
        blocks: Vec::new(),
        shared: SharedSegment::default(),
        local: LocalFrame::default(),
        bounds: LaunchBounds::default(),
        multiplies_matrices: false,
        reads_images: false,
        holds_functions: false,
        has_call_stack: false,
        resume_points: Vec::new(),
    };
    let at = kernel.add_block(open());
    let mut builder = Builder {
        kernel,
        at,
        random: Random::new(seed),
        exits: Vec::new(),
        stores: 0,
        has_steps: seed.is_multiple_of(4),
    };
    for reg in 0..DATA {
        let value = builder.pick(1000);
        builder.emit(Op::Mov {
            ty: Type::U32,
            dst: RegId(reg),
            src: Operand::Imm(value),
        });
    }
    builder.statements(3, 4);
    for reg in 0..DATA {
        builder.store(RegId(reg));
    }
    builder.kernel
}

fn open() -> BasicBlock {
    BasicBlock {
        insts: Vec::new(),
        terminator: Terminator::Exit,
        span: Span { line: 1 },
    }
}

impl Builder {
    const fn pick(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn data(&mut self) -> RegId {
        RegId(u32::try_from(self.pick(u64::from(DATA))).unwrap())
    }

    fn emit(&mut self, op: Op) {
        let line = u32::try_from(self.kernel.blocks.len()).unwrap();
        self.kernel.blocks[self.at.index()].insts.push(Inst {
            op,
            guard: None,
            span: Span { line },
        });
    }

    fn end(&mut self, terminator: Terminator, next: BbId) {
        self.kernel.blocks[self.at.index()].terminator = terminator;
        self.at = next;
    }

    fn alu(&mut self, op: AluOp, dst: RegId, a: Operand, b: Operand) {
        self.emit(Op::Alu {
            op,
            ty: Type::U32,
            mods: Modifiers::default(),
            dst,
            srcs: vec![a, b],
        });
    }

    fn test(&mut self, cmp: Comparison, a: RegId, b: Operand) -> Guard {
        let dst = self.kernel.add_register(Width::Pred);
        let a = Operand::Reg(a);
        self.emit(Op::Setp {
            cmp,
            ty: Type::U32,
            ftz: false,
            dst,
            dst_not: None,
            a,
            b,
            combine: None,
        });
        Guard {
            pred: dst,
            negated: self.pick(2) == 0,
        }
    }

    fn store(&mut self, reg: RegId) {
        self.stores += 1;
        let addr = Address {
            base: AddressBase::Absolute,
            offset: self.stores,
        };
        let srcs = vec![Operand::Reg(reg)];
        self.emit(Op::Store {
            space: Space::Global,
            ty: Type::U32,
            ordering: Ordering::Weak,
            addr,
            srcs,
        });
    }

    fn statements(&mut self, depth: u32, most: u64) {
        for _ in 0..=self.pick(most) {
            match self.pick(if depth == 0 { 5 } else { 9 }) {
                0 | 1 => {
                    let reg = self.data();
                    self.store(reg);
                }
                2 if self.has_steps => self.step(),
                2 | 3 => self.compute(),
                4 => self.break_perhaps(),
                5 => self.branch(depth - 1),
                6 | 7 => self.counted_loop(depth - 1),
                _ => self.uncounted_loop(depth - 1),
            }
        }
    }

    fn step(&mut self) {
        self.emit(Op::Warp {
            op: WarpOp::Step,
            dst: None,
            dst_pred: None,
            srcs: Vec::new(),
            mask: Operand::Imm(0xffff_ffff),
            probe: None,
        });
    }

    fn compute(&mut self) {
        let (dst, a, b) = (self.data(), self.data(), self.data());
        let op = [AluOp::Add, AluOp::Sub, AluOp::Mul, AluOp::Xor, AluOp::And][usize::try_from(self.pick(5)).unwrap()];
        self.alu(op, dst, Operand::Reg(a), Operand::Reg(b));
    }

    fn break_perhaps(&mut self) {
        let Some(&exit) = self.exits.last() else { return };
        let (reg, limit) = (self.data(), self.pick(1 << 32));
        let mut guard = self.test(Comparison::Lt, reg, Operand::Imm(limit >> 6));
        guard.negated = false;
        let on = self.kernel.add_block(open());
        self.end(
            Terminator::Branch {
                guard,
                taken: exit,
                not_taken: on,
            },
            on,
        );
    }

    fn branch(&mut self, depth: u32) {
        let (reg, bit) = (self.data(), self.data());
        let guard = self.test(Comparison::Lt, reg, Operand::Reg(bit));
        let [yes, no, join] = [(); 3].map(|()| self.kernel.add_block(open()));
        self.end(
            Terminator::Branch {
                guard,
                taken: yes,
                not_taken: no,
            },
            yes,
        );
        self.statements(depth, 2);
        self.end(Terminator::Jump(join), no);
        self.statements(depth, 2);
        self.end(Terminator::Jump(join), join);
    }

    fn counted_loop(&mut self, depth: u32) {
        let count = self.kernel.add_register(Width::W32);
        let limit = self.pick(12);
        self.emit(Op::Mov {
            ty: Type::U32,
            dst: count,
            src: Operand::Imm(0),
        });
        let [header, exit] = [(); 2].map(|()| self.kernel.add_block(open()));
        self.end(Terminator::Jump(header), header);
        self.exits.push(exit);
        self.statements(depth, 3);
        self.exits.pop();
        self.alu(AluOp::Add, count, Operand::Reg(count), Operand::Imm(1));
        let mut guard = self.test(Comparison::Lt, count, Operand::Imm(limit));
        guard.negated = false;
        self.end(
            Terminator::Branch {
                guard,
                taken: header,
                not_taken: exit,
            },
            exit,
        );
    }

    /// `do { … } while (the low bits of something mixed are not all 0)`.
    fn uncounted_loop(&mut self, depth: u32) {
        let [state, low] = [(); 2].map(|()| self.kernel.add_register(Width::W32));
        let start = self.pick(1 << 30);
        self.emit(Op::Mov {
            ty: Type::U32,
            dst: state,
            src: Operand::Imm(start),
        });
        let [header, exit] = [(); 2].map(|()| self.kernel.add_block(open()));
        self.end(Terminator::Jump(header), header);
        self.exits.push(exit);
        self.statements(depth, 2);
        self.exits.pop();
        self.alu(AluOp::Mul, state, Operand::Reg(state), Operand::Imm(1_664_525));
        self.alu(AluOp::Add, state, Operand::Reg(state), Operand::Imm(1_013_904_223));
        self.alu(AluOp::And, low, Operand::Reg(state), Operand::Imm(7 << 20));
        let mut guard = self.test(Comparison::Ne, low, Operand::Imm(0));
        guard.negated = false;
        self.end(
            Terminator::Branch {
                guard,
                taken: header,
                not_taken: exit,
            },
            exit,
        );
    }
}
