//! Is there room for what a restore unpacks?

use hetckpt_ring::failure_code::Code;
use nix::sys::statvfs::{FsFlags, statvfs};

use hetckpt_criu::needs::Needs;
use hetckpt_report::finding::Finding;
use hetckpt_report::quantity;

use crate::snapshot::Snapshot;
use crate::snapshot_files::{is_carried, memory_of, streamed_name};

const CHECK: &str = "restore-room";

const HELP: &str = "set TMPDIR to a folder on a larger disk: restore unpacks images there";

/// Compares the files of an archive that are unpacked, but for carried files, and `laid_out` bytes of the latter, with
/// the room in the folder for temporary files.
pub fn examine(snapshot: &Snapshot, needs: &Needs, laid_out: u64) -> Finding {
    let unpacked: u64 = match snapshot {
        Snapshot::Archive(archive) => {
            let unpacked = archive.members().filter(|member| {
                let is_streamed = streamed_name(member.entry, needs.has_huge_pages).is_some();
                memory_of(member.entry).is_none() && !is_carried(member.entry) && !is_streamed
            });
            let sizes = unpacked.map(|member| member.entry.raw_bytes());
            sizes.fold(0, u64::saturating_add)
        }
        Snapshot::Images(..) => 0,
    };
    examine_bytes(unpacked, laid_out)
}

/// As [`examine`], of a snapshot that has yet to come.
pub fn examine_bytes(unpacked: u64, laid_out: u64) -> Finding {
    let needed = unpacked.saturating_add(laid_out);
    if needed == 0 {
        return Finding::ok(CHECK, "images need not be unpacked");
    }
    let folder = std::env::temp_dir();
    let problem = |found: String, help: &str| Finding {
        code: Some(Code::CannotWrite),
        ..Finding::problem(CHECK, found, help)
    };
    let found = match statvfs(&folder) {
        Ok(found) => found,
        Err(e) => return problem(format!("{}: {e}", folder.display()), HELP),
    };
    if laid_out > 0 && found.flags().contains(FsFlags::ST_NOEXEC) {
        return problem(
            format!("{} is mounted noexec: no program can run from there", folder.display()),
            "set TMPDIR to a folder from which programs may run: those that are missing here are laid out there",
        );
    }
    let free = found.blocks_available().saturating_mul(found.fragment_size());
    let found = format!(
        "{} needed, {} free in {}",
        quantity::bytes(needed),
        quantity::bytes(free),
        folder.display()
    );
    match needed > free {
        true => problem(found, HELP),
        false => Finding::ok(CHECK, found),
    }
}
