//! What nodes of graphs do: made, asked about, and changed, in graphs and in executable ones.

use hetckpt_ring::command::FillValue;

use crate::copy_params::Copy3D;
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::host_functions::{HostFn, HostFunction};
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

use super::event;
use super::fill;
use super::graph::{EdgeKind, check_kinds};
use super::graph_kernel_nodes::KernelParams;
use super::graph_node_access::{add, get, set, set_of_executable};
use super::memory::alloc_for_graph;

entry_points! {
    context cuGraphAddMemcpyNode "cuGraphAddMemcpyNode" 10000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, copy: In<Copy3D>, context: Handle) => add_copy;
    context cuGraphMemcpyNodeGetParams "cuGraphMemcpyNodeGetParams" 10000 (node: Handle, copy: Out<Copy3D>) => get_copy;
    context cuGraphMemcpyNodeSetParams "cuGraphMemcpyNodeSetParams" 10000 (node: Handle, copy: In<Copy3D>) => set_copy;
    context cuGraphExecMemcpyNodeSetParams "cuGraphExecMemcpyNodeSetParams" 10020
        (executable: Handle, node: Handle, copy: In<Copy3D>, context: Handle) => set_copy_of_executable;
    context cuGraphAddMemsetNode "cuGraphAddMemsetNode" 10000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, fill: In<FillParams>, context: Handle) => add_fill;
    context cuGraphMemsetNodeGetParams "cuGraphMemsetNodeGetParams" 10000 (node: Handle, fill: Out<FillParams>) => get_fill;
    context cuGraphMemsetNodeSetParams "cuGraphMemsetNodeSetParams" 10000 (node: Handle, fill: In<FillParams>) => set_fill;
    context cuGraphExecMemsetNodeSetParams "cuGraphExecMemsetNodeSetParams" 10020
        (executable: Handle, node: Handle, fill: In<FillParams>, context: Handle) => set_fill_of_executable;
    context cuGraphAddHostNode "cuGraphAddHostNode" 10000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, function: In<HostParams>) => add_host;
    context cuGraphHostNodeGetParams "cuGraphHostNodeGetParams" 10000 (node: Handle, function: Out<HostParams>) => get_host;
    context cuGraphHostNodeSetParams "cuGraphHostNodeSetParams" 10000 (node: Handle, function: In<HostParams>) => set_host;
    context cuGraphExecHostNodeSetParams "cuGraphExecHostNodeSetParams" 10020
        (executable: Handle, node: Handle, function: In<HostParams>) => set_host_of_executable;
    context cuGraphAddChildGraphNode "cuGraphAddChildGraphNode" 10000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, inner: Handle) => add_graph;
    context cuGraphChildGraphNodeGetGraph "cuGraphChildGraphNodeGetGraph" 10000
        (node: Handle, inner: Out<Handle>) => get_graph;
    context cuGraphAddEmptyNode "cuGraphAddEmptyNode" 10000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64) => add_empty;
    context cuGraphAddEventRecordNode "cuGraphAddEventRecordNode" 11010
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, event: Handle) => add_record;
    context cuGraphAddEventWaitNode "cuGraphAddEventWaitNode" 11010
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, event: Handle) => add_wait;
    context cuGraphEventRecordNodeGetEvent "cuGraphEventRecordNodeGetEvent" 11010 (node: Handle, event: Out<Handle>) => get_record;
    context cuGraphEventWaitNodeGetEvent "cuGraphEventWaitNodeGetEvent" 11010 (node: Handle, event: Out<Handle>) => get_wait;
    context cuGraphEventRecordNodeSetEvent "cuGraphEventRecordNodeSetEvent" 11010 (node: Handle, event: Handle) => set_record;
    context cuGraphEventWaitNodeSetEvent "cuGraphEventWaitNodeSetEvent" 11010 (node: Handle, event: Handle) => set_wait;
    context cuGraphExecEventRecordNodeSetEvent "cuGraphExecEventRecordNodeSetEvent" 11010
        (executable: Handle, node: Handle, event: Handle) => set_record_of_executable;
    context cuGraphExecEventWaitNodeSetEvent "cuGraphExecEventWaitNodeSetEvent" 11010
        (executable: Handle, node: Handle, event: Handle) => set_wait_of_executable;
    context cuGraphAddMemAllocNode "cuGraphAddMemAllocNode" 11040
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, params: Out<AllocationParams>) => add_allocation;
    context cuGraphMemAllocNodeGetParams "cuGraphMemAllocNodeGetParams" 11040
        (node: Handle, params: Out<AllocationParams>) => get_allocation;
    context cuGraphAddMemFreeNode "cuGraphAddMemFreeNode" 11040
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, addr: u64) => add_free;
    context cuGraphMemFreeNodeGetParams "cuGraphMemFreeNodeGetParams" 11040 (node: Handle, addr: Out<u64>) => get_free;
    context cuGraphAddNode "cuGraphAddNode" 12020
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, params: Out<NodeParams>) => add_node;
    context cuGraphAddNode_v2 "cuGraphAddNode" 12030
        (node: Out<Handle>, graph: Handle, after: In<Handle>, kinds: In<EdgeKind>, count: u64,
         params: Out<NodeParams>) => add_node_behind_edges;
    context cuGraphNodeSetParams "cuGraphNodeSetParams" 12020 (node: Handle, params: Out<NodeParams>) => set_node;
    context cuGraphExecNodeSetParams "cuGraphExecNodeSetParams" 12020
        (executable: Handle, node: Handle, params: Out<NodeParams>) => set_node_of_executable;
}

