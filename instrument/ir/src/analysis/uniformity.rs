//! Which registers and branches are the same for all threads of a block, or of a warp.
//!
//! Conservative and insensitive to order: a register is as divergent as the worst of its writes anywhere in the kernel.
//! "The same" means: the threads that have not exited hold equal values whenever they have come the same way. A write
//! is as divergent as its operands, its guard, and every branch that decides whether it happens (control dependence);
//! so a value written in a loop with a divergent exit is divergent. A branch to a block that does nothing but exit
//! decides nothing for the threads that remain.
//!
//! # Source
//! Divergent sources: `tid`, `laneid`, clocks, atomics, loads of memory that others may be writing, shuffles.

use super::cfg::Cfg;
use super::definitions::Definitions;
use super::dominators::PostDominators;
use crate::basic_block::{BasicBlock, Terminator};
use crate::entity::{BbId, RegId};
use crate::inst::{Address, AddressBase, Inst, Op, Operand, Ordering, SpecialReg, WarpOp};
use crate::kernel::Kernel;
use crate::types::Space;

/// How far a value or a decision is shared; greater is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Divergence {
    /// The same for all threads of a block.
    #[default]
    BlockUniform,
    /// The same for all lanes of a warp.
    WarpUniform,
    /// Perhaps different from thread to thread.
    Divergent,
}

/// Divergence of registers, blocks and branches.
#[derive(Clone, Debug)]
pub struct Uniformity {
    registers: Vec<Divergence>,
    control: Vec<Divergence>,
    branches: Vec<Divergence>,
}

impl Uniformity {
    /// Computes it for `kernel`.
    #[must_use]
    pub fn new(kernel: &Kernel, definitions: &Definitions) -> Self {
        let (controllers, is_known) = controllers(kernel);
        let n = kernel.blocks.len();
        let mut result = Self {
            registers: vec![Divergence::BlockUniform; kernel.registers.len()],
            control: is_known
                .into_iter()
                .map(|k| {
                    if k {
                        Divergence::BlockUniform
                    } else {
                        Divergence::Divergent
                    }
                })
                .collect(),
            branches: vec![Divergence::BlockUniform; n],
        };
        let mut changed = true;
        while changed {
            changed = false;
            for (id, block) in kernel.iter_blocks() {
                let i = id.index();
                let decided = controllers[i]
                    .iter()
                    .map(|b| result.branches[b.index()])
                    .max()
                    .unwrap_or_default();
                changed |= raise(&mut result.control[i], decided);
                let control = result.control[i];
                changed |= result.visit(kernel, definitions, block, control);
                if let Terminator::Branch { guard, .. } = &block.terminator {
                    let level = control.max(result.registers[guard.pred.index()]);
                    changed |= raise(&mut result.branches[i], level);
                }
            }
        }
        result
    }

    /// Divergence of a register.
    #[must_use]
    pub fn register(&self, reg: RegId) -> Divergence {
        self.registers[reg.index()]
    }

    /// Divergence of the decisions that lead to a block: block-uniform if all remaining threads come through it alike.
    #[must_use]
    pub fn control(&self, block: BbId) -> Divergence {
        self.control[block.index()]
    }

    /// Divergence of the branch that ends a block, what decides whether it is reached included; block-uniform for other
    /// terminators.
    #[must_use]
    pub fn branch(&self, block: BbId) -> Divergence {
        self.branches[block.index()]
    }

    fn visit(&mut self, kernel: &Kernel, definitions: &Definitions, block: &BasicBlock, control: Divergence) -> bool {
        let mut changed = false;
        for inst in &block.insts {
            let guard = inst.guard.map_or(Divergence::BlockUniform, |g| self.register(g.pred));
            let level = control.max(guard).max(self.result(kernel, definitions, inst));
            inst.for_each_def(|r| changed |= raise(&mut self.registers[r.index()], level));
        }
        if let Terminator::Barrier { reduction: Some(r), .. } = &block.terminator {
            changed |= raise(&mut self.registers[r.dst.index()], control);
        }
        changed
    }

