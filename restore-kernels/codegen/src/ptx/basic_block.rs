//! Basic blocks: their labels, the barriers and tests before and among their instructions.

use hetckpt_ir::entity::{BbId, ResumePointId};

use super::writer::Writer;
use super::{Error, names};

impl Writer<'_> {
    /// Basic blocks, in this order.
    pub(super) fn basic_blocks(&mut self, order: &[BbId]) -> Result<(), Error> {
        for (i, &id) in order.iter().enumerate() {
            self.basic_block(id, order.get(i + 1).copied())?;
        }
        Ok(())
    }

    /// Label of a basic block as it is being written.
    pub(super) fn block_label(&self, id: BbId) -> String {
        if self.is_unasked {
            names::label_unasked(id)
        } else {
            names::label(id)
        }
    }

    /// The barrier before a basic block at which its block may stop.
    pub(super) fn joins_before(&self, id: BbId) -> Option<ResumePointId> {
        self.barriers.joins_before(id).filter(|_| !self.is_unasked)
    }

    /// One basic block with its label; `next` is written after it.
    fn basic_block(&mut self, id: BbId, next: Option<BbId>) -> Result<(), Error> {
        let kernel = self.kernel;
        let block = &kernel.blocks[id.index()];
        self.next = next;
        self.label(self.block_label(id));
        if let Some(point) = self.joins_before(id) {
            self.joining_barrier(point);
            self.label(names::label_after_join(id));
        }
        let test_at = self.entry_tests.get(id.index()).copied().flatten();
        let test_at = test_at.filter(|_| !self.is_unasked);
        for (i, inst) in block.insts.iter().enumerate() {
            if test_at == Some(i) {
                self.poll_entry(&block.insts[..i]);
            }
            self.span = inst.span;
            self.inst(inst)?;
        }
        if test_at == Some(block.insts.len()) {
            self.poll_entry(&block.insts);
        }
        self.span = block.span;
        self.terminator(id, &block.terminator)
    }
}
