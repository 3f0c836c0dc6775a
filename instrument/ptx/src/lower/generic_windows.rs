//! Generic addresses that are told apart when the kernel runs.
//!
//! Where [`super::address_spaces`] cannot find out what a generic address means, because it is stored, compared with
//! others or mixed with them, addresses of shared and local memory get a *window* each: their upper 8 bits say which
//! space they belong to, the others are the offset. No device has addresses with these bits: CPUs use 47 bits, GPUs 57
//! at most. An access looks at them and becomes one access for each space, of which one is executed. As the windows are
//! the same on all devices, an address in memory means the same after a restore on another one.
//!
//! # Source
//! PTX ISA, "Generic Addressing", which leaves open where the windows lie.

use std::collections::{BTreeMap, BTreeSet};

use hetckpt_ir::entity::RegId;
use hetckpt_ir::inst::{Address, AddressBase, AluOp, BoolOp, Comparison, Guard, Inst, Modifiers, Op, Operand};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::{Space, Type, Width};

use super::address_spaces::{Conversions, MIXED, Question, SEGMENTS, SHARED, Spaces};
use crate::error::Reason;

/// Bits of an offset.
const OFFSET_BITS: u64 = 56;
/// The upper bits of shared memory's window.
const SHARED_TAG: u64 = 0x5c;
/// And of local memory's, which differ in the last one only.
const LOCAL_TAG: u64 = 0x5d;

/// Gives addresses of shared and local memory their windows, and makes accesses look at them.
pub(crate) fn apply(kernel: &mut Kernel, conversions: &Conversions<'_>) -> Result<(), (u32, Reason)> {
    let spaces = Spaces::new(kernel, conversions);
    let known = Known {
        origins: conversions.origins.iter().copied().collect(),
        ends: conversions.ends.iter().map(|end| end.result).collect(),
        questions: conversions
            .questions
            .iter()
            .map(|asked| (asked.answer, asked))
            .collect(),
    };
    let has_local = conversions.origins.iter().any(|(_, space)| *space == Space::Local);
    for index in 0..kernel.blocks.len() {
        let before = std::mem::take(&mut kernel.blocks[index].insts);
        let mut after = Rewriter {
            kernel,
            insts: Vec::with_capacity(before.len()),
            has_local,
        };
        for inst in before {
            let line = inst.span.line;
            after.rewrite(inst, &known, &spaces).map_err(|reason| (line, reason))?;
        }
        kernel.blocks[index].insts = after.insts;
    }
    Ok(())
}

/// The conversions, by the register that each writes.
struct Known<'a> {
    origins: BTreeMap<RegId, Space>,
    ends: BTreeSet<RegId>,
    questions: BTreeMap<RegId, &'a Question>,
}

struct Rewriter<'a> {
    kernel: &'a mut Kernel,
    insts: Vec<Inst>,
    has_local: bool,
}

