//! Landings: where threads that go in rounds come together and go on as they would from the kernel's start.
//!
//! Rounds ([`super::rounds`]) start threads anywhere, but cost tens of times what the kernel costs, for as long as it
//! goes on. So each long outermost loop has a landing: a barrier in it, or a warp-level operation where there is none.
//! When all threads of a block have come there in one round, and none has ended, the block leaves the rounds and runs
//! the rest as threads do that are together ([`super::native_barriers`]). The loop is another one then, which begins in
//! that place. [`super::leave_rounds`] writes what they do there.

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::analysis::short_loops;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::{BbId, ResumePointId};
use hetckpt_ir::inst::Op;
use hetckpt_ir::kernel::Kernel;

use super::divergent_branches::DivergentBranches;

/// Landings of a kernel; each is a copy of the code, over which compilers take their time.
const MAX_LANDINGS: usize = 3;

/// Where all threads of a block may go on together.
pub(super) struct Landing {
    /// They wait here.
    pub arrive: ResumePointId,
    /// Where they go on: what they wait at comes first.
    pub start: BbId,
    /// They wait at a warp-level operation.
    pub is_warp_op: bool,
    /// How they go through the rest together.
    pub divergence: DivergentBranches,
}

impl Landing {
    /// The landings of a kernel.
    pub fn all(kernel: &Kernel) -> Vec<Self> {
        let cfg = Cfg::new(kernel);
        let dominators = Dominators::new(&cfg);
        let forest = LoopForest::new(&cfg, &dominators);
        let mut landings = Vec::new();
        for &header in cfg.reverse_post_order() {
            let Some((id, outermost)) = forest.iter().find(|(_, l)| l.header == header && l.parent.is_none()) else {
                continue;
            };
            if short_loops::is_short(kernel, &dominators, &forest, id) {
                continue;
            }
            let is_always = |block: BbId| {
                outermost
                    .latches
                    .iter()
                    .all(|latch| dominators.dominates(block, *latch))
            };
            let inside = cfg
                .reverse_post_order()
                .iter()
                .filter(|block| outermost.contains(**block));
            let mut meetings: Vec<_> = inside.filter_map(|&block| meeting(kernel, block)).collect();
            meetings.sort_by_key(|&(arrive, is_warp_op)| {
                let block = kernel.resume_points[arrive.index()].block;
                (is_warp_op, !is_always(block), forest.around(block).count())
            });
            let landing = meetings.into_iter().find_map(|(arrive, is_warp_op)| {
                let start = kernel.resume_points[arrive.index()].block;
                let divergence = DivergentBranches::of(kernel, start)?;
                Some(Self {
                    arrive,
                    start,
                    is_warp_op,
                    divergence,
                })
            });
            landings.extend(landing);
        }
        landings.truncate(MAX_LANDINGS);
        landings
    }
}

/// The meeting in a basic block, if there is one, and whether it is a warp-level operation.
fn meeting(kernel: &Kernel, block: BbId) -> Option<(ResumePointId, bool)> {
    let block = &kernel.blocks[block.index()];
    let of_lanes = block.insts.iter().find_map(|inst| match &inst.op {
        Op::Warp { probe: Some(probe), .. } => Some((probe.arrive, true)),
        _ => None,
    });
    of_lanes.or(match block.terminator {
        Terminator::Barrier { probe: Some(probe), .. } => Some((probe.arrive, false)),
        _ => None,
    })
}
