//! What kernels print: kept until somebody waits for a stream, as NVIDIA's driver does.

use std::fs::File;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::sync::{Mutex, PoisonError};

static PRINTED: Mutex<String> = Mutex::new(String::new());

/// Keeps `text`.
pub fn print(text: &str) {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
}

/// Writes what has been kept to the process's stdout, past all buffers.
pub fn flush() {
    let text = std::mem::take(&mut *PRINTED.lock().unwrap_or_else(PoisonError::into_inner));
    // SAFETY: it is never closed here; whatever it is, writing to it is what is meant.
    let mut stdout = ManuallyDrop::new(unsafe { File::from_raw_fd(1) });
    // As with `printf`, what cannot be written is lost.
    let _ = stdout.write_all(text.as_bytes());
}
