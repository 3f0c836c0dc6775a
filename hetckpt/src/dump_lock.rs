//! One dump of a program at a time: a second one would let the tree run on, when CRIU refuses it, in the middle of the first.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use hetckpt_ring::runtime_dir::{ensure_runtime_dir, runtime_dir};
use nix::unistd::geteuid;

use crate::diagnostic::Failure;

/// The right to dump some processes, until it is dropped. The system takes it back from a dump that is killed.
pub struct DumpLock(Vec<(PathBuf, File)>);

impl DumpLock {
    /// For all processes of a tree, so that a dump of a part of it is another dump of the same.
    pub fn take(tree: &[i32]) -> Result<Self, Failure> {
        let cannot = |why: String| Failure::new("HK0704", "cannot write into the runtime directory").note(why);
        let dir = match fs::metadata(runtime_dir()) {
            // It is the program's, which may be another user's.
            Ok(found) if found.is_dir() && geteuid().is_root() => runtime_dir(),
            _ => ensure_runtime_dir().map_err(|e| cannot(e.to_string()))?,
        };
        let mut lock = Self(vec![]);
        for &pid in tree {
            let path = dir.join(format!("dump-{pid}.lock"));
            match lock_file(&path).map_err(|e| cannot(format!("{}: {e}", path.display())))? {
                Some(file) => lock.0.push((path, file)),
                None => {
                    return Err(Failure::new("HK0808", format!("process {pid} is being dumped already"))
                        .state("that dump goes on; this one has done nothing and wrote no archive")
                        .help("wait for its end"));
                }
            }
        }
        Ok(lock)
    }
}

impl Drop for DumpLock {
    fn drop(&mut self) {
        for (path, _file) in &self.0 {
            // While it is locked: whoever opened it before finds it gone, and makes a new one.
            let _ = fs::remove_file(path);
        }
    }
}

/// So that the user whose folder it is can take the lock, should root be killed. A file that root has elsewhere, under another name, is
/// nobody's to have.
fn give_to_owner_of_folder(file: &File, path: &Path) -> io::Result<()> {
    let (found, folder) = (file.metadata()?, fs::metadata(path.parent().unwrap_or(path))?);
    if found.uid() == folder.uid() {
        return Ok(());
    }
    if !found.is_file() || found.nlink() > 1 || found.len() > 0 {
        return Err(io::Error::other("it is no lock of ours"));
    }
    fchown(file, Some(folder.uid()), Some(folder.gid()))
}

/// The file at `path`, locked; `None` if somebody else has it.
fn lock_file(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Whose directory it is may put a link there, or a pipe.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        if geteuid().is_root() {
            give_to_owner_of_folder(&file, path)?;
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let is_current =
            fs::metadata(path).is_ok_and(|found| file.metadata().is_ok_and(|own| own.ino() == found.ino()));
        if is_current {
            return Ok(Some(file));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn one_at_a_time_and_nothing_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dump-7.lock");
        let first = lock_file(&path).unwrap().unwrap();
        assert!(lock_file(&path).unwrap().is_none());
        drop(DumpLock(vec![(path.clone(), first)]));
        assert!(!path.exists());
        assert!(lock_file(&path).unwrap().is_some());
    }

    #[test]
    fn root_gives_away_its_lock_and_nothing_else() {
        const USER: u32 = 7;
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (folder, secret) = (dir.path().join("run"), dir.path().join("secret"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(USER), Some(USER)).unwrap();
        let lock = lock_file(&folder.join("dump-7.lock")).unwrap().unwrap();
        assert_eq!(lock.metadata().unwrap().uid(), USER);
        File::create(&secret).unwrap();
        fs::hard_link(&secret, folder.join("dump-8.lock")).unwrap();
        std::os::unix::fs::symlink(&secret, folder.join("dump-9.lock")).unwrap();
        for name in ["dump-8.lock", "dump-9.lock"] {
            assert!(lock_file(&folder.join(name)).is_err(), "{name}");
        }
        assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
    }
}
