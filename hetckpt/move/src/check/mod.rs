//! What a snapshot needs of this machine, each thing looked at by itself: `hetckpt check` prints it, and a restore is
//! refused for it.

pub mod build_id;
mod device;
mod kernels;
mod connections;
pub mod files;
mod processes;
mod process_files;
mod processor;
mod room;
mod terminal;
mod user;

use hetckpt_ring::failure_code::Code;
use std::path::{Path, PathBuf};

use hetckpt_archive::manifest::Manifest;
use hetckpt_archive::verify;
use hetckpt_criu::locate::Criu;
use hetckpt_criu::needs::{self, Needs};
use hetckpt_report::archive_error;
use hetckpt_report::failure::Failure;
use hetckpt_report::finding::{self, Finding};

use crate::adaptation::{Adaptation, Outside};
use crate::migration::message::Offer;
use crate::snapshot::Snapshot;
use crate::{doctor, private_folder};

/// Looks at everything. A check that fails keeps none of the others from being made; only a snapshot that cannot be
/// read does.
pub fn examine(
    snapshot: &Snapshot,
    device: &str,
    any_processor: bool,
    allowed: &Allowed<'_>,
) -> Result<Vec<Finding>, Failure> {
    let scratch = private_folder::private_folder(&std::env::temp_dir(), "hetckpt-check-")
        .map_err(|e| Failure::new(Code::CannotWrite, "cannot make a folder for the images").note(e.to_string()))?;
    let folder = snapshot.descriptions(scratch.path())?;
    let needs = snapshot.needs(&folder)?;
    let criu = Criu::find().ok();
    let mut findings = vec![intact(snapshot)];
    findings.extend(doctor::to_restore());
    findings.extend(device::examine(snapshot, device));
    if !any_processor {
        findings.push(processor::examine(criu.as_ref(), &folder, &needs));
    }
    findings.extend(of_this_machine(snapshot, &needs, allowed).1);
    Ok(findings)
}

/// What a restore may do.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'a> {
    /// Where this machine differs.
    pub adaptation: &'a Adaptation,
    /// Of connections to processes outside.
    pub outside: Outside,
}

/// A snapshot that can be restored here, as far as that can be told before.
#[derive(Debug)]
pub struct Restorable {
    /// What it needs.
    pub needs: Needs,
    /// What must be done about its files.
    pub plan: files::Plan,
    /// The folder that [`Snapshot::descriptions`] gave.
    pub descriptions: PathBuf,
}

/// Makes sure that nothing is known to stand against a restore but the device: device servers find that before there is
/// a process, and looking first would take as long again. `scratch` takes what must be unpacked to tell.
///
/// CRIU itself compares the processor; that costs nothing to undo, since it does so first.
pub fn require(snapshot: &Snapshot, allowed: &Allowed<'_>, scratch: &Path) -> Result<Restorable, Failure> {
    let folder = snapshot.descriptions(scratch)?;
    let needs = snapshot.needs(&folder)?;
    let (plan, findings) = of_this_machine(snapshot, &needs, allowed);
    match finding::refusal(&findings) {
        Some(failure) => Err(failure),
        None => Ok(Restorable {
            needs,
            plan,
            descriptions: folder,
        }),
    }
}

/// Makes sure that the device can go on with the program, as far as is known.
pub fn require_device(snapshot: &Snapshot, device: &str) -> Result<(), Failure> {
    finding::refusal(&device::compare(snapshot, device)?).map_or(Ok(()), Err)
}

/// How a program that comes from another node is to be restored.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Device to go on with.
    pub device: &'a str,
    /// What the restore will be told.
    pub allowed: Allowed<'a>,
    /// Whatever the processor.
    pub any_processor: bool,
    /// The program's process ids are in use only by itself, and come free before it is restored.
    pub ids_come_free: bool,
}

