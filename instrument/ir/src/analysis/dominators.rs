//! Dominators and post-dominators.
//!
//! # Source
//! Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm" (2001).

use super::cfg::Cfg;
use crate::entity::BbId;

/// Which block every path from the entry to a block goes through.
#[derive(Clone, Debug)]
pub struct Dominators {
    tree: Tree,
}

impl Dominators {
    /// Dominators of the reachable blocks.
    #[must_use]
    pub fn new(cfg: &Cfg) -> Self {
        let order: Vec<usize> = cfg.reverse_post_order().iter().map(|b| b.index()).collect();
        let predecessors = |b: usize| cfg.predecessors[b].iter().map(|p| p.index());
        Self {
            tree: Tree::new(cfg.num_blocks(), &order, predecessors),
        }
    }

    /// The closest block that strictly dominates `block`; `None` for the entry and for unreachable blocks.
    #[must_use]
    pub fn immediate(&self, block: BbId) -> Option<BbId> {
        self.tree.parent(block.index()).map(BbId::from_index)
    }

    /// True if every path from the entry to `b` goes through `a` (`a` itself included). False if either is unreachable.
    #[must_use]
    pub fn dominates(&self, a: BbId, b: BbId) -> bool {
        self.tree.is_ancestor(a.index(), b.index())
    }
}

/// Which block every path from a block to the kernel's end goes through.
///
/// Where control never ends (an infinite loop), every block counts as an end: nothing can be said there.
#[derive(Clone, Debug)]
pub struct PostDominators {
    tree: Tree,
    end: usize,
}

impl PostDominators {
    /// Post-dominators of the reachable blocks.
    #[must_use]
    pub fn new(cfg: &Cfg) -> Self {
        let end = cfg.num_blocks();
        let (order, ends) = reverse_graph_order(cfg);
        // "Predecessors" in the reversed graph are successors; the virtual end follows every block that ends.
        let predecessors = |b: usize| {
            let to_end = (b != end && ends[b]).then_some(end);
            let successors = cfg.successors.get(b).into_iter().flatten().map(|s| s.index());
            successors.chain(to_end)
        };
        Self {
            tree: Tree::new(end + 1, &order, predecessors),
            end,
        }
    }

    /// The closest block that strictly post-dominates `block`; `None` if only the kernel's end does, or if `block` is
    /// unreachable.
    #[must_use]
    pub fn immediate(&self, block: BbId) -> Option<BbId> {
        self.tree
            .parent(block.index())
            .filter(|&p| p != self.end)
            .map(BbId::from_index)
    }
}

/// Reverse post-order of the reversed graph from its virtual entry (index = number of blocks), and for each block
/// whether it leads to that end directly.
fn reverse_graph_order(cfg: &Cfg) -> (Vec<usize>, Vec<bool>) {
    let n = cfg.num_blocks();
    let mut ends = vec![false; n];
    let mut visited = vec![false; n];
    let mut post_order = Vec::with_capacity(n + 1);
    for &block in cfg
        .reverse_post_order()
        .iter()
        .filter(|b| cfg.successors(**b).is_empty())
    {
        ends[block.index()] = true;
        visit_backwards(cfg, block, &mut visited, &mut post_order);
    }
    for &block in cfg.reverse_post_order().iter().rev() {
        ends[block.index()] |= !visited[block.index()];
    }
    for &block in cfg.reverse_post_order().iter().rev() {
        if !visited[block.index()] {
            visit_backwards(cfg, block, &mut visited, &mut post_order);
        }
    }
    post_order.push(n);
    post_order.reverse();
    (post_order, ends)
}

fn visit_backwards(cfg: &Cfg, from: BbId, visited: &mut [bool], post_order: &mut Vec<usize>) {
    visited[from.index()] = true;
    let mut stack = vec![(from, 0)];
    while let Some((block, next)) = stack.last_mut() {
        match cfg.predecessors(*block).get(*next) {
            Some(&p) => {
                *next += 1;
                if cfg.is_reachable(p) && !visited[p.index()] {
                    visited[p.index()] = true;
                    stack.push((p, 0));
                }
            }
            None => {
                post_order.push(block.index());
                stack.pop();
            }
        }
    }
}

/// A dominator tree with intervals, so that ancestry is two comparisons.
#[derive(Clone, Debug)]
struct Tree {
    parent: Vec<Option<usize>>,
    interval: Vec<Option<(usize, usize)>>,
}

impl Tree {
    /// `order` is a reverse post-order of the reachable nodes, the root first.
    fn new<I: Iterator<Item = usize>>(n: usize, order: &[usize], predecessors: impl Fn(usize) -> I) -> Self {
        let mut position = vec![None; n];
        for (i, &node) in order.iter().enumerate() {
            position[node] = Some(i);
        }
        // Immediate dominators by position in `order`; a node's is always before it.
        let mut idom: Vec<Option<usize>> = vec![None; order.len()];
        if let Some(root) = idom.first_mut() {
            *root = Some(0);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (i, &node) in order.iter().enumerate().skip(1) {
                let mut new = None;
                for p in predecessors(node).filter_map(|p| position[p]) {
                    if idom[p].is_some() {
                        new = Some(new.map_or(p, |other| intersect(&idom, p, other)));
                    }
                }
                changed |= idom[i] != new;
                idom[i] = new;
            }
        }
        let mut parent = vec![None; n];
        for (i, &node) in order.iter().enumerate().skip(1) {
            parent[node] = idom[i].map(|p| order[p]);
        }
        let interval = intervals(order, &parent);
        Self { parent, interval }
    }

    fn parent(&self, node: usize) -> Option<usize> {
        self.parent[node]
    }

    fn is_ancestor(&self, a: usize, b: usize) -> bool {
        match (self.interval[a], self.interval[b]) {
            (Some((first, end)), Some((at, _))) => first <= at && at < end,
            _ => false,
        }
    }
}

fn intersect(idom: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if a > b {
            a = idom[a].unwrap_or(0);
        } else {
            b = idom[b].unwrap_or(0);
        }
    }
    a
}

/// Preorder number and end of the subtree. A node's subtree size is known once all later nodes have been added to it,
/// because parents stand before children in `order`.
fn intervals(order: &[usize], parent: &[Option<usize>]) -> Vec<Option<(usize, usize)>> {
    let mut size = vec![1usize; parent.len()];
    for &node in order.iter().rev() {
        if let Some(p) = parent[node] {
            size[p] += size[node];
        }
    }
    let mut interval = vec![None; parent.len()];
    let mut next_child = vec![0usize; parent.len()];
    for (i, &node) in order.iter().enumerate() {
        let first = match parent[node] {
            Some(p) => {
                let first = next_child[p];
                next_child[p] += size[node];
                first
            }
            None => i,
        };
        interval[node] = Some((first, first + size[node]));
        next_child[node] = first + 1;
    }
    interval
}
