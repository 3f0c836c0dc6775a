//! Taking out what was inserted gives back the kernel, instruction by instruction, along every path.
//!
//! Both kernels are walked side by side, by pairs of places. What the probed one has in addition must be invisible:
//! polls, instructions that write nothing but registers the original does not have, and branches on such registers,
//! after which both ways must go on at the same place of the original. One insertion is special, the test that ends a
//! chunk: it stands for, or right behind, a `setp` of the original with one operand replaced by a new register, and the
//! way on which it leaves the inner loop must ask the original question again.

use std::collections::HashSet;

use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, RegId};
use hetckpt_ir::inst::{Guard, Inst, Op, Operand};
use hetckpt_ir::kernel::Kernel;

use super::Violation;
use super::saved_state::needed_at_start;

/// A place: the instruction of that index in a block, or its terminator.
type Place = (BbId, usize);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Pair {
    original: Place,
    probed: Place,
    /// The test of a chunk's end that was met last: its predicate, and the place of the original's `setp`.
    chunk_test: Option<(RegId, Place)>,
    /// The original has executed that `setp`, the probed kernel has not.
    is_owed: bool,
}

struct Walk<'a> {
    original: &'a Kernel,
    probed: &'a Kernel,
    predecessors: Vec<Vec<BbId>>,
    seen: HashSet<Pair>,
    work: Vec<Pair>,
}

/// The first place on each path where the kernels differ.
pub fn violations(original: &Kernel, probed: &Kernel) -> Vec<Violation> {
    let mut predecessors = vec![Vec::new(); original.blocks.len()];
    for (id, block) in original.iter_blocks() {
        for successor in block.terminator.successors() {
            predecessors[successor.index()].push(id);
        }
    }
    let start = Pair {
        original: (BbId(0), 0),
        probed: (BbId(0), 0),
        chunk_test: None,
        is_owed: false,
    };
    let mut walk = Walk {
        original,
        probed,
        predecessors,
        seen: HashSet::new(),
        work: vec![start],
    };
    let mut found = Vec::new();
    while let Some(pair) = walk.work.pop() {
        if walk.seen.insert(pair) && walk.step(pair).is_none() {
            found.push(Violation::Differs {
                original: pair.original.0,
                probed: pair.probed.0,
            });
        }
    }
    found
}

