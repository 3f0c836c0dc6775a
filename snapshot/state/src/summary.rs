//! What a person or a script wants to know of a captured process without decoding its state.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::allocation::Owner;
use crate::bounded;
use crate::kernel_run::{KernelRun, ProbedKernel};
use crate::names::{FORMAT_VERSION, is_readable};
use crate::native_code::NativeCode;
use crate::process::{DeviceState, ProcessState};
use crate::queue::{StreamState, Work};

/// Largest description that is read, bytes.
pub const MAX_DESCRIPTION_BYTES: u64 = 64 << 20;
/// Most files of a process beside its description.
const MAX_FILES: usize = 16;
/// Longest name of a file, a device or a kind of device, bytes.
const MAX_NAME_BYTES: usize = 4096;
/// Longest label, bytes.
const MAX_LABEL_BYTES: usize = 256;
/// Most devices of a process.
const MAX_DEVICES: usize = 64;
/// Most kinds of devices.
const MAX_KINDS: usize = 16;
/// Most allocations: more do not fit into a description.
const MAX_ALLOCATIONS: usize = 1 << 20;
/// Most kernels in flight.
const MAX_KERNELS: usize = 1 << 16;
/// Most resume points of a kernel at which threads stand.
const MAX_RESUME_POINTS: usize = 1 << 16;
/// Most groups of kernels that are run as they came.
pub const MAX_NATIVE_CODES: usize = 16;
/// Longest mangled name of a kernel, bytes.
const MAX_KERNEL_NAME_BYTES: usize = 1 << 20;

/// Why a description cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It is none, or damaged: its text is not what it ought to be (input).
    #[error("the description of a process's device state is damaged: {why}")]
    Text {
        /// What is wrong with it, fit to print.
        why: String,
    },
    /// It is longer than any can be (input).
    #[error("the description of a process's device state has {size_bytes} bytes; the limit is {MAX_DESCRIPTION_BYTES}")]
    TooLong {
        /// Its length.
        size_bytes: u64,
    },
    /// Written by another version (input).
    #[error("the description has format version {found}, this program reads version {known}")]
    Version {
        /// Version found.
        found: u32,
        /// Version known here.
        known: u32,
    },
}

/// The description file, readable as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// [`crate::names::FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// What was captured.
    pub summary: Summary,
    /// The other files of this process.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_FILES>")]
    pub members: Vec<MemberFile>,
    /// As whom its device server ran, by its own account; missing in what older versions wrote. Root believes
    /// [`crate::names::user_file`] instead, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_user: Option<ServerUser>,
}

/// As whom a device server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A file beside the description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFile {
    /// Name, in the same directory.
    #[serde(deserialize_with = "bounded::text::<_, MAX_NAME_BYTES>")]
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// BLAKE3 in hexadecimal. Of the memory file's pieces only the index has hashes; there it is empty.
    #[serde(deserialize_with = "bounded::text::<_, MAX_NAME_BYTES>")]
    pub blake3: String,
}

/// Facts about a captured process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Process id at capture.
    pub pid: u32,
    /// What the program called its state; missing if it said nothing, and in what older versions wrote.
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "bounded::text::<_, MAX_LABEL_BYTES>"
    )]
    pub label: String,
    /// Its devices; whatever names a device does so by its index here.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_DEVICES>")]
    pub devices: Vec<DeviceSummary>,
    /// Allocations of the program.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_ALLOCATIONS>")]
    pub allocations: Vec<AllocationSummary>,
    /// Bytes allocated by the program.
    pub allocated_bytes: u64,
    /// Bytes of device memory mapped.
    pub mapped_bytes: u64,
    /// Bytes of the memory file.
    pub stored_bytes: u64,
    /// Pinned host memory in bytes.
    pub pinned_bytes: u64,
    /// Arrays; missing if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_arrays: u64,
    /// Bytes that they hold.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub array_bytes: u64,
    /// Texture and surface objects; missing if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_image_objects: u64,
    /// Modules loaded.
    pub num_modules: u32,
    /// Streams.
    pub num_streams: u32,
    /// Events.
    pub num_events: u32,
    /// Commands held back behind stopped kernels.
    pub num_held_commands: u64,
    /// Kernels stopped part-way.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_KERNELS>")]
    pub kernels_in_flight: Vec<KernelSummary>,
    /// Device kinds that it can be restored on.
    #[serde(deserialize_with = "bounded::texts::<_, MAX_KINDS, MAX_NAME_BYTES>")]
    pub restorable_on: Vec<String>,
    /// Kernels that bind it to NVIDIA GPUs which run them as they came; missing in what older versions wrote.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, MAX_NATIVE_CODES>"
    )]
    pub native_code: Vec<NativeCode>,
    /// What a device must offer.
    pub requires: Requirements,
}

