//! The control flow graph: predecessors, reverse post-order, reachability.

use crate::entity::BbId;
use crate::kernel::Kernel;

/// Edges of a kernel's control flow and an order of its blocks.
#[derive(Clone, Debug)]
pub struct Cfg {
    pub(super) successors: Vec<Vec<BbId>>,
    pub(super) predecessors: Vec<Vec<BbId>>,
    reverse_post_order: Vec<BbId>,
    position: Vec<Option<usize>>,
}

impl Cfg {
    /// The graph of `kernel`.
    #[must_use]
    pub fn new(kernel: &Kernel) -> Self {
        Self::from_edges(kernel.blocks.iter().map(|b| b.terminator.successors()).collect())
    }

    /// The graph with these successors, entered at `bb0`. A successor that stands twice counts once.
    #[must_use]
    pub fn from_edges(mut successors: Vec<Vec<BbId>>) -> Self {
        let mut predecessors = vec![Vec::new(); successors.len()];
        for (id, list) in (0..).map(BbId).zip(&mut successors) {
            let mut seen = Vec::with_capacity(list.len());
            list.retain(|s| {
                !seen.contains(s) && {
                    seen.push(*s);
                    true
                }
            });
            for successor in list {
                predecessors[successor.index()].push(id);
            }
        }
        let reverse_post_order = reverse_post_order(&successors);
        let mut position = vec![None; successors.len()];
        for (i, block) in reverse_post_order.iter().enumerate() {
            position[block.index()] = Some(i);
        }
        Self {
            successors,
            predecessors,
            reverse_post_order,
            position,
        }
    }

    /// Number of basic blocks, unreachable ones included.
    #[must_use]
    pub fn num_blocks(&self) -> usize {
        self.successors.len()
    }

    /// Blocks control may go to from `block`, in the terminator's order, each once.
    #[must_use]
    pub fn successors(&self, block: BbId) -> &[BbId] {
        &self.successors[block.index()]
    }

    /// Blocks control may come from, ascending, each once, unreachable ones included.
    #[must_use]
    pub fn predecessors(&self, block: BbId) -> &[BbId] {
        &self.predecessors[block.index()]
    }

    /// Reachable blocks; each stands before its successors, except along back edges.
    #[must_use]
    pub fn reverse_post_order(&self) -> &[BbId] {
        &self.reverse_post_order
    }

    /// Where `block` stands in the reverse post-order; `None` if it is unreachable.
    #[must_use]
    pub fn position(&self, block: BbId) -> Option<usize> {
        self.position[block.index()]
    }

    /// True if control can get to `block` from the entry.
    #[must_use]
    pub fn is_reachable(&self, block: BbId) -> bool {
        self.position(block).is_some()
    }
}

/// Depth first without recursion: kernels of hostile text may be one long chain.
fn reverse_post_order(successors: &[Vec<BbId>]) -> Vec<BbId> {
    let mut order = Vec::with_capacity(successors.len());
    let mut visited = vec![false; successors.len()];
    let mut stack = Vec::new();
    if !successors.is_empty() {
        visited[Kernel::ENTRY.index()] = true;
        stack.push((Kernel::ENTRY, 0));
    }
    while let Some((block, next)) = stack.last_mut() {
        match successors[block.index()].get(*next) {
            Some(&successor) => {
                *next += 1;
                if !visited[successor.index()] {
                    visited[successor.index()] = true;
                    stack.push((successor, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}
