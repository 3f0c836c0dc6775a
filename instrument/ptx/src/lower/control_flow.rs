//! Basic blocks while they are drafted, and their final order.
//!
//! The order is that of the text, unreachable blocks left out. The entry is a block of its own before the first label,
//! so it has no predecessors.

use hetckpt_ir::basic_block::{BasicBlock, Terminator};
use hetckpt_ir::entity::{BbId, Span};
use hetckpt_ir::inst::Inst;

/// A drafted block; labels get theirs before the text reaches them. As a [`BbId`] until the order is final.
pub(crate) type DraftId = BbId;

#[derive(Default)]
struct Draft {
    insts: Vec<Inst>,
    terminator: Option<(Terminator, Span)>,
}

/// All blocks of one kernel.
pub(crate) struct Drafts {
    drafts: Vec<Draft>,
    /// Blocks in the order of the text.
    order: Vec<DraftId>,
    current: Option<DraftId>,
}

impl Drafts {
    /// With the entry block open.
    pub(crate) fn new() -> Self {
        let mut drafts = Self {
            drafts: Vec::new(),
            order: Vec::new(),
            current: None,
        };
        let entry = drafts.reserve();
        drafts.start(entry);
        drafts
    }

    /// A block that starts later.
    pub(crate) fn reserve(&mut self) -> DraftId {
        let id = BbId::from_index(self.drafts.len());
        self.drafts.push(Draft::default());
        id
    }

    /// Ends the open block, if any, with a jump to `block`, which is open from now on.
    pub(crate) fn start(&mut self, block: DraftId) {
        if self.current.is_some() {
            self.terminate(Terminator::Jump(block), Span::default());
        }
        self.order.push(block);
        self.current = Some(block);
    }

    /// The block being written, and how many instructions it has. After a terminator: a new, unreachable one.
    pub(crate) fn position(&mut self) -> (DraftId, usize) {
        let current = match self.current {
            Some(current) => current,
            None => {
                let block = self.reserve();
                self.start(block);
                block
            }
        };
        (current, self.drafts[current.index()].insts.len())
    }

    pub(crate) fn push(&mut self, inst: Inst) {
        let (current, _) = self.position();
        self.drafts[current.index()].insts.push(inst);
    }

    /// Ends the open block.
    pub(crate) fn terminate(&mut self, terminator: Terminator, span: Span) {
        let (current, _) = self.position();
        self.drafts[current.index()].terminator = Some((terminator, span));
        self.current = None;
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.current.is_some()
    }

    pub(crate) fn inst_mut(&mut self, at: (DraftId, usize)) -> Option<&mut Inst> {
        self.drafts.get_mut(at.0.index())?.insts.get_mut(at.1)
    }

    /// The reachable blocks in the order of the text, and which of them each drafted block has become.
    pub(crate) fn finish(mut self, end: Span) -> (Vec<BasicBlock>, Vec<Option<BbId>>) {
        if self.is_open() {
            self.terminate(Terminator::Exit, end);
        }
        let mut reachable = vec![false; self.drafts.len()];
        let mut work = vec![BbId(0)];
        while let Some(id) = work.pop() {
            if std::mem::replace(&mut reachable[id.index()], true) {
                continue;
            }
            if let Some((terminator, _)) = &self.drafts[id.index()].terminator {
                work.extend(terminator.successors());
            }
        }
        let mut final_id = vec![None; self.drafts.len()];
        self.order.retain(|id| reachable[id.index()]);
        for (new, old) in (0u32..).zip(&self.order) {
            final_id[old.index()] = Some(BbId(new));
        }
        let mut blocks = Vec::with_capacity(self.order.len());
        for old in self.order {
            let draft = std::mem::take(&mut self.drafts[old.index()]);
            let (mut terminator, span) = draft.terminator.unwrap_or((Terminator::Exit, end));
            // What a block leads to is as reachable as it.
            terminator.map_successors(|s| final_id[s.index()].unwrap_or(BbId(0)));
            blocks.push(BasicBlock {
                insts: draft.insts,
                terminator,
                span,
            });
        }
        (blocks, final_id)
    }
}
