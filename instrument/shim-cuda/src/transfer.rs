//! Copies: decides who can reach which side, and cuts what goes through staging chunks into pieces.

use std::collections::VecDeque;

use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::Mutex;

use hetckpt_ring::command::{Command, Rows, StreamId};
use hetckpt_ring::layout::{CHUNK_BYTES, MAX_INLINE_BYTES};
use hetckpt_ring::producer::{OwnedChunk, PendingReply};

use crate::copy_params::{Side, Transfer};
use crate::device_output;
use crate::guard::Current;
use crate::memory_map::OUR_ADDRESSES;
use crate::pointers::HostMemory;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

/// Chunks one copy may have under way.
const WINDOW: usize = 8;

/// Whether the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Until the copy is done (not between two places on the device).
    Sync,
    /// Only where the program's memory leaves no choice.
    Async,
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the device.
    Device,
    /// In host memory that server and device know at the same address.
    Pinned,
    /// In the program's own memory.
    Host,
}

/// Does the copy in `stream`.
pub fn run(current: &Current, transfer: Transfer, stream: StreamId, mode: Mode) -> Outcome {
    let session = current.session;
    let result = carry_out(session, transfer, stream, mode);
    if mode == Mode::Sync {
        device_output::print(&session.device);
    }
    result
}

fn carry_out(session: &Session, transfer: Transfer, stream: StreamId, mode: Mode) -> Outcome {
    if transfer.is_empty() {
        return Ok(());
    }
    let transfer = transfer.joined();
    let dst = place(session, transfer.dst, &transfer)?;
    let src = place(session, transfer.src, &transfer)?;
    match (dst, src) {
        (Place::Device, Place::Device) => session.device.send(copy_command(&transfer, stream)),
        (Place::Device, Place::Pinned) | (Place::Pinned, Place::Device) => match mode {
            Mode::Sync => session.call(copy_command(&transfer, stream)).map(|_| ()),
            Mode::Async => session.device.send(copy_command(&transfer, stream)),
        },
        (Place::Pinned, Place::Pinned) if mode == Mode::Async => session.device.send(copy_command(&transfer, stream)),
        (Place::Device, Place::Host) => copy_in(session, &transfer, stream, mode),
        (Place::Host, Place::Device) => copy_out(session, &transfer, stream),
        (Place::Host | Place::Pinned, Place::Host | Place::Pinned) => {
            session.call(Command::StreamSynchronize { stream })?;
            copy_on_host(&transfer);
            Ok(())
        }
    }
}

/// The command that does the copy in the stream's order, whenever that comes; `None` if neither the device nor the
/// server reaches both sides.
pub fn queued(session: &Session, transfer: &Transfer, stream: StreamId) -> Outcome<Option<Command>> {
    let sides = [transfer.dst, transfer.src].map(|side| place(session, side, transfer));
    let is_queued = sides[0]? != Place::Host && sides[1]? != Place::Host;
    Ok(is_queued.then(|| copy_command(&transfer.joined(), stream)))
}

/// Where a side lies; an address of ours outside of what is allocated is refused.
fn place(session: &Session, side: Side, transfer: &Transfer) -> Outcome<Place> {
    let span = side
        .pitch
        .checked_mul(transfer.rows - 1)
        .and_then(|n| n.checked_add(transfer.width));
    let span = span.ok_or(CuResult::INVALID_VALUE)?;
    if transfer.rows > 1 && side.pitch < transfer.width {
        return Err(CuResult::INVALID_VALUE);
    }
    place_of(session, side.addr, span)
}

/// Where `span` bytes at `addr` lie; an address of ours outside of what is allocated is refused.
pub fn place_of(session: &Session, addr: u64, span: u64) -> Outcome<Place> {
    let memory = session.device.memory();
    let found = memory.find(addr);
    let is_ours = OUR_ADDRESSES.contains(&addr) || found.is_some_and(|range| range.is_device());
    if !is_ours && addr != 0 {
        return Ok(Place::Host);
    }
    let range = found
        .filter(|_| memory.contains(addr, span))
        .ok_or(CuResult::INVALID_VALUE)?;
    Ok(match (range.is_device(), range.is_shared_with_server()) {
        (true, _) => Place::Device,
        (_, true) => Place::Pinned,
        _ => Place::Host,
    })
}

fn copy_command(transfer: &Transfer, stream: StreamId) -> Command {
    let dst = Rows {
        addr: transfer.dst.addr,
        pitch: transfer.dst.pitch,
        width: transfer.width,
        rows: transfer.rows,
    };
    Command::Copy {
        stream,
        dst,
        src: transfer.src.addr,
        src_pitch: transfer.src.pitch,
    }
}

/// A part of a copy that fits into a chunk: whole rows, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    row: u64,
    column: u64,
    width: u64,
    rows: u64,
}

impl Piece {
    fn bytes(self) -> usize {
        (self.width * self.rows) as usize
    }

    fn at(self, side: Side) -> Rows {
        let addr = side.addr + self.row * side.pitch + self.column;
        Rows {
            addr,
            pitch: side.pitch,
            width: self.width,
            rows: self.rows,
        }
    }
}

fn pieces(transfer: &Transfer) -> impl Iterator<Item = Piece> + use<> {
    let limit = CHUNK_BYTES as u64;
    let (width, rows) = (transfer.width, transfer.rows);
    let rows_a_piece = (limit / width).max(1);
    let columns_a_piece = width.min(limit);
    (0..rows).step_by(rows_a_piece as usize).flat_map(move |row| {
        (0..width).step_by(columns_a_piece as usize).map(move |column| Piece {
            row,
            column,
            width: columns_a_piece.min(width - column),
            rows: rows_a_piece.min(rows - row),
        })
    })
}

