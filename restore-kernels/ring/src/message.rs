//! Control messages: JSON, each answered by one [`Response`].
//!
//! Who sends what: the shim `Hello` (once, then its connection is silent and only shows that both live); the plugin
//! `Pause`, `Capture`, `AddPinned`, `Attach`, `Release`; the command line `Status`, `Pause`, `Release`, `Suspend`,
//! `Resume`. A connection that sent `Pause` or `Attach` holds the pause: when it closes without
//! `Release { app_is_gone: true }`, the server resumes the kernels. A pause by `Lock` lasts until `Unlock`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::server_stats::ServerStats;

use crate::pinned_table::PinnedArea;

/// What `hetckpt-server --restore` prints once no other restore can have the process; the server is not ready then.
pub const RESERVED: &str = "reserved\n";

/// Environment variable: a device server that restores says that it is ready once it has its device and the room of its
/// memory. The rest it does beside CRIU, and fails when the application is attached if it cannot.
pub const BESIDE_CRIU_ENV: &str = "HETCKPT_RESTORE_BESIDE_CRIU";

/// Environment variable: the number of a socket on which the plugin asks, with one byte, whether a dump may begin, and
/// waits for one as the answer. CRIU has made itself ready by then, and nothing stands still yet.
pub const GO_AHEAD_ENV: &str = "HETCKPT_DUMP_GO_AHEAD";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Shim to a fresh server. With it travels the ring's memfd. Answer: [`Response::Welcome`].
    Hello {
        /// [`crate::version::PROTOCOL_VERSION`].
        protocol: u32,
        /// The application's process id, as it sees itself.
        pid: u32,
        /// Descriptor number of the ring in the application.
        ring_fd: i32,
        /// Descriptor number of this connection in the application.
        control_fd: i32,
    },
    /// What is running. Answer: [`Response::Status`].
    Status,
    /// What has the server done so far? Answer [`Response::Stats`].
    Stats,
    /// Stop all kernels at their next probe, and hold them. Answer [`Response::Done`] once nothing runs any more.
    Pause {
        /// Milliseconds that the kernels have to stop; 0: as long as the server gives them by itself.
        #[serde(default)]
        limit_ms: u64,
    },
    /// Where the next `Capture` is to write device memory: behind what the file that travels with it has, as parts of a
    /// member of an archive. It leaves a list of them among the files of the state. A second file that travels with it
    /// lists pieces that need not be written ([`ServerStatus::borrows_pieces`]). Forgotten when this connection closes
    /// or sends `Release`. Answer: [`Response::Done`].
    MemoryTo {
        /// The member's name.
        member: String,
        /// Only once `WriteMemory` comes, if the server can keep memory as it was ([`ServerStatus::keeps_memory`]).
        #[serde(default)]
        later: bool,
    },
    /// Write what the last `Capture` has kept for this connection, if it has kept something: memory as it was then,
    /// whatever kernels have written since, and the files of the state. Forgotten when this connection closes. Answer:
    /// [`Response::Captured`], without files if nothing was left to do.
    WriteMemory,
    /// Write the device state of the frozen application. With it travels the directory's descriptor. Answer:
    /// [`Response::Captured`].
    Capture,
    /// Some of the pinned memory of an application that is to be attached next; more requests bring the rest, as one
    /// message can carry [`crate::control_socket::MAX_FDS`] descriptors. With it travel the memfds of `areas`, in that
    /// order. Answer: [`Response::Done`] once they are mapped.
    AddPinned {
        /// Areas of pinned memory.
        areas: Vec<PinnedArea>,
    },
    /// The application has been rebuilt and is frozen. With it travel: the ring's memfd, a pidfd of the application, in
    /// that order. Answer: [`Response::Done`] once everything runs again.
    Attach {
        /// Process id of the application as the server sees it.
        pid: u32,
        /// Areas of pinned memory that have been added.
        num_pinned: u64,
    },
    /// Take everything off the device, and give the device back. With it travels, if there is a `file`, that file, new
    /// and open for writing. Nobody else may hold the pause. Answer: [`Response::Suspended`] once the device is free.
    Suspend {
        /// As in `Pause`.
        limit_ms: u64,
        /// The path of the file that is to keep device memory, to be removed when it is needed no more; without one
        /// the server keeps it.
        file: Option<PathBuf>,
    },
    /// Go on with what was suspended. Answer: [`Response::Done`] once it runs, or is locked as it was. After an error
    /// it is suspended as before.
    Resume {
        /// The device to go on with, as `--device` takes it; none: the one that the server was started for.
        device: Option<String>,
    },
    /// As `Pause`, but no connection holds the pause: it lasts until `Unlock`. Answer: [`Response::Done`].
    Lock {
        /// As in `Pause`.
        limit_ms: u64,
    },
    /// Ends a pause by `Lock`. Answer: [`Response::Done`].
    Unlock,
    /// Ends the pause this connection holds. Answer: [`Response::Done`].
    Release {
        /// The application has been dumped and killed: do not resume, exit.
        app_is_gone: bool,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// To `Hello`.
    Welcome {
        /// [`crate::version::PROTOCOL_VERSION`].
        protocol: u32,
        /// The devices the application is to see.
        devices: Vec<VirtualDevice>,
    },
    /// Done.
    Done {
        /// Microseconds it took, where that is worth knowing (`Pause`).
        elapsed_us: u64,
    },
    /// To `Capture`.
    Captured {
        /// Files written, in the given directory.
        files: Vec<String>,
        /// Device memory written, bytes.
        memory_bytes: u64,
    },
    /// To `Suspend`.
    Suspended {
        /// Microseconds from the request until no kernel ran any more.
        pause_us: u64,
        /// Device memory that was taken off the device, bytes.
        memory_bytes: u64,
    },
    /// To `Status`.
    Status(ServerStatus),
    /// To `Stats`.
    Stats(ServerStats),
    /// It did not work.
    Error {
        /// Stable code, `HK0602`.
        code: String,
        /// In words.
        message: String,
    },
}

