//! Copies of boxes of elements from and to arrays. The device does them, between arrays and memory that it reaches;
//! other memory of the program goes through device memory that is there for the copy only.

use hetckpt_abi::array::{BoxCopy, BoxPlace, BoxSize};
use hetckpt_abi::software_image;
use hetckpt_ring::command::{Command, StreamId};

use crate::api::array;
use crate::api::memory;
use crate::copy_params::{BoxSide, BoxTransfer, Side, Transfer};
use crate::guard::Current;
use crate::memory_map::RangeKind;
use crate::objects::ArrayPlace;
use crate::result::{CuResult, Outcome};
use crate::session::Session;
use crate::transfer::{self, Mode, Place};

/// Most bytes of device memory for a copy, unless a row has more.
const BETWEEN_BYTES: u64 = 32 << 20;

/// Who reaches a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Device,
    /// And the program.
    Pinned,
    /// The program alone.
    Host,
}

/// Does the copy in `stream`, which must not be captured: such a copy is refused.
pub fn run(current: &Current, copy: &BoxTransfer, stream: StreamId, mode: Mode) -> Outcome {
    let session = current.session;
    if session.captures.tell(stream)?.is_some() {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let bytes = copy.size.bytes().ok_or(CuResult::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    if let (Some(dst), Some(src)) = (
        in_memory(current, &copy.dst, &copy.size)?,
        in_memory(current, &copy.src, &copy.size)?,
    ) {
        return copy_slices(current, dst, src, &copy.size, stream, mode);
    }
    let (dst, to) = locate(current, &copy.dst, &copy.size)?;
    let (src, from) = locate(current, &copy.src, &copy.size)?;
    if (to, from) == (Reached::Device, Reached::Device) {
        return session.device.send(command(stream, dst, src, copy.size));
    }
    if to != Reached::Host && from != Reached::Host {
        return match mode {
            Mode::Sync => session.call(command(stream, dst, src, copy.size)).map(|_| ()),
            Mode::Async => session.device.send(command(stream, dst, src, copy.size)),
        };
    }
    through_device_memory(current, (dst, src, copy.size), to == Reached::Host, stream, mode)
}

/// Where the slices of a side lie in memory: the first one, and how far it is to the next. `None` for an array that
/// the device has.
fn in_memory(current: &Current, side: &BoxSide, size: &BoxSize) -> Outcome<Option<(Side, u64)>> {
    match *side {
        BoxSide::Memory {
            addr,
            pitch,
            slice_rows,
        } => {
            let place = BoxPlace::Memory {
                addr,
                pitch,
                slice_rows,
            };
            place.span_bytes(size).ok_or(CuResult::INVALID_VALUE)?;
            Ok(Some((Side { addr, pitch }, slice_rows.saturating_mul(pitch))))
        }
        BoxSide::Array { array, x_bytes, y, z } => {
            let found = array::find(current, array)?;
            let ArrayPlace::Memory(addr) = found.place else {
                return Ok(None);
            };
            let place = BoxPlace::Array {
                array: 0,
                level: 0,
                x_bytes,
                y,
                z,
            };
            // The shape is that of the level alone.
            let all = found.size()?;
            let before = software_image::level_offset(&found.whole, found.level);
            let (true, Some(before)) = (place.fits_array(size, &found.shape), before) else {
                return Err(CuResult::INVALID_VALUE);
            };
            let pitch = all.width_bytes;
            let addr = addr + before + (z * all.rows + y) * pitch + x_bytes;
            Ok(Some((Side { addr, pitch }, all.rows * pitch)))
        }
    }
}

/// Copies between places in memory, slice by slice.
fn copy_slices(
    current: &Current,
    (dst, dst_slice): (Side, u64),
    (src, src_slice): (Side, u64),
    size: &BoxSize,
    stream: StreamId,
    mode: Mode,
) -> Outcome {
    let at = |side: Side, slice_bytes: u64, number: u64| Side {
        addr: side.addr + number * slice_bytes,
        ..side
    };
    (0..size.slices).try_for_each(|number| {
        let (dst, src) = (at(dst, dst_slice, number), at(src, src_slice, number));
        copy_rows(current, dst, src, size, stream, mode)
    })
}

fn command(stream: StreamId, dst: BoxPlace, src: BoxPlace, size: BoxSize) -> Command {
    let copy = Box::new(BoxCopy { dst, src, size });
    Command::CopyBox { stream, copy }
}

/// A side in the ring's words, and who reaches it.
fn locate(current: &Current, side: &BoxSide, size: &BoxSize) -> Outcome<(BoxPlace, Reached)> {
    match *side {
        BoxSide::Array { array, x_bytes, y, z } => {
            let found = array::find(current, array)?;
            let ArrayPlace::Device(number) = found.place else {
                return Err(CuResult::INVALID_VALUE);
            };
            let place = |level| BoxPlace::Array {
                array: number,
                level,
                x_bytes,
                y,
                z,
            };
            // The shape is that of the level alone.
            if !place(0).fits_array(size, &found.shape) {
                return Err(CuResult::INVALID_VALUE);
            }
            Ok((place(found.level), Reached::Device))
        }
        BoxSide::Memory {
            addr,
            pitch,
            slice_rows,
        } => {
            let place = BoxPlace::Memory {
                addr,
                pitch,
                slice_rows,
            };
            let span = place.span_bytes(size).ok_or(CuResult::INVALID_VALUE)?;
            let reached = match transfer::place_of(current.session, addr, span)? {
                Place::Device => Reached::Device,
                Place::Pinned => Reached::Pinned,
                Place::Host => Reached::Host,
            };
            Ok((place, reached))
        }
    }
}

/// Device memory that is freed in the stream's order.
struct Between<'a> {
    session: &'a Session,
    addr: u64,
    stream: StreamId,
}

impl Drop for Between<'_> {
    fn drop(&mut self) {
        let (addr, stream) = (self.addr, self.stream);
        self.session.device.memory().remove(addr);
        // A failure has broken the device, which the next call says.
        let _ = self.session.device.send(Command::FreeAsync { addr, stream });
    }
}

