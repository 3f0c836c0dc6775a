#![allow(
    unsafe_code,
    reason = "a process is forked that shares this one's memory until that is written to"
)]
//! Device memory as it was at one moment: that of a child of this process, which Linux copies page by page when the
//! parent writes to it. The child does nothing.

use std::io::{IoSliceMut, PipeWriter, Result, pipe};
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use super::host;
use crate::device::{MemoryView, PlannedView};
use crate::error::DeviceError;

/// The child. It is ended when this is dropped, or this process ends.
pub struct FrozenProcess {
    child: Pid,
    /// The child waits for its end.
    _alive: PipeWriter,
}

impl FrozenProcess {
    /// Freezes this process's memory, of which `ranges` (address, bytes) are to be read. None if there is too little
    /// memory to have all of it twice, or a process may not read its own child's.
    pub fn fork(ranges: &[(u64, u64)]) -> Option<Self> {
        let needed = ranges.iter().fold(0u64, |sum, &(_, size)| sum.saturating_add(size));
        if needed > host::memory().free_bytes {
            return None;
        }
        let (awaited, alive) = pipe().ok()?;
        // The child begins with them blocked: a handler would run in a copy of a process whose threads are gone.
        let before = SigSet::thread_get_mask().ok()?;
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None).ok()?;
        // SAFETY: the child only makes system calls, so it does not matter what locks other threads hold.
        let forked = unsafe { fork() };
        if let Ok(ForkResult::Child) = forked {
            wait_for_end(awaited.as_raw_fd());
        }
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
        let frozen = match forked {
            Ok(ForkResult::Parent { child }) => Self { child, _alive: alive },
            _ => return None,
        };
        // Should memory run out all the same, the view is what to do without.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", frozen.child), "1000");
        let mut byte = [0];
        let is_readable = |&(addr, _): &(u64, u64)| frozen.read_at(addr, &mut byte).is_ok();
        ranges.first().is_none_or(is_readable).then_some(frozen)
    }

    fn read_at(&self, addr: u64, dst: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < dst.len() {
            let remote = RemoteIoVec {
                base: addr as usize + done,
                len: dst.len() - done,
            };
            match process_vm_readv(self.child, &mut [IoSliceMut::new(&mut dst[done..])], &[remote]) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// One that is to be made, of which nothing can be done before.
pub struct PlannedFork;

impl PlannedView for PlannedFork {
    fn make(self: Box<Self>, ranges: &[(u64, u64)]) -> std::result::Result<Option<Box<dyn MemoryView>>, DeviceError> {
        Ok(FrozenProcess::fork(ranges).map(|view| Box::new(view) as Box<dyn MemoryView>))
    }
}

impl MemoryView for FrozenProcess {
    fn read(&self, src: u64, dst: &mut [u8]) -> std::result::Result<(), DeviceError> {
        self.read_at(src, dst).map_err(|error| DeviceError::Driver {
            call: "process_vm_readv",
            reason: error.to_string(),
        })
    }
}

impl Drop for FrozenProcess {
    fn drop(&mut self) {
        // It is there, a zombie at least, until it is waited for.
        let _ = kill(self.child, Signal::SIGKILL);
        while waitpid(self.child, None) == Err(Errno::EINTR) {}
    }
}

/// What the child does: it waits for the end of the pipe `alive`, which comes when its parent is gone. It has no other
/// descriptors, by which others would take its parent to be there still. (A signal at the parent's end would come when
/// the thread ends that has forked.)
fn wait_for_end(alive: RawFd) -> ! {
    let mut byte = 0u8;
    // SAFETY: a system call that touches no memory.
    unsafe { libc::dup2(alive, 0) };
    // SAFETY: as before.
    if unsafe { libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0) } != 0 {
        // Linux before 5.9.
        // SAFETY: nothing is flushed or called at this exit.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: a system call that writes to `byte` at most.
    while unsafe { libc::read(0, (&raw mut byte).cast(), 1) } > 0 {}
    // SAFETY: nothing is flushed or called at this exit.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_view_stays_as_memory_was() {
        let mut memory: Vec<u32> = (0..3_000_000).collect();
        let addr = memory.as_ptr() as u64;
        let view = FrozenProcess::fork(&[(addr, 4)]).unwrap();
        let child = view.child;
        memory.iter_mut().for_each(|word| *word = !*word);
        let mut bytes = vec![0; memory.len() * 4];
        view.read(addr, &mut bytes).unwrap();
        let words = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        assert!(words.eq(0..3_000_000));
        assert!(view.read(8, &mut [0]).is_err());
        drop(view);
        assert_eq!(kill(child, None), Err(Errno::ESRCH));
    }
}
