//! Counted loops: a single latch that tests a register which one `add` or `sub` changes once an iteration.
//!
//! This is what strip-mining needs. Two shapes of the latch are known, both nvcc's:
//!
//! ```text
//! add.s32 %i, %i, 1          add.s32 %t, %i, 1
//! setp.lt.s32 %p, %i, %n     setp.lt.s32 %p, %t, %n
//! br %p, header, exit        mov.b32 %i, %t
//!                            br %p, header, exit
//! ```

use super::definitions::{Definitions, Location};
use super::dominators::Dominators;
use super::loops::{Loop, LoopForest, LoopId};
use crate::basic_block::Terminator;
use crate::entity::{BbId, RegId};
use crate::inst::{AluOp, Comparison, Guard, Inst, Modifiers, Op, Operand};
use crate::kernel::Kernel;
use crate::types::Type;

/// How much the induction register changes an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// By this much, sign-extended from the type's width; never 0.
    Constant(i64),
    /// By the value of a register that the loop does not write.
    Register {
        /// The register.
        reg: RegId,
        /// True for `sub`.
        is_subtracted: bool,
    },
}

/// The counter of a loop and the test that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Induction {
    /// The only latch. It ends in a branch to the header or out of the loop.
    pub latch: BbId,
    /// The block the latch's branch leaves to.
    pub exit: BbId,
    /// The register that counts. Its only write in the loop is at `update` (or the `mov` that follows, if `tested` is
    /// another register).
    pub iv: RegId,
    /// The register compared: `iv`, or the temporary that holds its next value. Either way the value tested is the one
    /// that `iv` has in the next iteration.
    pub tested: RegId,
    /// Type of the update: a 16-, 32- or 64-bit integer type.
    pub ty: Type,
    /// What the update adds.
    pub step: Step,
    /// The `add` or `sub`.
    pub update: Location,
    /// The test.
    pub setp: Location,
    /// Type of the comparison; as wide as `ty`.
    pub cmp_ty: Type,
    /// The comparison as written: `tested cmp bound`, or `bound cmp tested` if `iv_is_right`.
    pub cmp: Comparison,
    /// True if the induction register is the right operand.
    pub iv_is_right: bool,
    /// The other operand: an immediate or a register that the loop does not write.
    pub bound: Operand,
    /// Value of the predicate for which the loop goes on.
    pub continues_when: bool,
    /// The latch's branch as written.
    pub guard: Guard,
}

/// The induction of a loop, if it has one.
#[must_use]
pub fn find(
    kernel: &Kernel,
    definitions: &Definitions,
    dominators: &Dominators,
    forest: &LoopForest,
    id: LoopId,
) -> Option<Induction> {
    let the_loop = forest.get(id);
    let [latch] = *the_loop.latches.as_slice() else {
        return None;
    };
    let Terminator::Branch {
        guard,
        taken,
        not_taken,
    } = kernel.blocks[latch.index()].terminator
    else {
        return None;
    };
    let taken_continues = taken == the_loop.header;
    let exit = if taken_continues { not_taken } else { taken };
    if the_loop.contains(exit) || !(taken_continues || not_taken == the_loop.header) {
        return None;
    }
    let setp = last_write_in(definitions, guard.pred, latch)?;
    let Inst {
        op:
            Op::Setp {
                cmp,
                ty: cmp_ty,
                a,
                b,
                combine: None,
                dst,
                ..
            },
        guard: None,
        ..
    } = setp.inst(kernel)?
    else {
        return None;
    };
    // `|q` is the opposite of the comparison.
    let is_inverted = *dst != guard.pred;
    let context = Context {
        kernel,
        definitions,
        dominators,
        forest,
        id,
        the_loop,
        latch,
        setp,
    };
    let sides = [(*a, *b, false), (*b, *a, true)];
    let (counter, bound, iv_is_right) = sides
        .into_iter()
        .find_map(|(x, y, right)| Some((context.counter(x)?, context.invariant(y)?, right)))?;
    if cmp_ty.is_float() || cmp_ty.size_bytes() != counter.ty.size_bytes() {
        return None;
    }
    Some(Induction {
        latch,
        exit,
        iv: counter.iv,
        tested: counter.tested,
        ty: counter.ty,
        step: counter.step,
        update: counter.update,
        setp,
        cmp_ty: *cmp_ty,
        cmp: *cmp,
        iv_is_right,
        bound,
        continues_when: (taken_continues != guard.negated) != is_inverted,
        guard,
    })
}

