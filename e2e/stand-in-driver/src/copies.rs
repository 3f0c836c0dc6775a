//! Copies and fills, which are done at once.

use crate::graph::give;
use crate::result::SUCCESS;

/// The caller's addresses are those of this process.
fn copy(dst: u64, src: u64, size: usize) -> u32 {
    let (dst, src) = (
        std::ptr::with_exposed_provenance_mut::<u8>(dst as usize),
        std::ptr::with_exposed_provenance::<u8>(src as usize),
    );
    // SAFETY: what the driver API asks of its callers.
    unsafe { std::ptr::copy(src, dst, size) };
    SUCCESS
}

fn fill<T: Copy>(dst: u64, pitch: usize, value: T, width: usize, rows: usize) -> u32 {
    for row in 0..rows {
        let row = std::ptr::with_exposed_provenance_mut::<T>(dst as usize + row * pitch);
        for at in 0..width {
            // SAFETY: what the driver API asks of its callers.
            unsafe { row.wrapping_add(at).write_unaligned(value) };
        }
    }
    SUCCESS
}

driver_api! {
    fn cuMemcpyAsync(dst: u64, src: u64, size: usize, stream: u64) {
        give(stream, move || copy(dst, src, size))
    }
    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, size: usize, stream: u64) {
        give(stream, move || copy(dst, src, size))
    }
    fn cuMemcpyDtoHAsync_v2(dst: u64, src: u64, size: usize, stream: u64) {
        give(stream, move || copy(dst, src, size))
    }
    fn cuMemcpyHtoDAsync_v2(dst: u64, src: u64, size: usize, stream: u64) {
        give(stream, move || copy(dst, src, size))
    }
    fn cuMemsetD8Async(dst: u64, value: u8, count: usize, stream: u64) {
        give(stream, move || fill(dst, 0, value, count, 1))
    }
    fn cuMemsetD2D8Async(dst: u64, pitch: usize, value: u8, width: usize, rows: usize, stream: u64) {
        give(stream, move || fill(dst, pitch, value, width, rows))
    }
    fn cuMemsetD2D16Async(dst: u64, pitch: usize, value: u16, width: usize, rows: usize, stream: u64) {
        give(stream, move || fill(dst, pitch, value, width, rows))
    }
    fn cuMemsetD2D32Async(dst: u64, pitch: usize, value: u32, width: usize, rows: usize, stream: u64) {
        give(stream, move || fill(dst, pitch, value, width, rows))
    }
}