impl Walk<'_> {
    /// Goes on from a pair; `None` if the kernels differ there.
    fn step(&mut self, pair: Pair) -> Option<()> {
        let (original, probed) = (self.original, self.probed);
        let of_original = original.blocks[pair.original.0.index()].insts.get(pair.original.1);
        let of_probed = probed.blocks[pair.probed.0.index()].insts.get(pair.probed.1);
        let terminator = &original.blocks[pair.original.0.index()].terminator;
        if let (None, Terminator::Jump(next)) = (of_original, terminator) {
            self.push(pair, (*next, 0), pair.probed);
            return Some(());
        }
        match (of_original, of_probed) {
            (Some(a), Some(b)) if self.is_same(a, b) => self.both(pair, a),
            (_, Some(b)) if self.is_invisible(b) => self.inserted(pair, of_original, b),
            (Some(a), _) if pair.chunk_test.is_some_and(|(_, place)| place == pair.original) => self.left_out(pair, a),
            (None, Some(b)) => self.asked_again(pair, b),
            (Some(_), Some(_)) => None,
            (_, None) => self.end_of_probed(pair, of_original),
        }
    }

    fn push(&mut self, from: Pair, original: Place, probed: Place) {
        self.work.push(Pair {
            original,
            probed,
            ..from
        });
    }

    /// Both execute the same instruction.
    fn both(&mut self, pair: Pair, inst: &Inst) -> Option<()> {
        if pair.is_owed {
            let owed = self.owed(pair)?;
            // The value asked about must still be there when the question is asked, and no one may look at the answer.
            if touches(inst, owed) {
                return None;
            }
        }
        let chunk_test = pair.chunk_test.filter(|_| !redefines(inst, self.owed_or_tested(pair)));
        let next = Pair { chunk_test, ..pair };
        self.push(next, advance(pair.original), advance(pair.probed));
        Some(())
    }

    /// The probed kernel executes something invisible.
    fn inserted(&mut self, pair: Pair, of_original: Option<&Inst>, inst: &Inst) -> Option<()> {
        let behind = pair.original.1.checked_sub(1).map(|i| (pair.original.0, i));
        let candidates = [of_original.map(|_| pair.original), behind];
        let test = candidates.into_iter().flatten().find_map(|place| {
            let setp = &self.original.blocks[place.0.index()].insts[place.1];
            Some((chunk_test(setp, inst, self.original.registers.len())?, place))
        });
        let chunk_test = test.or(pair.chunk_test);
        self.push(Pair { chunk_test, ..pair }, pair.original, advance(pair.probed));
        Some(())
    }

    /// The original executes a `setp` for which the probed kernel has only the test of the chunk's end.
    fn left_out(&mut self, pair: Pair, inst: &Inst) -> Option<()> {
        if pair.is_owed || !matches!(inst.op, Op::Setp { .. }) {
            return None;
        }
        self.push(Pair { is_owed: true, ..pair }, advance(pair.original), pair.probed);
        Some(())
    }

    /// The probed kernel asks the original question that it owes.
    fn asked_again(&mut self, pair: Pair, inst: &Inst) -> Option<()> {
        let owed = self.owed(pair)?;
        if !pair.is_owed || owed != inst {
            return None;
        }
        self.push(
            Pair {
                is_owed: false,
                chunk_test: None,
                ..pair
            },
            pair.original,
            advance(pair.probed),
        );
        Some(())
    }

    fn end_of_probed(&mut self, pair: Pair, of_original: Option<&Inst>) -> Option<()> {
        let (block, probed) = (&self.original.blocks[pair.original.0.index()], self.probed);
        match &probed.blocks[pair.probed.0.index()].terminator {
            Terminator::Jump(next) | Terminator::Poll { next, .. } => self.push(pair, pair.original, (*next, 0)),
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } if self.is_new(guard.pred) => {
                return self.new_branch(pair, *guard, *taken, *not_taken);
            }
            Terminator::Branch {
                guard,
                taken,
                not_taken,
            } if of_original.is_some() => {
                return self.guarded_warp_op(pair, of_original?, *guard, *taken, *not_taken);
            }
            other => {
                if of_original.is_some() || pair.is_owed || !is_same_end(&block.terminator, other) {
                    return None;
                }
                let pairs = block.terminator.successors().into_iter().zip(other.successors());
                for (a, b) in pairs.collect::<Vec<_>>() {
                    self.push(
                        Pair {
                            chunk_test: None,
                            ..pair
                        },
                        (a, 0),
                        (b, 0),
                    );
                }
            }
        }
        Some(())
    }

    /// A branch on a register of the probed kernel's own.
    fn new_branch(&mut self, pair: Pair, guard: Guard, taken: BbId, not_taken: BbId) -> Option<()> {
        let Some((pred, place)) = pair.chunk_test.filter(|(pred, _)| *pred == guard.pred) else {
            self.push(pair, pair.original, (taken, 0));
            self.push(pair, pair.original, (not_taken, 0));
            return Some(());
        };
        let original = self.original;
        let block = &original.blocks[pair.original.0.index()];
        let Terminator::Branch {
            guard: asked,
            taken: a,
            not_taken: b,
        } = &block.terminator
        else {
            return None;
        };
        let Op::Setp { dst, .. } = original.blocks[place.0.index()].insts[place.1].op else {
            return None;
        };
        if pair.original.1 != block.insts.len() || asked.pred != dst || asked.negated != guard.negated {
            return None;
        }
        debug_assert_eq!(pred, guard.pred);
        // One way leaves the inner loop: the original is asked there. The other goes on as if it had said so.
        let asks = |walk: &Self, id: BbId| walk.asks(id, pair.is_owed.then(|| walk.owed(pair)).flatten(), *asked);
        let (on_original, on_probed, out) = match (asks(self, taken), asks(self, not_taken)) {
            (false, true) => (*a, taken, not_taken),
            (true, false) => (*b, not_taken, taken),
            _ => return None,
        };
        if pair.is_owed && needed_at_start(original, &self.predecessors, dst)[on_original.index()] {
            return None;
        }
        self.push(
            Pair {
                chunk_test: None,
                is_owed: false,
                ..pair
            },
            (on_original, 0),
            (on_probed, 0),
        );
        self.push(pair, pair.original, (out, 0));
        Some(())
    }

    /// True if the block does nothing but ask the original question.
    fn asks(&self, id: BbId, owed: Option<&Inst>, asked: Guard) -> bool {
        let block = &self.probed.blocks[id.index()];
        let is_asked = matches!(block.terminator, Terminator::Branch { guard, .. } if guard == asked);
        is_asked && block.insts.iter().collect::<Vec<_>>() == owed.into_iter().collect::<Vec<_>>()
    }

    /// `@p warp` became a branch around the operation.
    fn guarded_warp_op(&mut self, pair: Pair, inst: &Inst, guard: Guard, taken: BbId, not_taken: BbId) -> Option<()> {
        let alone = &self.probed.blocks[taken.index()];
        let unguarded = Inst {
            guard: None,
            ..inst.clone()
        };
        let is_right = matches!(inst.op, Op::Warp { .. })
            && inst.guard == Some(guard)
            && matches!(alone.insts.as_slice(), [only] if self.is_same(&unguarded, only))
            && alone.terminator == Terminator::Jump(not_taken);
        if !is_right || pair.is_owed {
            return None;
        }
        self.push(pair, advance(pair.original), (not_taken, 0));
        Some(())
    }

    fn owed(&self, pair: Pair) -> Option<&Inst> {
        pair.chunk_test
            .map(|(_, (block, index))| &self.original.blocks[block.index()].insts[index])
    }

    fn owed_or_tested(&self, pair: Pair) -> Option<RegId> {
        match self.owed(pair)?.op {
            Op::Setp { dst, .. } => Some(dst),
            _ => None,
        }
    }

    fn is_new(&self, reg: RegId) -> bool {
        reg.index() >= self.original.registers.len()
    }

    /// True if the instruction only writes registers that the original does not have.
    fn is_invisible(&self, inst: &Inst) -> bool {
        let mut is_new = true;
        inst.for_each_def(|r| is_new &= self.is_new(r));
        let touches_memory = matches!(inst.op, Op::Load { .. }) || inst.op.has_side_effect();
        is_new && !touches_memory
    }

    /// Equal, but for what the passes fill in.
    fn is_same(&self, original: &Inst, probed: &Inst) -> bool {
        match (&original.op, &probed.op) {
            (
                Op::Warp {
                    op,
                    dst,
                    dst_pred,
                    srcs,
                    ..
                },
                Op::Warp {
                    op: op2,
                    dst: dst2,
                    dst_pred: dst_pred2,
                    srcs: srcs2,
                    ..
                },
            ) => (op, dst, dst_pred, srcs, original.guard) == (op2, dst2, dst_pred2, srcs2, probed.guard),
            _ => original == probed,
        }
    }
}

