//! Unpacking an archive into a folder of images, whole or not at all.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use hetckpt_archive::reader::Archive;
use hetckpt_report::failure::Failure;
use hetckpt_report::{archive_error, remark};
use hetckpt_supervise::signals::HeldSignals;

use crate::{private_folder, snapshot_files};

/// What makes a folder of images one: CRIU refuses one without it.
const INVENTORY: &str = "inventory.img";

/// Unpacks `archive` into the folder `images`, which is new or empty. Gives the length of all files, bytes.
pub fn unpack(archive: &Archive, images: &Path) -> Result<u64, Failure> {
    let target = Target::find(images)?;
    // A signal would leave what has been unpacked so far.
    let signals = HeldSignals::hold()?;
    remark::progress("unpacking");
    let scratch = target.scratch().map_err(|e| cannot_write(images, &e))?;
    let size = snapshot_files::unpack(archive, scratch.path()).map_err(archive_error::failure)?;
    if let Some(signal) = signals.ending() {
        return Err(Failure::new(
            Code::Interrupted,
            format!("{signal} arrived before all was unpacked"),
        ));
    }
    target.take(scratch).map_err(|e| cannot_write(images, &e))?;
    remark::progress_done();
    Ok(size)
}

fn cannot_write(folder: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::CannotWrite, format!("cannot write {}", folder.display()))
        .note(error.to_string())
        .help("name a folder that is new or empty, where you may write and where there is room")
}

/// Where the images are to be.
enum Target {
    /// It does not exist yet.
    New(PathBuf),
    /// It is an empty folder, perhaps a file system of its own: it stays the folder that it is.
    Empty(PathBuf),
}

impl Target {
    fn find(path: &Path) -> Result<Self, Failure> {
        let not_empty = |what: &str| {
            Failure::new(Code::FolderNotEmpty, format!("{} {what}", path.display()))
                .help("name a folder that does not exist yet, or an empty one")
        };
        match fs::read_dir(path) {
            Ok(mut entries) => match entries.next() {
                None => fs::canonicalize(path)
                    .map(Self::Empty)
                    .map_err(|e| cannot_write(path, &e)),
                Some(_) => Err(not_empty("is not empty")),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
                let path = std::path::absolute(path).map_err(|e| cannot_write(path, &e))?;
                Ok(Self::New(path))
            }
            Err(e) if e.kind() == io::ErrorKind::NotADirectory || e.kind() == io::ErrorKind::NotFound => {
                Err(not_empty("is no folder"))
            }
            Err(e) => Err(cannot_write(path, &e)),
        }
    }

    /// A folder of mode 0700 on the target's file system; gone with all it holds unless [`Target::take`] takes it.
    fn scratch(&self) -> io::Result<TempDir> {
        let folder = match self {
            Self::New(path) => path.parent().unwrap_or(Path::new("/")),
            Self::Empty(path) => path,
        };
        private_folder::private_folder(folder, ".hetckpt-unpack-")
    }

    /// Gives the images their place.
    fn take(&self, scratch: TempDir) -> io::Result<()> {
        match self {
            Self::New(path) => {
                // Fails if there is something by now, an empty folder aside.
                fs::rename(scratch.path(), path)?;
                let _ = scratch.keep();
                Ok(())
            }
            Self::Empty(path) => {
                fs::set_permissions(path, Permissions::from_mode(0o700))?;
                let mut moved = vec![];
                let result = move_all(scratch.path(), path, &mut moved);
                if result.is_err() {
                    for path in &moved {
                        // The first failure is the one to tell.
                        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
                    }
                }
                result
            }
        }
    }
}

/// Moves what `from` holds to `to`, the inventory last; notes in `moved` what it has put there.
fn move_all(from: &Path, to: &Path, moved: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut names = vec![];
    for entry in fs::read_dir(from)? {
        names.push(entry?.file_name());
    }
    names.sort_by_key(|name| name == INVENTORY);
    for name in names {
        let place = to.join(&name);
        // Nothing that has come there meanwhile is replaced.
        if place.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(from.join(&name), &place)?;
        moved.push(place);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn new_and_empty_folders_take_images_and_keep_them_private() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["new", "empty"] {
            let path = parent.path().join(name);
            if name == "empty" {
                fs::create_dir(&path).unwrap();
            }
            let target = Target::find(&path).unwrap();
            let scratch = target.scratch().unwrap();
            fs::write(scratch.path().join(INVENTORY), "x").unwrap();
            fs::write(scratch.path().join("pages-1.img"), "y").unwrap();
            target.take(scratch).unwrap();
            assert_eq!(fs::read_to_string(path.join("pages-1.img")).unwrap(), "y");
            assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
            assert_eq!(mode(&path), 0o700);
        }
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_fills_up_meanwhile_keeps_what_it_has() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["new", "empty"] {
            let path = parent.path().join(name);
            if name == "empty" {
                fs::create_dir(&path).unwrap();
            }
            let target = Target::find(&path).unwrap();
            let scratch = target.scratch().unwrap();
            fs::write(scratch.path().join(INVENTORY), "x").unwrap();
            fs::write(scratch.path().join("pages-1.img"), "y").unwrap();
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(INVENTORY), "theirs").unwrap();
            assert!(target.take(scratch).is_err());
            assert_eq!(fs::read_to_string(path.join(INVENTORY)).unwrap(), "theirs");
            assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        }
    }

    #[test]
    fn other_targets_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for path in [parent.path(), &file, &link] {
            assert_eq!(Target::find(path).err().unwrap().code, Code::FolderNotEmpty);
        }
    }
}
