//! Names of the files that hold a process's state, in the directory of CRIU's images.

/// Newest version of the files and of the binary schema: it has arrays, and texture and surface objects. What has none
/// of them is written as [`WITH_VARIABLES`] or [`OLDEST_FORMAT_VERSION`].
pub const FORMAT_VERSION: u32 = 4;

/// The version that has the content of variables that a device has placed, and clusters of launches.
pub const WITH_VARIABLES: u32 = 3;

/// Oldest version that is read; 1 was never released.
pub const OLDEST_FORMAT_VERSION: u32 = 2;

/// True if this program reads `version`.
#[must_use]
pub fn is_readable(version: u32) -> bool {
    (OLDEST_FORMAT_VERSION..=FORMAT_VERSION).contains(&version)
}

/// The readable description: [`crate::summary::Description`] as JSON.
#[must_use]
pub fn description_file(pid: u32) -> String {
    format!("hetgpu-{pid}.json")
}

/// The state: a zstd frame of [`crate::codec`]'s bytes.
#[must_use]
pub fn state_file(pid: u32) -> String {
    format!("hetgpu-{pid}.state.zst")
}

/// Content of device memory: the pieces of [`crate::memory_index::MemoryIndex`].
#[must_use]
pub fn memory_file(pid: u32) -> String {
    format!("hetgpu-{pid}.mem")
}

/// What device memory has become where its server has written it into an archive: a list of parts as JSON. It does not
/// go into the archive.
#[must_use]
pub fn parts_file(pid: u32) -> String {
    format!("hetgpu-{pid}.parts")
}

/// The process id in the name of such a list; `None` for other names.
#[must_use]
pub fn pid_of_parts(name: &str) -> Option<u32> {
    name.strip_prefix("hetgpu-")?.strip_suffix(".parts")?.parse().ok()
}

/// Where archives have the content of device memory: in the folder of a restore there is a link to each then
/// ([`lender_file`]), and this is the place of the memory's parts in them, as JSON.
#[must_use]
pub fn place_file(pid: u32) -> String {
    format!("hetgpu-{pid}.place")
}

/// A link to an archive that has some of device memory; number 0 is [`memory_file`].
#[must_use]
pub fn lender_file(pid: u32, number: u32) -> String {
    match number {
        0 => memory_file(pid),
        n => format!("hetgpu-{pid}.mem.{n}"),
    }
}

/// The process id in the name of a memory file; `None` for other names.
#[must_use]
pub fn pid_of_memory(name: &str) -> Option<u32> {
    name.strip_prefix("hetgpu-")?.strip_suffix(".mem")?.parse().ok()
}

/// As whom the process's device server ran: [`crate::summary::ServerUser`] as JSON, written by whoever dumped.
#[must_use]
pub fn user_file(pid: u32) -> String {
    format!("hetgpu-{pid}.user")
}

/// The process id in the name of a description file; `None` for other names.
#[must_use]
pub fn pid_of_description(name: &str) -> Option<u32> {
    name.strip_prefix("hetgpu-")?.strip_suffix(".json")?.parse().ok()
}
