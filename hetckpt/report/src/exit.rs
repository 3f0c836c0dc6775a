//! Exit codes: 0 done, 1 failed, 2 usage, 3 not supported here; `run`, `restore` and `criu` pass on the program's own
//! code and use 125 for our own failures, `run` 126 and 127 for a program that cannot be started or is not there, as
//! `env` and `timeout` do.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// The command failed.
pub const FAILED: u8 = 1;

/// The command line was wrong.
pub const USAGE: u8 = 2;

/// This machine, or this program, cannot do it.
pub const UNSUPPORTED: u8 = 3;

/// `run`, `restore` or `criu` failed before the program could say anything.
pub const OWN_FAILURE: u8 = 125;

/// `run` could not start the program, which is there.
pub const NOT_RUN: u8 = 126;

/// `run` has found no such program.
pub const NOT_FOUND: u8 = 127;

/// Code of a program that ended with `status`, as a shell gives it: its own, or 128 + the signal's number.
pub fn code_of(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The same for the end of this process.
pub fn from_wait_status(status: ExitStatus) -> ExitCode {
    code_of(status).into()
}
