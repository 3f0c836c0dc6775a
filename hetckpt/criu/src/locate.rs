//! Finds CRIU and checks its version.

use hetckpt_ring::failure_code::Code;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;

/// Oldest version that works: kernels from 6.13 on need it, and so do plugins named in the inventory.
pub const MIN_VERSION: (u32, u32) = (4, 1);

/// A usable CRIU.
#[derive(Clone, Debug)]
pub struct Criu {
    /// The program.
    pub program: PathBuf,
    /// Its version, as it says it.
    pub version: String,
}

/// Set for a program that is asked whether it is CRIU, so that `hetckpt criu`, by whatever name it is called, does not
/// look for CRIU in its turn and find itself.
const ASKED: &str = "HETCKPT_IS_THIS_CRIU";

/// What `hetckpt criu` says then.
pub const WRAPPER_ANSWER: &str = "hetckpt's wrapper of CRIU";

/// True if somebody wants to know whether this program is CRIU.
pub fn is_asked() -> bool {
    std::env::var_os(ASKED).is_some()
}

impl Criu {
    /// `$HETCKPT_CRIU`, else the one that was installed with hetckpt, else the first `criu` on PATH and in the system's
    /// sbin directories that is no wrapper of ours.
    pub fn find() -> Result<Self, Failure> {
        let (program, answer) = find_any()?;
        check(program, &answer)
    }
}

/// The program that [`Criu::find`] takes, whatever its version.
pub fn any() -> Result<PathBuf, Failure> {
    Ok(find_any()?.0)
}

/// The program, and what it says of its version.
fn find_any() -> Result<(PathBuf, String), Failure> {
    if let Some(named) = std::env::var_os("HETCKPT_CRIU") {
        let program = PathBuf::from(named);
        let answer = ask(&program)?;
        return match is_wrapper(&answer) {
            true => Err(missing(format!("{} is not CRIU", program.display()))
                .note("it is hetckpt's own wrapper, which looks for CRIU itself")),
            false => Ok((program, answer)),
        };
    }
    for program in candidates() {
        let answer = ask(&program)?;
        if !is_wrapper(&answer) {
            return Ok((program, answer));
        }
    }
    Err(missing("CRIU is missing: there is no criu on PATH".to_owned()))
}

fn missing(message: String) -> Failure {
    Failure::new(Code::CriuMissing, message)
        .help("install CRIU 4.1 or newer (e2e/setup/install-criu.sh does), or name it in HETCKPT_CRIU")
}

/// What `program` says of its version.
fn ask(program: &Path) -> Result<String, Failure> {
    let output = Command::new(program)
        .arg("--version")
        .env(ASKED, "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| missing(format!("CRIU is missing: cannot run {}", program.display())).note(e.to_string()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_wrapper(answer: &str) -> bool {
    answer.trim() == WRAPPER_ANSWER
}

fn check(program: PathBuf, answer: &str) -> Result<Criu, Failure> {
    let version = answer.lines().find_map(|line| line.strip_prefix("Version: "));
    let version = version.unwrap_or("").trim().to_owned();
    match parse(&version) {
        Some(found) if found >= MIN_VERSION => Ok(Criu { program, version }),
        Some(_) => Err(Failure::new(
            Code::CriuTooOld,
            format!("{} is version {version}, too old", program.display()),
        )
        .note("versions before 4.1 cannot dump processes on Linux 6.13 and newer, and know no plugin inventory")
        .help("install CRIU 4.1 or newer (e2e/setup/install-criu.sh does), or name it in HETCKPT_CRIU")),
        None => Err(missing(format!("{} is not CRIU", program.display())).note("it does not tell its version")),
    }
}

/// Programs called `criu`, in the order in which they count.
fn candidates() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/criu/bin"].map(PathBuf::from);
    let with_us = Installation::find()
        .ok()
        .map(|found| found.library_folder.join("criu/bin"));
    let folders = with_us.into_iter().chain(std::env::split_paths(&path)).chain(system);
    folders
        .map(|folder| folder.join("criu"))
        .filter(|file| is_program(file))
        .collect()
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Major and minor number of a version such as `4.2` or `4.1.1`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(parse("4.2"), Some((4, 2)));
        assert_eq!(parse("4.10.3"), Some((4, 10)));
        assert_eq!(parse("3.17.1"), Some((3, 17)));
        assert_eq!(parse("nonsense"), None);
        assert_eq!(parse(""), None);
        assert!(parse("4.10") > parse("4.9"));
    }
}
