//! A limit on the size of files (`ulimit -f`): what we write past it fails, and is told. By itself Linux would end us
//! without a word, or CRIU in the middle of its work, which a program may not survive.

use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};

/// What helps.
pub const HELP: &str = "raise the limit on the size of files: ulimit -f unlimited";

fn signal() -> SigSet {
    Signal::SIGXFSZ.into()
}

/// Holds the signal back, also from all programs that are started from now on. Before the first thread.
pub fn fail_past_the_limit() {
    // Where it cannot be held back it ends us, as it would have.
    let _ = signal().thread_block();
}

/// Undoes that, for a program that is not ours.
pub fn end_past_the_limit() {
    let _ = signal().thread_unblock();
}

/// True if there is such a limit.
pub fn is_limited() -> bool {
    getrlimit(Resource::RLIMIT_FSIZE).is_ok_and(|(limit, _)| limit != RLIM_INFINITY)
}

/// True of an error for such a limit.
pub fn is_reached(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::FileTooLarge
}