struct Context<'a> {
    kernel: &'a Kernel,
    definitions: &'a Definitions,
    dominators: &'a Dominators,
    forest: &'a LoopForest,
    id: LoopId,
    the_loop: &'a Loop,
    latch: BbId,
    setp: Location,
}

struct Counter {
    iv: RegId,
    tested: RegId,
    ty: Type,
    step: Step,
    update: Location,
}

impl Context<'_> {
    fn writes_in_loop(&self, reg: RegId) -> impl Iterator<Item = Location> + '_ {
        self.definitions
            .of(reg)
            .iter()
            .copied()
            .filter(|at| self.the_loop.contains(at.block))
    }

    fn only_write_in_loop(&self, reg: RegId) -> Option<Location> {
        let mut writes = self.writes_in_loop(reg);
        writes.next().filter(|_| writes.next().is_none())
    }

    fn invariant(&self, operand: Operand) -> Option<Operand> {
        match operand {
            Operand::Reg(reg) if self.writes_in_loop(reg).next().is_some() => None,
            other => Some(other),
        }
    }

    /// True if `at` happens exactly once an iteration, before the test.
    fn is_once_before_test(&self, at: Location) -> bool {
        self.forest.innermost(at.block) == Some(self.id)
            && self.dominators.dominates(at.block, self.latch)
            && (at.block != self.latch || at.index < self.setp.index)
    }

    fn counter(&self, operand: Operand) -> Option<Counter> {
        let Operand::Reg(tested) = operand else { return None };
        let update = self.only_write_in_loop(tested)?;
        let Inst {
            op: Op::Alu { op, ty, mods, srcs, .. },
            guard: None,
            ..
        } = update.inst(self.kernel)?
        else {
            return None;
        };
        if ty.is_float() || ty.size_bytes() < 2 || *mods != Modifiers::default() || !self.is_once_before_test(update) {
            return None;
        }
        let (old, amount) = operand_orders(*op, srcs).into_iter().find_map(|(old, amount)| {
            let Operand::Reg(old) = old else { return None };
            let is_counter = old == tested || self.is_copied_once(old, tested, update);
            is_counter.then_some((old, self.invariant(amount)?))
        })?;
        let step = match amount {
            Operand::Imm(bits) => Step::Constant(signed_step(*op, *ty, bits)?),
            Operand::Reg(reg) => Step::Register {
                reg,
                is_subtracted: *op == AluOp::Sub,
            },
        };
        Some(Counter {
            iv: old,
            tested,
            ty: *ty,
            step,
            update,
        })
    }

    /// True if the only write of `iv` in the loop is `mov iv, tested`, once an iteration, after the update.
    fn is_copied_once(&self, iv: RegId, tested: RegId, update: Location) -> bool {
        let Some(copy) = self.only_write_in_loop(iv) else {
            return false;
        };
        let is_move = matches!(
            copy.inst(self.kernel),
            Some(Inst { op: Op::Mov { src: Operand::Reg(src), .. }, guard: None, .. }) if *src == tested
        );
        let is_after = if copy.block == update.block {
            copy.index > update.index
        } else {
            self.dominators.dominates(update.block, copy.block)
        };
        is_move
            && is_after
            && self.forest.innermost(copy.block) == Some(self.id)
            && self.dominators.dominates(copy.block, self.latch)
    }
}

/// The last write of `reg` in `block`.
fn last_write_in(definitions: &Definitions, reg: RegId, block: BbId) -> Option<Location> {
    definitions.of(reg).iter().rev().find(|at| at.block == block).copied()
}

/// What may be the counter and the amount: both orders for `add`.
fn operand_orders(op: AluOp, srcs: &[Operand]) -> Vec<(Operand, Operand)> {
    match (op, srcs) {
        (AluOp::Add, [a, b]) => vec![(*a, *b), (*b, *a)],
        (AluOp::Sub, [a, b]) => vec![(*a, *b)],
        _ => vec![],
    }
}

fn signed_step(op: AluOp, ty: Type, bits: u64) -> Option<i64> {
    let shift = 64 - 8 * ty.size_bytes();
    let value = (bits << shift).cast_signed() >> shift;
    let step = if op == AluOp::Sub { value.checked_neg()? } else { value };
    (step != 0).then_some(step)
}
