//! Nodes of graphs that launch kernels.

use hetckpt_abi::launch_shape::LaunchShape;

use crate::graph::operation::{Launch, Operation};
use crate::guard::Current;
use crate::handles::Handle;
use crate::log;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

use super::graph_node_access::{add, get, set, set_of_executable};
use super::kernel;
use super::launch::{self, Request};

entry_points! {
    context cuGraphAddKernelNode "cuGraphAddKernelNode" 10000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, params: In<OldKernelParams>) => add_old_kernel;
    context cuGraphAddKernelNode_v2 "cuGraphAddKernelNode" 12000
        (node: Out<Handle>, graph: Handle, after: In<Handle>, count: u64, params: In<KernelParams>) => add_kernel;
    context cuGraphKernelNodeGetParams "cuGraphKernelNodeGetParams" 10000
        (node: Handle, params: Out<OldKernelParams>) => get_old_kernel;
    context cuGraphKernelNodeGetParams_v2 "cuGraphKernelNodeGetParams" 12000
        (node: Handle, params: Out<KernelParams>) => get_kernel;
    context cuGraphKernelNodeSetParams "cuGraphKernelNodeSetParams" 10000
        (node: Handle, params: In<OldKernelParams>) => set_old_kernel;
    context cuGraphKernelNodeSetParams_v2 "cuGraphKernelNodeSetParams" 12000
        (node: Handle, params: In<KernelParams>) => set_kernel;
    context cuGraphExecKernelNodeSetParams "cuGraphExecKernelNodeSetParams" 10010
        (executable: Handle, node: Handle, params: In<OldKernelParams>) => set_old_kernel_of_executable;
    context cuGraphExecKernelNodeSetParams_v2 "cuGraphExecKernelNodeSetParams" 12000
        (executable: Handle, node: Handle, params: In<KernelParams>) => set_kernel_of_executable;
    context cuGraphKernelNodeGetAttribute "cuGraphKernelNodeGetAttribute" 11000
        (node: Handle, attribute: u32, value: Out<u32>) => get_kernel_attribute;
    context cuGraphKernelNodeSetAttribute "cuGraphKernelNodeSetAttribute" 11000
        (node: Handle, attribute: u32, value: In<u32>) => set_kernel_attribute;
    context cuGraphKernelNodeCopyAttributes "cuGraphKernelNodeCopyAttributes" 11000
        (dst: Handle, src: Handle) => copy_kernel_attributes;
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OldKernelParams {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    params: In<u64>,
    extra: In<u64>,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelParams {
    old: OldKernelParams,
    kernel: Handle,
    context: Handle,
}

const _: () = assert!(size_of::<OldKernelParams>() == 56 && size_of::<KernelParams>() == 72);

const ATTRIBUTE_COOPERATIVE: u32 = 2;

impl KernelParams {
    /// Of the older structure.
    fn of_old(old: OldKernelParams) -> Self {
        Self {
            old,
            kernel: Handle::NULL,
            context: Handle::NULL,
        }
    }

    /// The launch.
    pub fn operation(self, current: &Current) -> Outcome<Operation> {
        let old = self.old;
        let kernel = if old.function == Handle::NULL {
            self.kernel
        } else {
            old.function
        };
        let request = Request {
            kernel,
            shape: LaunchShape {
                grid: old.grid,
                block: old.block,
                dynamic_shared_bytes: old.shared_bytes,
                cooperative: false,
            },
            stream: Handle::NULL,
            params: old.params,
            extra: old.extra,
        };
        launch::prepare(current.session, &request).map(Operation::Launch)
    }
}

fn launch_of(operation: &Operation) -> Option<&Launch> {
    match operation {
        Operation::Launch(launch) => Some(launch),
        _ => None,
    }
}

fn is_cooperative(current: &Current, node: Handle) -> Outcome<bool> {
    get(current, node, |operation| Some(launch_of(operation)?.shape.cooperative))
}

fn add_old_kernel(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    params: In<OldKernelParams>,
) -> Outcome {
    let operation = KernelParams::of_old(params.get()?).operation(&current)?;
    add(&current, node, graph, (after, count), operation)
}

fn add_kernel(
    current: Current,
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: u64,
    params: In<KernelParams>,
) -> Outcome {
    let operation = params.get()?.operation(&current)?;
    add(&current, node, graph, (after, count), operation)
}

/// The addresses of parameters are good until the node is changed.
fn get_old_kernel(current: Current, node: Handle, params: Out<OldKernelParams>) -> Outcome {
    let launch = get(&current, node, |operation| launch_of(operation).cloned())?;
    let resolved = kernel::find(current.session, launch.function)?.resolve(&current.session.device)?;
    let first = launch.params.as_ptr().expose_provenance() as u64;
    let addresses = resolved
        .description()
        .params
        .iter()
        .map(|param| first + u64::from(param.offset));
    let graph = current.session.graphs.graph_of(node)?;
    let mut graph = graph.lock();
    let shown = &mut graph.node_mut(node)?.shown;
    *shown = addresses.collect();
    params.set(OldKernelParams {
        function: launch.function,
        grid: launch.shape.grid,
        block: launch.shape.block,
        shared_bytes: launch.shape.dynamic_shared_bytes,
        params: In::to(shown),
        extra: In::NULL,
    })
}

fn get_kernel(current: Current, node: Handle, params: Out<KernelParams>) -> Outcome {
    get_old_kernel(current, node, params.cast())?;
    let old = params.cast::<OldKernelParams>().get()?;
    params.set(KernelParams {
        old,
        kernel: old.function,
        context: current.context,
    })
}

fn set_old_kernel(current: Current, node: Handle, params: In<OldKernelParams>) -> Outcome {
    let operation = KernelParams::of_old(params.get()?).operation(&current)?;
    set(&current, node, operation)
}

fn set_kernel(current: Current, node: Handle, params: In<KernelParams>) -> Outcome {
    let operation = params.get()?.operation(&current)?;
    set(&current, node, operation)
}

fn set_old_kernel_of_executable(
    current: Current,
    executable: Handle,
    node: Handle,
    params: In<OldKernelParams>,
) -> Outcome {
    let operation = KernelParams::of_old(params.get()?).operation(&current)?;
    set_of_executable(&current, executable, node, operation)
}

fn set_kernel_of_executable(current: Current, executable: Handle, node: Handle, params: In<KernelParams>) -> Outcome {
    let operation = params.get()?.operation(&current)?;
    set_of_executable(&current, executable, node, operation)
}

fn set_cooperative(current: &Current, node: Handle, cooperative: bool) -> Outcome {
    let graph = current.session.graphs.graph_of(node)?;
    match &mut graph.lock().node_mut(node)?.operation {
        Operation::Launch(launch) => launch.shape.cooperative = cooperative,
        _ => return Err(CuResult::INVALID_VALUE),
    }
    Ok(())
}

fn get_kernel_attribute(current: Current, node: Handle, attribute: u32, value: Out<u32>) -> Outcome {
    let cooperative = is_cooperative(&current, node)?;
    match attribute {
        ATTRIBUTE_COOPERATIVE => value.set(cooperative.into()),
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

/// A cluster of more than one block is refused. The other attributes are preferences, and ignored.
fn set_kernel_attribute(current: Current, node: Handle, attribute: u32, value: In<u32>) -> Outcome {
    const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
    is_cooperative(&current, node)?;
    match attribute {
        ATTRIBUTE_COOPERATIVE => set_cooperative(&current, node, value.get()? != 0),
        ATTRIBUTE_CLUSTER_DIMENSION if value.list(3)?.iter().any(|&n| n > 1) => Err(CuResult::NOT_SUPPORTED),
        ATTRIBUTE_CLUSTER_DIMENSION => Ok(()),
        other => {
            log::detail(&format!("launch attribute {other} is ignored"));
            Ok(())
        }
    }
}

fn copy_kernel_attributes(current: Current, dst: Handle, src: Handle) -> Outcome {
    let cooperative = is_cooperative(&current, src)?;
    set_cooperative(&current, dst, cooperative)
}
