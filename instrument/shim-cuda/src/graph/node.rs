//! Graphs, their nodes and edges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_ring::command::Command;

use crate::device::Device;
use crate::handles::{Handle, Registry};
use crate::result::{CuResult, Outcome};

use super::operation::Operation;

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub operation: Operation,
    /// Nodes of the graph that come before, in the order in which they were named.
    pub after: Vec<Handle>,
    /// Of which node it was made, if the graph is a copy.
    pub original: Option<Handle>,
    /// Addresses of a launch's parameters, once the program has asked for them: it may look there as long as there is
    /// the node.
    pub shown: Vec<u64>,
}

/// Where a node's handle leads to.
#[derive(Clone, Copy, Debug)]
pub struct NodePlace {
    /// Its graph.
    pub graph: Handle,
}

/// A graph.
#[derive(Debug, Default)]
pub struct Graph {
    /// Nodes by handle, which is the order in which they were made.
    pub nodes: BTreeMap<u64, Node>,
    /// Memory of its own.
    pub memory: Vec<Arc<GraphMemory>>,
}

/// Memory that a graph has for itself; given back when nothing that can be launched needs it any more.
#[derive(Debug)]
pub struct GraphMemory {
    /// Where it is.
    pub device: &'static Device,
    /// Its first address.
    pub addr: u64,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let is_to_be_freed = self.device.memory().forget_graph(self.addr);
        if is_to_be_freed {
            // A failure is the device's, and every call says so.
            let _ = self.device.call_raw(Command::Free { addr: self.addr });
        }
    }
}

/// All graphs and their nodes.
#[derive(Debug)]
pub struct Graphs {
    graphs: Registry<Mutex<Graph>>,
    nodes: Registry<NodePlace>,
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            graphs: Registry::new(6),
            nodes: Registry::new(7),
        }
    }
}

impl Graphs {
    /// A graph by handle.
    pub fn find(&self, graph: Handle) -> Outcome<Arc<Mutex<Graph>>> {
        self.graphs.get(graph).ok_or(CuResult::INVALID_VALUE)
    }

    /// The graph of a node.
    pub fn graph_of(&self, node: Handle) -> Outcome<Arc<Mutex<Graph>>> {
        let place = self.nodes.get(node).ok_or(CuResult::INVALID_VALUE)?;
        self.find(place.graph)
    }

    /// Makes an empty graph.
    pub fn create(&self) -> Handle {
        self.graphs.insert(Arc::default())
    }

    /// Adds a node behind others of the graph.
    pub fn add(&self, graph: Handle, operation: Operation, after: Vec<Handle>) -> Outcome<Handle> {
        let found = self.find(graph)?;
        let mut found = found.lock();
        found.check_nodes(&after)?;
        let handle = self.nodes.insert(Arc::new(NodePlace { graph }));
        let node = Node {
            operation,
            after,
            original: None,
            shown: Vec::new(),
        };
        found.nodes.insert(handle.0, node);
        Ok(handle)
    }

    /// Makes a copy, with copies of the graphs in it.
    pub fn copy(&self, graph: Handle) -> Outcome<Handle> {
        let found = self.find(graph)?;
        let (nodes, memory) = {
            let found = found.lock();
            (found.nodes.clone(), found.memory.clone())
        };
        let made = self.create();
        let mut handles = BTreeMap::new();
        for &original in nodes.keys() {
            let handle = self.nodes.insert(Arc::new(NodePlace { graph: made }));
            handles.insert(Handle(original), handle);
        }
        let mut copies = BTreeMap::new();
        for (original, node) in nodes {
            let operation = match node.operation {
                Operation::Graph(inner) => Operation::Graph(self.copy(inner)?),
                other => other,
            };
            let copied = Node {
                operation,
                after: node.after.iter().filter_map(|n| handles.get(n).copied()).collect(),
                original: Some(Handle(original)),
                shown: Vec::new(),
            };
            copies.extend(handles.get(&Handle(original)).map(|handle| (handle.0, copied)));
        }
        *self.find(made)?.lock() = Graph { nodes: copies, memory };
        Ok(made)
    }

    /// Forgets a graph, its nodes and the graphs in them.
    pub fn destroy(&self, graph: Handle) -> Outcome {
        let gone = self.graphs.remove(graph).ok_or(CuResult::INVALID_VALUE)?;
        let nodes = std::mem::take(&mut gone.lock().nodes);
        for (handle, node) in nodes {
            self.forget(Handle(handle), &node);
        }
        Ok(())
    }

    /// Forgets everything: the device is reset.
    pub fn clear(&self) {
        self.graphs.retain(|_| false);
        self.nodes.retain(|_| false);
    }

    /// Forgets a node that is in no graph any more.
    fn forget(&self, handle: Handle, node: &Node) {
        self.nodes.remove(handle);
        if let Operation::Graph(inner) = node.operation {
            // It may be gone if the program has destroyed it, which it must not.
            let _ = self.destroy(inner);
        }
    }

