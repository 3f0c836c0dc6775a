//! What a queue has the device do, ready to be given to a stream.
//!
//! A command keeps the memory objects it is about: one that the program has released ends, and its destructor callbacks
//! are called, only when no command uses it any more.

use std::sync::Arc;

use crate::buffer::Memory;
use crate::cuda::{CudaResult, Driver, Launch, Rows, Stream};
use crate::executable::Executable;

/// Something for the device. It keeps what it is about: fields that are only held begin with an underscore.
#[derive(Debug)]
pub enum Command {
    /// A copy.
    Copy(Copy),
    /// A fill with a pattern.
    Fill {
        /// Where.
        addr: u64,
        /// With what; its length is a power of two.
        pattern: Vec<u8>,
        /// How much, a multiple of the pattern.
        size_bytes: u64,
        /// Whose memory that is.
        _keep: Arc<Memory>,
    },
    /// A launch.
    Launch {
        /// Of what.
        launch: Launch,
        /// Memory it is given.
        _keep: Vec<Arc<Memory>>,
        /// What its code is in.
        _code: Arc<Executable>,
    },
}

/// One side of a copy of a box: addresses of its first byte, and distances of rows and slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Address of the first byte.
    pub addr: u64,
    /// From row to row, bytes.
    pub row_pitch: u64,
    /// From slice to slice, bytes.
    pub slice_pitch: u64,
}

/// A copy of a box.
#[derive(Debug)]
pub struct Copy {
    /// Where to.
    pub dst: Side,
    /// Where from.
    pub src: Side,
    /// Bytes of a row, rows of a slice, slices.
    pub region: [u64; 3],
    /// True if it writes the program's memory: that is waited for.
    pub writes_host: bool,
    /// Device memory it is about.
    pub _keep: Vec<Arc<Memory>>,
}

impl Command {
    /// True if starting it makes the thread wait until it is over.
    pub fn makes_wait(&self) -> bool {
        matches!(self, Self::Copy(copy) if copy.writes_host)
    }

    /// Gives it to a stream.
    ///
    /// # Errors
    /// If the driver refuses it.
    pub fn start(&self, driver: &Driver, stream: Stream) -> CudaResult {
        match self {
            Self::Copy(copy) => copy.start(driver, stream),
            Self::Fill {
                addr,
                pattern,
                size_bytes,
                ..
            } => driver.fill(*addr, pattern, *size_bytes, stream),
            Self::Launch { launch, .. } => driver.launch(launch, stream),
        }
    }
}

impl Copy {
    /// The copy of a range.
    pub fn range(dst: u64, src: u64, size_bytes: u64, keep: Vec<Arc<Memory>>) -> Self {
        let side = |addr| Side {
            addr,
            row_pitch: size_bytes,
            slice_pitch: size_bytes,
        };
        Self {
            dst: side(dst),
            src: side(src),
            region: [size_bytes, 1, 1],
            writes_host: false,
            _keep: keep,
        }
    }

    fn start(&self, driver: &Driver, stream: Stream) -> CudaResult {
        let [width, rows, slices] = self.region;
        for slice in 0..slices {
            let [dst, src] = [self.dst, self.src].map(|side| Rows {
                addr: side.addr + slice * side.slice_pitch,
                pitch: side.row_pitch,
            });
            if rows == 1 {
                driver.copy(dst.addr, src.addr, width, stream)?;
            } else {
                driver.copy_rows(dst, src, width, rows, stream)?;
            }
        }
        Ok(())
    }
}
