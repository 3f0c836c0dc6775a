//! Fuel: the countdown register that the loops of one nest share.
//!
//! It holds how many more instructions, by estimate, a thread may execute before it polls. Loops burn it at their back
//! edges; whoever runs out of it polls, and each poll fills it up, so that it is live at no loop probe and costs
//! nothing to save. One register for a whole nest: with a countdown for each loop of their own, the bounds would
//! multiply.

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, RegId, Span};
use hetckpt_ir::inst::{AluOp, Comparison, Guard, Inst, Modifiers, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Type, Width};

use crate::edges::{inserted_block, predecessors, redirect};
use crate::nest::{LoopId, Nest};

/// The fuel register of one loop nest.
#[derive(Clone, Copy, Debug)]
pub struct Fuel {
    /// The register: 32 bits, signed.
    pub reg: RegId,
    /// What it is filled up to.
    pub budget: u32,
}

impl Fuel {
    /// A fuel register for the nest whose outermost loop is `root`, filled where control enters that loop.
    pub fn new(kernel: &mut Kernel, nest: &mut Nest, root: LoopId, budget: u32) -> Self {
        let budget = budget.clamp(1, 1 << 30);
        let fuel = Self {
            reg: kernel.add_register(Width::W32),
            budget,
        };
        let header = nest.header(root);
        let filled = kernel.add_block(inserted_block(vec![fuel.fill()], Terminator::Jump(header)));
        nest.set_home(filled, nest.parent(root));
        for pred in predecessors(kernel, header) {
            if pred != filled && !nest.contains(root, pred) {
                redirect(kernel, pred, header, filled);
            }
        }
        fuel
    }

    /// A fuel register for cycles that are no natural loops, filled once, behind the entry probe.
    pub fn for_kernel(kernel: &mut Kernel, budget: u32) -> Self {
        let fuel = Self {
            reg: kernel.add_register(Width::W32),
            budget: budget.clamp(1, 1 << 30),
        };
        if let Terminator::Poll { next, .. } = kernel.blocks[Kernel::ENTRY.index()].terminator {
            let filled = kernel.add_block(inserted_block(vec![fuel.fill()], Terminator::Jump(next)));
            redirect(kernel, Kernel::ENTRY, next, filled);
        }
        fuel
    }

    /// Fills it up.
    pub fn fill(self) -> Op {
        Op::Mov {
            ty: Type::U32,
            dst: self.reg,
            src: Operand::Imm(u64::from(self.budget)),
        }
    }

    /// Burns an amount: a register, or a number of instructions.
    pub fn burn(self, amount: Operand) -> Op {
        let srcs = vec![Operand::Reg(self.reg), amount];
        Op::Alu {
            op: AluOp::Sub,
            ty: Type::S32,
            mods: Modifiers::default(),
            dst: self.reg,
            srcs,
        }
    }

    /// `work` as an amount to burn: at least 1, and no more than there can be.
    pub fn amount(self, work: u32) -> Operand {
        Operand::Imm(u64::from(work.clamp(1, self.budget.saturating_add(1))))
    }

    /// A block that burns `amount`, then goes to `empty` if no fuel is left, else to `next`.
    pub fn burn_and_test(self, kernel: &mut Kernel, amount: Operand, empty: BbId, next: BbId) -> BasicBlock {
        let is_empty = kernel.add_register(Width::Pred);
        let test = Op::Setp {
            cmp: Comparison::Lt,
            ty: Type::S32,
            ftz: false,
            dst: is_empty,
            dst_not: None,
            a: Operand::Reg(self.reg),
            b: Operand::Imm(0),
            combine: None,
        };
        let insts = [self.burn(amount), test]
            .map(|op| Inst {
                op,
                guard: None,
                span: Span::default(),
            })
            .to_vec();
        let guard = Guard {
            pred: is_empty,
            negated: false,
        };
        let terminator = Terminator::Branch {
            guard,
            taken: empty,
            not_taken: next,
        };
        BasicBlock {
            insts,
            terminator,
            span: Span::default(),
        }
    }
}
