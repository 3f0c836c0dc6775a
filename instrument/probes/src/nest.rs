//! Which basic block belongs to which loop, kept up to date while passes add blocks.

use hetckpt_ir::analysis::loops::LoopForest;
use hetckpt_ir::basic_block::Terminator;
use hetckpt_ir::entity::BbId;
use hetckpt_ir::kernel::Kernel;

/// A loop of the kernel; index into the [`Nest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub usize);

/// The loops of a kernel as a forest.
#[derive(Clone, Debug, Default)]
pub struct Nest {
    loops: Vec<NaturalLoop>,
    /// Innermost loop of each basic block.
    home: Vec<Option<LoopId>>,
}

#[derive(Clone, Debug)]
struct NaturalLoop {
    header: BbId,
    parent: Option<LoopId>,
}

impl Nest {
    /// The loops of `kernel`, which `forest` found.
    pub fn new(kernel: &Kernel, forest: &LoopForest) -> Self {
        let loops = forest
            .iter()
            .map(|(_, natural)| NaturalLoop {
                header: natural.header,
                parent: natural.parent.map(|p| LoopId(p.0)),
            })
            .collect();
        let home = kernel
            .iter_blocks()
            .map(|(block, _)| forest.innermost(block).map(|id| LoopId(id.0)))
            .collect();
        Self { loops, home }
    }

    /// True if `inner` lies strictly inside `outer`.
    pub fn is_inside(&self, inner: LoopId, outer: LoopId) -> bool {
        let mut at = self.parent(inner);
        while let Some(around) = at {
            if around == outer {
                return true;
            }
            at = self.parent(around);
        }
        false
    }

    /// Ids of the loops.
    pub fn ids(&self) -> impl Iterator<Item = LoopId> + use<> {
        (0..self.loops.len()).map(LoopId)
    }

    /// Header of a loop.
    pub fn header(&self, id: LoopId) -> BbId {
        self.loops[id.0].header
    }

    /// The loop around a loop.
    pub fn parent(&self, id: LoopId) -> Option<LoopId> {
        self.loops[id.0].parent
    }

    /// True if the block is in the loop, inner loops included.
    pub fn contains(&self, id: LoopId, block: BbId) -> bool {
        let mut at = self.home.get(block.index()).copied().flatten();
        while let Some(inner) = at {
            if inner == id {
                return true;
            }
            at = self.parent(inner);
        }
        false
    }

    /// Says in which loop a new block stands.
    pub fn set_home(&mut self, block: BbId, home: Option<LoopId>) {
        if self.home.len() <= block.index() {
            self.home.resize(block.index() + 1, None);
        }
        self.home[block.index()] = home;
    }

    /// True if control can go round the loop without passing a barrier.
    pub fn can_iterate_without_barrier(&self, kernel: &Kernel, id: LoopId) -> bool {
        let header = self.header(id);
        let mut seen = vec![false; kernel.blocks.len()];
        let mut work = vec![header];
        while let Some(block) = work.pop() {
            let terminator = &kernel.blocks[block.index()].terminator;
            if matches!(terminator, Terminator::Barrier { .. }) {
                continue;
            }
            for successor in terminator.successors() {
                if successor == header {
                    return true;
                }
                if self.contains(id, successor) && !std::mem::replace(&mut seen[successor.index()], true) {
                    work.push(successor);
                }
            }
        }
        false
    }
}