impl Rewriter<'_> {
    fn rewrite(&mut self, mut inst: Inst, known: &Known<'_>, spaces: &Spaces) -> Result<(), Reason> {
        match &mut inst.op {
            Op::Mov { dst, src, .. } => {
                let (dst, src) = (*dst, *src);
                if let Some(space) = known.origins.get(&dst) {
                    let window = Operand::Imm(tag(*space) << OFFSET_BITS);
                    inst.op = alu(AluOp::Add, dst, src, window);
                } else if known.ends.contains(&dst) {
                    inst.op = alu(AluOp::And, dst, src, Operand::Imm(OFFSET_MASK));
                }
            }
            Op::Setp { dst, cmp, ty, a, b, .. } => {
                if let Some(question) = known.questions.get(dst) {
                    let asked = Asked::of(question.space);
                    let upper = self.kernel.add_register(Width::W64);
                    (*cmp, *ty, *a, *b) = (asked.cmp, Type::U64, Operand::Reg(upper), Operand::Imm(asked.tag));
                    let shift = alu(
                        AluOp::Shr,
                        upper,
                        Operand::Reg(question.source),
                        Operand::Imm(asked.shift),
                    );
                    self.push(shift, None, &inst);
                }
            }
            Op::Load { space, addr, .. } | Op::Store { space, addr, .. } | Op::Atom { space, addr, .. } => {
                let found = match addr.base {
                    AddressBase::Reg(reg) => spaces.of(reg),
                    _ => 0,
                };
                match (*space, &addr.base) {
                    (Space::Generic, &AddressBase::Reg(base)) => {
                        let offset = addr.offset;
                        self.access(&inst, (base, offset), found);
                        return Ok(());
                    }
                    (Space::Generic, _) => *space = Space::Global,
                    _ if found & SEGMENTS != 0 => return Err(MIXED),
                    _ => {}
                }
            }
            _ => {}
        }
        self.insts.push(inst);
        Ok(())
    }

    /// A generic access, to each space that it may be to.
    fn access(&mut self, inst: &Inst, (base, offset): (RegId, i64), found: u8) {
        let at = |space: Space, base: RegId| {
            let mut op = inst.op.clone();
            if let Op::Load { space: its, addr, .. }
            | Op::Store { space: its, addr, .. }
            | Op::Atom { space: its, addr, .. } = &mut op
            {
                *its = space;
                *addr = Address {
                    base: AddressBase::Reg(base),
                    offset,
                };
            }
            op
        };
        let in_segment = self.kernel.add_register(Width::W64);
        self.push(
            alu(AluOp::And, in_segment, Operand::Reg(base), Operand::Imm(OFFSET_MASK)),
            None,
            inst,
        );
        if found & SEGMENTS == found && found.count_ones() == 1 {
            let space = if found == SHARED { Space::Shared } else { Space::Local };
            self.push(at(space, in_segment), inst.guard, inst);
            return;
        }
        let is_atomic = matches!(inst.op, Op::Atom { .. });
        for space in [Space::Shared, Space::Local, Space::Global] {
            if space == Space::Local && (!self.has_local || is_atomic) {
                continue;
            }
            let guard = self.is_in(space, base, inst);
            let base = if space == Space::Global { base } else { in_segment };
            self.push(at(space, base), Some(guard), inst);
        }
    }

    /// Asks whether `address` is in `space`, and the instruction is to be executed.
    fn is_in(&mut self, space: Space, address: RegId, inst: &Inst) -> Guard {
        let asked = Asked::of(space);
        let upper = self.kernel.add_register(Width::W64);
        let answer = self.kernel.add_register(Width::Pred);
        let shift = alu(AluOp::Shr, upper, Operand::Reg(address), Operand::Imm(asked.shift));
        self.push(shift, None, inst);
        let test = Op::Setp {
            cmp: asked.cmp,
            ty: Type::U64,
            ftz: false,
            dst: answer,
            dst_not: None,
            a: Operand::Reg(upper),
            b: Operand::Imm(asked.tag),
            combine: inst.guard.map(|guard| (BoolOp::And, guard.pred, guard.negated)),
        };
        self.push(test, None, inst);
        Guard {
            pred: answer,
            negated: false,
        }
    }

    fn push(&mut self, op: Op, guard: Option<Guard>, from: &Inst) {
        let span = from.span;
        self.insts.push(Inst { op, guard, span });
    }
}

const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// What an address's upper bits are compared with.
struct Asked {
    shift: u64,
    cmp: Comparison,
    tag: u64,
}

impl Asked {
    fn of(space: Space) -> Self {
        match space {
            Space::Shared | Space::Local => Self {
                shift: OFFSET_BITS,
                cmp: Comparison::Eq,
                tag: tag(space),
            },
            // In neither window.
            _ => Self {
                shift: OFFSET_BITS + 1,
                cmp: Comparison::Ne,
                tag: SHARED_TAG >> 1,
            },
        }
    }
}

const fn tag(space: Space) -> u64 {
    match space {
        Space::Local => LOCAL_TAG,
        _ => SHARED_TAG,
    }
}

fn alu(op: AluOp, dst: RegId, a: Operand, b: Operand) -> Op {
    let ty = match op {
        AluOp::And => Type::B64,
        _ => Type::U64,
    };
    Op::Alu {
        op,
        ty,
        mods: Modifiers::default(),
        dst,
        srcs: vec![a, b],
    }
}
