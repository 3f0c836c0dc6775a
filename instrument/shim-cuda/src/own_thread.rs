//! Threads of the library's own.

use std::io;
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts one with all signals blocked: the program's handlers must not run in it.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    let _ = before.thread_set_mask();
    started.map(drop)
}
