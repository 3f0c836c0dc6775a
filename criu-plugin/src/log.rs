//! Messages in CRIU's log.

use crate::host;

/// A failure; `hetckpt` looks for this prefix when it explains why CRIU failed.
pub fn error(message: &str) {
    host::print_on_level(1, &format!("hetgpu: error: {message}\n"));
}

/// Progress.
pub fn info(message: &str) {
    host::print_on_level(3, &format!("hetgpu: {message}\n"));
}
