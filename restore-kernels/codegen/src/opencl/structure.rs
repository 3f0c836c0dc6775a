//! Which `if`, `for` and label each basic block goes to: control flow back in the form that C has for it.
//!
//! The dominator tree is written as nested statements. A block with one way in stands inside the branch that leads to
//! it; one where ways meet stands after the statement of its immediate dominator; what a loop leads to stands after the
//! loop. A way that is not the next statement is `continue` or `break` of the innermost loop, else a `goto` outwards.
//! So each cycle is one `for` with one entry, as compilers need it that cut kernels at barriers. Rejected: a switch in
//! a loop, which hides from them which threads come to a barrier together.
//!
//! # Source
//! Ramsey, "Beyond Relooper: Recursive Translation of Unstructured Control Flow to Structured Control Flow" (2022).

use hetckpt_ir::analysis::cfg::Cfg;
use hetckpt_ir::analysis::dominators::Dominators;
use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::BbId;
use hetckpt_ir::inst::{Inst, Op};
use hetckpt_ir::kernel::Kernel;

/// Places of the basic blocks.
#[derive(Debug)]
pub(super) struct Structure {
    /// The graph.
    pub cfg: Cfg,
    dominators: Dominators,
    is_reducible: bool,
    is_header: Vec<bool>,
    /// Blocks that stand after a block's own code, in order.
    inside: Vec<Vec<BbId>>,
    /// Blocks that stand after the loop of a header, in order.
    after_loop: Vec<Vec<BbId>>,
    /// Stands in one of these lists.
    is_placed: Vec<bool>,
}

/// Where control flow ends, besides the kernel's own ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nowhere.
    Nowhere,
    /// Where threads wait for others.
    WhereThreadsWait,
}

/// What is around a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surroundings {
    /// The block that control comes to by going on.
    pub next: Option<BbId>,
    /// The header of the innermost loop.
    pub continues_to: Option<BbId>,
    /// What stands after the innermost loop.
    pub breaks_to: Option<BbId>,
    /// The condition under which a thread is here at all, by number.
    pub mask: Option<usize>,
}

/// How control gets to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// By going on.
    Next,
    /// `continue`, to the header of the innermost loop.
    Continue(BbId),
    /// `break`.
    Break,
    /// `goto`.
    Goto(BbId),
    /// It is written here.
    Here(BbId),
}

impl Structure {
    /// Finds the place of each block that threads reach from `start`.
    pub fn new(kernel: &Kernel, start: BbId, cut: Cut) -> Self {
        let cfg = Cfg::new(&region_of(kernel, start, cut));
        let dominators = Dominators::new(&cfg);
        let forest = LoopForest::new(&cfg, &dominators);
        let n = cfg.num_blocks();
        let mut structure = Self {
            is_reducible: forest.is_reducible(),
            is_header: vec![false; n],
            inside: vec![Vec::new(); n],
            after_loop: vec![Vec::new(); n],
            is_placed: vec![false; n],
            cfg,
            dominators,
        };
        for (_, each) in forest.iter() {
            structure.is_header[each.header.index()] = true;
        }
        for i in 0..structure.cfg.reverse_post_order().len() {
            let block = structure.cfg.reverse_post_order()[i];
            structure.place(&forest, block);
        }
        structure
    }

    /// True if every cycle has one entry.
    pub fn is_reducible(&self) -> bool {
        self.is_reducible
    }

    /// True if a loop starts at the block.
    pub fn is_header(&self, block: BbId) -> bool {
        self.is_header[block.index()]
    }

    /// Blocks that stand after a block's own code, in order.
    pub fn inside(&self, block: BbId) -> &[BbId] {
        &self.inside[block.index()]
    }

    /// Blocks that stand after the loop of a header, in order.
    pub fn after_loop(&self, header: BbId) -> &[BbId] {
        &self.after_loop[header.index()]
    }

    /// Called in reverse post-order, so that the lists are in that order.
    fn place(&mut self, forest: &LoopForest, block: BbId) {
        let Some(parent) = self.dominators.immediate(block) else {
            return;
        };
        let left = forest.around(parent).filter(|l| !forest.get(*l).contains(block)).last();
        let ways_in = self.cfg.predecessors(block).iter();
        let ways_in = ways_in.filter(|p| self.cfg.is_reachable(**p) && !self.dominators.dominates(block, **p));
        if let Some(left) = left {
            self.after_loop[forest.get(left).header.index()].push(block);
        } else if ways_in.count() > 1 {
            self.inside[parent.index()].push(block);
        } else {
            return;
        }
        self.is_placed[block.index()] = true;
    }

    /// How control gets from `from` to `to`.
    pub fn route(&self, from: BbId, to: BbId, around: &Surroundings) -> Route {
        if around.next == Some(to) {
            Route::Next
        } else if around.continues_to == Some(to) {
            Route::Continue(to)
        } else if around.breaks_to == Some(to) {
            Route::Break
        } else if self.is_placed[to.index()] || self.dominators.dominates(to, from) {
            Route::Goto(to)
        } else {
            Route::Here(to)
        }
    }
}

/// True if threads wait at the end of this block, or at its only instruction.
fn waits(block: &BasicBlock) -> bool {
    let is_warp_op = |inst: &Inst| matches!(inst.op, Op::Warp { .. });
    matches!(block.terminator, Terminator::Barrier { .. }) || block.insts.iter().any(is_warp_op)
}

/// Control flow alone, entered at `start`.
fn region_of(kernel: &Kernel, start: BbId, cut: Cut) -> Kernel {
    let blocks = kernel.iter_blocks().map(|(id, block)| {
        let terminator = if id == Kernel::ENTRY && start != Kernel::ENTRY {
            // Nothing leads to the entry, so it is free.
            Terminator::Jump(start)
        } else if cut == Cut::WhereThreadsWait && waits(block) {
            Terminator::Exit
        } else {
            block.terminator.clone()
        };
        BasicBlock {
            insts: Vec::new(),
            terminator,
            span: block.span,
        }
    });
    Kernel {
        name: String::new(),
        params: Vec::new(),
        registers: Vec::new(),
        blocks: blocks.collect(),
        shared: Default::default(),
        local: Default::default(),
        bounds: Default::default(),
        multiplies_matrices: false,
        reads_images: false,
        holds_functions: false,
        has_call_stack: false,
        resume_points: Vec::new(),
    }
}

/// A block in which nothing stands but the end.
pub(super) fn is_bare_end(block: &BasicBlock) -> bool {
    block.insts.is_empty() && matches!(block.terminator, Terminator::Exit)
}