impl<'a> Between<'a> {
    fn new(current: &Current, size_bytes: u64, stream: StreamId) -> Outcome<Self>
    where
        'static: 'a,
    {
        let session = current.session;
        let addr = memory::request(current, size_bytes)?;
        let mut memory = session.device.memory();
        memory.insert(addr, size_bytes, RangeKind::Allocation);
        drop(memory);
        Ok(Self { session, addr, stream })
    }
}

/// From or to memory that only the program reaches, piece by piece.
fn through_device_memory(
    current: &Current,
    (dst, src, size): (BoxPlace, BoxPlace, BoxSize),
    is_out: bool,
    stream: StreamId,
    mode: Mode,
) -> Outcome {
    let all: Vec<Piece> = pieces(&size).collect();
    let largest = all.iter().filter_map(|piece| piece.size.bytes()).max().unwrap_or(0);
    let between = Between::new(current, largest, stream)?;
    for (at, piece) in all.iter().enumerate() {
        let on_device = BoxPlace::Memory {
            addr: between.addr,
            pitch: piece.size.width_bytes,
            slice_rows: piece.size.rows,
        };
        let (to, from) = (piece.of(dst), piece.of(src));
        let session = current.session;
        if is_out {
            session.device.send(command(stream, on_device, from, piece.size))?;
            host_copies(&to, between.addr, &piece.size)
                .try_for_each(|(host, device)| copy_rows(current, host, device, &piece.size, stream, mode))?;
            continue;
        }
        host_copies(&from, between.addr, &piece.size)
            .try_for_each(|(host, device)| copy_rows(current, device, host, &piece.size, stream, Mode::Async))?;
        let command = command(stream, to, on_device, piece.size);
        match mode == Mode::Sync && at + 1 == all.len() {
            true => session.call(command).map(|_| ())?,
            false => session.device.send(command)?,
        }
    }
    Ok(())
}

/// The slices of a piece, on the host and in device memory.
fn host_copies(host: &BoxPlace, device: u64, size: &BoxSize) -> impl Iterator<Item = (Side, Side)> + use<> {
    let (addr, pitch, slice_rows) = match *host {
        BoxPlace::Memory {
            addr,
            pitch,
            slice_rows,
        } => (addr, pitch, slice_rows),
        BoxPlace::Array { .. } => (0, 0, 0),
    };
    let BoxSize {
        width_bytes,
        rows,
        slices,
    } = *size;
    (0..slices).map(move |slice| {
        let on_host = Side {
            addr: addr + slice * slice_rows * pitch,
            pitch,
        };
        let on_device = Side {
            addr: device + slice * rows * width_bytes,
            pitch: width_bytes,
        };
        (on_host, on_device)
    })
}

fn copy_rows(current: &Current, dst: Side, src: Side, size: &BoxSize, stream: StreamId, mode: Mode) -> Outcome {
    let (width, rows) = (size.width_bytes, size.rows);
    transfer::run(current, Transfer { dst, src, width, rows }, stream, mode)
}

/// A part of a box: whole slices, or rows of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    y: u64,
    z: u64,
    size: BoxSize,
}

impl Piece {
    /// Where it lies in a place of the whole.
    fn of(&self, place: BoxPlace) -> BoxPlace {
        match place {
            BoxPlace::Array {
                array,
                level,
                x_bytes,
                y,
                z,
            } => BoxPlace::Array {
                array,
                level,
                x_bytes,
                y: y + self.y,
                z: z + self.z,
            },
            BoxPlace::Memory {
                addr,
                pitch,
                slice_rows,
            } => BoxPlace::Memory {
                addr: addr + (self.z * slice_rows + self.y) * pitch,
                pitch,
                slice_rows,
            },
        }
    }
}

fn pieces(size: &BoxSize) -> impl Iterator<Item = Piece> + use<> {
    let all = *size;
    let slice_bytes = all.width_bytes * all.rows;
    let (rows, slices) = if slice_bytes <= BETWEEN_BYTES {
        (all.rows, (BETWEEN_BYTES / slice_bytes).min(all.slices))
    } else {
        ((BETWEEN_BYTES / all.width_bytes).max(1), 1)
    };
    (0..all.slices).step_by(slices as usize).flat_map(move |z| {
        (0..all.rows).step_by(rows as usize).map(move |y| Piece {
            y,
            z,
            size: BoxSize {
                width_bytes: all.width_bytes,
                rows: rows.min(all.rows - y),
                slices: slices.min(all.slices - z),
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_each_row_once() {
        for (width_bytes, rows, slices) in [(16, 4, 3), (1 << 20, 16, 5), (1 << 20, 100, 2), (64 << 20, 2, 2)] {
            let size = BoxSize {
                width_bytes,
                rows,
                slices,
            };
            let mut next = 0;
            for piece in pieces(&size) {
                assert_eq!(piece.z * rows + piece.y, next, "{size:?}");
                assert!(piece.size.slices == 1 || piece.size.rows == rows);
                assert!(piece.size.bytes().is_some_and(|bytes| bytes <= BETWEEN_BYTES) || piece.size.rows == 1);
                next += piece.size.rows * piece.size.slices;
            }
            assert_eq!(next, rows * slices, "{size:?}");
        }
    }
}