/// A device of a captured process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// Kind of the device it was captured on: `cpu`, `cuda` or `opencl`.
    #[serde(deserialize_with = "bounded::text::<_, MAX_NAME_BYTES>")]
    pub captured_on_kind: String,
    /// Its name.
    #[serde(deserialize_with = "bounded::text::<_, MAX_NAME_BYTES>")]
    pub captured_on: String,
    /// Name of the device that the process sees.
    #[serde(deserialize_with = "bounded::text::<_, MAX_NAME_BYTES>")]
    pub virtual_device: String,
}

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSummary {
    /// Device address.
    pub addr: u64,
    /// Bytes.
    pub size_bytes: u64,
}

/// A kernel stopped part-way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSummary {
    /// Mangled name.
    #[serde(deserialize_with = "bounded::text::<_, MAX_KERNEL_NAME_BYTES>")]
    pub name: String,
    /// Index of its device.
    pub device: u32,
    /// Stream it runs in.
    pub stream: u64,
    /// Blocks of the grid, x first.
    pub grid: [u32; 3],
    /// Threads of a block, x first.
    pub block: [u32; 3],
    /// Blocks that have finished.
    pub blocks_finished: u64,
    /// Blocks stopped part-way.
    pub blocks_paused: u64,
    /// Blocks not started.
    pub blocks_not_started: u64,
    /// Threads stopped at each resume point.
    #[serde(deserialize_with = "bounded::map::<_, _, _, MAX_RESUME_POINTS>")]
    pub resume_points: BTreeMap<u32, u64>,
    /// Threads of paused blocks that have finished.
    pub threads_finished: u64,
}

/// What a device must offer for a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// Threads in the largest block in flight.
    pub threads_per_block: u64,
    /// The most shared memory, static and dynamic, that a block in flight has, in bytes; 0 in what older versions
    /// wrote.
    #[serde(default)]
    pub shared_bytes_per_block: u64,
    /// Unfinished blocks of the largest cooperative launch in flight, which must run together; 0 in what older versions
    /// wrote.
    #[serde(default)]
    pub cooperative_blocks: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Description {
    /// Reads a description's text. Its version is looked at before the rest, which another version may have changed. It
    /// takes at most a few times the memory of the text.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn parse(text: &[u8]) -> Result<Self, DescriptionError> {
        #[derive(Deserialize)]
        struct Head {
            format_version: u32,
        }

        let size_bytes = text.len() as u64;
        if size_bytes > MAX_DESCRIPTION_BYTES {
            return Err(DescriptionError::TooLong { size_bytes });
        }
        let wrong = |e: serde_json::Error| DescriptionError::Text {
            why: bounded::message(&e),
        };
        let Head { format_version: found } = serde_json::from_slice(text).map_err(wrong)?;
        if !is_readable(found) {
            let known = FORMAT_VERSION;
            return Err(DescriptionError::Version { found, known });
        }
        serde_json::from_slice(text).map_err(wrong)
    }
}

