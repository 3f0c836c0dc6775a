//! Copies of plain ranges.

use crate::copy_params::{Copy3D, Transfer};
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::result::Outcome;
use crate::transfer::{self, Mode};

entry_points! {
    context cuMemcpy "cuMemcpy" 4000 (dst: u64, src: u64, size: u64) => copy, cuMemcpy_ptds 7000;
    context cuMemcpyHtoD_v2 "cuMemcpyHtoD" 3020 (dst: u64, src: u64, size: u64) => copy, cuMemcpyHtoD_v2_ptds 7000;
    context cuMemcpyDtoH_v2 "cuMemcpyDtoH" 3020 (dst: u64, src: u64, size: u64) => copy, cuMemcpyDtoH_v2_ptds 7000;
    context cuMemcpyDtoD_v2 "cuMemcpyDtoD" 3020 (dst: u64, src: u64, size: u64) => copy, cuMemcpyDtoD_v2_ptds 7000;
    context cuMemcpyAsync "cuMemcpyAsync" 4000
        (dst: u64, src: u64, size: u64, stream: Handle) => copy_async, cuMemcpyAsync_ptsz 7000;
    context cuMemcpyHtoDAsync_v2 "cuMemcpyHtoDAsync" 3020
        (dst: u64, src: u64, size: u64, stream: Handle) => copy_async, cuMemcpyHtoDAsync_v2_ptsz 7000;
    context cuMemcpyDtoHAsync_v2 "cuMemcpyDtoHAsync" 3020
        (dst: u64, src: u64, size: u64, stream: Handle) => copy_async, cuMemcpyDtoHAsync_v2_ptsz 7000;
    context cuMemcpyDtoDAsync_v2 "cuMemcpyDtoDAsync" 3020
        (dst: u64, src: u64, size: u64, stream: Handle) => copy_async, cuMemcpyDtoDAsync_v2_ptsz 7000;
    context cuMemcpyPeer "cuMemcpyPeer" 4000
        (dst: u64, dst_context: Handle, src: u64, src_context: Handle, size: u64) => copy_peer, cuMemcpyPeer_ptds 7000;
    context cuMemcpyPeerAsync "cuMemcpyPeerAsync" 4000
        (dst: u64, dst_context: Handle, src: u64, src_context: Handle, size: u64, stream: Handle) => copy_peer_async, cuMemcpyPeerAsync_ptsz 7000;
}

fn copy(current: Current, dst: u64, src: u64, size: u64) -> Outcome {
    let stream = current.default_stream()?;
    current.session.captures.refuse(stream)?;
    transfer::run(&current, Transfer::range(dst, src, size), stream, Mode::Sync)
}

fn copy_async(current: Current, dst: u64, src: u64, size: u64, stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    let transfer = Transfer::range(dst, src, size);
    let captured = current.session.captures.record(&current.session.graphs, stream, || {
        Ok(Operation::Copy(Box::new(Copy3D::of(&transfer))))
    });
    captured.unwrap_or_else(|| transfer::run(&current, transfer, stream, Mode::Async))
}

fn copy_peer(current: Current, dst: u64, _: Handle, src: u64, _: Handle, size: u64) -> Outcome {
    copy(current, dst, src, size)
}

fn copy_peer_async(current: Current, dst: u64, _: Handle, src: u64, _: Handle, size: u64, stream: Handle) -> Outcome {
    copy_async(current, dst, src, size, stream)
}
