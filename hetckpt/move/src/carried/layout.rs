//! At a restore: carried files that the node lacks, laid out in a folder of their own below the one for temporary
//! files.
//!
//! Everything about the files comes out of an archive, and so is hostile: paths are checked when it is opened, nothing
//! is written but into the new folder, which holds no link.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;

use hetckpt_archive::manifest::CarriedFile;
use hetckpt_report::failure::Failure;

use crate::private_folder;

/// How the folder's name begins.
const FOLDER_START: &str = "hetckpt-files-";

/// In it, what stands for the root of the node of the dump. Beside it there is nothing yet.
const ROOT: &str = "root";

/// The folder. It is gone with all it holds when this is dropped.
pub struct Layout(TempDir);

impl Layout {
    /// A new one.
    pub fn create() -> Result<Self, Failure> {
        // CRIU has the real path in its images when the program is dumped again.
        fs::canonicalize(std::env::temp_dir())
            .and_then(|folder| private_folder::private_folder(&folder, FOLDER_START))
            .map(Self)
            .map_err(|e| cannot_write(&std::env::temp_dir(), &e))
    }

    /// Has `unpack` put `file` there, at the path that it is given, which is new. Gives that path and the file's mode.
    pub fn add(
        &self,
        file: &CarriedFile,
        unpack: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<(PathBuf, u32), Failure> {
        const S_IFREG: u32 = 0o100_000;
        if !file.is_safe() {
            let what = format!("carried file `{}` is not allowed", file.path.escape_debug());
            return Err(Failure::new(Code::Damaged, what));
        }
        let target = self.0.path().join(ROOT).join(file.path.trim_start_matches('/'));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|e| cannot_write(parent, &e))?;
        }
        unpack(&target)?;
        // Whoever runs it has it mapped: no more than permissions, and none to be somebody else.
        let mode = file.mode & 0o777;
        fs::set_permissions(&target, Permissions::from_mode(mode)).map_err(|e| cannot_write(&target, &e))?;
        Ok((target, S_IFREG | mode))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// It stays from now on.
    pub fn keep(self) -> PathBuf {
        self.0.keep()
    }
}

/// The failure to write `path`.
pub fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Code::CannotWrite,
        format!("cannot lay out carried files: {}", path.display()),
    )
    .note(error.to_string())
    .help("set TMPDIR to a folder where you may write and where there is room")
}

/// The path that the file at `path` had before a restore laid it out there; `None` if it lies where it always lay.
pub fn original(path: &Path) -> Option<PathBuf> {
    let mut components = path.components();
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else { continue };
        if name.as_encoded_bytes().starts_with(FOLDER_START.as_bytes()) {
            let rest = components.as_path().strip_prefix(ROOT).ok()?;
            return (!rest.as_os_str().is_empty()).then(|| Path::new("/").join(rest));
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use hetckpt_archive::carried;

    use super::*;

    fn packed_as(path: &str, source: &Path) -> CarriedFile {
        let file = fs::File::open(source).unwrap();
        carried::pack(file, path, "files/hetckpt-file-0.zst", &mut std::io::sink()).unwrap()
    }

    #[test]
    fn a_file_is_laid_out_below_the_folder_and_known_again() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("x");
        fs::write(&source, "content").unwrap();
        fs::set_permissions(&source, Permissions::from_mode(0o4755)).unwrap();
        let file = packed_as("/opt/a/x", &source);
        let copy = |target: &Path| {
            fs::copy(&source, target).unwrap();
            Ok(())
        };
        let layout = Layout::create().unwrap();
        let (path, mode) = layout.add(&file, copy).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        assert_eq!(
            (mode, fs::metadata(&path).unwrap().permissions().mode()),
            (0o100_755, 0o100_755)
        );
        assert!(path.starts_with(layout.path()));
        assert_eq!(original(&path).unwrap(), Path::new("/opt/a/x"));
        assert!(original(&source).is_none());
        // The same once more, or where a file is in the way of a folder.
        for path in ["/opt/a/x", "/opt/a/x/y"] {
            let again = CarriedFile {
                path: path.to_owned(),
                ..file.clone()
            };
            let unpack = |target: &Path| match fs::File::create_new(target) {
                Ok(_) => Ok(()),
                Err(e) => Err(cannot_write(target, &e)),
            };
            assert_eq!(layout.add(&again, unpack).unwrap_err().code, Code::CannotWrite);
        }
        let root = layout.path().to_owned();
        drop(layout);
        assert!(!root.exists());
    }

    #[test]
    fn nothing_leaves_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("x");
        fs::write(&source, "content").unwrap();
        let good = packed_as("/opt/x", &source);
        let layout = Layout::create().unwrap();
        for path in ["/../escaped", "/a/../../escaped", "relative", "", "/"] {
            let file = CarriedFile {
                path: path.to_owned(),
                ..good.clone()
            };
            let unpack = |target: &Path| -> Result<(), Failure> { unreachable!("{}", target.display()) };
            assert_eq!(layout.add(&file, unpack).unwrap_err().code, Code::Damaged, "{path}");
        }
        assert!(!layout.path().join("root/opt/x").exists());
        assert!(!layout.path().join("escaped").exists());
    }
}
