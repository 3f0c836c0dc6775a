//! What streams do beside launches: copies, fills, events, host functions.

use std::time::Instant;

use hetckpt_abi::array::BoxCopy;
use hetckpt_devices::device::{Fill, PendingRead};
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::command::{Chunk, Command, FillValue, Payload, Rows, SlotId};
use hetckpt_ring::error::RingError;

use crate::counters::Activity;
use crate::cuda_result;
use crate::pinned::PinnedRange;
use crate::queues::{Item, What, Work};
use crate::session::Session;
use crate::transfers::fill_value;

/// Why a command of a stream failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Ring(#[from] RingError),
    #[error("address {addr:#x}+{size_bytes} is neither device memory nor pinned memory")]
    BadAddress { addr: u64, size_bytes: u64 },
    #[error("rows of {width} bytes do not fit {pitch} bytes apart")]
    BadRows { width: u64, pitch: u64 },
    #[error("{given} bytes were given where {wanted} are needed")]
    BadLength { given: u64, wanted: u64 },
    #[error("the ring is not connected")]
    NoRing,
}

impl CommandError {
    fn result(&self) -> u32 {
        match self {
            Self::Device(error) => cuda_result::of_device_error(error),
            Self::Ring(_) | Self::NoRing => cuda_result::UNKNOWN,
            Self::BadAddress { .. } | Self::BadRows { .. } | Self::BadLength { .. } => cuda_result::INVALID_VALUE,
        }
    }
}

/// What came of an item.
pub enum Executed {
    /// It is done.
    Done {
        /// What its reply slot is to get once the stream counts it as done, so that no later query finds it unfinished.
        answer: Option<(SlotId, u32)>,
    },
    /// The application had no room for a call-back: try again.
    Again(Item),
    /// A host function was started: wait for it.
    Waits(Item),
}

/// Copies of so much are over at once.
const QUICK_BYTES: u64 = 64 << 10;

/// Whether a command is over so soon that the reader of the ring may carry it out itself.
#[must_use]
pub fn is_quick(work: &Work) -> bool {
    let rows = |r: &Rows| r.rows <= 16 && r.width.saturating_mul(r.rows) <= QUICK_BYTES;
    match &work.what {
        What::Ran { .. } => true,
        What::Command { command, .. } => match command {
            Command::CopyIn { dst: r, .. } | Command::CopyOut { src: r, .. } => rows(r),
            Command::Copy { dst: r, .. } | Command::Fill { dst: r, .. } => rows(r),
            Command::EventRecord { .. } | Command::StreamWaitEvent { .. } => true,
            _ => false,
        },
        _ => false,
    }
}

/// Carries out an item that is no launch; makes its failure the sticky result if nobody waits for it.
pub fn execute(session: &Session, item: Item) -> Executed {
    let fault = session.queues.lock().order.fault();
    let Work { what, reply } = item.work;
    let done = |result| Executed::Done {
        answer: reply.map(|slot| (slot, result)),
    };
    let (command, data, by) = match what {
        What::Command { command, data, by } => (command, data, by),
        What::AwaitHostFunction(id) => {
            session.queues.lock().order.forget_host_function(id);
            return Executed::Done { answer: None };
        }
        What::Start(_) | What::Resume(_) | What::Ran { .. } | What::Graph(_) => return done(fault),
    };
    if fault != 0 {
        // The program gets the fault's result; its driver library looks for what kernels have printed before they
        // failed.
        if matches!(command, Command::CopyOut { .. })
            && let Err(error) = run(session, &command, None)
        {
            tracing::debug!(%error, "nothing can be read after the failure");
        }
        give_chunk_back(session, &command, data.is_some());
        return done(fault);
    }
    if let Command::HostFunction { id, .. } = command {
        let is_told = session.side.get().is_some_and(|side| side.push_callback(id));
        let (what, make): (_, fn(Item) -> Executed) = if is_told {
            (What::AwaitHostFunction(id), Executed::Waits)
        } else {
            (What::Command { command, data, by }, Executed::Again)
        };
        return make(Item {
            work: Work { what, reply },
            after: Vec::new(),
        });
    }
    let began = Instant::now();
    let ran = run(session, &command, data);
    if let Some((activity, bytes)) = activity_of(&command) {
        session.counters().add(activity, bytes, began.elapsed());
    }
    let result = match ran {
        Ok(()) => cuda_result::SUCCESS,
        Err(error) => {
            tracing::error!(%error, ?command, "command failed");
            error.result()
        }
    };
    if result != 0 && reply.is_none() {
        session.set_fault(result);
    }
    done(result)
}

