//! Copies the rest of a loop's iteration in front of the loop.
//!
//! For a basic block in loops L1 ⊃ L2 ⊃ … ⊃ Ln (outermost first) there is one partial copy of each loop, holding what
//! is left of its iteration from some block in it on, inner loops as a whole:
//!
//! ```text
//! enter(block in Ln) ─▶ copy of Ln ──edge to Ln's header──▶ Ln as a whole inside the copy of Ln-1 ─▶ … ─▶ L1 itself
//! ```
//!
//! So each loop, the original and those inside copies, is entered through its header only. A copy depends on its loop
//! alone: all resume points in a loop share it.

use std::collections::BTreeMap;

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::Kernel;

/// Adds copies to a kernel.
pub struct Peeler {
    kernel: Kernel,
    /// Headers of the loops around each basic block of the original kernel, outermost first; a header's own loop is
    /// last.
    loops_around: Vec<Vec<BbId>>,
    /// Copies: (header of the loop copied, original block) → copy.
    copies: BTreeMap<(BbId, BbId), BbId>,
    /// Copies whose successors still are those of the original.
    unresolved: Vec<(BbId, BbId)>,
}

impl Peeler {
    /// Starts with a copy of `kernel`.
    pub fn new(kernel: &Kernel) -> Self {
        Self {
            kernel: kernel.clone(),
            loops_around: loops_around(kernel),
            copies: BTreeMap::new(),
            unresolved: Vec::new(),
        }
    }

    /// Where a thread that is to go on at the start of `block` enters, coming from outside all loops.
    pub fn enter_at(&mut self, block: BbId) -> BbId {
        let around = self.loops_around[block.index()].clone();
        let entry = self.resolve(&around, block);
        while let Some((header, original)) = self.unresolved.pop() {
            self.connect(header, original);
        }
        entry
    }

    /// The kernel with all copies.
    pub fn finish(self) -> Kernel {
        self.kernel
    }

    /// Gives the copy its successors.
    fn connect(&mut self, header: BbId, original: BbId) {
        let around = self.loops_around[header.index()].clone();
        let mut terminator = self.kernel.blocks[original.index()].terminator.clone();
        terminator.map_successors(|target| self.resolve(&around, target));
        let copy = self.copies[&(header, original)];
        self.kernel.blocks[copy.index()].terminator = terminator;
    }

    /// What stands for `target` in the copy of the innermost of the loops `around`.
    fn resolve(&mut self, around: &[BbId], target: BbId) -> BbId {
        let is_in = |header: BbId| self.loops_around[target.index()].contains(&header);
        match around.iter().rev().find(|&&header| header != target && is_in(header)) {
            Some(&header) => self.copy_of(header, target),
            None => target,
        }
    }

    fn copy_of(&mut self, header: BbId, original: BbId) -> BbId {
        if let Some(&copy) = self.copies.get(&(header, original)) {
            return copy;
        }
        let copy = self.kernel.blocks[original.index()].clone();
        let copy = self.kernel.add_block(copy);
        self.copies.insert((header, original), copy);
        self.unresolved.push((header, original));
        copy
    }
}

fn loops_around(kernel: &Kernel) -> Vec<Vec<BbId>> {
    let cfg = Cfg::new(kernel);
    let forest = LoopForest::new(&cfg, &Dominators::new(&cfg));
    let headers = |block| {
        let mut headers: Vec<BbId> = forest.around(block).map(|id| forest.get(id).header).collect();
        headers.reverse();
        headers
    };
    kernel.iter_blocks().map(|(block, _)| headers(block)).collect()
}
