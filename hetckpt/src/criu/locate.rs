//! Finds CRIU and checks its version.

use std::path::PathBuf;
use std::process::Command;

use crate::diagnostic::Failure;

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

impl Criu {
    /// `$HETCKPT_CRIU`, else `criu` on PATH and in the system's sbin directories.
    pub fn find() -> Result<Self, Failure> {
        let program = match std::env::var_os("HETCKPT_CRIU") {
            Some(named) => PathBuf::from(named),
            None => search_path().unwrap_or_else(|| PathBuf::from("criu")),
        };
        let output = Command::new(&program).arg("--version").output().map_err(|e| {
            Failure::new("HK0901", format!("CRIU is missing: cannot run {}", program.display()))
                .note(e.to_string())
                .help("install CRIU 4.1 or newer (e2e/setup/install-criu.sh does), or name it in HETCKPT_CRIU")
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text
            .lines()
            .find_map(|l| l.strip_prefix("Version: "))
            .unwrap_or("")
            .trim()
            .to_owned();
        match parse(&version) {
            Some(found) if found >= MIN_VERSION => Ok(Self { program, version }),
            Some(_) => Err(Failure::new("HK0902", format!("{} is version {version}, too old", program.display()))
                .note("versions before 4.1 cannot dump processes on Linux 6.13 and newer, and know no plugin inventory")
                .help("install CRIU 4.1 or newer (e2e/setup/install-criu.sh does), or name it in HETCKPT_CRIU")),
            None => Err(Failure::new("HK0901", format!("{} is not CRIU", program.display()))
                .note("it does not tell its version")
                .help("install CRIU 4.1 or newer (e2e/setup/install-criu.sh does), or name it in HETCKPT_CRIU")),
        }
    }
}

fn search_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/criu/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join("criu"))
        .find(|file| file.is_file())
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
