//! Loops that cannot iterate often: each iteration shifts a register to the right, and the loop ends once it is 0.
//!
//! ```text
//! shr.u32 %s, %s, 1
//! setp.ne.s32 %p, %s, 0
//! br %p, header, exit
//! ```
//!
//! That is how tree reductions count. A register of n bits is 0 after at most n iterations.

use super::dominators::Dominators;
use super::loops::{LoopForest, LoopId};
use crate::basic_block::Terminator;
use crate::entity::{BbId, RegId};
use crate::inst::{AluOp, Comparison, Inst, Op, Operand};
use crate::kernel::Kernel;
use crate::types::Type;

/// True if the loop is known to end after so many iterations as its counter has bits, one more at most.
#[must_use]
pub fn is_short(kernel: &Kernel, dominators: &Dominators, forest: &LoopForest, id: LoopId) -> bool {
    let the_loop = forest.get(id);
    let is_passed = |block: BbId| the_loop.latches.iter().all(|latch| dominators.dominates(block, *latch));
    let writes = |reg: RegId| {
        let mut found = Vec::new();
        for &block in &the_loop.blocks {
            for inst in &kernel.blocks[block.index()].insts {
                inst.for_each_def(|def| {
                    if def == reg {
                        found.push((block, inst));
                    }
                });
            }
        }
        found
    };
    let shrinks = |reg: RegId| match writes(reg).as_slice() {
        [(block, inst)] => is_passed(*block) && is_shift_right(inst, reg),
        _ => false,
    };
    the_loop.blocks.iter().any(|&block| {
        let Terminator::Branch {
            guard,
            taken,
            not_taken,
        } = kernel.blocks[block.index()].terminator
        else {
            return false;
        };
        let continues_when = match (the_loop.contains(taken), the_loop.contains(not_taken)) {
            (true, false) => !guard.negated,
            (false, true) => guard.negated,
            _ => return false,
        };
        let [(tested_at, Inst { op, guard: None, .. })] = writes(guard.pred)[..] else {
            return false;
        };
        let Op::Setp {
            cmp,
            a: Operand::Reg(counter),
            b: Operand::Imm(0),
            dst,
            combine: None,
            ..
        } = *op
        else {
            return false;
        };
        let ends_at_zero = match cmp {
            Comparison::Ne => continues_when,
            Comparison::Eq => !continues_when,
            _ => return false,
        };
        dst == guard.pred && ends_at_zero && is_passed(tested_at) && is_passed(block) && shrinks(counter)
    })
}

/// True for an unguarded `shr` of `reg` by a constant that brings in zeros.
fn is_shift_right(inst: &Inst, reg: RegId) -> bool {
    let Inst {
        op:
            Op::Alu {
                op: AluOp::Shr,
                ty,
                dst,
                srcs,
                ..
            },
        guard: None,
        ..
    } = inst
    else {
        return false;
    };
    let brings_zeros = matches!(
        ty,
        Type::U16 | Type::U32 | Type::U64 | Type::B16 | Type::B32 | Type::B64
    );
    brings_zeros && *dst == reg && matches!(srcs[..], [Operand::Reg(src), Operand::Imm(by)] if src == reg && by > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::analysis::cfg::Cfg;

    fn short_loops(latch: &str) -> Vec<bool> {
        let text = format!(
            "kernel \"k\" {{
  reg %r0..%r1 w32
  reg %r2 pred
bb0:
  special %r0, ntid_x
  jump bb1
bb1:
  {latch}
  br %r2, bb1, bb2
bb2:
  exit
}}
"
        );
        let kernel = crate::text::parse::kernel(&text).unwrap();
        let cfg = Cfg::new(&kernel);
        let dominators = Dominators::new(&cfg);
        let forest = LoopForest::new(&cfg, &dominators);
        forest
            .iter()
            .map(|(id, _)| is_short(&kernel, &dominators, &forest, id))
            .collect()
    }

    #[test]
    fn a_shift_to_the_right_ends_a_loop_soon() {
        assert_eq!(short_loops("shr.u32 %r0, %r0, 1\n  setp.ne.s32 %r2, %r0, 0"), [true]);
        assert_eq!(short_loops("setp.ne.s32 %r2, %r0, 0\n  shr.b32 %r0, %r0, 2"), [true]);
    }

    #[test]
    fn other_counters_may_take_long() {
        for latch in [
            "shr.s32 %r0, %r0, 1\n  setp.ne.s32 %r2, %r0, 0",
            "shr.u32 %r0, %r0, 1\n  setp.ne.s32 %r2, %r0, 1",
            "shr.u32 %r0, %r0, 1\n  setp.eq.s32 %r2, %r0, 0",
            "shr.u32 %r0, %r0, 1\n  add.u32 %r0, %r0, 1\n  setp.ne.s32 %r2, %r0, 0",
            "shr.u32 %r1, %r0, 1\n  setp.ne.s32 %r2, %r0, 0",
            "sub.u32 %r0, %r0, 1\n  setp.ne.s32 %r2, %r0, 0",
        ] {
            assert_eq!(short_loops(latch), [false], "{latch}");
        }
    }
}
