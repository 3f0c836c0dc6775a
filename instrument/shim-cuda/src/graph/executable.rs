//! A graph made ready to be launched.

use std::sync::Arc;

use hetckpt_ring::command::{GraphId, StreamId};
use rustc_hash::FxHashMap;

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

use super::node::{GraphMemory, Graphs};
use super::operation::Operation;

/// A node in its place.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node of the graph that it was made from.
    pub node: Handle,
    /// What it does.
    pub operation: Operation,
    /// Places of the steps that it depends on.
    pub after: Vec<usize>,
    /// Steps of the graph that it does, if it does one.
    pub inner: Vec<Step>,
    /// False: it stands for what it depends on.
    pub is_enabled: bool,
}

/// What a launch gives to a stream.
#[derive(Debug)]
pub enum Given {
    /// Launches, copies and fills, as [`hetckpt_ring::graph_part`] has them.
    Part(Arc<[u8]>),
    /// Anything else.
    Operation(Operation),
}

/// A graph that can be launched. What becomes of the graph it was made from does not change it.
#[derive(Debug)]
pub struct Executable {
    /// Its number in the ring.
    pub id: GraphId,
    /// Flags given when it was made.
    pub flags: u64,
    /// Steps, in the order in which they are given to a stream.
    steps: Vec<Step>,
    /// What a launch gives to a stream, until a step is changed.
    given: Option<Arc<[Given]>>,
    memory: Vec<Arc<GraphMemory>>,
    /// Where it was launched last.
    latest: Option<StreamId>,
}

/// Why one graph cannot take another's place (`CUgraphExecUpdateResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The reason.
    pub reason: u32,
    /// The node that does not fit.
    pub node: Handle,
}

const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;

fn steps(graphs: &Graphs, graph: Handle) -> Outcome<(Vec<Step>, Vec<Arc<GraphMemory>>)> {
    let graph = graphs.find(graph)?;
    let graph = graph.lock();
    let order = graph.in_order().ok_or(CuResult::INVALID_VALUE)?;
    let places: FxHashMap<Handle, usize> = order.iter().enumerate().map(|(at, &node)| (node, at)).collect();
    let mut steps = Vec::with_capacity(order.len());
    let mut memory = graph.memory.clone();
    for &handle in &order {
        let node = graph.node(handle)?;
        let inner = match node.operation {
            Operation::Graph(inner) => {
                let (inner, its_memory) = self::steps(graphs, inner)?;
                memory.extend(its_memory);
                inner
            }
            _ => Vec::new(),
        };
        steps.push(Step {
            node: handle,
            operation: node.operation.clone(),
            after: node.after.iter().filter_map(|n| places.get(n).copied()).collect(),
            inner,
            is_enabled: true,
        });
    }
    Ok((steps, memory))
}

impl Executable {
    /// Of a graph as it is now; [`CuResult::INVALID_VALUE`] if its edges make a circle.
    pub fn new(graphs: &Graphs, graph: Handle, flags: u64, id: GraphId) -> Outcome<Self> {
        let (steps, memory) = steps(graphs, graph)?;
        Ok(Self {
            id,
            flags,
            steps,
            given: None,
            memory,
            latest: None,
        })
    }

    /// What a launch gives to a stream: as `divide` says of the steps, if they have changed.
    pub fn given(&mut self, divide: impl FnOnce(&[Step]) -> Outcome<Vec<Given>>) -> Outcome<Arc<[Given]>> {
        if let Some(given) = &self.given {
            return Ok(Arc::clone(given));
        }
        let given = Arc::from(divide(&self.steps)?);
        self.given = Some(Arc::clone(&given));
        Ok(given)
    }

    /// It is launched in `stream`. Returns where it was launched last, if that was in another one: launches of one
    /// executable graph run one after another.
    pub fn begin_launch(&mut self, stream: StreamId) -> Option<StreamId> {
        self.latest.replace(stream).filter(|&latest| latest != stream)
    }

