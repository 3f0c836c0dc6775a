//! Graphs made ready to be launched, changed as such, and launched.

use std::ffi::c_void;
use std::sync::Arc;

use hetckpt_ring::command::{Command, GraphId};
use parking_lot::{Mutex, MutexGuard};

use crate::graph::executable::{Executable, Misfit};
use crate::graph_launch;
use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{Out, TextOut};
use crate::proc_address::{Entry, Pointer};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    context cuGraphInstantiate "cuGraphInstantiate" 10000
        (executable: Out<Handle>, graph: Handle, node: Out<Handle>, log: TextOut, room: u64) => instantiate_with_log;
    context cuGraphInstantiate_v2 "cuGraphInstantiate" 11000
        (executable: Out<Handle>, graph: Handle, node: Out<Handle>, log: TextOut, room: u64) => instantiate_with_log;
    context cuGraphInstantiateWithFlags "cuGraphInstantiateWithFlags" 11040
        (executable: Out<Handle>, graph: Handle, flags: u64) => instantiate;
    context cuGraphInstantiateWithParams "cuGraphInstantiateWithParams" 12000
        (executable: Out<Handle>, graph: Handle, params: Out<InstantiateParams>) => instantiate_with_params, cuGraphInstantiateWithParams_ptsz 12000;
    context cuGraphExecGetFlags "cuGraphExecGetFlags" 12000 (executable: Handle, flags: Out<u64>) => get_flags;
    context cuGraphExecDestroy "cuGraphExecDestroy" 10000 (executable: Handle) => destroy;
    context cuGraphUpload "cuGraphUpload" 11010
        (executable: Handle, stream: Handle) => upload, cuGraphUpload_ptsz 11010;
    context cuGraphLaunch "cuGraphLaunch" 10000
        (executable: Handle, stream: Handle) => launch, cuGraphLaunch_ptsz 10000;
    context cuGraphExecUpdate "cuGraphExecUpdate" 10020
        (executable: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) => update;
    context cuGraphExecUpdate_v2 "cuGraphExecUpdate" 12000
        (executable: Handle, graph: Handle, info: Out<UpdateInfo>) => update_with_info;
    context cuGraphExecChildGraphNodeSetParams "cuGraphExecChildGraphNodeSetParams" 11010
        (executable: Handle, node: Handle, inner: Handle) => set_inner;
    context cuGraphNodeSetEnabled "cuGraphNodeSetEnabled" 11060
        (executable: Handle, node: Handle, is_enabled: u32) => set_enabled;
    context cuGraphNodeGetEnabled "cuGraphNodeGetEnabled" 11060
        (executable: Handle, node: Handle, is_enabled: Out<u32>) => get_enabled;
}

