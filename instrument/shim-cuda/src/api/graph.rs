//! Graphs: their nodes and edges. An edge means that all of one node comes before all of another.

use crate::graph::node::Graph;
use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    context cuGraphCreate "cuGraphCreate" 10000 (graph: Out<Handle>, flags: u32) => create;
    context cuGraphDestroy "cuGraphDestroy" 10000 (graph: Handle) => destroy;
    context cuGraphClone "cuGraphClone" 10000 (copy: Out<Handle>, graph: Handle) => clone;
    context cuGraphNodeFindInClone "cuGraphNodeFindInClone" 10000
        (node: Out<Handle>, original: Handle, copy: Handle) => find_in_copy;
    context cuGraphNodeGetType "cuGraphNodeGetType" 10000 (node: Handle, kind: Out<u32>) => get_type;
    context cuGraphGetNodes "cuGraphGetNodes" 10000 (graph: Handle, nodes: Out<Handle>, count: Out<u64>) => get_nodes;
    context cuGraphGetRootNodes "cuGraphGetRootNodes" 10000
        (graph: Handle, nodes: Out<Handle>, count: Out<u64>) => get_roots;
    context cuGraphGetEdges "cuGraphGetEdges" 10000
        (graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<u64>) => get_edges;
    context cuGraphGetEdges_v2 "cuGraphGetEdges" 12030
        (graph: Handle, from: Out<Handle>, to: Out<Handle>, kinds: Out<EdgeKind>, count: Out<u64>) => get_edges_with_kinds;
    context cuGraphNodeGetDependencies "cuGraphNodeGetDependencies" 10000
        (node: Handle, nodes: Out<Handle>, count: Out<u64>) => get_dependencies;
    context cuGraphNodeGetDependencies_v2 "cuGraphNodeGetDependencies" 12030
        (node: Handle, nodes: Out<Handle>, kinds: Out<EdgeKind>, count: Out<u64>) => get_dependencies_with_kinds;
    context cuGraphNodeGetDependentNodes "cuGraphNodeGetDependentNodes" 10000
        (node: Handle, nodes: Out<Handle>, count: Out<u64>) => get_dependents;
    context cuGraphNodeGetDependentNodes_v2 "cuGraphNodeGetDependentNodes" 12030
        (node: Handle, nodes: Out<Handle>, kinds: Out<EdgeKind>, count: Out<u64>) => get_dependents_with_kinds;
    context cuGraphAddDependencies "cuGraphAddDependencies" 10000
        (graph: Handle, from: In<Handle>, to: In<Handle>, count: u64) => add_dependencies;
    context cuGraphAddDependencies_v2 "cuGraphAddDependencies" 12030
        (graph: Handle, from: In<Handle>, to: In<Handle>, kinds: In<EdgeKind>, count: u64) => add_dependencies_of_kinds;
    context cuGraphRemoveDependencies "cuGraphRemoveDependencies" 10000
        (graph: Handle, from: In<Handle>, to: In<Handle>, count: u64) => remove_dependencies;
    context cuGraphRemoveDependencies_v2 "cuGraphRemoveDependencies" 12030
        (graph: Handle, from: In<Handle>, to: In<Handle>, kinds: In<EdgeKind>, count: u64) => remove_dependencies_of_kinds;
    context cuGraphDestroyNode "cuGraphDestroyNode" 10000 (node: Handle) => destroy_node;
}

/// `CUgraphEdgeData`: 0 is an ordinary edge; the others let a kernel begin before another has ended.
pub type EdgeKind = u64;

fn create(current: Current, graph: Out<Handle>, flags: u32) -> Outcome {
    if flags != 0 || graph.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    graph.set(current.session.graphs.create())
}

fn destroy(current: Current, graph: Handle) -> Outcome {
    current.session.graphs.destroy(graph)
}

fn clone(current: Current, copy: Out<Handle>, graph: Handle) -> Outcome {
    if copy.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    copy.set(current.session.graphs.copy(graph)?)
}

fn find_in_copy(current: Current, node: Out<Handle>, original: Handle, copy: Handle) -> Outcome {
    let graph = current.session.graphs.find(copy)?;
    let graph = graph.lock();
    let mut nodes = graph.nodes.iter();
    let found = nodes.find(|(_, node)| node.original == Some(original));
    node.set(
        found
            .map(|(&handle, _)| Handle(handle))
            .ok_or(CuResult::INVALID_VALUE)?,
    )
}

fn get_type(current: Current, node: Handle, kind: Out<u32>) -> Outcome {
    let graph = current.session.graphs.graph_of(node)?;
    let number = graph.lock().node(node)?.operation.kind();
    kind.set(number)
}

/// Says how many there are; or, if there is room, which, as many as fit, and NULL in the room that is left.
fn list(found: &[Handle], into: Out<Handle>, count: Out<u64>) -> Outcome {
    if into.is_null() {
        return count.set(found.len() as u64);
    }
    let room = count.get()?;
    for index in 0..room as usize {
        into.nth(index).set(found.get(index).copied().unwrap_or_default())?;
    }
    count.set(room.min(found.len() as u64))
}

/// All edges are ordinary ones.
fn list_kinds(kinds: Out<EdgeKind>, count: Out<u64>) -> Outcome {
    if kinds.is_null() {
        return Ok(());
    }
    (0..count.get()? as usize).try_for_each(|index| kinds.nth(index).set(0))
}