    /// Has it do what `graph` says, if that has the same nodes and edges.
    pub fn update(&mut self, graphs: &Graphs, graph: Handle) -> Outcome<Result<(), Misfit>> {
        let (wanted, memory) = steps(graphs, graph)?;
        if let Err(misfit) = compare(&self.steps, &wanted) {
            return Ok(Err(misfit));
        }
        replace(&mut self.steps, wanted);
        self.given = None;
        // What it had is given back once all that was launched is done.
        self.memory = memory;
        Ok(Ok(()))
    }

    /// Has the step of a node that does another graph do what `graph` says, if that has the same nodes and edges.
    pub fn update_inner(&mut self, graphs: &Graphs, node: Handle, graph: Handle) -> Outcome<Result<(), Misfit>> {
        let (wanted, memory) = steps(graphs, graph)?;
        let step = self.step_mut(node)?;
        if !matches!(step.operation, Operation::Graph(_)) {
            return Err(CuResult::INVALID_VALUE);
        }
        if let Err(misfit) = compare(&step.inner, &wanted) {
            return Ok(Err(misfit));
        }
        replace(&mut step.inner, wanted);
        self.memory.extend(memory);
        Ok(Ok(()))
    }

    /// The step of a node, to be looked at or changed.
    pub fn step_mut(&mut self, node: Handle) -> Outcome<&mut Step> {
        self.given = None;
        find(&mut self.steps, node).ok_or(CuResult::INVALID_VALUE)
    }
}

fn find(steps: &mut [Step], node: Handle) -> Option<&mut Step> {
    for step in steps {
        if step.node == node {
            return Some(step);
        }
        if let Some(found) = find(&mut step.inner, node) {
            return Some(found);
        }
    }
    None
}

fn compare(have: &[Step], want: &[Step]) -> Result<(), Misfit> {
    let misfit = |reason, node| Err(Misfit { reason, node });
    if have.len() != want.len() {
        let extra = want.get(have.len()).map_or(Handle::NULL, |step| step.node);
        return misfit(TOPOLOGY_CHANGED, extra);
    }
    for (have, want) in have.iter().zip(want) {
        if have.operation.kind() != want.operation.kind() {
            return misfit(NODE_TYPE_CHANGED, want.node);
        }
        if have.after != want.after {
            return misfit(TOPOLOGY_CHANGED, want.node);
        }
        compare(&have.inner, &want.inner)?;
    }
    Ok(())
}

/// The program goes on to name steps by the nodes of the graph that they were first made from.
fn replace(have: &mut [Step], want: Vec<Step>) {
    for (have, want) in have.iter_mut().zip(want) {
        have.operation = want.operation;
        replace(&mut have.inner, want.inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(node: u64, operation: Operation, after: &[usize], inner: Vec<Step>) -> Step {
        Step {
            node: Handle(node),
            operation,
            after: after.to_vec(),
            inner,
            is_enabled: true,
        }
    }

    #[test]
    fn only_graphs_of_the_same_nodes_and_edges_fit() {
        let free = |addr| Operation::Free { addr };
        let inner = |addr| vec![step(9, free(addr), &[], vec![])];
        let made = |addr| {
            vec![
                step(1, free(addr), &[], vec![]),
                step(2, Operation::Graph(Handle(7)), &[0], inner(addr)),
            ]
        };
        let mut have = made(1);
        let want = made(2);
        assert_eq!(compare(&have, &want), Ok(()));
        replace(&mut have, want);
        assert!(matches!(have[1].inner[0].operation, Operation::Free { addr: 2 }));
        assert!(find(&mut have, Handle(9)).is_some() && find(&mut have, Handle(8)).is_none());
        let mut other = made(3);
        other[1].after.clear();
        let misfit = |reason, node| {
            Err(Misfit {
                reason,
                node: Handle(node),
            })
        };
        assert_eq!(compare(&have, &other), misfit(TOPOLOGY_CHANGED, 2));
        other = made(3);
        other[1].inner[0].operation = Operation::Empty;
        assert_eq!(compare(&have, &other), misfit(NODE_TYPE_CHANGED, 9));
        other.push(step(4, Operation::Empty, &[], vec![]));
        assert_eq!(compare(&have, &other), misfit(TOPOLOGY_CHANGED, 4));
    }
}
