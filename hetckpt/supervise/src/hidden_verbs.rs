//! Verbs with which hetckpt runs itself: no user types them, and no help lists them.

/// First argument with which this program turns itself into the one to run.
pub const LAUNCH: &str = "__launch";

/// First argument with which this program turns itself into a job's init.
pub const INIT: &str = "__init";

/// First argument with which this program turns itself into a keeper.
pub const KEEP: &str = "__keep";

/// First argument with which this program turns itself into a guardian.
pub const GUARD: &str = "__guard";

/// First argument with which this program passes a scheduler's signal on to a job.
pub const SENTINEL: &str = "__sentinel";

/// First argument with which our driver library has this program control a process.
pub const PROCESS: &str = "__process";
