//! Decides how each loop polls.

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::definitions::Definitions;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::induction;
use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::analysis::loops::{Loop, LoopForest};
use hetckpt_ir::analysis::uniformity::{Divergence, Uniformity};
use hetckpt_ir::basic_block::BasicBlock;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Space;

use crate::nest::{LoopId, Nest};
use crate::options::Options;
use crate::{strip_mine_loops, unroll_with_exits};

/// Instructions that an access to device memory counts for. A loop that does little else takes as long per instruction
/// as the memory lets it: about this much longer where all threads of a GPU stream through memory.
const MEMORY_WORK: u32 = 16;

/// Instructions that a `nanosleep` counts for. It takes up to a millisecond, so that a loop that sleeps polls each
/// time.
const SLEEP_WORK: u32 = 1 << 20;

/// How a loop is to poll.
#[derive(Clone, Debug)]
pub enum How {
    /// Strip-mined.
    StripMine(strip_mine_loops::Plan),
    /// A countdown, after so many bodies (1: the loop as it is).
    CountDown {
        /// Bodies.
        factor: u32,
    },
    /// Not at all: each iteration passes a barrier, and the loop is not affine, holds strip-mined loops, or is not gone
    /// round by the block together.
    HasBarrier,
}

/// What is to be done to one loop.
#[derive(Clone, Debug)]
pub struct PlannedLoop {
    /// The loop.
    pub id: LoopId,
    /// Outermost loop of those around it that share a fuel register with it.
    pub root: LoopId,
    /// Instructions in one iteration, inner loops counted once: what they burn no fuel for (all bodies of an unrolled
    /// one, which may be left before its countdown).
    pub work: u32,
    /// How it is to poll.
    pub how: How,
}

/// The loops of `kernel`, barriers and warp-level operations split, and what is to be done to each that is reachable.
pub fn plan(kernel: &Kernel, options: &Options) -> (Nest, Vec<PlannedLoop>) {
    let cfg = Cfg::new(kernel);
    let dominators = Dominators::new(&cfg);
    let forest = LoopForest::new(&cfg, &dominators);
    let nest = Nest::new(kernel, &forest);
    let definitions = Definitions::new(kernel);
    let liveness = Liveness::new(kernel);
    let uniformity = Uniformity::new(kernel, &definitions);
    let polls: Vec<bool> = nest
        .ids()
        .map(|id| nest.can_iterate_without_barrier(kernel, id))
        .collect();
    let mut planned: Vec<PlannedLoop> = Vec::new();
    let loops: Vec<_> = forest.iter().collect();
    // Inner loops first: what they come to is part of the work of those around them.
    for &(forest_id, natural) in loops.iter().rev() {
        let id = LoopId(forest_id.0);
        let own = natural
            .blocks
            .iter()
            .filter(|b| forest.innermost(**b) == Some(forest_id));
        let own: Vec<_> = own.map(|b| &kernel.blocks[b.index()]).collect();
        let size = own.iter().map(|block| block.insts.len() + 1).sum::<usize>();
        let own = own.iter().map(|block| work_of(block)).fold(0, u32::saturating_add);
        let inner = planned
            .iter()
            .filter(|inner| nest.parent(inner.id) == Some(id))
            .map(PlannedLoop::work_once);
        let work = inner.fold(own, u32::saturating_add);
        let holds = |wanted: fn(&How) -> bool| {
            let mut inside = planned.iter().filter(|inner| nest.is_inside(inner.id, id));
            inside.any(|inner| wanted(&inner.how))
        };
        // Loops inside that count down go on counting from one iteration to the next, and poll by themselves; but their
        // register is filled where the outermost loop is entered. Chunks of strip-mined ones do not add up over the
        // iterations of this one.
        let is_root = !nest.parent(id).is_some_and(|outer| polls[outer.0]);
        let may_strip_mine = !holds(|how| matches!(how, How::StripMine(_)))
            && (is_root || !holds(|how| matches!(how, How::CountDown { .. })))
            && (polls[id.0] || passes_together(&uniformity, natural));
        let chunk = (options.budget_insts / work).clamp(1, options.max_chunk.max(1));
        let strip_mining = || {
            let induction = induction::find(kernel, &definitions, &dominators, &forest, forest_id)?;
            strip_mine_loops::plan(kernel, &liveness, induction, chunk)
        };
        let how = if let Some(plan) = may_strip_mine.then(strip_mining).flatten() {
            How::StripMine(plan)
        } else if !polls[id.0] {
            How::HasBarrier
        } else if unroll_with_exits::is_candidate(kernel, natural.header) {
            How::CountDown {
                factor: unroll_with_exits::factor(size, options.max_unroll, options.max_unrolled_insts),
            }
        } else {
            How::CountDown { factor: 1 }
        };
        let mut root = id;
        while let Some(outer) = nest.parent(root).filter(|outer| polls[outer.0]) {
            root = outer;
        }
        planned.push(PlannedLoop { id, root, work, how });
    }
    planned.reverse();
    (nest, planned)
}

/// What a block costs, in instructions: those that wait for memory take as long as many others.
fn work_of(block: &BasicBlock) -> u32 {
    let work = block.insts.iter().map(|inst| match &inst.op {
        Op::Load { space, .. } | Op::Store { space, .. } | Op::Atom { space, .. }
            if matches!(space, Space::Global | Space::Generic) =>
        {
            MEMORY_WORK
        }
        Op::Nanosleep { .. } => SLEEP_WORK,
        _ => 1,
    });
    work.fold(1, u32::saturating_add)
}

/// True if all threads of a block go round the loop together.
fn passes_together(uniformity: &Uniformity, natural: &Loop) -> bool {
    let is_uniform = |b: &BbId| uniformity.branch(*b) == Divergence::BlockUniform;
    uniformity.control(natural.header) == Divergence::BlockUniform
        && natural.latches.iter().all(is_uniform)
        && natural.exits.iter().all(|(from, _)| is_uniform(from))
}

impl PlannedLoop {
    /// Instructions a thread may execute each time it enters the loop without burning fuel for them.
    fn work_once(&self) -> u32 {
        match self.how {
            How::CountDown { factor } => self.work.saturating_mul(factor),
            How::StripMine(_) | How::HasBarrier => self.work,
        }
    }
}
