//! Natural loops and how they nest; retreating edges that belong to none.

use super::cfg::Cfg;
use super::dominators::Dominators;
use crate::entity::BbId;

/// Index of a loop in its [`LoopForest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub usize);

/// A natural loop: the header dominates every block of it. Loops with the same header are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Where the loop is entered.
    pub header: BbId,
    /// Blocks with an edge back to the header, ascending.
    pub latches: Vec<BbId>,
    /// All blocks, those of inner loops included, ascending.
    pub blocks: Vec<BbId>,
    /// The loop around this one.
    pub parent: Option<LoopId>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Edges that leave the loop: from a block of it to one outside.
    pub exits: Vec<(BbId, BbId)>,
}

impl Loop {
    /// True if `block` belongs to the loop or to a loop in it.
    #[must_use]
    pub fn contains(&self, block: BbId) -> bool {
        self.blocks.binary_search(&block).is_ok()
    }
}

/// The loops of a kernel.
#[derive(Clone, Debug)]
pub struct LoopForest {
    loops: Vec<Loop>,
    innermost: Vec<Option<LoopId>>,
    irreducible_edges: Vec<(BbId, BbId)>,
}

impl LoopForest {
    /// Finds the loops among the reachable blocks.
    #[must_use]
    pub fn new(cfg: &Cfg, dominators: &Dominators) -> Self {
        let mut irreducible_edges = Vec::new();
        let mut loops = Vec::new();
        // Headers in reverse post-order: an outer loop's header stands before those of its inner loops.
        for &header in cfg.reverse_post_order() {
            let retreating: Vec<BbId> = cfg
                .predecessors(header)
                .iter()
                .copied()
                .filter(|p| cfg.is_reachable(*p) && cfg.position(*p) >= cfg.position(header))
                .collect();
            let (latches, others): (Vec<BbId>, Vec<BbId>) =
                retreating.into_iter().partition(|p| dominators.dominates(header, *p));
            irreducible_edges.extend(others.into_iter().map(|p| (p, header)));
            if !latches.is_empty() {
                loops.push(natural_loop(cfg, header, latches));
            }
        }
        let mut innermost: Vec<Option<LoopId>> = vec![None; cfg.num_blocks()];
        for i in 0..loops.len() {
            // What its header was in before is the loop around it; later loops are inside or apart.
            let parent = innermost[loops[i].header.index()];
            loops[i].parent = parent;
            loops[i].depth = parent.map_or(1, |p| loops[p.0].depth + 1);
            for block in &loops[i].blocks {
                innermost[block.index()] = Some(LoopId(i));
            }
        }
        Self {
            loops,
            innermost,
            irreducible_edges,
        }
    }

    /// All loops, outer ones before their inner ones.
    pub fn iter(&self) -> impl Iterator<Item = (LoopId, &Loop)> {
        self.loops.iter().enumerate().map(|(i, l)| (LoopId(i), l))
    }

    /// One loop.
    #[must_use]
    pub fn get(&self, id: LoopId) -> &Loop {
        &self.loops[id.0]
    }

    /// Number of loops.
    #[must_use]
    pub fn len(&self) -> usize {
        self.loops.len()
    }

    /// True if there is no loop (an irreducible cycle is none).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.loops.is_empty()
    }

    /// The innermost loop around a block.
    #[must_use]
    pub fn innermost(&self, block: BbId) -> Option<LoopId> {
        self.innermost[block.index()]
    }

    /// The loops around a block, innermost first.
    pub fn around(&self, block: BbId) -> impl Iterator<Item = LoopId> + '_ {
        std::iter::successors(self.innermost(block), |l| self.get(*l).parent)
    }

    /// Retreating edges whose target does not dominate their source: cycles with more than one entry.
    #[must_use]
    pub fn irreducible_edges(&self) -> &[(BbId, BbId)] {
        &self.irreducible_edges
    }

    /// True if every cycle is a natural loop.
    #[must_use]
    pub fn is_reducible(&self) -> bool {
        self.irreducible_edges.is_empty()
    }
}

fn natural_loop(cfg: &Cfg, header: BbId, latches: Vec<BbId>) -> Loop {
    let mut inside = vec![false; cfg.num_blocks()];
    inside[header.index()] = true;
    let mut work = latches.clone();
    while let Some(block) = work.pop() {
        if !inside[block.index()] {
            inside[block.index()] = true;
            work.extend(cfg.predecessors(block).iter().copied().filter(|p| cfg.is_reachable(*p)));
        }
    }
    let blocks: Vec<BbId> = (0..)
        .map(BbId)
        .zip(&inside)
        .filter(|(_, inside)| **inside)
        .map(|(b, _)| b)
        .collect();
    let edges = blocks
        .iter()
        .flat_map(|b| cfg.successors(*b).iter().map(move |s| (*b, *s)));
    let exits = edges.filter(|(_, to)| !inside[to.index()]).collect();
    Loop {
        header,
        latches,
        blocks,
        parent: None,
        depth: 1,
        exits,
    }
}
