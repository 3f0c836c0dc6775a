//! Reading, writing, copying and filling buffers.

use std::sync::Arc;

use crate::buffer::{Memory, flag};
use crate::command::{Command, Copy, Side};
use crate::context::check_same;
use crate::handles::{self, Handle, Object};
use crate::pointers::{In, Out};
use crate::queue::{Queue, Waits, enqueue};
use crate::status::{Outcome, Status};
use crate::worker::Work;

entry_points! {
    status clEnqueueReadBuffer
        (queue: Handle, buffer: Handle, is_blocking: u32, offset: usize, size_bytes: usize, host: Out<u8>,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => read;
    status clEnqueueWriteBuffer
        (queue: Handle, buffer: Handle, is_blocking: u32, offset: usize, size_bytes: usize, host: In<u8>,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => write;
    status clEnqueueCopyBuffer
        (queue: Handle, src: Handle, dst: Handle, src_offset: usize, dst_offset: usize, size_bytes: usize,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => copy;
    status clEnqueueFillBuffer
        (queue: Handle, buffer: Handle, pattern: In<u8>, pattern_bytes: usize, offset: usize, size_bytes: usize,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => fill;
    status clEnqueueReadBufferRect
        (queue: Handle, buffer: Handle, is_blocking: u32, origin: In<usize>, host_origin: In<usize>,
         region: In<usize>, row_pitch: usize, slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize,
         host: Out<u8>, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => read_rect;
    status clEnqueueWriteBufferRect
        (queue: Handle, buffer: Handle, is_blocking: u32, origin: In<usize>, host_origin: In<usize>,
         region: In<usize>, row_pitch: usize, slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize,
         host: In<u8>, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => write_rect;
    status clEnqueueCopyBufferRect
        (queue: Handle, src: Handle, dst: Handle, src_origin: In<usize>, dst_origin: In<usize>, region: In<usize>,
         src_row_pitch: usize, src_slice_pitch: usize, dst_row_pitch: usize, dst_slice_pitch: usize,
         num_waits: u32, waits: In<Handle>, event: Out<Handle>) => copy_rect;
}

/// Numbers of `cl_command_type`.
mod command_type {
    pub const READ_BUFFER: u32 = 0x11F3;
    pub const WRITE_BUFFER: u32 = 0x11F4;
    pub const COPY_BUFFER: u32 = 0x11F5;
    pub const READ_BUFFER_RECT: u32 = 0x1201;
    pub const WRITE_BUFFER_RECT: u32 = 0x1202;
    pub const COPY_BUFFER_RECT: u32 = 0x1203;
    pub const FILL_BUFFER: u32 = 0x1207;
}

/// Queue and buffer of a command, of one context.
fn find(queue: Handle, buffer: Handle) -> Outcome<(Arc<Queue>, Arc<Memory>)> {
    let queue = handles::get::<Queue>(queue)?;
    let buffer = handles::get::<Memory>(buffer)?;
    check_same(&queue.context, &buffer.context)?;
    Ok((queue, buffer))
}

/// Refuses what a buffer's flags say the host will not do.
fn check_host_access(buffer: &Memory, refusing: u64) -> Outcome {
    if buffer.flags & (refusing | flag::HOST_NO_ACCESS) != 0 {
        return Err(Status::INVALID_OPERATION);
    }
    Ok(())
}

fn waits(count: u32, events: In<Handle>, event: Out<Handle>, is_blocking: u32) -> Waits {
    Waits {
        count,
        events,
        event,
        is_blocking: is_blocking != 0,
    }
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn read(
    queue: Handle,
    buffer: Handle,
    is_blocking: u32,
    offset: usize,
    size_bytes: usize,
    host: Out<u8>,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, buffer) = find(queue, buffer)?;
    buffer.check_range(offset, size_bytes)?;
    if host.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    check_host_access(&buffer, flag::HOST_WRITE_ONLY)?;
    let (dst, src) = (host.addr() as u64, buffer.addr() + offset as u64);
    let copy = Copy {
        writes_host: true,
        ..Copy::range(dst, src, size_bytes as u64, vec![buffer.clone()])
    };
    let waits = waits(num_waits, events, event, is_blocking);
    enqueue(
        &queue,
        waits,
        command_type::READ_BUFFER,
        Work::Device(Command::Copy(copy)),
    )
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn write(
    queue: Handle,
    buffer: Handle,
    is_blocking: u32,
    offset: usize,
    size_bytes: usize,
    host: In<u8>,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, buffer) = find(queue, buffer)?;
    buffer.check_range(offset, size_bytes)?;
    if host.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    check_host_access(&buffer, flag::HOST_READ_ONLY)?;
    let (dst, src) = (buffer.addr() + offset as u64, host.addr() as u64);
    let copy = Copy::range(dst, src, size_bytes as u64, vec![buffer.clone()]);
    let waits = waits(num_waits, events, event, is_blocking);
    enqueue(
        &queue,
        waits,
        command_type::WRITE_BUFFER,
        Work::Device(Command::Copy(copy)),
    )
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn copy(
    queue: Handle,
    src: Handle,
    dst: Handle,
    src_offset: usize,
    dst_offset: usize,
    size_bytes: usize,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, src) = find(queue, src)?;
    let (_, dst) = find(queue.handle(), dst)?;
    src.check_range(src_offset, size_bytes)?;
    dst.check_range(dst_offset, size_bytes)?;
    let (to, from) = (dst.addr() + dst_offset as u64, src.addr() + src_offset as u64);
    if to.abs_diff(from) < size_bytes as u64 {
        return Err(Status::MEM_COPY_OVERLAP);
    }
    let copy = Copy::range(to, from, size_bytes as u64, vec![src.clone(), dst.clone()]);
    let waits = waits(num_waits, events, event, 0);
    enqueue(
        &queue,
        waits,
        command_type::COPY_BUFFER,
        Work::Device(Command::Copy(copy)),
    )
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn fill(
    queue: Handle,
    buffer: Handle,
    pattern: In<u8>,
    pattern_bytes: usize,
    offset: usize,
    size_bytes: usize,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, buffer) = find(queue, buffer)?;
    buffer.check_range(offset, size_bytes)?;
    let is_pattern = pattern_bytes.is_power_of_two() && pattern_bytes <= 128;
    if !is_pattern || !offset.is_multiple_of(pattern_bytes) || !size_bytes.is_multiple_of(pattern_bytes) {
        return Err(Status::INVALID_VALUE);
    }
    let command = Command::Fill {
        addr: buffer.addr() + offset as u64,
        pattern: pattern.all(pattern_bytes)?,
        size_bytes: size_bytes as u64,
        _keep: buffer.clone(),
    };
    let waits = waits(num_waits, events, event, 0);
    enqueue(&queue, waits, command_type::FILL_BUFFER, Work::Device(command))
}

/// One side of a rectangle as given: pitches of 0 are those of the region.
#[derive(Clone, Copy, Debug)]
struct Rect {
    origin: [usize; 3],
    row_pitch: usize,
    slice_pitch: usize,
}

impl Rect {
    fn new(origin: In<usize>, (row_pitch, slice_pitch): (usize, usize), region: [usize; 3]) -> Outcome<Self> {
        let origin = three(origin)?;
        let row_pitch = if row_pitch == 0 { region[0] } else { row_pitch };
        let least = row_pitch.checked_mul(region[1]).ok_or(Status::INVALID_VALUE)?;
        let slice_pitch = if slice_pitch == 0 { least } else { slice_pitch };
        if row_pitch < region[0] || slice_pitch < least || !slice_pitch.is_multiple_of(row_pitch) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(Self {
            origin,
            row_pitch,
            slice_pitch,
        })
    }

    /// Distance of a point from the start of the memory.
    fn distance(&self, [x, y, z]: [usize; 3]) -> Outcome<usize> {
        let rows = y.checked_mul(self.row_pitch);
        let slices = z.checked_mul(self.slice_pitch);
        let sum = rows
            .zip(slices)
            .and_then(|(rows, slices)| rows.checked_add(slices)?.checked_add(x));
        sum.ok_or(Status::INVALID_VALUE)
    }

    fn first(&self) -> Outcome<usize> {
        self.distance(self.origin)
    }

    /// One past the last byte of the region.
    fn end(&self, region: [usize; 3]) -> Outcome<usize> {
        let [x, y, z] = self.origin;
        let last = [
            x.checked_add(region[0]),
            y.checked_add(region[1] - 1),
            z.checked_add(region[2] - 1),
        ];
        let [Some(x), Some(y), Some(z)] = last else {
            return Err(Status::INVALID_VALUE);
        };
        self.distance([x, y, z])
    }

    /// As a side of a copy, of memory at `addr`.
    fn side(&self, addr: u64) -> Outcome<Side> {
        Ok(Side {
            addr: addr + self.first()? as u64,
            row_pitch: self.row_pitch as u64,
            slice_pitch: self.slice_pitch as u64,
        })
    }

    /// Refuses what does not lie in `buffer`; as a side of a copy.
    fn in_buffer(&self, buffer: &Memory, region: [usize; 3]) -> Outcome<Side> {
        if self.end(region)? > buffer.size_bytes {
            return Err(Status::INVALID_VALUE);
        }
        self.side(buffer.addr())
    }
}

fn three(values: In<usize>) -> Outcome<[usize; 3]> {
    Ok([values.nth(0)?, values.nth(1)?, values.nth(2)?])
}

fn region_of(region: In<usize>) -> Outcome<[usize; 3]> {
    let region = three(region)?;
    if region.contains(&0) {
        return Err(Status::INVALID_VALUE);
    }
    Ok(region)
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn read_rect(
    queue: Handle,
    buffer: Handle,
    is_blocking: u32,
    origin: In<usize>,
    host_origin: In<usize>,
    region: In<usize>,
    row_pitch: usize,
    slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    host: Out<u8>,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, buffer) = find(queue, buffer)?;
    let region = region_of(region)?;
    let src = Rect::new(origin, (row_pitch, slice_pitch), region)?.in_buffer(&buffer, region)?;
    let dst = Rect::new(host_origin, (host_row_pitch, host_slice_pitch), region)?.side(host.addr() as u64)?;
    if host.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    check_host_access(&buffer, flag::HOST_WRITE_ONLY)?;
    let copy = Copy {
        dst,
        src,
        region: region.map(|n| n as u64),
        writes_host: true,
        _keep: vec![buffer.clone()],
    };
    let waits = waits(num_waits, events, event, is_blocking);
    let work = Work::Device(Command::Copy(copy));
    enqueue(&queue, waits, command_type::READ_BUFFER_RECT, work)
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn write_rect(
    queue: Handle,
    buffer: Handle,
    is_blocking: u32,
    origin: In<usize>,
    host_origin: In<usize>,
    region: In<usize>,
    row_pitch: usize,
    slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    host: In<u8>,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (queue, buffer) = find(queue, buffer)?;
    let region = region_of(region)?;
    let dst = Rect::new(origin, (row_pitch, slice_pitch), region)?.in_buffer(&buffer, region)?;
    let src = Rect::new(host_origin, (host_row_pitch, host_slice_pitch), region)?.side(host.addr() as u64)?;
    if host.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    check_host_access(&buffer, flag::HOST_READ_ONLY)?;
    let copy = Copy {
        dst,
        src,
        region: region.map(|n| n as u64),
        writes_host: false,
        _keep: vec![buffer.clone()],
    };
    let waits = waits(num_waits, events, event, is_blocking);
    let work = Work::Device(Command::Copy(copy));
    enqueue(&queue, waits, command_type::WRITE_BUFFER_RECT, work)
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn copy_rect(
    queue: Handle,
    src: Handle,
    dst: Handle,
    src_origin: In<usize>,
    dst_origin: In<usize>,
    region: In<usize>,
    src_row_pitch: usize,
    src_slice_pitch: usize,
    dst_row_pitch: usize,
    dst_slice_pitch: usize,
    num_waits: u32,
    events: In<Handle>,
    event: Out<Handle>,
) -> Outcome {
    let (_, src) = find(queue, src)?;
    let (queue, dst) = find(queue, dst)?;
    let region = region_of(region)?;
    let from = Rect::new(src_origin, (src_row_pitch, src_slice_pitch), region)?;
    let to = Rect::new(dst_origin, (dst_row_pitch, dst_slice_pitch), region)?;
    if Arc::ptr_eq(&src, &dst) && (from.row_pitch, from.slice_pitch) != (to.row_pitch, to.slice_pitch) {
        return Err(Status::INVALID_VALUE);
    }
    let (from_side, to_side) = (from.in_buffer(&src, region)?, to.in_buffer(&dst, region)?);
    let region = region.map(|n| n as u64);
    if overlap(from_side, to_side, region) {
        return Err(Status::MEM_COPY_OVERLAP);
    }
    let copy = Copy {
        dst: to_side,
        src: from_side,
        region,
        writes_host: false,
        _keep: vec![src.clone(), dst.clone()],
    };
    let waits = waits(num_waits, events, event, 0);
    let work = Work::Device(Command::Copy(copy));
    enqueue(&queue, waits, command_type::COPY_BUFFER_RECT, work)
}

/// True if two boxes share a byte, be it through one buffer or through sub-buffers of one, whose pitches may differ.
fn overlap(one: Side, other: Side, [width, rows, slices]: [u64; 3]) -> bool {
    let starts = |side: Side| {
        let row = move |slice: u64, row: u64| side.addr + slice * side.slice_pitch + row * side.row_pitch;
        (0..slices).flat_map(move |slice| (0..rows).map(move |at| row(slice, at)))
    };
    let last = |side: Side| side.addr + (slices - 1) * side.slice_pitch + (rows - 1) * side.row_pitch;
    if one.addr >= last(other) + width || other.addr >= last(one) + width {
        return false;
    }
    // Rows of a box follow one another, so both lists are in order.
    let (mut left, mut right) = (starts(one).peekable(), starts(other).peekable());
    while let (Some(&one), Some(&other)) = (left.peek(), right.peek()) {
        if one.abs_diff(other) < width {
            return true;
        }
        if one < other {
            left.next();
        } else {
            right.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rect(origin: [usize; 3]) -> Rect {
        Rect {
            origin,
            row_pitch: 32,
            slice_pitch: 256,
        }
    }

    #[test]
    fn a_rectangle_ends_with_its_last_row() {
        assert_eq!(rect([4, 2, 1]).first(), Ok(4 + 64 + 256));
        assert_eq!(rect([4, 2, 1]).end([16, 3, 2]), Ok(4 + 16 + 4 * 32 + 2 * 256));
        assert_eq!(rect([usize::MAX, 0, 0]).end([1, 1, 1]), Err(Status::INVALID_VALUE));
        assert_eq!(rect([0, usize::MAX, 0]).end([1, 1, 1]), Err(Status::INVALID_VALUE));
    }

    #[test]
    fn boxes_overlap_only_where_rows_do() {
        let side = |origin| rect(origin).side(4096).unwrap();
        let region = [8, 2, 1];
        assert!(overlap(side([0, 0, 0]), side([7, 1, 0]), region));
        assert!(!overlap(side([0, 0, 0]), side([8, 1, 0]), region));
        assert!(!overlap(side([0, 0, 0]), side([0, 2, 0]), region));
        assert!(!overlap(side([0, 0, 0]), side([0, 0, 1]), region));
        // A row that goes past its pitch reaches the next one.
        assert!(overlap(side([28, 0, 0]), side([0, 1, 0]), [8, 1, 1]));
        let narrow = Side {
            row_pitch: 16,
            ..side([8, 0, 0])
        };
        assert!(!overlap(side([0, 0, 0]), narrow, [8, 3, 1]));
        assert!(overlap(side([0, 0, 0]), narrow, [9, 3, 1]));
    }
}