/// What a command is counted as, and its bytes.
pub fn activity_of(command: &Command) -> Option<(Activity, u64)> {
    let bytes = |rows: &Rows| rows.width.saturating_mul(rows.rows);
    match command {
        Command::CopyIn { dst, .. } => Some((Activity::CopyIn, bytes(dst))),
        Command::CopyOut { src, .. } => Some((Activity::CopyOut, bytes(src))),
        Command::Copy { dst, .. } => Some((Activity::Copy, bytes(dst))),
        Command::Fill { dst, .. } => Some((Activity::Fill, bytes(dst))),
        Command::CopyBox { copy, .. } => Some((Activity::Copy, copy.size.bytes().unwrap_or(0))),
        Command::FreeAsync { .. } => Some((Activity::Free, 0)),
        _ => None,
    }
}

/// True if all of the range is memory that the application has, on the device or pinned.
#[must_use]
pub fn is_known(session: &Session, addr: u64, size_bytes: u64) -> bool {
    locate(session, addr, size_bytes).is_ok()
}

/// True if all of the range is device memory, or managed memory that lies on the device.
#[must_use]
pub fn is_device_memory(session: &Session, addr: u64, size_bytes: u64) -> bool {
    session.memory.lock().contains(addr, size_bytes) || session.managed.contains(addr, size_bytes)
}

/// Does what is left of a follower whose turn has come: puts what the device has read where the application waits for
/// it. Returns the result for it.
pub fn answer_read(session: &Session, work: &Work, fault: u32, read: &dyn PendingRead) -> u32 {
    let What::Command {
        command: command @ Command::CopyOut { chunk, .. },
        ..
    } = &work.what
    else {
        return fault;
    };
    let began = Instant::now();
    let filled = match read.size_bytes() {
        // Not device memory alone.
        0 => run(session, command, None),
        _ => fill_chunk(session, *chunk, read),
    };
    if let Some((activity, bytes)) = activity_of(command) {
        session.counters().add(activity, bytes, began.elapsed());
    }
    match filled {
        Ok(()) => fault,
        Err(error) if fault != 0 => {
            tracing::debug!(%error, "nothing can be read after the failure");
            fault
        }
        Err(error) => {
            tracing::error!(%error, ?command, "command failed");
            error.result()
        }
    }
}

fn fill_chunk(session: &Session, chunk: Chunk, read: &dyn PendingRead) -> Result<(), CommandError> {
    let side = session.side.get().ok_or(CommandError::NoRing)?;
    let mut filled = Ok(());
    read.wait(&mut |bytes| filled = side.fill_chunk(chunk, 0, bytes))?;
    Ok(filled?)
}

/// Gives the chunk of a copy back, unless that has been done when its bytes were taken out.
pub fn give_chunk_back(session: &Session, command: &Command, is_given: bool) {
    if let (
        Command::CopyIn {
            data: Payload::Staged(chunk),
            ..
        },
        false,
        Some(side),
    ) = (command, is_given, session.side.get())
        && let Err(error) = side.release_chunk(*chunk)
    {
        tracing::error!(%error, "a staging chunk cannot be given back");
    }
}