/// That all edges are of kinds that there are. A programmatic one lets a kernel begin early, and says nothing of when
/// what is before must have ended: an ordinary one in its place is always right.
pub fn check_kinds(kinds: In<EdgeKind>, count: u64) -> Outcome {
    /// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
    const PROGRAMMATIC: u8 = 1;
    if kinds.is_null() {
        return Ok(());
    }
    // Ports, then the kind.
    let all_known = kinds
        .list(count)?
        .iter()
        .all(|edge| edge.to_le_bytes()[2] <= PROGRAMMATIC);
    if all_known {
        Ok(())
    } else {
        Err(CuResult::NOT_SUPPORTED)
    }
}

fn get_nodes(current: Current, graph: Handle, nodes: Out<Handle>, count: Out<u64>) -> Outcome {
    let graph = current.session.graphs.find(graph)?;
    let all: Vec<Handle> = graph.lock().nodes.keys().map(|&handle| Handle(handle)).collect();
    list(&all, nodes, count)
}

fn get_roots(current: Current, graph: Handle, nodes: Out<Handle>, count: Out<u64>) -> Outcome {
    let graph = current.session.graphs.find(graph)?;
    let graph = graph.lock();
    let roots = graph.nodes.iter().filter(|(_, node)| node.after.is_empty());
    let roots: Vec<Handle> = roots.map(|(&handle, _)| Handle(handle)).collect();
    list(&roots, nodes, count)
}

fn get_edges(current: Current, graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<u64>) -> Outcome {
    let graph = current.session.graphs.find(graph)?;
    let edges = graph.lock().edges();
    if from.is_null() != to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let (begins, ends): (Vec<Handle>, Vec<Handle>) = edges.into_iter().unzip();
    if !from.is_null() {
        let room = count.get()?;
        list(&begins, from, count)?;
        count.set(room)?;
    }
    list(&ends, to, count)
}

fn get_edges_with_kinds(
    current: Current,
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    kinds: Out<EdgeKind>,
    count: Out<u64>,
) -> Outcome {
    get_edges(current, graph, from, to, count)?;
    list_kinds(kinds, count)
}

fn related(
    session: &Session,
    node: Handle,
    which: impl FnOnce(&Graph) -> Outcome<Vec<Handle>>,
) -> Outcome<Vec<Handle>> {
    let graph = session.graphs.graph_of(node)?;
    let graph = graph.lock();
    which(&graph)
}

fn get_dependencies(current: Current, node: Handle, nodes: Out<Handle>, count: Out<u64>) -> Outcome {
    let found = related(current.session, node, |graph| Ok(graph.node(node)?.after.clone()))?;
    list(&found, nodes, count)
}

fn get_dependencies_with_kinds(
    current: Current,
    node: Handle,
    nodes: Out<Handle>,
    kinds: Out<EdgeKind>,
    count: Out<u64>,
) -> Outcome {
    get_dependencies(current, node, nodes, count)?;
    list_kinds(kinds, count)
}

fn get_dependents(current: Current, node: Handle, nodes: Out<Handle>, count: Out<u64>) -> Outcome {
    let found = related(current.session, node, |graph| Ok(graph.behind(node)))?;
    list(&found, nodes, count)
}

fn get_dependents_with_kinds(
    current: Current,
    node: Handle,
    nodes: Out<Handle>,
    kinds: Out<EdgeKind>,
    count: Out<u64>,
) -> Outcome {
    get_dependents(current, node, nodes, count)?;
    list_kinds(kinds, count)
}

/// Changes edges, all or none of them.
fn change_edges(
    session: &Session,
    graph: Handle,
    (from, to, count): (In<Handle>, In<Handle>, u64),
    change: impl Fn(&mut Vec<Handle>, Handle) -> Outcome,
) -> Outcome {
    let graph = session.graphs.find(graph)?;
    let mut graph = graph.lock();
    let mut nodes = graph.nodes.clone();
    for (from, to) in from.list(count)?.into_iter().zip(to.list(count)?) {
        graph.node(from)?;
        let node = nodes.get_mut(&to.0).filter(|_| from != to);
        change(&mut node.ok_or(CuResult::INVALID_VALUE)?.after, from)?;
    }
    graph.nodes = nodes;
    Ok(())
}

fn add_dependencies(current: Current, graph: Handle, from: In<Handle>, to: In<Handle>, count: u64) -> Outcome {
    change_edges(current.session, graph, (from, to, count), |after, from| {
        if after.contains(&from) {
            return Err(CuResult::INVALID_VALUE);
        }
        after.push(from);
        Ok(())
    })
}

fn add_dependencies_of_kinds(
    current: Current,
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    kinds: In<EdgeKind>,
    count: u64,
) -> Outcome {
    check_kinds(kinds, count)?;
    add_dependencies(current, graph, from, to, count)
}

fn remove_dependencies(current: Current, graph: Handle, from: In<Handle>, to: In<Handle>, count: u64) -> Outcome {
    change_edges(current.session, graph, (from, to, count), |after, from| {
        let at = after.iter().position(|&node| node == from);
        after.remove(at.ok_or(CuResult::INVALID_VALUE)?);
        Ok(())
    })
}

fn remove_dependencies_of_kinds(
    current: Current,
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    kinds: In<EdgeKind>,
    count: u64,
) -> Outcome {
    check_kinds(kinds, count)?;
    remove_dependencies(current, graph, from, to, count)
}

fn destroy_node(current: Current, node: Handle) -> Outcome {
    current.session.graphs.remove(node)
}
