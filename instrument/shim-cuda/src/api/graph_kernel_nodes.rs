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
use super::launch_config::{cluster_of, divides};

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
const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;

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
                dynamic_shared_bytes: old.shared_bytes,
                ..LaunchShape::new(old.grid, old.block)
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

/// Lets `change` look at, and change, the shape of a node's launch.
fn with_shape<T>(current: &Current, node: Handle, change: impl FnOnce(&mut LaunchShape) -> Outcome<T>) -> Outcome<T> {
    let graph = current.session.graphs.graph_of(node)?;
    let mut graph = graph.lock();
    match &mut graph.node_mut(node)?.operation {
        Operation::Launch(launch) => change(&mut launch.shape),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn get_kernel_attribute(current: Current, node: Handle, attribute: u32, value: Out<u32>) -> Outcome {
    let shape = with_shape(&current, node, |shape| Ok(*shape))?;
    match attribute {
        ATTRIBUTE_COOPERATIVE => value.set(shape.cooperative.into()),
        ATTRIBUTE_CLUSTER_DIMENSION => {
            let mut sizes = shape.cluster.iter().enumerate();
            sizes.try_for_each(|(at, &size)| value.nth(at).set(size.into()))
        }
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

/// Attributes that are preferences are ignored.
fn set_kernel_attribute(current: Current, node: Handle, attribute: u32, value: In<u32>) -> Outcome {
    with_shape(&current, node, |shape| {
        match attribute {
            ATTRIBUTE_COOPERATIVE => shape.cooperative = value.get()? != 0,
            ATTRIBUTE_CLUSTER_DIMENSION => {
                let size = [value.nth(0)?, value.nth(1)?, value.nth(2)?];
                let cluster = cluster_of(size)?;
                if !divides(cluster, shape.grid) {
                    return Err(CuResult::INVALID_CLUSTER_SIZE);
                }
                shape.cluster = cluster;
            }
            other => log::detail(&format!("launch attribute {other} is ignored")),
        }
        Ok(())
    })
}

fn copy_kernel_attributes(current: Current, dst: Handle, src: Handle) -> Outcome {
    let from = with_shape(&current, src, |shape| Ok(*shape))?;
    with_shape(&current, dst, |shape| {
        (shape.cooperative, shape.cluster) = (from.cooperative, from.cluster);
        Ok(())
    })
}
