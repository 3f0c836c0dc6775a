//! Copies of ranges of elements from and to arrays.

use hetckpt_abi::array::BoxSize;

use crate::box_transfer;
use crate::copy_params::{BoxSide, BoxTransfer};
use crate::guard::Current;
use crate::handles::Handle;
use crate::objects::Array;
use crate::result::{CuResult, Outcome};
use crate::transfer::Mode;

use super::array;

entry_points! {
    context cuMemcpyHtoA_v2 "cuMemcpyHtoA" 3020
        (dst: Handle, offset: u64, src: u64, size: u64) => to_array, cuMemcpyHtoA_v2_ptds 7000;
    context cuMemcpyDtoA_v2 "cuMemcpyDtoA" 3020
        (dst: Handle, offset: u64, src: u64, size: u64) => to_array, cuMemcpyDtoA_v2_ptds 7000;
    context cuMemcpyAtoH_v2 "cuMemcpyAtoH" 3020
        (dst: u64, src: Handle, offset: u64, size: u64) => from_array, cuMemcpyAtoH_v2_ptds 7000;
    context cuMemcpyAtoD_v2 "cuMemcpyAtoD" 3020
        (dst: u64, src: Handle, offset: u64, size: u64) => from_array, cuMemcpyAtoD_v2_ptds 7000;
    context cuMemcpyAtoA_v2 "cuMemcpyAtoA" 3020
        (dst: Handle, dst_offset: u64, src: Handle, src_offset: u64, size: u64) => between_arrays, cuMemcpyAtoA_v2_ptds 7000;
    context cuMemcpyHtoAAsync_v2 "cuMemcpyHtoAAsync" 3020
        (dst: Handle, offset: u64, src: u64, size: u64, stream: Handle) => to_array_async, cuMemcpyHtoAAsync_v2_ptsz 7000;
    context cuMemcpyAtoHAsync_v2 "cuMemcpyAtoHAsync" 3020
        (dst: u64, src: Handle, offset: u64, size: u64, stream: Handle) => from_array_async, cuMemcpyAtoHAsync_v2_ptsz 7000;
}

/// Rows of an array of which a range consists: first byte, first row, size, and bytes of the range before.
type Part = (u64, u64, BoxSize, u64);

/// A range of an array's elements, row after row: the end of a row, whole rows, the beginning of one.
fn parts(array: &Array, offset: u64, size_bytes: u64) -> Outcome<Vec<Part>> {
    let all = array.size()?;
    if all.slices > 1 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let end = offset.checked_add(size_bytes).ok_or(CuResult::INVALID_VALUE)?;
    if all.bytes().is_none_or(|bytes| end > bytes) {
        return Err(CuResult::INVALID_VALUE);
    }
    let (row_bytes, mut at, mut parts) = (all.width_bytes, offset, Vec::new());
    while at < end {
        let (x_bytes, y, left) = (at % row_bytes, at / row_bytes, end - at);
        let (width_bytes, rows) = match x_bytes == 0 && left >= row_bytes {
            true => (row_bytes, left / row_bytes),
            false => (left.min(row_bytes - x_bytes), 1),
        };
        let size = BoxSize {
            width_bytes,
            rows,
            slices: 1,
        };
        parts.push((x_bytes, y, size, at - offset));
        at += width_bytes * rows;
    }
    Ok(parts)
}

fn side(array: Handle, (x_bytes, y, ..): Part) -> BoxSide {
    BoxSide::Array {
        array,
        x_bytes,
        y,
        z: 0,
    }
}

fn memory(addr: u64, (_, _, size, before): Part) -> BoxSide {
    BoxSide::Memory {
        addr: addr.wrapping_add(before),
        pitch: size.width_bytes,
        slice_rows: size.rows,
    }
}

fn copy(
    current: &Current,
    parts: Vec<Part>,
    sides: impl Fn(Part) -> (BoxSide, BoxSide),
    stream: Handle,
    mode: Mode,
) -> Outcome {
    let stream = current.stream(stream)?;
    parts.into_iter().try_for_each(|part| {
        let ((dst, src), size) = (sides(part), part.2);
        box_transfer::run(current, &BoxTransfer { dst, src, size }, stream, mode)
    })
}

fn into_array(
    current: &Current,
    (dst, offset): (Handle, u64),
    src: u64,
    size: u64,
    stream: Handle,
    mode: Mode,
) -> Outcome {
    let parts = parts(&*array::find(current, dst)?, offset, size)?;
    copy(
        current,
        parts,
        |part| (side(dst, part), memory(src, part)),
        stream,
        mode,
    )
}

fn out_of_array(
    current: &Current,
    dst: u64,
    (src, offset): (Handle, u64),
    size: u64,
    stream: Handle,
    mode: Mode,
) -> Outcome {
    let parts = parts(&*array::find(current, src)?, offset, size)?;
    copy(
        current,
        parts,
        |part| (memory(dst, part), side(src, part)),
        stream,
        mode,
    )
}

fn to_array(current: Current, dst: Handle, offset: u64, src: u64, size: u64) -> Outcome {
    into_array(&current, (dst, offset), src, size, Handle::NULL, Mode::Sync)
}

fn to_array_async(current: Current, dst: Handle, offset: u64, src: u64, size: u64, stream: Handle) -> Outcome {
    into_array(&current, (dst, offset), src, size, stream, Mode::Async)
}

fn from_array(current: Current, dst: u64, src: Handle, offset: u64, size: u64) -> Outcome {
    out_of_array(&current, dst, (src, offset), size, Handle::NULL, Mode::Sync)
}

fn from_array_async(current: Current, dst: u64, src: Handle, offset: u64, size: u64, stream: Handle) -> Outcome {
    out_of_array(&current, dst, (src, offset), size, stream, Mode::Async)
}

/// The range must consist of the same rows on both sides.
fn between_arrays(current: Current, dst: Handle, dst_offset: u64, src: Handle, src_offset: u64, size: u64) -> Outcome {
    let to = parts(&*array::find(&current, dst)?, dst_offset, size)?;
    let from = parts(&*array::find(&current, src)?, src_offset, size)?;
    let is_alike = to.len() == from.len() && to.iter().zip(&from).all(|(to, from)| to.2 == from.2);
    if !is_alike {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let stream = current.default_stream()?;
    to.into_iter().zip(from).try_for_each(|(to, from)| {
        let (dst, src, size) = (side(dst, to), side(src, from), to.2);
        box_transfer::run(&current, &BoxTransfer { dst, src, size }, stream, Mode::Sync)
    })
}
