//! Is there room for what a restore unpacks?

use nix::sys::statvfs::statvfs;

use crate::finding::Finding;
use crate::output;
use crate::snapshot::Snapshot;

const CHECK: &str = "restore-room";
const HELP: &str = "set TMPDIR to a folder on a larger disk: restore unpacks the archive there";

/// Compares the files of an archive with the room in the folder for temporary files.
pub fn examine(snapshot: &Snapshot) -> Finding {
    let Snapshot::Archive(archive) = snapshot else {
        return Finding::ok(CHECK, "images need not be unpacked");
    };
    let folder = std::env::temp_dir();
    let needed: u64 = archive.members().map(|(_, member)| member.raw_bytes).sum();
    let free = match statvfs(&folder) {
        Ok(found) => found.blocks_available().saturating_mul(found.fragment_size()),
        Err(e) => return Finding::problem(CHECK, format!("{}: {e}", folder.display()), HELP),
    };
    let found = format!(
        "{} needed, {} free in {}",
        output::bytes(needed),
        output::bytes(free),
        folder.display()
    );
    match needed > free {
        true => Finding::problem(CHECK, found, HELP),
        false => Finding::ok(CHECK, found),
    }
}
