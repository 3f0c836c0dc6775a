//! Nodes of graphs, whatever they do: added, asked about, and changed, in graphs and in executable ones.

use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

/// Adds a node behind others.
pub fn add(
    current: &Current,
    node: Out<Handle>,
    graph: Handle,
    (after, count): (In<Handle>, u64),
    operation: Operation,
) -> Outcome {
    if node.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    node.set(current.session.graphs.add(graph, operation, after.list(count)?)?)
}

/// What a node's operation says, if it is of that kind.
pub fn get<T>(current: &Current, node: Handle, what: impl FnOnce(&Operation) -> Option<T>) -> Outcome<T> {
    let graph = current.session.graphs.graph_of(node)?;
    let graph = graph.lock();
    what(&graph.node(node)?.operation).ok_or(CuResult::INVALID_VALUE)
}

/// Puts `operation` in the place of another of its kind. A launch stays cooperative, and in clusters, or not: its
/// parameters do not say.
fn put(place: &mut Operation, mut operation: Operation) -> Outcome {
    if place.kind() != operation.kind() {
        return Err(CuResult::INVALID_VALUE);
    }
    if let (Operation::Launch(old), Operation::Launch(new)) = (&*place, &mut operation) {
        (new.shape.cooperative, new.shape.cluster) = (old.shape.cooperative, old.shape.cluster);
    }
    *place = operation;
    Ok(())
}

/// Changes what a node does.
pub fn set(current: &Current, node: Handle, operation: Operation) -> Outcome {
    let graph = current.session.graphs.graph_of(node)?;
    let mut graph = graph.lock();
    put(&mut graph.node_mut(node)?.operation, operation)
}

/// The same in an executable graph.
pub fn set_of_executable(current: &Current, executable: Handle, node: Handle, operation: Operation) -> Outcome {
    let executable = current.session.executables.get(executable);
    let executable = executable.ok_or(CuResult::INVALID_VALUE)?;
    let mut executable = executable.lock();
    put(&mut executable.step_mut(node)?.operation, operation)
}
