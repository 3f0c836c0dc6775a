//! Where servers' sockets and logs are.
//!
//! `$HETCKPT_RUNTIME_DIR`, else `/run/hetckpt` for root, else `$XDG_RUNTIME_DIR/hetckpt`, else
//! `/run/user/<uid>/hetckpt` where the user has a session, else `/tmp/hetckpt-<uid>`; mode 0700, owned by the user.
//! Somebody else can make the last one first: then it is `$HOME/.hetckpt-run`.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::RingError;

/// The runtime directory's path, made or not.
#[must_use]
pub fn runtime_dir() -> PathBuf {
    runtime_dir_of(nix::unistd::geteuid().as_raw(), |name| std::env::var_os(name))
}

/// The same for a process of user `uid` whose environment has `variable`.
pub fn runtime_dir_of(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let given = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = given("HETCKPT_RUNTIME_DIR") {
        return dir;
    }
    if uid == 0 {
        return PathBuf::from("/run/hetckpt");
    }
    if let Some(dir) = given("XDG_RUNTIME_DIR") {
        return dir.join("hetckpt");
    }
    let home = given("HOME").map(|home| home.join(".hetckpt-run"));
    of_user(uid, Path::new("/run/user"), Path::new("/tmp"), home)
}

/// That of a user whose environment names none; `home` is for where somebody else has taken its name in `shared`.
fn of_user(uid: u32, sessions: &Path, shared: &Path, home: Option<PathBuf>) -> PathBuf {
    let owner = |path: &Path| {
        std::fs::symlink_metadata(path)
            .ok()
            .filter(std::fs::Metadata::is_dir)
            .map(|found| found.uid())
    };
    let session = sessions.join(uid.to_string());
    if owner(&session) == Some(uid) {
        return session.join("hetckpt");
    }
    let named = shared.join(format!("hetckpt-{uid}"));
    let is_free = std::fs::symlink_metadata(&named).is_err();
    match home {
        Some(home) if !is_free && owner(&named) != Some(uid) => home,
        _ => named,
    }
}

/// Makes the runtime directory if need be, and sees to it that it is ours alone.
///
/// # Errors
/// [`RingError::RuntimeDir`].
pub fn ensure_runtime_dir() -> Result<PathBuf, RingError> {
    let path = runtime_dir();
    let fail = |reason: String| RingError::RuntimeDir {
        path: path.clone(),
        reason,
    };
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(error.to_string())),
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(&path).map_err(|error| fail(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(fail("it is not a directory".to_owned()));
    }
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(fail(format!("it belongs to user {}", metadata.uid())));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(fail("others may write to it".to_owned()));
    }
    Ok(path)
}

/// The socket of the server of application `pid`.
#[must_use]
pub fn socket_path(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("app-{pid}.sock"))
}

/// The socket at which process `pid`, a `hetckpt run` or `restore`, is asked for checkpoints of the program that it
/// stands in for.
#[must_use]
pub fn stand_in_path(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("run-{pid}.sock"))
}

/// True if `path` is such a socket's name.
#[must_use]
pub fn is_stand_in(path: &Path) -> bool {
    pid_in_name(path, "run-").is_some()
}

/// The log of the server of application `pid`.
#[must_use]
pub fn log_path(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("app-{pid}.log"))
}

/// The application whose server listens at `path`, if it is such a socket's name.
#[must_use]
pub fn pid_of_socket(path: &Path) -> Option<u32> {
    pid_in_name(path, "app-")
}

fn pid_in_name(path: &Path, prefix: &str) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(prefix)?.strip_suffix(".sock")?.parse().ok()
}

/// Applications with a server socket in the runtime directory (some may be stale).
#[must_use]
pub fn list_servers(dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| pid_of_socket(&entry.path())).collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_somebody_else_has_taken_denies_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(folder.path()).unwrap().uid();
        let [sessions, shared] = ["sessions", "shared"].map(|name| folder.path().join(name));
        let home = || Some(PathBuf::from("/home/x/.hetckpt-run"));
        let of = |uid| of_user(uid, &sessions, &shared, home());
        let (mine, other) = (shared.join(format!("hetckpt-{own}")), shared.join("hetckpt-4711"));
        assert_eq!((of(own), of(4711)), (mine.clone(), other.clone()));
        // Whoever makes these is not 4711.
        std::fs::create_dir_all(&mine).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::create_dir_all(sessions.join("4711")).unwrap();
        assert_eq!((of(own), of(4711)), (mine, home().unwrap()));
        assert_eq!(of_user(4711, &sessions, &shared, None), other);
        std::fs::create_dir_all(sessions.join(own.to_string())).unwrap();
        assert_eq!(of(own), sessions.join(format!("{own}/hetckpt")));
    }

    #[test]
    fn it_is_where_the_environment_says() {
        // A user whom nobody is.
        assert_eq!(
            runtime_dir_of(4_000_000_007, |_| None),
            PathBuf::from("/tmp/hetckpt-4000000007")
        );
        let of_session = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
        assert_eq!(runtime_dir_of(7, of_session), PathBuf::from("/run/user/7/hetckpt"));
        assert_eq!(runtime_dir_of(0, of_session), PathBuf::from("/run/hetckpt"));
        let named = |name: &str| (name == "HETCKPT_RUNTIME_DIR").then(|| "/named".into());
        assert_eq!(runtime_dir_of(0, named), PathBuf::from("/named"));
    }
}
