//! Where a program counts on a warp's lanes running in step.
//!
//! Before there were `shfl` and `bar.warp.sync`, lanes exchanged values through volatile shared memory with no
//! barrier: a GPU executes an instruction for all lanes before the next one. Other devices run threads one after
//! another, so the front end says where that order matters: before a volatile access of shared memory that conflicts
//! with an access since the threads last met, as two do of which one at least writes. Which lanes touch the same bytes
//! is not asked.
//!
//! Code of warps that act as one, such as a lock that one lane gives back for all, counts on the same order at memory
//! barriers. So those are such places too, in kernels with warp-level operations.
//!
//! And a program may have one thread read what the others have just written, or a neighbour's value, without a barrier
//! ([`unsynchronized`]), in whatever memory. A step stands before such a load, or before the outermost loop around it,
//! where that costs next to nothing: not where each iteration of a loop would need one.
//!
//! A thread that waits at a step, or at an operation for some lanes of its warp, may hold a lock for which others spin.
//! So in kernels that have such, loops that do nothing but spin have a step, too: else the others would never come to
//! where they let it go on.
//!
//! # Source
//! "Warp-synchronous programming": "CUDA C Programming Guide" before CUDA 9; NVIDIA's samples `reduction`, `histogram`.

use std::collections::BTreeSet;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::definitions::Location;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::analysis::unsynchronized::{self, UnsynchronizedRead};
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, Span};
use hetckpt_ir::inst::{ALL_LANES, AtomOp, Inst, Op, Operand, Ordering, Scope, WarpOp};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

/// Puts a step before each such place.
pub(crate) fn insert_steps(kernel: &mut Kernel) {
    insert_where_lanes_exchange(kernel);
    insert_where_others_are_read(kernel);
    insert_where_threads_spin(kernel);
}

/// Rounds in which only the first load of a basic block gets a step: most kernels need one.
const MAX_ROUNDS: usize = 8;

fn insert_where_others_are_read(kernel: &mut Kernel) {
    // A step serves the loads behind it, too.
    for round in 0..=MAX_ROUNDS {
        let mut places = places(kernel, &unsynchronized::find(kernel));
        if places.is_empty() {
            return;
        }
        if round < MAX_ROUNDS {
            places.dedup_by_key(|place| place.block);
        }
        // From behind, so that those before stay where they are.
        places.sort_unstable_by(|a, b| b.cmp(a));
        for Location { block, index } in places {
            let insts = &mut kernel.blocks[block.index()].insts;
            let span = insts.get(index).or(insts.last()).map(|inst| inst.span);
            insts.insert(index, step(span.unwrap_or_default()));
        }
    }
}

/// Where steps serve `reads`, ascending.
fn places(kernel: &Kernel, reads: &[UnsynchronizedRead]) -> Vec<Location> {
    if reads.is_empty() {
        return vec![];
    }
    let cfg = Cfg::new(kernel);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    let mut places = BTreeSet::new();
    for read in reads {
        let Some(outermost) = forest.around(read.load.block).last() else {
            places.insert(read.load);
            continue;
        };
        let outermost = forest.get(outermost);
        if !outermost.contains(read.store.block) {
            let before = cfg.predecessors(outermost.header).iter();
            let before = before.filter(|block| !outermost.contains(**block));
            places.extend(before.map(|&block| Location {
                block,
                index: kernel.blocks[block.index()].insts.len(),
            }));
        }
    }
    places.into_iter().collect()
}

fn insert_where_lanes_exchange(kernel: &mut Kernel) {
    let has_warp_op = kernel.has_warp_op();
    let is_place = |inst: &Inst, since: Accesses| match &inst.op {
        Op::Membar { scope } => has_warp_op && *scope != Scope::Cta,
        op => is_volatile(op) && since.conflicts_with(Accesses::of(op)),
    };
    if !kernel
        .insts()
        .any(|inst| is_volatile(&inst.op) || matches!(inst.op, Op::Membar { .. }))
    {
        return;
    }
    let at_starts = at_starts(kernel, is_place);
    for (block, mut since) in kernel.blocks.iter_mut().zip(at_starts) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for inst in block.insts.drain(..) {
            if is_place(&inst, since) {
                insts.push(step(inst.span));
            }
            since = after(&inst, since, is_place);
            insts.push(inst);
        }
        block.insts = insts;
    }
}

