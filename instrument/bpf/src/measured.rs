//! What a trace has measured.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// All of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// How long was traced, in seconds.
    pub seconds: f64,
    /// Driver libraries that had probes.
    pub libraries: Vec<Library>,
    /// Functions that were called, most time first.
    pub functions: Vec<Function>,
    /// Kernels that were launched, most launches first.
    pub kernels: Vec<Kernel>,
    /// Entry points that were asked for by name, in the order of their names.
    pub asked: Vec<Asked>,
    /// The processes that made calls.
    pub processes: Vec<Process>,
    /// Events that found no room to be noted: if this is not 0, figures are too small.
    pub lost: u64,
    /// What was not traced, in words.
    pub remarks: Vec<String>,
}

/// A driver library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Library {
    /// Its file.
    pub path: String,
    /// Number of functions that had a probe.
    pub functions: usize,
    /// True if the probes were there before a traced process mapped the library.
    pub from_the_start: bool,
}

/// Calls of one function of one library, by all traced processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Function {
    /// Its name, as the library exports it.
    pub name: String,
    /// File name of the library.
    pub library: String,
    /// Calls.
    pub calls: u64,
    /// Calls that returned.
    pub returns: u64,
    /// Calls that returned an error.
    pub failures: u64,
    /// Time in calls that returned, in nanoseconds.
    pub total_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// Half of the calls did not take longer, in nanoseconds; from the histogram.
    pub p50_ns: u64,
    /// 99 of 100 calls did not take longer, in nanoseconds; from the histogram.
    pub p99_ns: u64,
    /// What their size arguments add up to; `None` for functions that have none.
    pub bytes: Option<u64>,
    /// How long they took.
    pub histogram: Histogram,
}

/// Launches of the kernels of one name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// The name; of one that was loaded before the trace its handle, as `handle 0x…`.
    pub name: String,
    /// Launches.
    pub launches: u64,
}

/// An entry point that was asked for by its name (`cuGetProcAddress`, `clGetExtensionFunctionAddress`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The name.
    pub name: String,
    /// How often.
    pub times: u64,
    /// How often it was not given.
    pub refused: u64,
}

/// What one process did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Launches.
    pub launches: u64,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Of these, those that were freed.
    pub frees: u64,
    /// Bytes of all allocations.
    pub allocated_bytes: u64,
    /// Bytes that were allocated during the trace and not freed.
    pub live_bytes: u64,
    /// The most bytes that were so at a time.
    pub peak_bytes: u64,
    /// A lower bound of the time for which its devices had nothing to do, in nanoseconds: each from the return of a
    /// wait, after which no queue held work given to it during the trace, to the next launch or copy.
    pub idle_ns: u64,
    /// Number of such times.
    pub idle_times: u64,
}