fn advance((block, index): Place) -> Place {
    (block, index + 1)
}

fn touches(inst: &Inst, setp: &Inst) -> bool {
    let (mut reads, mut found) = (Vec::new(), false);
    setp.for_each_use(|r| reads.push(r));
    let mut answers = Vec::new();
    setp.for_each_def(|r| answers.push(r));
    inst.for_each_def(|r| found |= reads.contains(&r) || answers.contains(&r));
    inst.for_each_use(|r| found |= answers.contains(&r));
    found
}

fn redefines(inst: &Inst, reg: Option<RegId>) -> bool {
    let mut found = false;
    inst.for_each_def(|r| found |= Some(r) == reg);
    found
}

/// The predicate of `inst`, if it is `setp` with one operand replaced by a new register.
fn chunk_test(setp: &Inst, inst: &Inst, num_registers: usize) -> Option<RegId> {
    let Op::Setp {
        cmp,
        ty,
        a,
        b,
        combine: None,
        ..
    } = &setp.op
    else {
        return None;
    };
    let Op::Setp {
        cmp: cmp2,
        ty: ty2,
        dst,
        dst_not: None,
        a: a2,
        b: b2,
        combine: None,
        ..
    } = &inst.op
    else {
        return None;
    };
    let is_new = |o: &Operand| matches!(o, Operand::Reg(r) if r.index() >= num_registers);
    let is_weaker = (a == a2 && is_new(b2)) || (b == b2 && is_new(a2));
    (cmp == cmp2 && ty == ty2 && is_weaker && setp.guard.is_none() && inst.guard.is_none()).then_some(*dst)
}

/// Equal, but for the blocks they go to and what the passes fill in.
fn is_same_end(original: &Terminator, probed: &Terminator) -> bool {
    match (original, probed) {
        (Terminator::Branch { guard, .. }, Terminator::Branch { guard: guard2, .. }) => guard == guard2,
        (Terminator::Exit, Terminator::Exit) | (Terminator::Trap, Terminator::Trap) => true,
        (
            Terminator::Barrier {
                id, count, reduction, ..
            },
            Terminator::Barrier {
                id: id2,
                count: count2,
                reduction: reduction2,
                ..
            },
        ) => (id, count, reduction) == (id2, count2, reduction2),
        _ => false,
    }
}
