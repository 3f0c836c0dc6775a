//! Folders whose owner was killed: images that nobody is going to use, and that nobody has removed.
//!
//! Who makes a folder holds a lock on it for as long as the folder is there, and so do CRIU and whoever else is started
//! meanwhile and is to have the folder's files. The next of us that makes one in the same place removes those of its
//! kind that nobody has locked.
//!
//! Locks are only as good as file systems: on one that other machines share they may hold for one machine only. So the
//! name tells which machine made the folder, and since when that runs; no other removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use parking_lot::Mutex;

use hetckpt_criu::run;

/// Characters of the boot's id that names have.
const BOOT_CHARACTERS: usize = 8;

/// Times that a lock is tried whose holders have just been ended.
const MAX_TRIES: usize = 100;

/// Locks that this process holds, with the folders.
static HELD: Mutex<Vec<(PathBuf, File)>> = Mutex::new(vec![]);

/// How names of folders that are made here end.
pub fn name_end() -> String {
    // Without it no folder is ever taken for an abandoned one.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let start: String = boot
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(BOOT_CHARACTERS)
        .collect();
    match start.is_empty() {
        true => String::new(),
        false => format!("-{start}"),
    }
}

/// Locks `folder`, which has just been made. False if somebody was about to remove it.
pub fn claim(folder: &Path) -> io::Result<bool> {
    let lock = match open_folder(folder) {
        // It has been removed already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    match lock.try_lock() {
        Err(fs::TryLockError::WouldBlock) => return Ok(false),
        // A file system without locks: nobody else has one either.
        Err(fs::TryLockError::Error(_)) => return Ok(true),
        Ok(()) => {}
    }
    if !folder.exists() {
        return Ok(false);
    }
    // Programs that we start hold it too; device servers and restored programs close it.
    fcntl(&lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut held = HELD.lock();
    // Ours that have been removed meanwhile.
    held.retain(|(folder, _)| folder.exists());
    held.push((folder.to_owned(), lock));
    Ok(true)
}

/// Removes the folders in `parent` with such names that have no owner any more.
pub fn remove(parent: &Path, prefix: &str, end: &str) {
    if end.is_empty() {
        return;
    }
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(prefix.as_bytes()) && name.ends_with(end.as_bytes())
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(is_one) {
        // Locked until it is gone: its maker may be about to claim it.
        let Some(_lock) = has_no_owner(&path) else { continue };
        if is_unused(&path) {
            // What cannot be removed stays for the next.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The lock of a folder of ours that nobody holds.
fn has_no_owner(path: &Path) -> Option<File> {
    let found = fs::symlink_metadata(path).ok()?;
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o777 == 0o700;
    if !is_ours {
        return None;
    }
    let lock = open_folder(path).ok()?;
    let is_same = lock
        .metadata()
        .is_ok_and(|opened| (opened.dev(), opened.ino()) == (found.dev(), found.ino()));
    if !is_same {
        return None;
    }
    if lock.try_lock().is_ok() {
        return Some(lock);
    }
    // A CRIU that was killed together with its owner may have left helpers, which hold it for ever.
    if !run::has_only_left_orphans(path) {
        return None;
    }
    run::end_left(path);
    for _ in 0..MAX_TRIES {
        if lock.try_lock().is_ok() {
            return Some(lock);
        }
        // One that ends lets go of its files a little later than of its name.
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Opens a folder and nothing else that anybody may have put in its place: a pipe would keep us waiting for a writer.
fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

/// True if no process maps a file of it: laid out files can outlive who was to remove them.
fn is_unused(folder: &Path) -> bool {
    !hetckpt_supervise::mapped_files::is_mapped(folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::private_folder::private_folder;

    /// Makes new folders until `dead` is gone: a program that another test has just started may hold its lock for a
    /// moment.
    fn until_removed(parent: &Path, dead: &Path) {
        for _ in 0..1000 {
            drop(private_folder(parent, "hetckpt-a-").unwrap());
            if !dead.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(!dead.exists());
    }

    #[test]
    fn folders_of_the_living_stay_and_those_of_the_dead_go() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |prefix| private_folder(parent.path(), prefix).unwrap();
        let (living, other) = (folder("hetckpt-a-"), folder("hetckpt-b-"));
        let dead = folder("hetckpt-a-").keep();
        fs::write(dead.join("pages"), "x").unwrap();
        // As its owner's end does.
        HELD.lock().retain(|(path, _)| *path != dead);
        let elsewhere = parent.path().join("hetckpt-a-x-00000000");
        fs::create_dir(&elsewhere).unwrap();

        until_removed(parent.path(), &dead);
        for path in [living.path(), other.path(), &elsewhere] {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn who_is_started_meanwhile_keeps_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = private_folder(parent.path(), "hetckpt-a-").unwrap().keep();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        HELD.lock().retain(|(path, _)| *path != folder);
        drop(private_folder(parent.path(), "hetckpt-a-").unwrap());
        let is_there = folder.exists();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_there);
        until_removed(parent.path(), &folder);
    }

    /// A shell, one that stops itself and has the arguments and the locks of a helper of CRIU's.
    const HELPER: [&str; 4] = ["-c", "kill -STOP $$; :", "criu", "-W"];

    #[test]
    fn what_a_killed_criu_has_left_goes_with_its_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = private_folder(parent.path(), "hetckpt-a-").unwrap().keep();
        let mut criu = Command::new("sh")
            .args(["-c", "sh \"$@\" & exit", "sh"])
            .args(HELPER)
            .arg(folder.join("images"))
            .spawn()
            .unwrap();
        criu.wait().unwrap();
        HELD.lock().retain(|(path, _)| *path != folder);
        until_removed(parent.path(), &folder);
    }

    #[test]
    fn what_somebody_waits_for_keeps_its_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = private_folder(parent.path(), "hetckpt-a-").unwrap().keep();
        let mut criu = Command::new("sh").args(HELPER).arg(&folder).spawn().unwrap();
        HELD.lock().retain(|(path, _)| *path != folder);
        while !run::has_only_left_stopped(&folder) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(private_folder(parent.path(), "hetckpt-a-").unwrap());
        let is_there = folder.exists();
        criu.kill().unwrap();
        criu.wait().unwrap();
        assert!(is_there);
    }

    #[test]
    fn who_makes_one_amid_removals_has_it() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let folder = private_folder(parent.path(), "hetckpt-a-").unwrap();
                        fs::write(folder.path().join("pages"), "x").unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn pipes_of_such_names_keep_nobody_waiting() {
        let parent = tempfile::tempdir().unwrap();
        let pipe = parent.path().join(format!("hetckpt-a-x{}", name_end()));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        drop(private_folder(parent.path(), "hetckpt-a-").unwrap());
        assert!(open_folder(&pipe).is_err());
        assert!(pipe.exists());
    }

    #[test]
    fn locks_do_not_pile_up() {
        let parent = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            drop(private_folder(parent.path(), "hetckpt-a-").unwrap());
        }
        let held = HELD.lock();
        assert!(held.iter().filter(|(path, _)| path.starts_with(parent.path())).count() <= 1);
    }
}