fn insert_where_threads_spin(kernel: &mut Kernel) {
    let may_wait = |inst: &Inst| match inst.op {
        Op::Warp {
            op: WarpOp::Step | WarpOp::ActiveMask,
            ..
        } => true,
        Op::Warp { mask, .. } => mask != Operand::Imm(ALL_LANES),
        _ => false,
    };
    if !kernel.insts().any(may_wait) {
        return;
    }
    let cfg = Cfg::new(kernel);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    let mut places = Vec::new();
    for (id, found) in forest.iter() {
        if found.blocks.iter().all(|&block| forest.innermost(block) == Some(id)) {
            places.extend(what_is_spun_on(kernel, &found.blocks));
        }
    }
    for Location { block, index } in places {
        let insts = &mut kernel.blocks[block.index()].insts;
        let span = insts[index].span;
        insts.insert(index, step(span));
    }
}

/// The instruction by which a loop of `blocks` does nothing but wait for another thread to write something: the only
/// one that others can see, or that sees what they do, and the same each time.
fn what_is_spun_on(kernel: &Kernel, blocks: &[BbId]) -> Option<Location> {
    let mut defined = BTreeSet::new();
    let mut places = Vec::new();
    for &block in blocks {
        if matches!(kernel.blocks[block.index()].terminator, Terminator::Barrier { .. }) {
            return None;
        }
        for (index, inst) in kernel.blocks[block.index()].insts.iter().enumerate() {
            inst.for_each_def(|reg| {
                defined.insert(reg);
            });
            match inst.op {
                Op::Store { .. } | Op::Warp { .. } => return None,
                Op::Load { ordering, .. } if !is_ordered(ordering) => {}
                Op::Load { .. } | Op::Atom { .. } => places.push(Location { block, index }),
                _ => {}
            }
        }
    }
    let [place] = places[..] else { return None };
    let inst = &kernel.blocks[place.block.index()].insts[place.index];
    let mut is_same = true;
    inst.for_each_use(|reg| is_same &= !defined.contains(&reg));
    let may_wait = !matches!(inst.op, Op::Atom { op, .. } if !matches!(op, AtomOp::Exch | AtomOp::Cas));
    (is_same && may_wait).then_some(place)
}

const fn is_ordered(ordering: Ordering) -> bool {
    matches!(ordering, Ordering::Volatile | Ordering::Relaxed | Ordering::Acquire)
}

fn step(span: Span) -> Inst {
    Inst {
        op: Op::Warp {
            op: WarpOp::Step,
            dst: None,
            dst_pred: None,
            srcs: Vec::new(),
            mask: Operand::Imm(ALL_LANES),
            probe: None,
        },
        guard: None,
        span,
    }
}

/// What may have been done with shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Accesses {
    reads: bool,
    writes: bool,
}

impl Accesses {
    fn of(op: &Op) -> Self {
        let (reads, writes) = match op {
            Op::Load {
                space: Space::Shared, ..
            } => (true, false),
            Op::Store {
                space: Space::Shared, ..
            } => (false, true),
            Op::Atom {
                space: Space::Shared, ..
            } => (true, true),
            _ => (false, false),
        };
        Self { reads, writes }
    }

    fn with(self, other: Self) -> Self {
        Self {
            reads: self.reads || other.reads,
            writes: self.writes || other.writes,
        }
    }

    fn conflicts_with(self, next: Self) -> bool {
        (self.writes && (next.reads || next.writes)) || (self.reads && next.writes)
    }
}

fn is_volatile(op: &Op) -> bool {
    matches!(
        op,
        Op::Load {
            space: Space::Shared,
            ordering: Ordering::Volatile,
            ..
        } | Op::Store {
            space: Space::Shared,
            ordering: Ordering::Volatile,
            ..
        }
    )
}

fn after(inst: &Inst, since: Accesses, is_place: impl Fn(&Inst, Accesses) -> bool) -> Accesses {
    let before = match unsynchronized::is_meeting(inst) || is_place(inst, since) {
        true => Accesses::default(),
        false => since,
    };
    before.with(Accesses::of(&inst.op))
}

/// What may have been done at the start of each basic block since the threads last met: forward data flow.
fn at_starts(kernel: &Kernel, is_place: impl Fn(&Inst, Accesses) -> bool + Copy) -> Vec<Accesses> {
    let mut at_starts = vec![Accesses::default(); kernel.blocks.len()];
    let cfg = Cfg::new(kernel);
    let mut changed = true;
    while changed {
        changed = false;
        for &id in cfg.reverse_post_order() {
            let block = &kernel.blocks[id.index()];
            let start = at_starts[id.index()];
            let end = block
                .insts
                .iter()
                .fold(start, |since, inst| after(inst, since, is_place));
            let end = match block.terminator {
                Terminator::Barrier { .. } => Accesses::default(),
                _ => end,
            };
            for next in block.terminator.successors() {
                let joined = at_starts[next.index()].with(end);
                changed |= joined != at_starts[next.index()];
                at_starts[next.index()] = joined;
            }
        }
    }
    at_starts
}
