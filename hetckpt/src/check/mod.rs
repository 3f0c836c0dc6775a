//! What a snapshot needs of this machine, each thing looked at by itself: `hetckpt check` prints it.

mod device;
mod files;
mod processes;
mod processor;
mod room;

use hetckpt_archive::verify;

use crate::criu::images;
use crate::criu::locate::Criu;
use crate::diagnostic::Failure;
use crate::doctor;
use crate::finding::Finding;
use crate::snapshot::{self, Snapshot};
use crate::{archive_error, snapshot_files};

/// Looks at everything. A check that fails keeps none of the others from being made; only a snapshot that cannot be read does.
pub fn examine(snapshot: &Snapshot, device: &str) -> Result<Vec<Finding>, Failure> {
    let scratch = snapshot_files::private_folder(&std::env::temp_dir(), "hetckpt-check-")
        .map_err(|e| Failure::new("HK0704", "cannot make a folder for the images").note(e.to_string()))?;
    let folder = match snapshot {
        Snapshot::Archive(archive) => {
            snapshot_files::unpack_descriptions(archive, scratch.path()).map_err(archive_error::failure)?;
            scratch.path()
        }
        Snapshot::Images(folder, _) => folder,
    };
    let needs = images::needs(folder).map_err(|why| snapshot::no_dump(folder, why))?;
    let criu = Criu::find().ok();
    let mut findings = vec![intact(snapshot)];
    findings.extend(doctor::to_restore());
    findings.push(device::examine(snapshot.manifest(), device));
    findings.push(processor::examine(criu.as_ref(), folder, &needs));
    findings.push(processes::examine(&needs));
    findings.push(files::examine(&needs));
    findings.push(room::examine(snapshot));
    Ok(findings)
}

/// Is the snapshot whole?
fn intact(snapshot: &Snapshot) -> Finding {
    const CHECK: &str = "snapshot";
    let manifest = snapshot.manifest();
    let Snapshot::Archive(archive) = snapshot else {
        return Finding::ok(CHECK, "images of CRIU, complete; they have no hashes");
    };
    match verify::verify(archive.path()) {
        Ok(_) => Finding::ok(
            CHECK,
            format!("all {} members are as they were written", manifest.members.len()),
        ),
        Err(error) => Finding::failed(CHECK, &archive_error::failure(error)),
    }
}
