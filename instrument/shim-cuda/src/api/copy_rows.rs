//! Copies of rows and of stacks of rows. Arrays are not supported.

use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::In;
use crate::result::{CuResult, Outcome};
use crate::transfer::{self, Mode, Side, Transfer};

entry_points! {
    context cuMemcpy2D_v2 "cuMemcpy2D" 3020 (copy: In<Copy2D>) => copy_2d, cuMemcpy2D_v2_ptds 7000;
    context cuMemcpy2DUnaligned_v2 "cuMemcpy2DUnaligned" 3020
        (copy: In<Copy2D>) => copy_2d, cuMemcpy2DUnaligned_v2_ptds 7000;
    context cuMemcpy2DAsync_v2 "cuMemcpy2DAsync" 3020
        (copy: In<Copy2D>, stream: Handle) => copy_2d_async, cuMemcpy2DAsync_v2_ptsz 7000;
    context cuMemcpy3D_v2 "cuMemcpy3D" 3020 (copy: In<Copy3D>) => copy_3d, cuMemcpy3D_v2_ptds 7000;
    context cuMemcpy3DAsync_v2 "cuMemcpy3DAsync" 3020
        (copy: In<Copy3D>, stream: Handle) => copy_3d_async, cuMemcpy3DAsync_v2_ptsz 7000;
}

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Side2D {
    x_bytes: u64,
    y: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: u64,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Copy2D {
    src: Side2D,
    dst: Side2D,
    width_bytes: u64,
    height: u64,
}

/// One side of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Side3D {
    x_bytes: u64,
    y: u64,
    z: u64,
    lod: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: u64,
    height: u64,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Copy3D {
    src: Side3D,
    dst: Side3D,
    width_bytes: u64,
    height: u64,
    depth: u64,
}

const _: () = assert!(size_of::<Copy2D>() == 128 && size_of::<Copy3D>() == 200);

const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;
const TYPE_UNIFIED: u32 = 4;

fn base(memory_type: u32, host: u64, device: u64) -> Outcome<u64> {
    match memory_type {
        TYPE_HOST => Ok(host),
        TYPE_DEVICE | TYPE_UNIFIED => Ok(device),
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

impl Side2D {
    fn side(&self, width: u64) -> Outcome<Side> {
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let addr = base(self.memory_type, self.host, self.device)?;
        Ok(Side {
            addr: offset(addr, &[(self.y, pitch), (self.x_bytes, 1)])?,
            pitch,
        })
    }
}

impl Side3D {
    /// The side's first row in slice `slice`.
    fn slice(&self, width: u64, rows: u64, slice: u64) -> Outcome<Side> {
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let height = if self.height == 0 { rows } else { self.height };
        let slice_bytes = pitch.checked_mul(height).ok_or(CuResult::INVALID_VALUE)?;
        let addr = base(self.memory_type, self.host, self.device)?;
        let z = self.z.checked_add(slice).ok_or(CuResult::INVALID_VALUE)?;
        Ok(Side {
            addr: offset(addr, &[(z, slice_bytes), (self.y, pitch), (self.x_bytes, 1)])?,
            pitch,
        })
    }
}

fn offset(addr: u64, steps: &[(u64, u64)]) -> Outcome<u64> {
    let step = |addr: u64, &(count, size): &(u64, u64)| addr.checked_add(count.checked_mul(size)?);
    steps.iter().try_fold(addr, step).ok_or(CuResult::INVALID_VALUE)
}

fn run_2d(current: &Current, copy: &Copy2D, stream: Handle, mode: Mode) -> Outcome {
    let stream = current.stream(stream)?;
    let (dst, src) = (copy.dst.side(copy.width_bytes)?, copy.src.side(copy.width_bytes)?);
    transfer::run(
        current,
        Transfer {
            dst,
            src,
            width: copy.width_bytes,
            rows: copy.height,
        },
        stream,
        mode,
    )
}

fn run_3d(current: &Current, copy: &Copy3D, stream: Handle, mode: Mode) -> Outcome {
    let stream = current.stream(stream)?;
    let (width, rows) = (copy.width_bytes, copy.height);
    for slice in 0..copy.depth {
        let (dst, src) = (copy.dst.slice(width, rows, slice)?, copy.src.slice(width, rows, slice)?);
        transfer::run(current, Transfer { dst, src, width, rows }, stream, mode)?;
    }
    Ok(())
}

fn copy_2d(current: Current, copy: In<Copy2D>) -> Outcome {
    run_2d(&current, &copy.get()?, Handle::NULL, Mode::Sync)
}

fn copy_2d_async(current: Current, copy: In<Copy2D>, stream: Handle) -> Outcome {
    run_2d(&current, &copy.get()?, stream, Mode::Async)
}

fn copy_3d(current: Current, copy: In<Copy3D>) -> Outcome {
    run_3d(&current, &copy.get()?, Handle::NULL, Mode::Sync)
}

fn copy_3d_async(current: Current, copy: In<Copy3D>, stream: Handle) -> Outcome {
    run_3d(&current, &copy.get()?, stream, Mode::Async)
}
