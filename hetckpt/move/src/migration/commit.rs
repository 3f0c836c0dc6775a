//! Committing a migration: from here on the program is the target's.

use std::fs::{self, File};
use std::path::Path;

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;
use hetckpt_supervise::interrupting::ensure_not_interrupted;
use hetckpt_supervise::signals::HeldSignals;

/// The point of no return: once `released` is there, and on disk, the program is the target's.
pub fn commit(signals: &HeldSignals, released: &Path) -> Result<(), Failure> {
    ensure_not_interrupted(signals, "the move")?;
    let folder = released.parent().unwrap_or(Path::new("/"));
    let written = File::create_new(released)
        .and_then(|file| file.sync_all())
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(|e| {
        // Without it, the program is not released.
        let _ = fs::remove_file(released);
        Failure::new(Code::CannotWrite, format!("cannot write {}", released.display())).note(e.to_string())
    })
}
