//! One dump of a program at a time: a second one would let the tree run on, when CRIU refuses it, in the middle of the
//! first.

use hetckpt_ring::failure_code::Code;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use procfs::process::Process;

use hetckpt_report::failure::Failure;
use hetckpt_ring::runtime_dir::{ensure_runtime_dir, runtime_dir};

/// How often, after the first time, one looks whether a lock is still another's.
const LOOKS: u32 = 3;

const LOOK_INTERVAL: Duration = Duration::from_millis(3);

/// The right to dump some processes, until it is dropped. The system takes it back from a dump that is killed.
pub struct DumpLock(Vec<(PathBuf, File)>);

impl DumpLock {
    /// For all processes of a tree, so that a dump of a part of it is another dump of the same.
    pub fn take(tree: &[i32]) -> Result<Self, Failure> {
        let cannot = |why: String| Failure::new(Code::CannotWrite, "cannot write into the runtime directory").note(why);
        let dir = match fs::metadata(runtime_dir()) {
            // It is the program's, which may be another user's.
            Ok(found) if found.is_dir() && geteuid().is_root() => runtime_dir(),
            Err(_) if geteuid().is_root() => {
                make_for_user_of(tree).map_err(|e| cannot(format!("{}: {e}", runtime_dir().display())))?
            }
            _ => ensure_runtime_dir().map_err(|e| cannot(e.to_string()))?,
        };
        sweep(&dir);
        let mut lock = Self(vec![]);
        for &pid in tree {
            let path = dir.join(format!("dump-{pid}.lock"));
            match lock_file(&path).map_err(|e| cannot(format!("{}: {e}", path.display())))? {
                Some(file) => lock.0.push((path, file)),
                None => {
                    return Err(
                        Failure::new(Code::BeingDumped, format!("process {pid} is being dumped already"))
                            .state("that dump goes on; this one has done nothing and wrote no archive")
                            .help("wait for its end"),
                    );
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

/// Removes the locks that killed dumps have left in `dir`. One that somebody is about to take stays valid: who takes it
/// sees that it has gone, and makes another.
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_lock = name
            .to_str()
            .is_some_and(|name| name.starts_with("dump-") && name.ends_with(".lock"));
        let open = || {
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            OpenOptions::new().write(true).custom_flags(flags).open(entry.path())
        };
        if is_lock
            && let Ok(file) = open()
            && file.try_lock().is_ok()
        {
            // Whoever else sweeps may be faster.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// As [`sweep`], where dumps are now.
pub fn sweep_all() {
    sweep(&runtime_dir());
}

/// Makes the runtime directory that the program would, for its user: one of root's would be of no use to them.
fn make_for_user_of(tree: &[i32]) -> io::Result<PathBuf> {
    let path = runtime_dir();
    let root = tree.first().copied().unwrap_or_default();
    let user = Process::new(root)
        .and_then(|process| process.status())
        .map_err(io::Error::other)?;
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(user.euid == 0)
        .create(&path)?;
    // What has taken its place meanwhile is not given away.
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let made = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
    let found = made.metadata()?;
    match found.uid() == 0 && found.mode() & 0o777 == 0o700 {
        true => fchown(&made, Some(user.euid), Some(user.egid))?,
        false => return Err(io::Error::other("it is not the folder that was just made")),
    }
    Ok(path)
}

/// So that the user whose folder it is can take the lock, should root be killed. A file that root has elsewhere, under
/// another name, is nobody's to have.
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
    let mut looks = 0;
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
            // Who sweeps has it for a moment.
            Err(TryLockError::WouldBlock) if looks < LOOKS => {
                looks += 1;
                std::thread::sleep(LOOK_INTERVAL);
                continue;
            }
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
    fn what_killed_dumps_have_left_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let [left, held, other] = ["dump-7.lock", "dump-8.lock", "app-7.log"].map(|name| dir.path().join(name));
        File::create(&left).unwrap();
        File::create(&other).unwrap();
        let _lock = lock_file(&held).unwrap().unwrap();
        sweep(dir.path());
        assert!(!left.exists() && held.exists() && other.exists());
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
