//! Writes of words in a stream's order. Waits for words are refused: nothing else could go on in the stream meanwhile,
//! and a pause would have to wait for whoever writes the word.

use crate::copy_params::Transfer;
use crate::guard::Current;
use crate::handles::Handle;
use crate::result::{CuResult, Outcome};
use crate::transfer::{self, Mode};

use super::fill::fill_u32_async;

entry_points! {
    context cuStreamWriteValue32 "cuStreamWriteValue32" 8000
        (stream: Handle, addr: u64, value: u32, flags: u32) => write_u32, cuStreamWriteValue32_ptsz 8000;
    context cuStreamWriteValue32_v2 "cuStreamWriteValue32" 11070
        (stream: Handle, addr: u64, value: u32, flags: u32) => write_u32, cuStreamWriteValue32_v2_ptsz 11070;
    context cuStreamWriteValue64 "cuStreamWriteValue64" 9000
        (stream: Handle, addr: u64, value: u64, flags: u32) => write_u64, cuStreamWriteValue64_ptsz 9000;
    context cuStreamWriteValue64_v2 "cuStreamWriteValue64" 11070
        (stream: Handle, addr: u64, value: u64, flags: u32) => write_u64, cuStreamWriteValue64_v2_ptsz 11070;
    context cuStreamWaitValue32_v2 "cuStreamWaitValue32" 11070
        (stream: Handle, addr: u64, value: u32, flags: u32) => wait_u32, cuStreamWaitValue32_v2_ptsz 11070;
    context cuStreamWaitValue64_v2 "cuStreamWaitValue64" 11070
        (stream: Handle, addr: u64, value: u64, flags: u32) => wait_u64, cuStreamWaitValue64_v2_ptsz 11070;
}

fn write_u32(current: Current, stream: Handle, addr: u64, value: u32, _flags: u32) -> Outcome {
    fill_u32_async(current, addr, value, 1, stream)
}

/// A copy, as no fill writes 64 bits at once. Copies to pinned memory would wait for the stream; they are refused.
fn write_u64(current: Current, stream: Handle, addr: u64, value: u64, _flags: u32) -> Outcome {
    const BYTES: u64 = size_of::<u64>() as u64;

    let stream = current.stream(stream)?;
    let is_device = {
        let memory = current.session.device.memory();
        let range = memory.find(addr).filter(|_| memory.contains(addr, BYTES));
        range.ok_or(CuResult::INVALID_VALUE)?.is_device()
    };
    if !addr.is_multiple_of(BYTES) {
        return Err(CuResult::INVALID_VALUE);
    }
    if !is_device {
        return Err(CuResult::NOT_SUPPORTED);
    }
    current.session.captures.refuse(stream)?;
    let transfer = Transfer::range(addr, (&raw const value).addr() as u64, BYTES);
    transfer::run(&current, transfer, stream, Mode::Async)
}

fn wait_u32(current: Current, stream: Handle, _addr: u64, _value: u32, _flags: u32) -> Outcome {
    current.stream(stream)?;
    Err(CuResult::NOT_SUPPORTED)
}

fn wait_u64(current: Current, stream: Handle, _addr: u64, _value: u64, _flags: u32) -> Outcome {
    current.stream(stream)?;
    Err(CuResult::NOT_SUPPORTED)
}
