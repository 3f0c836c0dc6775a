//! The parts of the installation, the devices they find, and where device servers meet programs.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hetckpt_criu::plugin_option;
use hetckpt_report::finding::Finding;
use hetckpt_report::installation::Installation;
use hetckpt_report::quantity;
use hetckpt_ring::runtime_dir::{ensure_runtime_dir, runtime_dir, socket_path};

use crate::devices;
use crate::doctor::version;

/// What every program and shared object begins with: ELF, 64 bits, little-endian.
const ELF: [u8; 6] = *b"\x7fELF\x02\x01";

/// `e_machine` of x86-64.
const X86_64: [u8; 2] = [62, 0];

/// Linux gives no larger process id.
const MAX_PID: u32 = 1 << 22;

/// Looks at the parts, the devices and the runtime directory.
pub fn examine() -> Vec<Finding> {
    let mut findings = without_devices();
    if let Ok(installation) = Installation::find() {
        findings.extend([version::compare(&installation), cpu_codegen(&installation), devices()]);
    }
    findings
}

/// Looks at the parts that every device needs, and the runtime directory.
pub fn without_devices() -> Vec<Finding> {
    let installation = match Installation::find() {
        Ok(installation) => installation,
        Err(failure) => return vec![Finding::failed("installation", &failure)],
    };
    let plugin = installation.plugin_folder.join(plugin_option::FILE);
    vec![
        part(&installation, "server", installation.server.clone()),
        part(&installation, "shim", installation.shim()),
        match part(&installation, "plugin", plugin) {
            found if found.code.is_some() => found,
            found => alone(&installation.plugin_folder).unwrap_or(found),
        },
        sockets(),
    ]
}

/// Is the file there, and one that Linux can load here?
fn part(installation: &Installation, check: &'static str, path: PathBuf) -> Finding {
    let path = match installation.require(path) {
        Ok(path) => path,
        Err(failure) => return Finding::failed(check, &failure),
    };
    match ensure_loadable(&path) {
        Ok(()) => Finding::ok(check, path.display().to_string()),
        Err(why) => {
            let mut finding = Finding::problem(check, format!("{}: {why}", path.display()), "install hetckpt again");
            finding.code = Some(Code::Installation);
            finding
        }
    }
}

/// Why Linux cannot load a part.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// It is a folder or the like.
    #[error("it is no file")]
    NotAFile,
    /// It has no header.
    #[error("it is cut off")]
    CutOff,
    /// It is of another machine, or something else.
    #[error("it is no program or library for x86-64")]
    OtherKind,
}

fn ensure_loadable(path: &Path) -> Result<(), Unfit> {
    if !fs::metadata(path).map_err(Unfit::Unreadable)?.is_file() {
        return Err(Unfit::NotAFile);
    }
    let mut head = [0; 20];
    let mut file = File::open(path).map_err(Unfit::Unreadable)?;
    file.read_exact(&mut head).map_err(|_| Unfit::CutOff)?;
    match head.starts_with(&ELF) && head.ends_with(&X86_64) {
        true => Ok(()),
        false => Err(Unfit::OtherKind),
    }
}

/// CRIU loads every library that lies beside the plugin, and fails if one is no plugin.
fn alone(folder: &Path) -> Option<Finding> {
    let names = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    let strangers: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".so") && name != plugin_option::FILE)
        .collect();
    (!strangers.is_empty()).then(|| {
        Finding::warning(
            "plugin",
            format!("{} also holds {}", folder.display(), strangers.join(", ")),
            "move it away: CRIU loads all libraries of that folder, and other plugins may answer first",
        )
    })
}

/// A machine that has only GPUs need not have the CPU's code generator.
fn cpu_codegen(installation: &Installation) -> Finding {
    const CHECK: &str = "cpu-code-generator";
    let path = installation.cpu_codegen();
    if path.exists() {
        return part(installation, CHECK, path);
    }
    Finding::warning(
        CHECK,
        format!("{} is missing", path.display()),
        "install it too, if programs are to run or to be restored on the CPU",
    )
}

fn devices() -> Finding {
    const CHECK: &str = "devices";
    let devices = match devices::tried() {
        Ok(devices) => devices,
        Err(failure) => return Finding::failed(CHECK, &failure),
    };
    let names: Vec<String> = devices
        .iter()
        .map(|device| {
            let free = quantity::bytes(device.free_bytes);
            format!("{} ({}, {free} free)", device.id, device.name)
        })
        .collect();
    let unusable = devices.iter().filter_map(|device| {
        let why = devices::unusable(device)?;
        Some(format!("{} cannot be used: {why}", device.id))
    });
    let unusable: Vec<String> = unusable.collect();
    match (names.is_empty(), unusable.is_empty()) {
        (true, _) => Finding::problem(CHECK, "none", "install the CPU's code generator, or a GPU's driver"),
        (false, true) => Finding::ok(CHECK, names.join(", ")),
        (false, false) => Finding::warning(
            CHECK,
            format!("{}; {}", names.join(", "), unusable.join("; ")),
            "see to its driver, or take another device",
        ),
    }
}

/// Can device servers listen where programs look for them?
fn sockets() -> Finding {
    const CHECK: &str = "runtime-directory";
    let help = "name a folder that is yours alone in HETCKPT_RUNTIME_DIR, the same for programs and for hetckpt";
    let folder = match ensure_runtime_dir() {
        Ok(folder) => folder,
        Err(e) => return Finding::problem(CHECK, format!("{}: {e}", runtime_dir().display()), help),
    };
    let excess = excess_bytes(&folder);
    if excess > 0 {
        let why = format!("{} is {excess} bytes too long for a socket in it", folder.display());
        return Finding::problem(CHECK, why, help);
    }
    let is_given = std::env::var_os("HETCKPT_RUNTIME_DIR").is_some_and(|value| !value.is_empty());
    match tempfile::tempfile_in(&folder) {
        Ok(_) => Finding::ok(CHECK, where_programs_are_found(&folder, is_given)),
        Err(e) => Finding::problem(CHECK, format!("{} cannot be written: {e}", folder.display()), help),
    }
}

fn where_programs_are_found(folder: &Path, is_given: bool) -> String {
    let is_given = if is_given { "from" } else { "there is no" };
    format!(
        "{} ({is_given} HETCKPT_RUNTIME_DIR); programs that were started with another are not found",
        folder.display()
    )
}

/// By how many bytes a folder's path is too long for a socket in it, whose path has 107 at most.
fn excess_bytes(folder: &Path) -> usize {
    const MAX_BYTES: usize = 107;
    let longest = socket_path(folder, MAX_PID).as_os_str().len();
    longest.saturating_sub(MAX_BYTES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn folders_too_long_for_sockets_are_found() {
        assert_eq!(excess_bytes(Path::new("/run/hetckpt")), 0);
        let folder = format!("/tmp/{}", "x".repeat(90));
        assert_eq!(excess_bytes(Path::new(&folder)), 5);
    }

    #[test]
    fn programs_are_told_from_other_files() {
        assert!(ensure_loadable(&std::env::current_exe().unwrap()).is_ok());
        let folder = tempfile::tempdir().unwrap();
        assert!(ensure_loadable(folder.path()).is_err());
        let file = folder.path().join("file");
        for content in [&b""[..], b"\x7fELF", b"#!/bin/sh\nexec something else\n"] {
            fs::write(&file, content).unwrap();
            assert!(ensure_loadable(&file).is_err());
        }
    }
}
