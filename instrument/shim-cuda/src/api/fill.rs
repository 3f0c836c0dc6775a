//! Fills.

use hetckpt_ring::command::{Command, FillValue, Rows};

use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    context cuMemsetD8_v2 "cuMemsetD8" 3020 (dst: u64, value: u8, count: u64) => fill_u8, cuMemsetD8_v2_ptds 7000;
    context cuMemsetD16_v2 "cuMemsetD16" 3020 (dst: u64, value: u16, count: u64) => fill_u16, cuMemsetD16_v2_ptds 7000;
    context cuMemsetD32_v2 "cuMemsetD32" 3020 (dst: u64, value: u32, count: u64) => fill_u32, cuMemsetD32_v2_ptds 7000;
    context cuMemsetD8Async "cuMemsetD8Async" 3020
        (dst: u64, value: u8, count: u64, stream: Handle) => fill_u8_async, cuMemsetD8Async_ptsz 7000;
    context cuMemsetD16Async "cuMemsetD16Async" 3020
        (dst: u64, value: u16, count: u64, stream: Handle) => fill_u16_async, cuMemsetD16Async_ptsz 7000;
    context cuMemsetD32Async "cuMemsetD32Async" 3020
        (dst: u64, value: u32, count: u64, stream: Handle) => fill_u32_async, cuMemsetD32Async_ptsz 7000;
    context cuMemsetD2D8_v2 "cuMemsetD2D8" 3020
        (dst: u64, pitch: u64, value: u8, width: u64, height: u64) => fill_rows_u8, cuMemsetD2D8_v2_ptds 7000;
    context cuMemsetD2D16_v2 "cuMemsetD2D16" 3020
        (dst: u64, pitch: u64, value: u16, width: u64, height: u64) => fill_rows_u16, cuMemsetD2D16_v2_ptds 7000;
    context cuMemsetD2D32_v2 "cuMemsetD2D32" 3020
        (dst: u64, pitch: u64, value: u32, width: u64, height: u64) => fill_rows_u32, cuMemsetD2D32_v2_ptds 7000;
    context cuMemsetD2D8Async "cuMemsetD2D8Async" 3020
        (dst: u64, pitch: u64, value: u8, width: u64, height: u64, stream: Handle) => fill_rows_u8_async, cuMemsetD2D8Async_ptsz 7000;
    context cuMemsetD2D16Async "cuMemsetD2D16Async" 3020
        (dst: u64, pitch: u64, value: u16, width: u64, height: u64, stream: Handle) => fill_rows_u16_async, cuMemsetD2D16Async_ptsz 7000;
    context cuMemsetD2D32Async "cuMemsetD2D32Async" 3020
        (dst: u64, pitch: u64, value: u32, width: u64, height: u64, stream: Handle) => fill_rows_u32_async, cuMemsetD2D32Async_ptsz 7000;
}

/// The rows of a fill of `height` rows of `width` elements; `None` if there is nothing to fill.
pub fn rows(
    session: &Session,
    dst: u64,
    pitch: u64,
    value: FillValue,
    (width, height): (u64, u64),
) -> Outcome<Option<Rows>> {
    let element = match value {
        FillValue::U8(_) => 1,
        FillValue::U16(_) => 2,
        FillValue::U32(_) => 4,
    };
    let bytes = width.checked_mul(element).ok_or(CuResult::INVALID_VALUE)?;
    if bytes == 0 || height == 0 {
        return Ok(None);
    }
    let pitch = if height == 1 { bytes } else { pitch };
    let span = pitch
        .checked_mul(height - 1)
        .and_then(|n| n.checked_add(bytes))
        .ok_or(CuResult::INVALID_VALUE)?;
    if pitch < bytes || !dst.is_multiple_of(element) || !session.device.memory().contains(dst, span) {
        return Err(CuResult::INVALID_VALUE);
    }
    let (width, rows) = if pitch == bytes { (span, 1) } else { (bytes, height) };
    Ok(Some(Rows {
        addr: dst,
        pitch: pitch.max(width),
        width,
        rows,
    }))
}

/// Fills `height` rows of `width` elements; returns at once, as a fill of device memory does.
fn fill(current: &Current, dst: u64, pitch: u64, value: FillValue, size: (u64, u64), stream: Handle) -> Outcome {
    let stream = current.stream(stream)?;
    let Some(dst) = rows(current.session, dst, pitch, value, size)? else {
        return Ok(());
    };
    let session = current.session;
    let captured = session
        .captures
        .record(&session.graphs, stream, || Ok(Operation::Fill { dst, value }));
    captured.unwrap_or_else(|| session.device.send(Command::Fill { stream, dst, value }))
}

fn fill_u8(current: Current, dst: u64, value: u8, count: u64) -> Outcome {
    fill(&current, dst, 0, FillValue::U8(value), (count, 1), Handle::NULL)
}

fn fill_u16(current: Current, dst: u64, value: u16, count: u64) -> Outcome {
    fill(&current, dst, 0, FillValue::U16(value), (count, 1), Handle::NULL)
}

fn fill_u32(current: Current, dst: u64, value: u32, count: u64) -> Outcome {
    fill(&current, dst, 0, FillValue::U32(value), (count, 1), Handle::NULL)
}

fn fill_u8_async(current: Current, dst: u64, value: u8, count: u64, stream: Handle) -> Outcome {
    fill(&current, dst, 0, FillValue::U8(value), (count, 1), stream)
}

fn fill_u16_async(current: Current, dst: u64, value: u16, count: u64, stream: Handle) -> Outcome {
    fill(&current, dst, 0, FillValue::U16(value), (count, 1), stream)
}

/// Fills with `count` words in a stream's order.
pub fn fill_u32_async(current: Current, dst: u64, value: u32, count: u64, stream: Handle) -> Outcome {
    fill(&current, dst, 0, FillValue::U32(value), (count, 1), stream)
}

fn fill_rows_u8(current: Current, dst: u64, pitch: u64, value: u8, width: u64, height: u64) -> Outcome {
    fill(
        &current,
        dst,
        pitch,
        FillValue::U8(value),
        (width, height),
        Handle::NULL,
    )
}

fn fill_rows_u16(current: Current, dst: u64, pitch: u64, value: u16, width: u64, height: u64) -> Outcome {
    fill(
        &current,
        dst,
        pitch,
        FillValue::U16(value),
        (width, height),
        Handle::NULL,
    )
}

fn fill_rows_u32(current: Current, dst: u64, pitch: u64, value: u32, width: u64, height: u64) -> Outcome {
    fill(
        &current,
        dst,
        pitch,
        FillValue::U32(value),
        (width, height),
        Handle::NULL,
    )
}

fn fill_rows_u8_async(c: Current, dst: u64, pitch: u64, value: u8, width: u64, height: u64, stream: Handle) -> Outcome {
    fill(&c, dst, pitch, FillValue::U8(value), (width, height), stream)
}

fn fill_rows_u16_async(
    c: Current,
    dst: u64,
    pitch: u64,
    value: u16,
    width: u64,
    height: u64,
    stream: Handle,
) -> Outcome {
    fill(&c, dst, pitch, FillValue::U16(value), (width, height), stream)
}

fn fill_rows_u32_async(
    c: Current,
    dst: u64,
    pitch: u64,
    value: u32,
    width: u64,
    height: u64,
    stream: Handle,
) -> Outcome {
    fill(&c, dst, pitch, FillValue::U32(value), (width, height), stream)
}
