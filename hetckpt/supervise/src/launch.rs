//! Becoming the program to run: the second half of `hetckpt run`, in the child process.

use hetckpt_ring::failure_code::Code;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::SigSet;

use hetckpt_report::failure::Failure;
use hetckpt_report::{exit, file_size};

use crate::namespaces::{descriptors, privileges};
use crate::signals::{PASSED_ON, SUSPENDING};

/// Environment variable that tells a process, and `dump`, that it was started under hetckpt: the shim's path.
pub const MARK: &str = "HETCKPT_SHIM";

/// Turns this process into the program to run, as the leader of a session of its own: CRIU then needs no terminal. In
/// namespaces of its own it has neither our privileges nor files from without.
pub fn launch(command: &[OsString], is_inside: bool) -> Failure {
    let Some((program, arguments)) = command.split_first() else {
        return Failure::new(Code::StandIn, "no program given");
    };
    // The supervisor holds these back for itself; the program starts with them as any other program does.
    let held: SigSet = PASSED_ON.into_iter().chain(SUSPENDING).collect();
    if let Err(e) = held.thread_unblock() {
        return Failure::new(Code::StandIn, "cannot let signals through").note(e.to_string());
    }
    file_size::end_past_the_limit();
    if let Err(e) = nix::unistd::setsid() {
        return Failure::new(Code::StandIn, "cannot start a session").note(e.to_string());
    }
    let prepared = match is_inside {
        true => descriptors::leave_behind().and_then(|()| Ok(privileges::keep()?)),
        false => Ok(()),
    };
    if let Err(e) = prepared {
        return Failure::new(Code::StandIn, "cannot prepare the program for its namespaces").note(e.to_string());
    }
    let error = Command::new(program).args(arguments).exec();
    let failure =
        Failure::new(Code::StandIn, format!("cannot run {}", program.to_string_lossy())).note(error.to_string());
    match error.kind() {
        io::ErrorKind::NotFound => failure.exit(exit::NOT_FOUND),
        _ => failure.exit(exit::NOT_RUN),
    }
}
