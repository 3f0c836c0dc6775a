//! The name that a new archive is to get: whether it may.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use hetckpt_archive::writer::ArchiveName;
use hetckpt_report::failure::Failure;

/// The name `path` for an archive. A regular file that has it is replaced only if `may_replace`, and anything else in
/// no case: a rename would put the archive in the place of a device or a link.
pub fn find(path: &Path, may_replace: bool) -> Result<ArchiveName, Failure> {
    // Before it is looked at: what comes from then on is somebody else's.
    let name = ArchiveName::find(path);
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(name);
    };
    let taken = |why: &str| Failure::new(Code::NameTaken, format!("{} {why}", path.display()));
    match found.is_file() {
        true if may_replace => Ok(name),
        true => Err(taken("exists already").help("name another file, or have this one replaced: --force")),
        // That is told where its parent is looked at.
        false if found.is_dir() => Ok(name),
        false => Err(taken(&format!(
            "is {}, which an archive is not to replace",
            kind(found.file_type())
        ))
        .help("name a regular file, or one that does not exist yet")),
    }
}

fn kind(found: FileType) -> &'static str {
    match found {
        found if found.is_symlink() => "a symbolic link",
        found if found.is_fifo() => "a pipe",
        found if found.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_replaced_and_only_if_told() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, dangling, pipe] = ["file", "link", "dangling", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "somebody's").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for may_replace in [false, true] {
            for path in [&link, &dangling, &pipe, Path::new("/dev/null")] {
                let failure = find(path, may_replace).unwrap_err();
                assert_eq!(failure.code, Code::NameTaken, "{}", path.display());
            }
            assert!(find(&folder.path().join("new"), may_replace).is_ok());
            assert_eq!(find(&file, may_replace).is_ok(), may_replace);
        }
        assert_eq!(
            find(Path::new("/dev/null"), true).unwrap_err().message,
            "/dev/null is a device, which an archive is not to replace"
        );
    }
}