fn run(session: &Session, command: &Command, data: Option<Vec<u8>>) -> Result<(), CommandError> {
    if !matches!(command, Command::EventRecord { .. } | Command::StreamWaitEvent { .. })
        && let Err(error) = session.managed.bring()
    {
        give_chunk_back(session, command, data.is_some());
        return Err(error.into());
    }
    // It stays there: a command that is being carried out counts as something that runs.
    let elsewhere = session.moved.read().in_command(command);
    match elsewhere.as_ref().unwrap_or(command) {
        Command::CopyIn { dst, data: payload, .. } => {
            let copied = copy_in(session, dst, payload, data.as_deref());
            give_chunk_back(session, command, data.is_some());
            copied
        }
        Command::CopyOut { src, chunk, .. } => copy_out(session, src, *chunk),
        Command::Copy {
            dst, src, src_pitch, ..
        } => copy(session, dst, *src, *src_pitch),
        Command::Fill { dst, value, .. } => fill(session, dst, *value),
        Command::CopyBox { copy, .. } => copy_box(session, copy),
        Command::FreeAsync { addr, .. } => {
            if session.memory.lock().free(*addr)? {
                return Ok(());
            }
            Err(CommandError::BadAddress {
                addr: *addr,
                size_bytes: 0,
            })
        }
        Command::EventRecord { event, .. } => {
            session.queues.lock().recorded(event.0, None);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Where an address points.
enum Target {
    Device,
    Pinned(PinnedRange),
}

fn locate(session: &Session, addr: u64, size_bytes: u64) -> Result<Target, CommandError> {
    if is_device_memory(session, addr, size_bytes) {
        return Ok(Target::Device);
    }
    session
        .pinned
        .range(addr, size_bytes)
        .map(Target::Pinned)
        .ok_or(CommandError::BadAddress { addr, size_bytes })
}

/// Rows as (address, offset in packed data, length), merged where they follow one another.
fn pieces(rows: &Rows) -> Result<impl Iterator<Item = (u64, u64, u64)> + use<>, CommandError> {
    let Rows {
        addr,
        pitch,
        width,
        rows,
    } = *rows;
    let bad = CommandError::BadRows { width, pitch };
    if rows > 1 && pitch < width {
        return Err(bad);
    }
    let total = width.checked_mul(rows);
    let span = rows
        .saturating_sub(1)
        .checked_mul(pitch)
        .and_then(|n| n.checked_add(width)?.checked_add(addr));
    let (Some(total), Some(_)) = (total, span) else {
        return Err(bad);
    };
    let (count, width, pitch) = if pitch == width || rows == 1 {
        (1, total, total)
    } else {
        (rows, width, pitch)
    };
    let count = if width == 0 { 0 } else { count };
    Ok((0..count).map(move |i| (addr + i * pitch, i * width, width)))
}

fn slice(bytes: &[u8], offset: u64, length: u64) -> Result<&[u8], CommandError> {
    let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
    range
        .and_then(|(offset, length)| bytes.get(offset..offset.checked_add(length)?))
        .ok_or(CommandError::BadLength {
            given: bytes.len() as u64,
            wanted: offset.saturating_add(length),
        })
}

fn copy_in(session: &Session, dst: &Rows, payload: &Payload, taken: Option<&[u8]>) -> Result<(), CommandError> {
    let side = session.side.get().ok_or(CommandError::NoRing)?;
    if taken.is_none() && payload.len() > QUICK_BYTES {
        session.pin_chunks(side);
    }
    let bytes = match (taken, payload) {
        (Some(bytes), _) => bytes,
        (None, Payload::Inline(bytes)) => bytes,
        (None, Payload::Staged(chunk)) => side.chunk_bytes(*chunk)?,
    };
    for (addr, offset, length) in pieces(dst)? {
        let bytes = slice(bytes, offset, length)?;
        match locate(session, addr, length)? {
            Target::Device => session.device.write(addr, bytes)?,
            Target::Pinned(mut range) => range.bytes_mut().copy_from_slice(bytes),
        }
    }
    Ok(())
}

fn copy_out(session: &Session, src: &Rows, chunk: Chunk) -> Result<(), CommandError> {
    let side = session.side.get().ok_or(CommandError::NoRing)?;
    if u64::from(chunk.length) > QUICK_BYTES {
        session.pin_chunks(side);
    }
    let all = pieces(src)?;
    side.with_chunk(chunk, |bytes| {
        for (addr, offset, length) in all {
            let given = bytes.len() as u64;
            let wrong = CommandError::BadLength {
                given,
                wanted: offset.saturating_add(length),
            };
            let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
            let Some(bytes) = range.and_then(|(at, length)| bytes.get_mut(at..at.checked_add(length)?)) else {
                return Err(wrong);
            };
            match locate(session, addr, length)? {
                Target::Device => session.device.read(addr, bytes)?,
                Target::Pinned(range) => bytes.copy_from_slice(range.bytes()),
            }
        }
        Ok(())
    })?
}

fn copy(session: &Session, dst: &Rows, src: u64, src_pitch: u64) -> Result<(), CommandError> {
    let is_plain = dst.rows == 1 || (dst.pitch == dst.width && src_pitch == dst.width);
    let rows = if is_plain {
        Rows::range(dst.addr, dst.width.saturating_mul(dst.rows))
    } else {
        *dst
    };
    let src_rows = if is_plain {
        Rows { addr: src, ..rows }
    } else {
        Rows {
            addr: src,
            pitch: src_pitch,
            ..rows
        }
    };
    // Without merging: source and destination must have the same pieces.
    let (count, bad) = (
        rows.rows,
        CommandError::BadRows {
            width: rows.width,
            pitch: src_pitch.min(rows.pitch),
        },
    );
    if pieces(&rows).is_err() || pieces(&src_rows).is_err() {
        return Err(bad);
    }
    if rows.width == 0 {
        return Ok(());
    }
    for i in 0..count {
        copy_range(
            session,
            rows.addr + i * rows.pitch,
            src_rows.addr + i * src_rows.pitch,
            rows.width,
        )?;
    }
    Ok(())
}

fn copy_range(session: &Session, dst: u64, src: u64, length: u64) -> Result<(), CommandError> {
    match (locate(session, dst, length)?, locate(session, src, length)?) {
        (Target::Device, Target::Device) if dst.abs_diff(src) < length => {
            let size = usize::try_from(length).map_err(|_| CommandError::BadLength {
                given: 0,
                wanted: length,
            })?;
            let mut between = vec![0; size];
            session.device.read(src, &mut between)?;
            session.device.write(dst, &between)?;
        }
        (Target::Device, Target::Device) => session.device.copy(dst, src, length)?,
        (Target::Device, Target::Pinned(src)) => session.device.write(dst, src.bytes())?,
        (Target::Pinned(mut dst), Target::Device) => session.device.read(src, dst.bytes_mut())?,
        (Target::Pinned(mut to), Target::Pinned(from)) => {
            let between = if dst.abs_diff(src) < length {
                Some(from.bytes().to_vec())
            } else {
                None
            };
            to.bytes_mut()
                .copy_from_slice(between.as_deref().unwrap_or_else(|| from.bytes()));
        }
    }
    Ok(())
}

/// By the device alone, which reaches pinned memory as well.
fn copy_box(session: &Session, copy: &BoxCopy) -> Result<(), CommandError> {
    if copy.size.bytes() == Some(0) {
        return Ok(());
    }
    let is_memory = |addr, size_bytes| is_known(session, addr, size_bytes);
    session.arrays.lock().check(copy, is_memory)?;
    Ok(session.device.copy_box(copy)?)
}

fn fill(session: &Session, dst: &Rows, value: FillValue) -> Result<(), CommandError> {
    let value = fill_value(value);
    let element = value.element_bytes();
    let bad = || CommandError::BadRows {
        width: dst.width,
        pitch: dst.pitch,
    };
    if !dst.width.is_multiple_of(element) || !dst.addr.is_multiple_of(element) {
        return Err(bad());
    }
    let all = pieces(dst)?;
    if dst.width == 0 || dst.rows == 0 {
        return Ok(());
    }
    let span = (dst.rows - 1)
        .checked_mul(dst.pitch)
        .and_then(|n| n.checked_add(dst.width))
        .ok_or_else(bad)?;
    if let Target::Device = locate(session, dst.addr, span)? {
        return Ok(session
            .device
            .fill(dst.addr, dst.pitch, value, dst.width / element, dst.rows)?);
    }
    for (addr, _, length) in all {
        if let Target::Pinned(mut range) = locate(session, addr, length)? {
            fill_bytes(range.bytes_mut(), value);
        }
    }
    Ok(())
}

fn fill_bytes(bytes: &mut [u8], value: Fill) {
    match value {
        Fill::U8(v) => bytes.fill(v),
        Fill::U16(v) => bytes
            .chunks_exact_mut(2)
            .for_each(|c| c.copy_from_slice(&v.to_le_bytes())),
        Fill::U32(v) => bytes
            .chunks_exact_mut(4)
            .for_each(|c| c.copy_from_slice(&v.to_le_bytes())),
    }
}