/// The device the application sees, fixed at its first call; it travels with the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualDevice {
    /// Name.
    pub name: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// All memory in bytes.
    pub total_bytes: u64,
    /// `CUdevice_attribute` numbers and values; what is not listed is 0.
    pub attributes: Vec<(u32, i32)>,
}

impl VirtualDevice {
    /// UUID of the devices that are none of NVIDIA's.
    pub const EMULATED: [u8; 16] = *b"hetckpt-virtual0";

    /// True if it is none of NVIDIA's. For the programs on it, textures are done in software
    /// ([`hetckpt_abi::software_image`]), wherever they go on.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.uuid == Self::EMULATED
    }

    /// An attribute.
    #[must_use]
    pub fn attribute(&self, number: u32) -> i32 {
        self.attributes
            .iter()
            .find(|(n, _)| *n == number)
            .map_or(0, |(_, value)| *value)
    }
}

/// What a server is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Process id of the application.
    pub app_pid: u32,
    /// Process id of the server.
    pub server_pid: u32,
    /// Device, `cpu` or `cuda:0`.
    pub device: String,
    /// Its name.
    pub device_name: String,
    /// Device memory in use, bytes: whole pages of the device.
    pub memory_bytes: u64,
    /// What the program has asked for of it, bytes.
    #[serde(default)]
    pub allocated_bytes: u64,
    /// True while kernels are held.
    pub is_paused: bool,
    /// It takes `MemoryTo`.
    #[serde(default)]
    pub writes_archives: bool,
    /// It takes a list of known pieces with `MemoryTo`.
    #[serde(default)]
    pub borrows_pieces: bool,
    /// It takes `MemoryTo` with `later`.
    #[serde(default)]
    pub keeps_memory: bool,
    /// True after `Lock`, until `Unlock`.
    #[serde(default)]
    pub is_locked: bool,
    /// True while everything is off the device. `device` is then what it would go on with.
    #[serde(default)]
    pub is_suspended: bool,
    /// Kernels in flight.
    pub kernels: Vec<String>,
    /// Commands queued behind them.
    pub num_queued: u64,
    /// What the program calls its state; empty if it says nothing.
    #[serde(default)]
    pub label: String,
    /// Kernels that are run as they came, in words: what they were compiled for and some of their names
    /// (`sm_90: reduce, scan`). A snapshot is restored only where they run.
    #[serde(default)]
    pub native_code: Vec<String>,
    /// Microseconds from the last `Pause` until no kernel ran any more; 0 before the first.
    #[serde(default)]
    pub last_pause_us: u64,
    /// Microseconds that the last `Capture` took; 0 before the first.
    #[serde(default)]
    pub last_capture_us: u64,
}

/// A device of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// `cpu`, `cuda:0`, `opencl:0:0`.
    pub id: String,
    /// `cpu`, `cuda`, `opencl`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Vendor.
    pub vendor: String,
    /// Driver or compiler version.
    pub driver: String,
    /// All memory in bytes.
    pub total_bytes: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// Multiprocessors or worker threads.
    pub num_multiprocessors: u32,
    /// Threads that a block may have.
    #[serde(default)]
    pub max_threads_per_block: u32,
    /// Shared memory that a block may have, static and dynamic, in bytes.
    #[serde(default)]
    pub max_shared_bytes_per_block: u32,
    /// Compute capability of a CUDA device: major, minor; `None` for other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<[u32; 2]>,
    /// What an OpenCL device has beyond OpenCL C 1.2's core; `None` for other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opencl: Option<OpenClSummary>,
}

/// What an OpenCL device has beyond OpenCL C 1.2's core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenClSummary {
    /// Size of the largest buffer; a program can have several.
    pub max_allocation_bytes: u64,
    /// Double precision.
    pub fp64: bool,
    /// Half precision, which no kernel needs: it is computed in single precision.
    pub fp16: bool,
    /// 64-bit atomics.
    pub int64_atomics: bool,
    /// Sizes of sub-groups that a kernel may ask for; empty if the device does not say.
    pub sub_group_sizes: Vec<u64>,
    /// Intermediate language that the device takes (`SPIR-V_1.2`).
    pub il_version: Option<String>,
    /// Blocks of a cooperative launch at most.
    #[serde(default)]
    pub max_cooperative_blocks: u64,
    /// What kernels can need that the device lacks; those that do need it do not run there.
    pub lacks: Vec<String>,
    /// Running kernels see what the host writes; otherwise they are stopped between launches of bounded length. `None`
    /// if it was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees_host_writes: Option<bool>,
    /// Why it could not be opened, if it was tried and could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}