/// From CUDA 12 on, the plainer name stands for this one.
pub static ALIASES: &[Entry] = &[Entry {
    name: "cuGraphInstantiate",
    version: 12000,
    is_per_thread: false,
    pointer: Pointer(cuGraphInstantiateWithFlags as *const c_void),
}];

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct InstantiateParams {
    flags: u64,
    upload_stream: Handle,
    node: Handle,
    /// `CUgraphInstantiateResult`.
    result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UpdateInfo {
    result: u32,
    node: Handle,
    other_end: Handle,
}

const _: () = assert!(size_of::<InstantiateParams>() == 32 && size_of::<UpdateInfo>() == 24);

/// Flags of instantiation.
mod flag {
    pub const DEVICE_LAUNCH: u64 = 4;
    /// Free memory at a launch, upload, heed priorities of nodes: nothing to be done here.
    pub const ALL: u64 = 15;
}

fn find(session: &Session, executable: Handle) -> Outcome<Arc<Mutex<Executable>>> {
    session.executables.get(executable).ok_or(CuResult::INVALID_VALUE)
}

fn instantiate(current: Current, executable: Out<Handle>, graph: Handle, flags: u64) -> Outcome {
    if executable.is_null() || flags & !flag::ALL != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if flags & flag::DEVICE_LAUNCH != 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let id = GraphId(current.session.device.next_id());
    let made = Executable::new(&current.session.graphs, graph, flags, id)?;
    executable.set(current.session.executables.insert(Arc::new(Mutex::new(made))))
}

fn instantiate_with_log(
    current: Current,
    executable: Out<Handle>,
    graph: Handle,
    node: Out<Handle>,
    log: TextOut,
    room: u64,
) -> Outcome {
    node.set_if_wanted(Handle::NULL);
    // Not wanted, if there is no room.
    let _ = log.set("", room as usize);
    instantiate(current, executable, graph, 0)
}

fn instantiate_with_params(
    current: Current,
    executable: Out<Handle>,
    graph: Handle,
    params: Out<InstantiateParams>,
) -> Outcome {
    const FAILED: u32 = 1;
    let given = params.get()?;
    let made = instantiate(current, executable, graph, given.flags);
    params.set(InstantiateParams {
        node: Handle::NULL,
        result: if made.is_ok() { 0 } else { FAILED },
        ..given
    })?;
    made
}

fn get_flags(current: Current, executable: Handle, flags: Out<u64>) -> Outcome {
    let executable = find(current.session, executable)?;
    let known = executable.lock().flags;
    flags.set(known)
}

/// What was launched still runs to its end.
fn destroy(current: Current, executable: Handle) -> Outcome {
    let gone = current
        .session
        .executables
        .remove(executable)
        .ok_or(CuResult::INVALID_VALUE)?;
    let graph = gone.lock().id;
    current.session.device.send(Command::GraphForget { graph })
}

fn upload(current: Current, executable: Handle, stream: Handle) -> Outcome {
    current.stream(stream)?;
    find(current.session, executable).map(|_| ())
}

fn launch(current: Current, executable: Handle, stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    let executable = find(current.session, executable)?;
    current.session.captures.refuse(stream)?;
    graph_launch::launch(&current, &mut executable.lock(), stream)
}

fn try_update(current: &Current, executable: Handle, graph: Handle) -> Outcome<Option<Misfit>> {
    let executable = find(current.session, executable)?;
    let updated = executable.lock().update(&current.session.graphs, graph)?;
    Ok(updated.err())
}

fn update(current: Current, executable: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) -> Outcome {
    let misfit = try_update(&current, executable, graph)?;
    node.set_if_wanted(misfit.map_or(Handle::NULL, |misfit| misfit.node));
    result.set_if_wanted(misfit.map_or(0, |misfit| misfit.reason));
    misfit.map_or(Ok(()), |_| Err(CuResult::GRAPH_EXEC_UPDATE_FAILURE))
}

fn update_with_info(current: Current, executable: Handle, graph: Handle, info: Out<UpdateInfo>) -> Outcome {
    let misfit = try_update(&current, executable, graph)?;
    info.set_if_wanted(UpdateInfo {
        result: misfit.map_or(0, |misfit| misfit.reason),
        node: misfit.map_or(Handle::NULL, |misfit| misfit.node),
        other_end: Handle::NULL,
    });
    misfit.map_or(Ok(()), |_| Err(CuResult::GRAPH_EXEC_UPDATE_FAILURE))
}

fn set_inner(current: Current, executable: Handle, node: Handle, inner: Handle) -> Outcome {
    let executable = find(current.session, executable)?;
    let mut executable = executable.lock();
    let fits = executable.update_inner(&current.session.graphs, node, inner)?;
    fits.map_err(|_| CuResult::INVALID_VALUE)
}

/// The executable graph, if the node is one that can be left out.
fn optional<'a>(executable: &'a Mutex<Executable>, node: Handle) -> Outcome<MutexGuard<'a, Executable>> {
    let mut executable = executable.lock();
    let is_optional = executable.step_mut(node)?.operation.kind() <= 2;
    if is_optional {
        Ok(executable)
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

fn set_enabled(current: Current, executable: Handle, node: Handle, is_enabled: u32) -> Outcome {
    let executable = find(current.session, executable)?;
    optional(&executable, node)?.step_mut(node)?.is_enabled = is_enabled != 0;
    Ok(())
}

fn get_enabled(current: Current, executable: Handle, node: Handle, is_enabled: Out<u32>) -> Outcome {
    let executable = find(current.session, executable)?;
    let known = optional(&executable, node)?.step_mut(node)?.is_enabled;
    is_enabled.set(known.into())
}
