//! Basic blocks: their labels, the barriers and tests before and among their instructions.

use hetckpt_ir::entity::BbId;

use super::writer::Writer;
use super::{Error, names};

impl Writer<'_> {
    /// One basic block with its label; `next` is written after it.
    pub(super) fn basic_block(&mut self, id: BbId, next: Option<BbId>) -> Result<(), Error> {
        let kernel = self.kernel;
        let block = &kernel.blocks[id.index()];
        self.next = next;
        self.label(names::label(id));
        if let Some(point) = self.barriers.joins_before(id) {
            self.joining_barrier(point);
            self.label(names::label_after_join(id));
        }
        let test_at = self.entry_tests.get(id.index()).copied().flatten();
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