    /// Divergence of an instruction's results, guard and control apart.
    fn result(&self, kernel: &Kernel, definitions: &Definitions, inst: &Inst) -> Divergence {
        match &inst.op {
            Op::ReadSpecial { special, .. } => special_register(*special),
            Op::Load {
                space: Space::Param,
                addr,
                ..
            }
            | Op::Load {
                ordering: Ordering::NonCoherent,
                addr,
                ..
            } => self.address(addr),
            Op::Load { .. } | Op::Atom { .. } | Op::Opaque { .. } => Divergence::Divergent,
            Op::Warp { op, srcs, mask, .. } => {
                let mask = definitions.constant(kernel, *mask);
                let is_whole_warp = mask.is_some_and(|m| m & u64::from(u32::MAX) == u64::from(u32::MAX));
                if is_whole_warp {
                    self.warp_op(*op, srcs)
                } else {
                    Divergence::Divergent
                }
            }
            other => {
                let mut level = Divergence::BlockUniform;
                other.for_each_use(|r| level = level.max(self.register(r)));
                level
            }
        }
    }

    fn warp_op(&self, op: WarpOp, srcs: &[Operand]) -> Divergence {
        match (op, srcs) {
            // One lane's value for the whole warp: clamp 31, no segments.
            (WarpOp::ShflIdx, [_, lane, Operand::Imm(31)]) => self.operand(*lane).max(Divergence::WarpUniform),
            (
                WarpOp::VoteAll
                | WarpOp::VoteAny
                | WarpOp::VoteUni
                | WarpOp::VoteBallot
                | WarpOp::MatchAll(_)
                | WarpOp::Redux(..),
                _,
            ) => Divergence::WarpUniform,
            _ => Divergence::Divergent,
        }
    }

    fn operand(&self, operand: Operand) -> Divergence {
        match operand {
            Operand::Reg(reg) => self.register(reg),
            Operand::Imm(_) => Divergence::BlockUniform,
        }
    }

    fn address(&self, addr: &Address) -> Divergence {
        match addr.base {
            AddressBase::Reg(reg) => self.register(reg),
            AddressBase::Global(_) | AddressBase::Absolute => Divergence::BlockUniform,
        }
    }
}

fn raise(level: &mut Divergence, to: Divergence) -> bool {
    let is_higher = to > *level;
    *level = to.max(*level);
    is_higher
}

fn special_register(special: SpecialReg) -> Divergence {
    use SpecialReg as S;
    match special {
        S::Ntid(_) | S::Ctaid(_) | S::Nctaid(_) | S::NWarpId | S::DynamicSmemSize | S::TotalSmemSize => {
            Divergence::BlockUniform
        }
        S::GridId => Divergence::BlockUniform,
        S::WarpId => Divergence::WarpUniform,
        // `smid` and `nsmid` may change while a block runs: it can be paused and go on elsewhere.
        S::SmId | S::NSmId => Divergence::Divergent,
        S::Tid(_) | S::LaneId => Divergence::Divergent,
        S::LaneMaskEq | S::LaneMaskLe | S::LaneMaskLt | S::LaneMaskGe | S::LaneMaskGt => Divergence::Divergent,
        S::Clock | S::Clock64 | S::GlobalTimer => Divergence::Divergent,
    }
}

/// For each block the branches that decide, directly, whether it is reached (control dependence), with edges to blocks
/// that only exit taken out where the branch has another way to go. And whether the block can still be reached then.
fn controllers(kernel: &Kernel) -> (Vec<Vec<BbId>>, Vec<bool>) {
    let is_bare_exit = |b: &BbId| {
        let block = &kernel.blocks[b.index()];
        block.insts.is_empty() && matches!(block.terminator, Terminator::Exit | Terminator::Trap)
    };
    let edges = kernel.blocks.iter().map(|block| {
        let mut successors = block.terminator.successors();
        if !successors.iter().all(is_bare_exit) {
            successors.retain(|s| !is_bare_exit(s));
        }
        successors
    });
    let cfg = Cfg::from_edges(edges.collect());
    let post_dominators = PostDominators::new(&cfg);
    let mut controllers = vec![Vec::new(); kernel.blocks.len()];
    for &branch in cfg.reverse_post_order() {
        let stop = post_dominators.immediate(branch);
        if cfg.successors(branch).len() < 2 {
            continue; // a branch that lost an edge decides nothing for the threads that remain
        }
        for &successor in cfg.successors(branch) {
            let mut at = Some(successor);
            while at != stop {
                let Some(block) = at else { break };
                if !controllers[block.index()].contains(&branch) {
                    controllers[block.index()].push(branch);
                }
                at = post_dominators.immediate(block);
            }
        }
    }
    let is_reachable = kernel.iter_blocks().map(|(id, _)| cfg.is_reachable(id)).collect();
    (controllers, is_reachable)
}