/// Looks, while the program still runs elsewhere, at what can be told of a restore here. The one who offers it is not
/// believed: what it says decides only whether the program is worth stopping.
pub fn offer(offer: &Offer, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let mut findings = doctor::to_restore();
    if !wanted.ids_come_free && !wanted.allowed.adaptation.namespaces.is_wanted() {
        findings.push(processes::examine_ids(offer.pids.iter().copied()));
    }
    if offer.has_terminal {
        findings.push(terminal::refuse());
    }
    if wanted.allowed.adaptation.cwd.is_none() {
        findings.push(files::working_folder(Path::new(&offer.working_folder)));
    }
    findings.push(room::examine_bytes(offer.estimated_bytes, 0));
    if !offer.device_bytes.is_empty() {
        findings.extend(device::has_room(&offer.device_bytes, wanted.device)?);
    }
    finding::refusal(&findings).map_or(Ok(()), Err)
}

/// Makes sure that nothing is known to stand against a restore of a snapshot that another node wants to be rid of.
pub fn accept(snapshot: &Snapshot, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let scratch = private_folder::private_folder(&std::env::temp_dir(), "hetckpt-check-")
        .map_err(|e| Failure::new(Code::CannotWrite, "cannot make a folder for the images").note(e.to_string()))?;
    let folder = snapshot.descriptions(scratch.path())?;
    let needs = snapshot.needs(&folder)?;
    let mut findings = doctor::to_restore();
    findings.extend(of_this_machine(snapshot, &needs, &wanted.allowed).1);
    let ids_are_free = wanted.ids_come_free || wanted.allowed.adaptation.namespaces.is_wanted();
    findings.retain(|finding| ![processes::CHECK, terminal::NUMBERS].contains(&finding.check) || !ids_are_free);
    if needs.terminals.is_outside {
        findings.push(terminal::refuse());
    }
    if !wanted.any_processor {
        findings.push(processor::examine(Criu::find().ok().as_ref(), &folder, &needs));
    }
    findings.extend(device::compare(snapshot, wanted.device)?);
    finding::refusal(&findings).map_or(Ok(()), Err)
}

/// Makes sure, before a program is ended that stands still with its `images` dumped, that nothing is known to stand
/// against a restore on this very machine.
///
/// What only the restore can know is not looked at: device, terminal and room are those that it is given. Nor are
/// process ids, which are the program's own until it has ended. What options of a restore overcome does not count.
pub fn require_way_back(images: &Path, manifest: &Manifest, outside: Outside) -> Result<(), Failure> {
    let mut needs = needs::read(images)
        .map_err(|why| Failure::new(Code::CriuDump, "the images just written cannot be read").note(why.to_string()))?;
    files::leave_out_carried(&mut needs, manifest);
    let adaptation = Adaptation {
        own_stdio: true,
        rewind_outputs: true,
        ..Adaptation::default()
    };
    let allowed = Allowed {
        adaptation: &adaptation,
        outside,
    };
    let (_, findings) = of_whatever_restore(&needs, manifest, &allowed);
    finding::refusal(&findings).map_or(Ok(()), |failure| {
        Err(failure.note("an archive of the program as it is now could not be restored, so it was not ended"))
    })
}

/// What depends on neither CRIU nor the device.
fn of_this_machine(snapshot: &Snapshot, needs: &Needs, allowed: &Allowed<'_>) -> (files::Plan, Vec<Finding>) {
    let mut findings = vec![processes::examine(needs)];
    findings.extend(terminal::examine(needs));
    let (plan, of_any) = of_whatever_restore(needs, snapshot.manifest(), allowed);
    findings.extend(of_any);
    findings.push(room::examine(snapshot, needs, plan.lacking_bytes()));
    (plan, findings)
}

/// What holds also while the program itself is still there.
fn of_whatever_restore(needs: &Needs, manifest: &Manifest, allowed: &Allowed<'_>) -> (files::Plan, Vec<Finding>) {
    let mut findings = vec![user::examine(needs)];
    findings.extend(connections::examine(needs, allowed.outside));
    let (plan, of_files) = files::examine(needs, manifest, allowed.adaptation);
    findings.extend(of_files);
    (plan, findings)
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
            format!("all {} members are as they were written", manifest.index.members.len()),
        ),
        Err(error) => Finding::failed(CHECK, &archive_error::failure(error)),
    }
}