impl Summary {
    /// The facts about `state`; [`Self::label`] and [`Self::native_code`] are left empty, as the state does not tell
    /// them.
    #[must_use]
    pub fn of(state: &ProcessState) -> Self {
        let allocations: Vec<AllocationSummary> = state
            .allocations
            .iter()
            .filter(|a| a.owner == Owner::Program)
            .map(|a| AllocationSummary {
                addr: a.addr,
                size_bytes: a.size_bytes,
            })
            .collect();
        let work = || {
            state
                .streams
                .iter()
                .flat_map(|s| s.work.iter().map(move |item| (s, &item.work)))
        };
        let runs = || {
            work().filter_map(|(stream, work)| match work {
                Work::Resume(run) => Some((stream, run)),
                Work::Command(_) | Work::AwaitHostFunction(_) => None,
            })
        };
        let kernels_in_flight: Vec<KernelSummary> = runs()
            .map(|(stream, run)| KernelSummary::of(state, stream, run))
            .collect();
        let mapped_bytes = state.mappings.iter().map(|m| m.size_bytes).sum();
        let threads = |k: &KernelSummary| k.block.iter().map(|&n| u64::from(n)).product();
        Self {
            pid: state.pid,
            label: String::new(),
            devices: state.devices.iter().map(DeviceSummary::of).collect(),
            allocated_bytes: allocations.iter().map(|a| a.size_bytes).sum(),
            allocations,
            mapped_bytes,
            stored_bytes: state.memory.stored_bytes(),
            pinned_bytes: state.pinned.iter().map(|p| p.size_bytes).sum(),
            num_arrays: state.arrays.len() as u64,
            array_bytes: state.arrays.iter().map(|array| array.bytes.len() as u64).sum(),
            num_image_objects: state.images.len() as u64,
            num_modules: u32::try_from(state.modules.len()).unwrap_or(u32::MAX),
            num_streams: u32::try_from(state.streams.len()).unwrap_or(u32::MAX),
            num_events: u32::try_from(state.events.len()).unwrap_or(u32::MAX),
            num_held_commands: (work().filter(|(_, w)| matches!(w, Work::Command(_))).count() + state.pending.len())
                as u64,
            requires: Requirements {
                memory_bytes: mapped_bytes,
                threads_per_block: kernels_in_flight.iter().map(threads).max().unwrap_or(0),
                shared_bytes_per_block: runs().map(|(_, run)| shared_bytes(state, run)).max().unwrap_or(0),
                cooperative_blocks: runs().map(|(_, run)| cooperative_blocks(run)).max().unwrap_or(0),
            },
            kernels_in_flight,
            native_code: Vec::new(),
            restorable_on: if state.has_arrays() || state.modules.iter().any(|m| !m.machine_code.is_empty()) {
                state
                    .devices
                    .iter()
                    .map(|device| device.captured_on.kind.clone())
                    .collect()
            } else {
                ["cpu", "cuda", "opencl"].map(str::to_owned).to_vec()
            },
        }
    }
}

fn kernel_of<'a>(state: &'a ProcessState, run: &KernelRun) -> Option<&'a ProbedKernel> {
    state.probed_kernels.get(usize::try_from(run.probed_kernel).ok()?)
}

/// Shared memory that each block of a stopped launch has.
fn shared_bytes(state: &ProcessState, run: &KernelRun) -> u64 {
    let static_bytes = kernel_of(state, run).map_or(0, |kernel| kernel.static_shared_bytes);
    u64::from(static_bytes) + u64::from(run.shape.dynamic_shared_bytes)
}

/// Blocks that a stopped launch has left and that must run together.
fn cooperative_blocks(run: &KernelRun) -> u64 {
    match run.shape.cooperative {
        true => run.stopped.len() as u64 + run.num_not_started(),
        false => 0,
    }
}

impl DeviceSummary {
    fn of(device: &DeviceState) -> Self {
        Self {
            captured_on_kind: device.captured_on.kind.clone(),
            captured_on: device.captured_on.name.clone(),
            virtual_device: device.virtual_device.name.clone(),
        }
    }
}

