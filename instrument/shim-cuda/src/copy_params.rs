//! What copies are: the driver's structures, and rows to be copied, or boxes if arrays have to do with it.

use hetckpt_abi::array::BoxSize;

use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Address of the first row.
    pub addr: u64,
    /// From row to row, bytes.
    pub pitch: u64,
}

/// A copy of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where to.
    pub dst: Side,
    /// Where from.
    pub src: Side,
    /// Length of a row, bytes.
    pub width: u64,
    /// Number of rows.
    pub rows: u64,
}

impl Transfer {
    /// A plain range.
    pub fn range(dst: u64, src: u64, length: u64) -> Self {
        Self {
            dst: Side {
                addr: dst,
                pitch: length,
            },
            src: Side {
                addr: src,
                pitch: length,
            },
            width: length,
            rows: 1,
        }
    }

    /// True if it copies nothing.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.rows == 0
    }

    /// The same copy with rows joined that lie one behind the other on both sides.
    pub fn joined(self) -> Self {
        if self.rows > 1 && self.dst.pitch == self.width && self.src.pitch == self.width {
            return Self::range(self.dst.addr, self.src.addr, self.width * self.rows);
        }
        self
    }
}

/// One side of a copy of a box, as the program names it.
#[derive(Clone, Copy, Debug)]
pub enum BoxSide {
    /// In an array.
    Array {
        /// Its handle.
        array: Handle,
        /// First byte of each row.
        x_bytes: u64,
        /// First row.
        y: u64,
        /// First slice.
        z: u64,
    },
    /// In memory.
    Memory {
        /// Address of the first row.
        addr: u64,
        /// From row to row, bytes.
        pitch: u64,
        /// Rows from slice to slice.
        slice_rows: u64,
    },
}

/// A copy of a box, of which one side or both are in arrays.
#[derive(Clone, Copy, Debug)]
pub struct BoxTransfer {
    /// Where to.
    pub dst: BoxSide,
    /// Where from.
    pub src: BoxSide,
    /// How much.
    pub size: BoxSize,
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
const TYPE_ARRAY: u32 = 3;
const TYPE_UNIFIED: u32 = 4;

fn base(memory_type: u32, host: u64, device: u64) -> Outcome<u64> {
    match memory_type {
        TYPE_HOST => Ok(host),
        TYPE_DEVICE | TYPE_UNIFIED => Ok(device),
        _ => Err(CuResult::NOT_SUPPORTED),
    }
}

impl Copy2D {
    /// One side or both are in arrays.
    pub fn touches_arrays(&self) -> bool {
        [self.dst.memory_type, self.src.memory_type].contains(&TYPE_ARRAY)
    }

    /// As a copy of boxes.
    pub fn boxes(&self) -> Outcome<BoxTransfer> {
        let size = BoxSize {
            width_bytes: self.width_bytes,
            rows: self.height,
            slices: 1,
        };
        let (dst, src) = (self.dst.box_side(&size)?, self.src.box_side(&size)?);
        Ok(BoxTransfer { dst, src, size })
    }

    /// Its rows.
    pub fn transfer(&self) -> Outcome<Transfer> {
        Ok(Transfer {
            dst: self.dst.side(self.width_bytes)?,
            src: self.src.side(self.width_bytes)?,
            width: self.width_bytes,
            rows: self.height,
        })
    }
}

impl Copy3D {
    /// Of rows.
    pub fn of(transfer: &Transfer) -> Self {
        let side = |side: Side| Side3D {
            x_bytes: 0,
            y: 0,
            z: 0,
            lod: 0,
            memory_type: TYPE_UNIFIED,
            host: 0,
            device: side.addr,
            array: 0,
            reserved: 0,
            pitch: side.pitch,
            height: transfer.rows,
        };
        Self {
            src: side(transfer.src),
            dst: side(transfer.dst),
            width_bytes: transfer.width,
            height: transfer.rows,
            depth: 1,
        }
    }

    /// One side or both are in arrays.
    pub fn touches_arrays(&self) -> bool {
        [self.dst.memory_type, self.src.memory_type].contains(&TYPE_ARRAY)
    }

    /// As a copy of boxes.
    pub fn boxes(&self) -> Outcome<BoxTransfer> {
        let size = BoxSize {
            width_bytes: self.width_bytes,
            rows: self.height,
            slices: self.depth,
        };
        let (dst, src) = (self.dst.box_side(&size)?, self.src.box_side(&size)?);
        Ok(BoxTransfer { dst, src, size })
    }

    /// Its slices' rows. Arrays have none.
    pub fn transfers(&self) -> impl Iterator<Item = Outcome<Transfer>> {
        let (width, rows) = (self.width_bytes, self.height);
        (0..self.depth).map(move |slice| {
            let (dst, src) = (self.dst.slice(width, rows, slice)?, self.src.slice(width, rows, slice)?);
            Ok(Transfer { dst, src, width, rows })
        })
    }
}

impl Side2D {
    fn box_side(&self, size: &BoxSize) -> Outcome<BoxSide> {
        if self.memory_type == TYPE_ARRAY {
            return Ok(BoxSide::Array {
                array: Handle(self.array),
                x_bytes: self.x_bytes,
                y: self.y,
                z: 0,
            });
        }
        let Side { addr, pitch } = self.side(size.width_bytes)?;
        Ok(BoxSide::Memory {
            addr,
            pitch,
            slice_rows: size.rows,
        })
    }

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
    fn box_side(&self, size: &BoxSize) -> Outcome<BoxSide> {
        if self.memory_type == TYPE_ARRAY {
            return Ok(BoxSide::Array {
                array: Handle(self.array),
                x_bytes: self.x_bytes,
                y: self.y,
                z: self.z,
            });
        }
        let Side { addr, pitch } = self.slice(size.width_bytes, size.rows, 0)?;
        let slice_rows = if self.height == 0 { size.rows } else { self.height };
        Ok(BoxSide::Memory {
            addr,
            pitch,
            slice_rows,
        })
    }

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
