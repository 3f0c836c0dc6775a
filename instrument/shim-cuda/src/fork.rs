//! What becomes of the library when the program forks.
//!
//! As with NVIDIA's driver, a child forked after `cuInit` has no device: its calls fail at once. It lets go of the
//! connection, so that the server sees the end of the program itself, and of the ring, which is not even mapped there.
//! A child forked before starts anew. A fork in the middle waits for `cuInit` to end: the child would have half a start
//! for ever, the server's log and pipe open, and a session that no thread of its own ever finishes.
#![allow(unsafe_code, reason = "pthread_atfork, and close in the child")]

use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Between two looks whether it is one's turn.
const INTERVAL: Duration = Duration::from_millis(1);

static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Somebody starts the library, or forks. No mutex of the library's: it is taken and given back in different functions,
/// and given back in a process that has not taken it.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
static CONTROL_FD: AtomicI32 = AtomicI32::new(-1);
static RING_FD: AtomicI32 = AtomicI32::new(-1);

/// True in a child forked after the library was initialised, and in its children.
pub fn is_forked_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Does what no fork may come into. Whatever it starts must not run the fork handlers.
pub fn without_forks<T>(start: impl FnOnce() -> T) -> T {
    struct Turn;
    impl Drop for Turn {
        fn drop(&mut self) {
            give_back();
        }
    }
    static HANDLERS: Once = Once::new();
    // SAFETY: the handlers use only atomics and system calls; the library is never unloaded.
    HANDLERS.call_once(|| unsafe {
        libc::pthread_atfork(Some(take), Some(give_back), Some(in_child));
    });
    take();
    let _turn = Turn;
    start()
}

/// From now on children are to be without a device; these are the descriptors that they must not keep.
pub fn watch(control_fd: RawFd, ring_fd: RawFd) {
    CONTROL_FD.store(control_fd, Ordering::Relaxed);
    RING_FD.store(ring_fd, Ordering::Relaxed);
}

extern "C" fn take() {
    while IS_BUSY.swap(true, Ordering::Acquire) {
        std::thread::sleep(INTERVAL);
    }
}

extern "C" fn give_back() {
    IS_BUSY.store(false, Ordering::Release);
}

extern "C" fn in_child() {
    // Taken out, as in the child's own children these numbers may belong to other files.
    for fd in [&CONTROL_FD, &RING_FD].map(|fd| fd.swap(-1, Ordering::Relaxed)) {
        if fd >= 0 {
            IS_CHILD.store(true, Ordering::Relaxed);
            // SAFETY: the child's own copy of a descriptor that nothing in the child uses: every call is refused.
            unsafe { libc::close(fd) };
        }
    }
    give_back();
}
