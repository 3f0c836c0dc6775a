//! What goes wrong on a device.

/// Failure of a device operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// No such device on this machine (the host's fault, or the user's choice of device).
    #[error("device `{device}` is not present: {reason}")]
    NotPresent {
        /// As the user wrote it: `cuda:1`.
        device: String,
        /// Why: no driver library, too few devices, …
        reason: String,
    },
    /// The device is there, but programs would not run right on it as things are (the host's fault, or the driver's).
    #[error("device `{device}` cannot be used: {reason}")]
    Unusable {
        /// As the user writes it: `opencl:0:0`.
        device: String,
        /// Why.
        reason: String,
    },
    /// Memory ran out.
    #[error("out of device memory: {requested_bytes} bytes wanted, {free_bytes} free")]
    OutOfMemory {
        /// Bytes wanted.
        requested_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
    },
    /// An address range cannot be had.
    #[error("device address range {addr:#x}+{size_bytes:#x} cannot be mapped: {reason}")]
    Map {
        /// First address.
        addr: u64,
        /// Size.
        size_bytes: u64,
        /// Cause, from the driver or the operating system.
        reason: String,
    },
    /// The code was refused by the device's compiler or loader.
    #[error("kernel `{kernel}` cannot be built for {device}: {log}")]
    Build {
        /// Kernel.
        kernel: String,
        /// Device.
        device: String,
        /// The compiler's words.
        log: String,
    },
    /// What could not be built before is launched all the same. The text says why.
    #[error("{0}")]
    NotBuilt(String),
    /// A launch that the device cannot do (too many threads, too much shared memory).
    #[error("launch of `{kernel}` refused: {reason}")]
    Launch {
        /// Kernel.
        kernel: String,
        /// Cause.
        reason: String,
    },
    /// A kernel failed while it ran; the device's state is as after a CUDA "sticky" error.
    #[error("kernel `{kernel}` failed: {reason}")]
    Fault {
        /// Kernel.
        kernel: String,
        /// Cause.
        reason: String,
        /// The CUresult that the program is to see (700 illegal address, 719 launch failed, 715 illegal instruction,
        /// …).
        cuda_result: u32,
    },
    /// The device does not make or do what the program asks for; its state is as before.
    #[error("{what} was refused: {reason}")]
    Refused {
        /// What it is.
        what: String,
        /// Cause.
        reason: String,
        /// The CUresult that the program is to see.
        cuda_result: u32,
    },
    /// A driver call failed in a way that has no case of its own.
    #[error("{call} failed: {reason}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's words and code.
        reason: String,
    },
}