impl KernelSummary {
    fn of(state: &ProcessState, stream: &StreamState, run: &KernelRun) -> Self {
        let name = kernel_of(state, run).map_or_else(String::new, |k| k.name.clone());
        let threads_per_block: u64 = run.shape.threads_per_block();
        let mut resume_points = BTreeMap::new();
        let mut stopped_threads = 0;
        for group in run.stopped.iter().flat_map(|b| &b.groups) {
            *resume_points.entry(group.resume_point).or_insert(0) += group.num_threads();
            stopped_threads += group.num_threads();
        }
        Self {
            name,
            device: stream.device,
            stream: stream.id,
            grid: run.shape.grid,
            block: run.shape.block,
            blocks_finished: run.num_finished(),
            blocks_paused: run.stopped.len() as u64,
            blocks_not_started: run.num_not_started(),
            resume_points,
            threads_finished: (threads_per_block * run.stopped.len() as u64).saturating_sub(stopped_threads),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_back_and_their_version_first() {
        let described = Description {
            format_version: FORMAT_VERSION,
            ..largest(10, 2)
        };
        let text = serde_json::to_vec(&described).unwrap();
        assert_eq!(Description::parse(&text).unwrap(), described);
        let newer = format!("{{\"format_version\": {}, \"summary\": 7}}", FORMAT_VERSION + 1);
        let error = Description::parse(newer.as_bytes()).unwrap_err();
        assert!(matches!(error, DescriptionError::Version { .. }), "{error:?}");
    }

    #[test]
    fn hostile_descriptions_take_little_memory() {
        let described = Description {
            format_version: FORMAT_VERSION,
            ..largest(0, 0)
        };
        let text = serde_json::to_string(&described).unwrap();
        let replaced = |field: &str, element: &str, open: &str, close: &str| {
            let (before, after) = text.split_once(&format!("\"{field}\":[")).unwrap();
            let (_, after) = after.split_once(']').unwrap();
            let count = (20 << 20) / (element.len() + 1);
            let elements = vec![element; count].join(",");
            format!("{before}\"{field}\":{open}{elements}{close}{after}")
        };
        for hostile in [
            replaced("allocations", "[0,0]", "[", "]"),
            replaced("restorable_on", "\"\"", "[", "]"),
            replaced("native_code", "[[],[],0]", "[", "]"),
            replaced("compiled_for", "\"\"", "[", "]"),
            replaced(
                "kernels_in_flight",
                "[\"\",0,0,[0,0,0],[0,0,0],0,0,0,{\"1\":1},0]",
                "[",
                "]",
            ),
            replaced("members", "[\"\",0,\"\"]", "[", "]"),
            replaced("allocations", "{\"\":[[]]}", "[", "]"),
            replaced("allocations", "[[[[]]]]", "[", "],\"allocations\":[]"),
        ] {
            let allocated = allocation_counter::measure(|| drop(Description::parse(hostile.as_bytes())));
            assert!(allocated.bytes_max < 96 << 20, "{allocated:?}: {}", &hostile[..200]);
        }
    }

    /// With every number at its longest.
    fn largest(num_allocations: usize, num_kernels: usize) -> Description {
        let kernel = KernelSummary {
            name: "k".repeat(300),
            device: u32::MAX,
            stream: u64::MAX,
            grid: [u32::MAX; 3],
            block: [u32::MAX; 3],
            blocks_finished: u64::MAX,
            blocks_paused: u64::MAX,
            blocks_not_started: u64::MAX,
            resume_points: (0..1024).map(|at| (u32::MAX - at, u64::MAX)).collect(),
            threads_finished: u64::MAX,
        };
        let member = MemberFile {
            name: "hetgpu-4294967295.state.zst".to_owned(),
            size_bytes: u64::MAX,
            blake3: "0".repeat(64),
        };
        let allocation = AllocationSummary {
            addr: u64::MAX,
            size_bytes: u64::MAX,
        };
        let name = "n".repeat(256);
        Description {
            format_version: u32::MAX,
            summary: Summary {
                pid: u32::MAX,
                label: "l".repeat(MAX_LABEL_BYTES),
                devices: vec![DeviceSummary {
                    captured_on_kind: "opencl".to_owned(),
                    captured_on: name.clone(),
                    virtual_device: name,
                }],
                allocations: vec![allocation; num_allocations],
                allocated_bytes: u64::MAX,
                mapped_bytes: u64::MAX,
                stored_bytes: u64::MAX,
                pinned_bytes: u64::MAX,
                num_arrays: u64::MAX,
                array_bytes: u64::MAX,
                num_image_objects: u64::MAX,
                num_modules: u32::MAX,
                num_streams: u32::MAX,
                num_events: u32::MAX,
                num_held_commands: u64::MAX,
                kernels_in_flight: vec![kernel; num_kernels],
                restorable_on: ["cpu", "cuda", "opencl"].map(str::to_owned).to_vec(),
                native_code: vec![NativeCode {
                    compiled_for: vec!["compute_100".to_owned(), "sm_90a".to_owned()],
                    kernels: vec!["k".to_owned()],
                    num_kernels: u64::MAX,
                }],
                requires: Requirements {
                    memory_bytes: u64::MAX,
                    threads_per_block: u64::MAX,
                    shared_bytes_per_block: u64::MAX,
                    cooperative_blocks: u64::MAX,
                },
            },
            members: vec![member; 2],
            server_user: Some(ServerUser {
                uid: u32::MAX,
                gid: u32::MAX,
            }),
        }
    }
}
