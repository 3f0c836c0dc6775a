//! Why a device's memory is not shared with the host: for the log, since memory of its own does as well on most.

use std::io;

use super::failure::ClFailure;
use crate::error::DeviceError;

/// What stands against sharing memory. Nobody is at fault: not all devices can.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotShared {
    /// Tests do so.
    #[error("it was asked not to")]
    Unwanted,
    /// The device says that its memory is not the host's.
    #[error("the device has memory of its own")]
    OwnMemory,
    /// More than this process can address.
    #[error("{size_bytes:#x} bytes are more than there are addresses")]
    TooLarge { size_bytes: u64 },
    /// The addresses that programs see are taken in this process.
    #[error("{size_bytes:#x} bytes at {addr:#x} cannot be reserved")]
    NotReserved {
        size_bytes: u64,
        addr: u64,
        #[source]
        source: io::Error,
    },
    /// Memory of the host's to try with cannot be had.
    #[error("no memory to try it with")]
    NoMemory(#[source] io::Error),
    /// OpenCL refuses a call.
    #[error(transparent)]
    Call(#[from] ClFailure),
    /// The device refuses what it is tried with.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It was tried, and is not so.
    #[error("{0}")]
    Found(Finding),
}

/// True if kernels of the vendor's runtime for CPUs do not always see what another queue wrote into a buffer before
/// they were launched, unless the buffer is the host's memory. Seen with Intel's 2026.2: programs then compute with
/// what was there before.
pub(super) fn loses_writes(vendor: &str) -> bool {
    vendor.starts_with("Intel")
}

/// What trying has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Finding {
    #[error("the arena is elsewhere")]
    Elsewhere,
    #[error("kernels do not see what the host has written")]
    HostsWritesUnseen,
    #[error("the host does not see what kernels have written")]
    KernelsWritesUnseen,
    #[error("kernels do not reach the host's memory")]
    HostsMemoryUnreached,
    #[error("running kernels do not see what the host writes")]
    WritesUnseenMeanwhile,
}
