//! What this machine needs to dump and restore programs, each thing looked at by itself: `hetckpt doctor` prints it.

mod criu;
mod host;
mod parts;
pub mod process;
mod version;

use hetckpt_report::finding::Finding;

/// Looks at everything. A check that fails keeps none of the others from being made.
pub fn examine() -> Vec<Finding> {
    let mut findings = criu::examine();
    findings.extend([host::privileges(), host::tracing()]);
    findings.extend(parts::examine());
    findings.extend([host::archive_room(), host::restore_room(), host::cpu()]);
    findings
}

/// Looks at what a restore needs whatever it restores.
pub fn to_restore() -> Vec<Finding> {
    let mut findings = criu::examine();
    findings.push(host::privileges());
    // The device is judged by what the snapshot needs of it.
    findings.extend(parts::without_devices());
    findings
}
