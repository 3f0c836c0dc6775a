//! What the user must learn although no OpenCL call can say it: lines on standard error.

use std::io::Write;

/// Says that something failed.
pub fn failure(text: &str) {
    // There is nowhere else to say that standard error is closed.
    let _ = writeln!(std::io::stderr(), "hetckpt: opencl: {text}");
}