/// `CUDA_MEMSET_NODE_PARAMS`; a context that follows says nothing here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FillParams {
    dst: u64,
    pitch: u64,
    value: u32,
    element_bytes: u32,
    width: u64,
    height: u64,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostParams {
    function: Option<HostFn>,
    argument: u64,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationParams {
    /// Properties of a pool, and who has access.
    properties: [u64; 13],
    size_bytes: u64,
    /// The result.
    addr: u64,
}

/// `CUgraphNodeParams`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NodeParams {
    kind: u32,
    reserved: [u32; 3],
    /// One of the structures above, by the kind.
    of_kind: [u64; 29],
    reserved_too: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct CopyParams {
    flags: [u32; 2],
    context: Handle,
    copy: Copy3D,
}

const _: () = assert!(size_of::<FillParams>() == 40 && size_of::<HostParams>() == 16);
const _: () = assert!(size_of::<AllocationParams>() == 120 && size_of::<NodeParams>() == 256);
const _: () = assert!(size_of::<CopyParams>() == 216);

impl FillParams {
    fn operation(self, current: &Current) -> Outcome<Operation> {
        let value = match self.element_bytes {
            1 => u8::try_from(self.value).map(FillValue::U8),
            2 => u16::try_from(self.value).map(FillValue::U16),
            4 => Ok(FillValue::U32(self.value)),
            _ => return Err(CuResult::INVALID_VALUE),
        };
        let value = value.map_err(|_| CuResult::INVALID_VALUE)?;
        let size = (self.width, self.height);
        let rows = fill::rows(current.session, self.dst, self.pitch, value, size)?;
        Ok(rows.map_or(Operation::Empty, |dst| Operation::Fill { dst, value }))
    }
}

fn copy_operation(copy: Copy3D) -> Outcome<Operation> {
    copy.transfers().try_for_each(|transfer| transfer.map(|_| ()))?;
    Ok(Operation::Copy(Box::new(copy)))
}

impl HostParams {
    fn operation(self) -> Outcome<Operation> {
        let function = self.function.ok_or(CuResult::INVALID_VALUE)?;
        Ok(Operation::HostFunction(HostFunction::Function(
            function,
            self.argument as usize,
        )))
    }
}

fn record_operation(current: &Current, event: Handle) -> Outcome<Operation> {
    let found = event::find(current.session, event)?;
    found.recordings.by_graph();
    Ok(Operation::RecordEvent { event, id: found.id })
}

fn wait_operation(current: &Current, event: Handle) -> Outcome<Operation> {
    let id = event::find(current.session, event)?.id;
    Ok(Operation::WaitEvent { event, id })
}

fn free_operation(addr: u64) -> Outcome<Operation> {
    if addr == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    Ok(Operation::Free { addr })
}

/// What a node of any kind is to do; what its making gives is put into `params`.
fn operation(current: &Current, graph: Option<Handle>, params: Out<NodeParams>) -> Outcome<Operation> {
    let kind = params.get()?.kind;
    // Behind the kind and what is reserved.
    let of_kind = params.cast::<u64>().nth(2);
    match kind {
        0 => of_kind.cast::<KernelParams>().get()?.operation(current),
        1 => copy_operation(of_kind.cast::<CopyParams>().get()?.copy),
        2 => of_kind.cast::<FillParams>().get()?.operation(current),
        3 => of_kind.cast::<HostParams>().get()?.operation(),
        4 => inner_operation(current, of_kind.cast().get()?),
        5 => Ok(Operation::Empty),
        6 => wait_operation(current, of_kind.cast().get()?),
        7 => record_operation(current, of_kind.cast().get()?),
        10 => allocation(current, graph.ok_or(CuResult::INVALID_VALUE)?, of_kind.cast()),
        11 => free_operation(of_kind.get()?),
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

fn inner_operation(current: &Current, graph: Handle) -> Outcome<Operation> {
    current.session.graphs.copy(graph).map(Operation::Graph)
}

fn allocation(current: &Current, graph: Handle, params: Out<AllocationParams>) -> Outcome<Operation> {
    let given = params.get()?;
    let graph = current.session.graphs.find(graph)?;
    let memory = alloc_for_graph(current, given.size_bytes)?;
    let addr = memory.addr;
    graph.lock().memory.push(memory);
    params.set(AllocationParams { addr, ..given })?;
    let size_bytes = given.size_bytes;
    Ok(Operation::Allocate { addr, size_bytes })
}

fn add_copy(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    copy: In<Copy3D>,
    _context: Handle,
) -> Outcome {
    add(&current, node, graph, (after, count), copy_operation(copy.get()?)?)
}

fn get_copy(current: Current, node: Handle, copy: Out<Copy3D>) -> Outcome {
    copy.set(get(&current, node, |operation| match operation {
        Operation::Copy(copy) => Some(**copy),
        _ => None,
    })?)
}

fn set_copy(current: Current, node: Handle, copy: In<Copy3D>) -> Outcome {
    set(&current, node, copy_operation(copy.get()?)?)
}

fn set_copy_of_executable(
    current: Current,
    executable: Handle,
    node: Handle,
    copy: In<Copy3D>,
    _context: Handle,
) -> Outcome {
    set_of_executable(&current, executable, node, copy_operation(copy.get()?)?)
}

fn add_fill(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    fill: In<FillParams>,
    _context: Handle,
) -> Outcome {
    let operation = fill.get()?.operation(&current)?;
    add(&current, node, graph, (after, count), operation)
}

fn get_fill(current: Current, node: Handle, fill: Out<FillParams>) -> Outcome {
    fill.set(get(&current, node, |operation| match *operation {
        Operation::Fill { dst, value } => {
            let (value, element_bytes) = match value {
                FillValue::U8(value) => (value.into(), 1),
                FillValue::U16(value) => (value.into(), 2),
                FillValue::U32(value) => (value, 4),
            };
            Some(FillParams {
                dst: dst.addr,
                pitch: dst.pitch,
                value,
                element_bytes,
                width: dst.width / u64::from(element_bytes),
                height: dst.rows,
            })
        }
        _ => None,
    })?)
}

fn set_fill(current: Current, node: Handle, fill: In<FillParams>) -> Outcome {
    set(&current, node, fill.get()?.operation(&current)?)
}

fn set_fill_of_executable(
    current: Current,
    executable: Handle,
    node: Handle,
    fill: In<FillParams>,
    _context: Handle,
) -> Outcome {
    set_of_executable(&current, executable, node, fill.get()?.operation(&current)?)
}

fn add_host(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    function: In<HostParams>,
) -> Outcome {
    add(&current, node, graph, (after, count), function.get()?.operation()?)
}

fn get_host(current: Current, node: Handle, function: Out<HostParams>) -> Outcome {
    function.set(get(&current, node, |operation| match *operation {
        Operation::HostFunction(HostFunction::Function(function, argument)) => Some(HostParams {
            function: Some(function),
            argument: argument as u64,
        }),
        _ => None,
    })?)
}

fn set_host(current: Current, node: Handle, function: In<HostParams>) -> Outcome {
    set(&current, node, function.get()?.operation()?)
}

fn set_host_of_executable(current: Current, executable: Handle, node: Handle, function: In<HostParams>) -> Outcome {
    set_of_executable(&current, executable, node, function.get()?.operation()?)
}

fn add_graph(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    inner: Handle,
) -> Outcome {
    let operation = inner_operation(&current, inner)?;
    add(&current, node, graph, (after, count), operation)
}

fn get_graph(current: Current, node: Handle, inner: Out<Handle>) -> Outcome {
    inner.set(get(&current, node, |operation| match *operation {
        Operation::Graph(inner) => Some(inner),
        _ => None,
    })?)
}

fn add_empty(current: Current, node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64) -> Outcome {
    add(&current, node, graph, (after, count), Operation::Empty)
}

fn add_record(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    event: Handle,
) -> Outcome {
    let operation = record_operation(&current, event)?;
    add(&current, node, graph, (after, count), operation)
}

fn add_wait(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    event: Handle,
) -> Outcome {
    let operation = wait_operation(&current, event)?;
    add(&current, node, graph, (after, count), operation)
}

fn get_record(current: Current, node: Handle, event: Out<Handle>) -> Outcome {
    event.set(get(&current, node, |operation| match *operation {
        Operation::RecordEvent { event, .. } => Some(event),
        _ => None,
    })?)
}

fn get_wait(current: Current, node: Handle, event: Out<Handle>) -> Outcome {
    event.set(get(&current, node, |operation| match *operation {
        Operation::WaitEvent { event, .. } => Some(event),
        _ => None,
    })?)
}

fn set_record(current: Current, node: Handle, event: Handle) -> Outcome {
    set(&current, node, record_operation(&current, event)?)
}

fn set_wait(current: Current, node: Handle, event: Handle) -> Outcome {
    set(&current, node, wait_operation(&current, event)?)
}

fn set_record_of_executable(current: Current, executable: Handle, node: Handle, event: Handle) -> Outcome {
    set_of_executable(&current, executable, node, record_operation(&current, event)?)
}

fn set_wait_of_executable(current: Current, executable: Handle, node: Handle, event: Handle) -> Outcome {
    set_of_executable(&current, executable, node, wait_operation(&current, event)?)
}

fn add_allocation(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    params: Out<AllocationParams>,
) -> Outcome {
    let operation = allocation(&current, graph, params)?;
    add(&current, node, graph, (after, count), operation)
}

fn get_allocation(current: Current, node: Handle, params: Out<AllocationParams>) -> Outcome {
    let (addr, size_bytes) = get(&current, node, |operation| match *operation {
        Operation::Allocate { addr, size_bytes } => Some((addr, size_bytes)),
        _ => None,
    })?;
    params.set(AllocationParams {
        properties: [0; 13],
        size_bytes,
        addr,
    })
}

fn add_free(current: Current, node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, addr: u64) -> Outcome {
    add(&current, node, graph, (after, count), free_operation(addr)?)
}

fn get_free(current: Current, node: Handle, addr: Out<u64>) -> Outcome {
    addr.set(get(&current, node, |operation| match *operation {
        Operation::Free { addr } => Some(addr),
        _ => None,
    })?)
}

fn add_node(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    params: Out<NodeParams>,
) -> Outcome {
    let operation = operation(&current, Some(graph), params)?;
    add(&current, node, graph, (after, count), operation)
}

fn add_node_behind_edges(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    kinds: In<EdgeKind>,
    count: u64,
    params: Out<NodeParams>,
) -> Outcome {
    check_kinds(kinds, count)?;
    add_node(current, node, graph, after, count, params)
}

fn set_node(current: Current, node: Handle, params: Out<NodeParams>) -> Outcome {
    set(&current, node, operation(&current, None, params)?)
}

fn set_node_of_executable(current: Current, executable: Handle, node: Handle, params: Out<NodeParams>) -> Outcome {
    set_of_executable(&current, executable, node, operation(&current, None, params)?)
}
