//! What can go wrong in the server as a whole. What goes wrong in one command is a CUresult, see
//! [`crate::cuda_result`].

use hetckpt_abi::image_object::ImageKind;
use hetckpt_ring::failure_code::Code;
use std::path::PathBuf;

use hetckpt_archive::packed_state::PackedStateError;
use hetckpt_devices::error::DeviceError;
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::Response;
use hetckpt_ring::version::Readable;

use crate::kernels::BuildError;

/// Why: an error of some library, or a sentence of ours.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Failure of the server, of a pause, a capture or a restore.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The command line is wrong (the caller's fault).
    #[error("{0}")]
    Usage(String),
    /// The device.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// The device does not give or take what a snapshot has of it.
    #[error("{what}: {source}")]
    Transfer {
        /// What it is.
        what: String,
        /// The device's words.
        source: DeviceError,
    },
    /// The connection or the ring.
    #[error("{0}")]
    Ring(#[from] RingError),
    /// A system call.
    #[error("{call} failed: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file of the state cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Kernels that do not stop.
    #[error("kernel `{kernel}` did not stop within {seconds} s")]
    NotStopped {
        /// One of them.
        kernel: String,
        /// The deadline.
        seconds: f64,
    },
    /// The process to be restored has a device server: it runs, or is being restored.
    #[error("process {pid} has a device server already: it runs, or is being restored")]
    InUse {
        /// The process.
        pid: u32,
    },
    /// The restoring daemon did not become ready.
    #[error("{0}")]
    Daemon(Cause),
    /// State of images that are run as they came, which only the driver knows.
    #[error("module {module}, which is run as it came, has {what}: that cannot be captured")]
    OutOfReach {
        /// The application's number of the module.
        module: u64,
        /// What it is.
        what: String,
    },
    /// The driver has placed a variable elsewhere than where the program has its address from.
    #[error(
        "the driver has placed variable `{name}` at {now:#x}; device memory holds its address, {before:#x}, and kernels would \
         read and write something else there"
    )]
    VariableMoved {
        /// Mangled name.
        name: String,
        /// Where it was.
        before: u64,
        /// Where it is now.
        now: u64,
    },
    /// The program has arrays, or texture or surface objects, and the device has none (the user's choice of device).
    #[error("the program has arrays, or texture or surface objects, and device `{device}` has none")]
    NoArrays {
        /// The device.
        device: String,
    },
    /// The driver gives a texture or surface object another value than the one that the program knows it by.
    #[error(
        "the driver gives {what} {before} another value, {now}; the program's kernels and memory hold the first one"
    )]
    ImageMoved {
        /// Texture or surface object.
        what: ImageKind,
        /// The value that it had.
        before: u64,
        /// The last one that was given.
        now: u64,
    },
    /// The request does not fit the moment: a capture without a pause, a second pause, …
    #[error("{0}")]
    WrongMoment(&'static str),
    /// A later kernel of a stream went on although an earlier one had stopped: a bug in the device's pause.
    #[error("kernel `{kernel}` ran although the kernel before it in its stream had stopped")]
    Overtaken {
        /// The later one.
        kernel: String,
    },
    /// The files of the state are damaged or contradict each other.
    #[error("the state of the process is damaged: {0}")]
    Damaged(Cause),
    /// A text is not PTX (input).
    #[error("the PTX cannot be read: {0}")]
    NotPtx(hetckpt_ptx::Error),
    /// The state of a process that a question is about cannot be read (input).
    #[error("{0}")]
    State(#[from] PackedStateError),
    /// The files are of another version.
    #[error("the state has format version {found}, this program reads version {known}")]
    Version {
        /// Found.
        found: u32,
        /// Known here.
        known: u32,
    },
    /// The driver library that the process goes on with is of another version.
    #[error("the program's driver library speaks version {found} of the ring, this program versions {} to {}", readable.oldest, readable.newest)]
    RingVersion {
        /// Found.
        found: u32,
        /// Known here.
        readable: Readable,
    },
    /// A file that root has to believe could be another user's work.
    #[error("others than root can change {} (user {uid}, mode {mode:03o}), so root does not trust it: restore as user {uid}, or give the file to root and take away the right of others to write", path.display())]
    NotOfRoot {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Who may do what with it.
        mode: u32,
    },
    /// The files make this server root's, but not its application.
    #[error(
        "by the snapshot, process {pid} ran as user {uid} but its device server as root: restore it as user {uid}, or dump it again with this version"
    )]
    NotItsUser {
        /// The application.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// A kernel in flight cannot be built for the device.
    #[error("kernel `{kernel}` cannot be rebuilt: {reason}")]
    Rebuild {
        /// Kernel.
        kernel: String,
        /// Why.
        reason: BuildError,
    },
}

impl ServerError {
    /// As it is told to whoever has asked.
    #[must_use]
    pub fn response(&self) -> Response {
        Response::Error {
            code: self.code().to_string(),
            message: self.to_string(),
        }
    }

    /// The stable code for a message.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Usage(_) | Self::Daemon(_) => Code::ServerStart,
            Self::Device(DeviceError::NotPresent { .. } | DeviceError::Unusable { .. }) => Code::NoSuchDevice,
            Self::Device(_) | Self::Transfer { .. } | Self::NoArrays { .. } => Code::DeviceFailed,
            Self::Ring(_) | Self::Os { .. } => Code::ServerSystem,
            Self::File { .. } => Code::StateFile,
            Self::NotStopped { .. } => Code::NotStopped,
            Self::WrongMoment(_) | Self::InUse { .. } | Self::NotOfRoot { .. } | Self::NotItsUser { .. } => {
                Code::WrongMoment
            }
            Self::OutOfReach { .. } | Self::VariableMoved { .. } | Self::ImageMoved { .. } => {
                Code::MachineCodeVariables
            }
            Self::Overtaken { .. } => Code::Overtaken,
            Self::NotPtx(_) => Code::Translation,
            Self::State(PackedStateError::Memory { .. }) => Code::CannotWrite,
            Self::Damaged(_) | Self::State(_) => Code::Damaged,
            Self::Version { .. } | Self::RingVersion { .. } => Code::NewerVersion,
            Self::Rebuild { .. } => Code::NotRebuilt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_device_is_called_missing() {
        let missing = DeviceError::NotPresent {
            device: "cuda:1".to_owned(),
            reason: "too few".to_owned(),
        };
        let failed = DeviceError::OutOfMemory {
            requested_bytes: 2,
            free_bytes: 1,
        };
        let code = |error| ServerError::from(error).code();
        assert_eq!((code(missing), code(failed)), (Code::NoSuchDevice, Code::DeviceFailed));
    }
}