fn copy_in(session: &Session, transfer: &Transfer, stream: StreamId, mode: Mode) -> Outcome {
    let mut gathered = Vec::new();
    let mut all = pieces(transfer).peekable();
    while let Some(piece) = all.next() {
        let from = piece.at(transfer.src);
        let bytes = if piece.rows == 1 {
            HostMemory::bytes(from.addr, piece.bytes())
        } else {
            gathered.clear();
            for row in 0..from.rows {
                gathered.extend_from_slice(HostMemory::bytes(from.addr + row * from.pitch, from.width as usize));
            }
            gathered.as_slice()
        };
        let data = session.device.payload(bytes)?;
        let command = Command::CopyIn {
            stream,
            dst: piece.at(transfer.dst),
            data,
        };
        if mode == Mode::Sync && all.peek().is_none() {
            session.call(command)?;
        } else {
            session.device.send(command)?;
        }
    }
    Ok(())
}

/// One piece on its way: the answer is awaited before the chunk is given back.
struct Incoming<'a> {
    reply: PendingReply<'a>,
    chunk: OwnedChunk<'a>,
    piece: Piece,
}

fn copy_out(session: &Session, transfer: &Transfer, stream: StreamId) -> Outcome {
    let next = Mutex::new(pieces(transfer));
    let fetch = || fetch_pieces(session, transfer, stream, || next.lock().next());
    let helpers = num_helpers(transfer);
    if helpers == 0 {
        return fetch();
    }
    std::thread::scope(|scope| {
        // Signals are for the program's own threads. They are let through again when the helpers are there.
        let old = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, fetch);
        // Where there can be no thread, there are fewer.
        let helpers: Vec<_> = (0..helpers).map_while(|i| spawn(i).ok()).collect();
        if let Ok(old) = old {
            let _ = old.thread_set_mask();
        }
        let own = fetch();
        let lost = |_| Err(CuResult::UNKNOWN);
        let others = helpers.into_iter().map(|helper| helper.join().unwrap_or_else(lost));
        others.fold(own, Result::and)
    })
}

/// Threads that help with a large copy: one core moves less than the bus does.
fn num_helpers(transfer: &Transfer) -> usize {
    const LARGE: u64 = 16 << 20;
    const MOST: usize = 3;
    if transfer.width.saturating_mul(transfer.rows) < LARGE {
        return 0;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).saturating_sub(1).min(MOST)
}

fn fetch_pieces(session: &Session, transfer: &Transfer, stream: StreamId, next: impl Fn() -> Option<Piece>) -> Outcome {
    let mut incoming: VecDeque<Incoming<'_>> = VecDeque::new();
    while let Some(piece) = next() {
        let chunk = loop {
            // Only a thread that holds no chunk waits for one, so that threads never wait for each other.
            if incoming.is_empty() {
                break session.device.take_chunk()?;
            }
            if incoming.len() < WINDOW
                && let Some(chunk) = session.device.producer().try_take_chunk()
            {
                break chunk;
            }
            if let Some(oldest) = incoming.pop_front() {
                receive(session, transfer, oldest)?;
            }
        };
        let command = Command::CopyOut {
            stream,
            src: piece.at(transfer.src),
            chunk: chunk.first(piece.bytes()),
        };
        incoming.push_back(Incoming {
            reply: session.device.begin(command)?,
            chunk,
            piece,
        });
    }
    incoming
        .into_iter()
        .try_for_each(|oldest| receive(session, transfer, oldest))
}

fn receive(session: &Session, transfer: &Transfer, incoming: Incoming<'_>) -> Outcome {
    session.device.finish(incoming.reply)?;
    let to = incoming.piece.at(transfer.dst);
    for row in 0..to.rows {
        let width = to.width as usize;
        incoming.chunk.read(
            row as usize * width,
            HostMemory::bytes_mut(to.addr + row * to.pitch, width),
        );
    }
    Ok(())
}

fn copy_on_host(transfer: &Transfer) {
    for row in 0..transfer.rows {
        let (dst, src) = (
            transfer.dst.addr + row * transfer.dst.pitch,
            transfer.src.addr + row * transfer.src.pitch,
        );
        HostMemory::copy(dst, src, transfer.width as usize);
    }
}

const _: () = assert!(MAX_INLINE_BYTES <= CHUNK_BYTES);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn joins_rows_without_gaps() {
        let packed = Side { addr: 0, pitch: 8 };
        let transfer = Transfer {
            dst: packed,
            src: packed,
            width: 8,
            rows: 3,
        };
        assert_eq!(transfer.joined(), Transfer::range(0, 0, 24));
        let gaps = Transfer {
            src: Side { addr: 0, pitch: 9 },
            ..transfer
        };
        assert_eq!(gaps.joined(), gaps);
    }

    proptest! {
        #[test]
        fn pieces_cover_each_byte_once(width in 1_u64..2_000_000, rows in 1_u64..40) {
            let side = Side { addr: 0, pitch: width };
            let transfer = Transfer { dst: side, src: side, width, rows };
            let mut covered = 0;
            for piece in pieces(&transfer) {
                prop_assert!(piece.bytes() > 0 && piece.bytes() <= CHUNK_BYTES);
                prop_assert!(piece.rows == 1 || piece.column == 0 && piece.width == width);
                prop_assert_eq!(covered, piece.row * width + piece.column);
                covered += piece.bytes() as u64;
            }
            prop_assert_eq!(covered, width * rows);
        }
    }
}
