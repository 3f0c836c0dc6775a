//! Remarks for the person watching, and progress: events of [`tracing`] with targets of their own, which the command
//! line prints.

use crate::quantity::bytes;

/// Target of a remark.
pub const NOTE: &str = "hetckpt::note";

/// Target of a remark for the person who asked for more.
pub const DETAIL: &str = "hetckpt::detail";

/// Target of the line that tells what is being done; an empty one takes it away.
pub const PROGRESS: &str = "hetckpt::progress";

/// A remark for the person watching.
pub fn note(text: impl AsRef<str>) {
    tracing::warn!(target: NOTE, "{}", text.as_ref());
}

/// A remark for the person who asked for more.
pub fn detail(text: impl AsRef<str>) {
    tracing::debug!(target: DETAIL, "{}", text.as_ref());
}

/// What is being done.
pub fn progress(text: impl AsRef<str>) {
    tracing::info!(target: PROGRESS, "{}", text.as_ref());
}

/// Progress through `total` bytes, for whoever counts those that are done.
pub fn byte_progress(what: &'static str, total: u64) -> impl FnMut(u64) + Send {
    move |done| progress(format!("{what} {} of {}", bytes(done), bytes(total)))
}

/// Takes the line of progress away.
pub fn progress_done() {
    progress("");
}