    /// Takes a node and its edges out of its graph.
    pub fn remove(&self, node: Handle) -> Outcome {
        let graph = self.graph_of(node)?;
        let mut graph = graph.lock();
        let gone = graph.nodes.remove(&node.0).ok_or(CuResult::INVALID_VALUE)?;
        for other in graph.nodes.values_mut() {
            other.after.retain(|&n| n != node);
        }
        drop(graph);
        self.forget(node, &gone);
        Ok(())
    }
}

impl Graph {
    /// A node.
    pub fn node(&self, handle: Handle) -> Outcome<&Node> {
        self.nodes.get(&handle.0).ok_or(CuResult::INVALID_VALUE)
    }

    /// The same, to be changed.
    pub fn node_mut(&mut self, handle: Handle) -> Outcome<&mut Node> {
        self.nodes.get_mut(&handle.0).ok_or(CuResult::INVALID_VALUE)
    }

    /// That all are nodes of this graph, each named once.
    pub fn check_nodes(&self, handles: &[Handle]) -> Outcome {
        let mut seen = BTreeSet::new();
        let is_good = |handle: &Handle| self.nodes.contains_key(&handle.0) && seen.insert(handle.0);
        if handles.iter().all(is_good) {
            Ok(())
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }

    /// Edges, from and to.
    pub fn edges(&self) -> Vec<(Handle, Handle)> {
        let of = |(&to, node): (&u64, &Node)| node.after.iter().map(|&from| (from, Handle(to))).collect::<Vec<_>>();
        self.nodes.iter().flat_map(of).collect()
    }

    /// Nodes behind `node`.
    pub fn behind(&self, node: Handle) -> Vec<Handle> {
        let is_behind = |(_, other): &(&u64, &Node)| other.after.contains(&node);
        self.nodes
            .iter()
            .filter(is_behind)
            .map(|(&handle, _)| Handle(handle))
            .collect()
    }

    /// All nodes, each behind those that it depends on, else as they were made; `None` if there is a circle.
    pub fn in_order(&self) -> Option<Vec<Handle>> {
        let mut missing: BTreeMap<u64, usize> = self.nodes.iter().map(|(&h, n)| (h, n.after.len())).collect();
        let mut behind: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (from, to) in self.edges() {
            behind.entry(from.0).or_default().push(to.0);
        }
        let is_ready = |(_, missing): &(&u64, &usize)| **missing == 0;
        let mut ready: BTreeSet<u64> = missing.iter().filter(is_ready).map(|(&h, _)| h).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(next) = ready.pop_first() {
            order.push(Handle(next));
            for other in behind.remove(&next).unwrap_or_default() {
                let left = missing.get_mut(&other)?;
                *left -= 1;
                if *left == 0 {
                    ready.insert(other);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// `nodes` and all that they come behind.
    pub fn up_to(&self, nodes: &[Handle]) -> BTreeSet<u64> {
        let mut seen = BTreeSet::new();
        let mut to_do: Vec<u64> = nodes.iter().map(|n| n.0).collect();
        while let Some(next) = to_do.pop() {
            if seen.insert(next) {
                to_do.extend(self.nodes.get(&next).into_iter().flat_map(|n| &n.after).map(|n| n.0));
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(u64, &[u64])]) -> Graph {
        let node = |&(handle, after): &(u64, &[u64])| {
            let node = Node {
                operation: Operation::Empty,
                after: after.iter().map(|&n| Handle(n)).collect(),
                original: None,
                shown: Vec::new(),
            };
            (handle, node)
        };
        Graph {
            nodes: edges.iter().map(node).collect(),
            memory: Vec::new(),
        }
    }

    fn handles(numbers: &[u64]) -> Vec<Handle> {
        numbers.iter().map(|&n| Handle(n)).collect()
    }

    #[test]
    fn nodes_come_behind_what_they_depend_on() {
        let diamond = graph(&[(1, &[4]), (2, &[]), (3, &[1, 2]), (4, &[2])]);
        assert_eq!(diamond.in_order(), Some(handles(&[2, 4, 1, 3])));
        assert_eq!(diamond.behind(Handle(2)), handles(&[3, 4]));
        assert_eq!(diamond.up_to(&handles(&[1])), BTreeSet::from([1, 2, 4]));
        assert_eq!(graph(&[(1, &[2]), (2, &[1]), (3, &[])]).in_order(), None);
        assert_eq!(graph(&[]).in_order(), Some(vec![]));
    }

    #[test]
    fn nodes_are_named_once() {
        let graph = graph(&[(1, &[]), (2, &[1])]);
        assert_eq!(graph.check_nodes(&handles(&[2, 1])), Ok(()));
        assert_eq!(graph.check_nodes(&handles(&[1, 1])), Err(CuResult::INVALID_VALUE));
        assert_eq!(graph.check_nodes(&handles(&[3])), Err(CuResult::INVALID_VALUE));
        assert_eq!(graph.edges(), [(Handle(1), Handle(2))]);
    }
}
