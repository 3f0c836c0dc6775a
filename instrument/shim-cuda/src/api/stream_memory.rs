//! Writes of words in a stream's order, and waits for words.

use crate::copy_params::Transfer;
use crate::guard::Current;
use crate::handles::Handle;
use crate::host_functions::HostFunction;
use crate::pointers::In;
use crate::result::{CuResult, Outcome};
use crate::transfer::{self, Mode};
use crate::word_wait::{Condition, Word, WordWait};

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
    context cuStreamWaitValue32 "cuStreamWaitValue32" 8000
        (stream: Handle, addr: u64, value: u32, flags: u32) => wait_u32, cuStreamWaitValue32_ptsz 8000;
    context cuStreamWaitValue64 "cuStreamWaitValue64" 9000
        (stream: Handle, addr: u64, value: u64, flags: u32) => wait_u64, cuStreamWaitValue64_ptsz 9000;
    context cuStreamBatchMemOp "cuStreamBatchMemOp" 8000
        (stream: Handle, count: u32, operations: In<MemoryOperation>, flags: u32) => batch, cuStreamBatchMemOp_ptsz 8000;
    context cuStreamBatchMemOp_v2 "cuStreamBatchMemOp" 11070
        (stream: Handle, count: u32, operations: In<MemoryOperation>, flags: u32) => batch, cuStreamBatchMemOp_v2_ptsz 11070;
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

fn wait_u32(current: Current, stream: Handle, addr: u64, value: u32, flags: u32) -> Outcome {
    wait(&current, stream, addr, flags, Word::Short(value))
}

fn wait_u64(current: Current, stream: Handle, addr: u64, value: u64, flags: u32) -> Outcome {
    wait(&current, stream, addr, flags, Word::Long(value))
}

fn wait(current: &Current, stream: Handle, addr: u64, flags: u32, value: Word) -> Outcome {
    let session = current.session;
    let stream = current.stream(stream)?;
    let condition = Condition::of(flags)?;
    session.captures.refuse(stream)?;
    let wait = WordWait::new(&session.device, addr, condition, value)?;
    session
        .host_functions
        .enqueue(&session.device, stream, HostFunction::Wait(wait))
}

/// `CUstreamBatchMemOpParams`: operation, address, value and flags, each in eight bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryOperation([u64; 6]);

/// The operations one after another; those before one that is refused are carried out.
fn batch(current: Current, stream: Handle, count: u32, operations: In<MemoryOperation>, _flags: u32) -> Outcome {
    const WAIT_32: u32 = 1;
    const WRITE_32: u32 = 2;
    const WAIT_64: u32 = 4;
    const WRITE_64: u32 = 5;
    // What is in one stream is in order anyway.
    const BARRIER: u32 = 6;
    const MAX_OPERATIONS: u32 = 256;

    current.stream(stream)?;
    if count > MAX_OPERATIONS {
        return Err(CuResult::INVALID_VALUE);
    }
    for MemoryOperation([operation, addr, value, flags, ..]) in operations.list(count.into())? {
        // Fields of 32 bits leave the upper half as it was.
        let (operation, short, flags) = (operation as u32, value as u32, flags as u32);
        match operation {
            WAIT_32 => wait(&current, stream, addr, flags, Word::Short(short))?,
            WAIT_64 => wait(&current, stream, addr, flags, Word::Long(value))?,
            WRITE_32 => write_u32(current, stream, addr, short, flags)?,
            WRITE_64 => write_u64(current, stream, addr, value, flags)?,
            BARRIER => {}
            _ => return Err(CuResult::NOT_SUPPORTED),
        }
    }
    Ok(())
}
