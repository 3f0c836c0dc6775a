//! What a device server has done so far.

use serde::{Deserialize, Serialize};

/// Number of buckets of [`Done::histogram`].
pub const NUM_BUCKETS: usize = 40;

/// What a server has done since it was started; a restored program has a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStats {
    /// Process id of the application, as the server sees it.
    pub app_pid: u32,
    /// Process id of the server.
    pub server_pid: u32,
    /// Device, `cpu` or `cuda:0`.
    pub device: String,
    /// Its name.
    pub device_name: String,
    /// How long the server has been there, microseconds.
    pub age_us: u64,
    /// Processor time of the server, microseconds.
    pub cpu_us: u64,
    /// What it has done.
    pub done: Vec<Done>,
}

/// One kind of thing that a server does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// `launch`, `copy_in`, `copy_out`, `copy`, `fill`, `wait`, `allocate`, `free`, `build`.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Bytes moved, or allocated.
    pub bytes: u64,
    /// Time spent, nanoseconds: of waits from the question to the answer, of all else what the server has worked on it.
    pub time_ns: u64,
    /// How often it took from 2^i to 2^(i+1) - 1 ns, [`NUM_BUCKETS`] of them; the first also 0 ns, the last also more.
    pub histogram: Vec<u64>,
}
