//! Capture of streams.

use std::ffi::c_void;

use crate::graph::capture::Mode;
use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::table_slots::Address;
use crate::thread_state;

use super::graph::{EdgeKind, check_kinds};
use super::stream::named;

entry_points! {
    context cuStreamBeginCapture "cuStreamBeginCapture" 10000 (stream: Handle) => begin, cuStreamBeginCapture_ptsz 10000;
    context cuStreamBeginCapture_v2 "cuStreamBeginCapture" 10010
        (stream: Handle, mode: u32) => begin_in_mode, cuStreamBeginCapture_v2_ptsz 10010;
    context cuStreamBeginCaptureToGraph "cuStreamBeginCaptureToGraph" 12030
        (stream: Handle, graph: Handle, after: In<Handle>, kinds: In<EdgeKind>, count: u64, mode: u32) => begin_to_graph, cuStreamBeginCaptureToGraph_ptsz 12030;
    context cuStreamEndCapture "cuStreamEndCapture" 10000
        (stream: Handle, graph: Out<Handle>) => end, cuStreamEndCapture_ptsz 10000;
    context cuStreamIsCapturing "cuStreamIsCapturing" 10000
        (stream: Handle, status: Out<u32>) => is_capturing, cuStreamIsCapturing_ptsz 10000;
    context cuStreamGetCaptureInfo "cuStreamGetCaptureInfo" 10010
        (stream: Handle, status: Out<u32>, id: Out<u64>) => get_info, cuStreamGetCaptureInfo_ptsz 10010;
    context cuStreamGetCaptureInfo_v2 "cuStreamGetCaptureInfo" 11030
        (stream: Handle, status: Out<u32>, id: Out<u64>, graph: Out<Handle>, after: Out<Address>, count: Out<u64>) => get_more_info, cuStreamGetCaptureInfo_v2_ptsz 11030;
    context cuStreamGetCaptureInfo_v3 "cuStreamGetCaptureInfo" 12030
        (stream: Handle, status: Out<u32>, id: Out<u64>, graph: Out<Handle>, after: Out<Address>, kinds: Out<Address>,
         count: Out<u64>) => get_info_with_kinds, cuStreamGetCaptureInfo_v3_ptsz 12030;
    context cuStreamUpdateCaptureDependencies "cuStreamUpdateCaptureDependencies" 11030
        (stream: Handle, after: In<Handle>, count: u64, flags: u32) => update, cuStreamUpdateCaptureDependencies_ptsz 11030;
    context cuStreamUpdateCaptureDependencies_v2 "cuStreamUpdateCaptureDependencies" 12030
        (stream: Handle, after: In<Handle>, kinds: In<EdgeKind>, count: u64, flags: u32) => update_with_kinds, cuStreamUpdateCaptureDependencies_v2_ptsz 12030;
    plain cuThreadExchangeStreamCaptureMode "cuThreadExchangeStreamCaptureMode" 10010 (mode: Out<u32>) => exchange_mode;
}

/// `CUstreamCaptureStatus`.
mod status {
    pub const NONE: u32 = 0;
    pub const ACTIVE: u32 = 1;
    pub const INVALIDATED: u32 = 2;
}

fn begin(current: Current, stream: Handle) -> Outcome {
    begin_in_mode(current, stream, Mode::Global.number())
}

fn begin_in_mode(current: Current, stream: Handle, mode: u32) -> Outcome {
    let session = current.session;
    let (stream, mode) = (named(&current, stream)?, Mode::from_number(mode)?);
    session.captures.begin(&session.graphs, stream, mode, None)
}

fn begin_to_graph(
    current: Current,
    stream: Handle,
    graph: Handle,
    after: In<Handle>,
    kinds: In<EdgeKind>,
    count: u64,
    mode: u32,
) -> Outcome {
    check_kinds(kinds, count)?;
    let session = current.session;
    let (stream, mode) = (named(&current, stream)?, Mode::from_number(mode)?);
    let given = Some((graph, after.list(count)?));
    session.captures.begin(&session.graphs, stream, mode, given)
}

/// A capture that has failed is over, too.
fn end(current: Current, stream: Handle, graph: Out<Handle>) -> Outcome {
    let session = current.session;
    let ended = session.captures.end(&session.graphs, current.stream(stream)?);
    graph.set_if_wanted(ended.unwrap_or_default());
    ended.map(|_| ())
}

fn is_capturing(current: Current, stream: Handle, status: Out<u32>) -> Outcome {
    get_info(current, stream, status, Out::NULL)
}

fn get_info(current: Current, stream: Handle, status: Out<u32>, id: Out<u64>) -> Outcome {
    get_more_info(current, stream, status, id, Out::NULL, Out::NULL, Out::NULL)
}

fn get_more_info(
    current: Current,
    stream: Handle,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    after: Out<Address>,
    count: Out<u64>,
) -> Outcome {
    let told = current.session.captures.tell(current.stream(stream)?)?;
    let Some(told) = told else {
        return status.set(status::NONE);
    };
    if !told.is_valid {
        return status.set(status::INVALIDATED);
    }
    status.set(status::ACTIVE)?;
    id.set_if_wanted(told.id);
    graph.set_if_wanted(told.graph);
    let (addr, length) = told.after;
    after.set_if_wanted(Address(std::ptr::with_exposed_provenance::<c_void>(addr as usize)));
    count.set_if_wanted(length as u64);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn get_info_with_kinds(
    current: Current,
    stream: Handle,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    after: Out<Address>,
    kinds: Out<Address>,
    count: Out<u64>,
) -> Outcome {
    // All edges are ordinary ones, which needs no saying.
    kinds.set_if_wanted(Address(std::ptr::null()));
    get_more_info(current, stream, status, id, graph, after, count)
}

fn update(current: Current, stream: Handle, after: In<Handle>, count: u64, flags: u32) -> Outcome {
    const ALONE: u32 = 1;
    if flags > ALONE {
        return Err(CuResult::INVALID_VALUE);
    }
    let (session, stream) = (current.session, current.stream(stream)?);
    let nodes = after.list(count)?;
    session
        .captures
        .set_after(&session.graphs, stream, &nodes, flags == ALONE)
}

fn update_with_kinds(
    current: Current,
    stream: Handle,
    after: In<Handle>,
    kinds: In<EdgeKind>,
    count: u64,
    flags: u32,
) -> Outcome {
    check_kinds(kinds, count)?;
    update(current, stream, after, count, flags)
}

/// What a thread may not call during a capture differs by this mode; here it may call everything.
fn exchange_mode(_: (), mode: Out<u32>) -> Outcome {
    let wanted = Mode::from_number(mode.get()?)?;
    mode.set(thread_state::exchange_capture_mode(wanted.number()))
}
