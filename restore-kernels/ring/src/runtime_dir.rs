//! Where servers' sockets and logs are.
//!
//! `$HETCKPT_RUNTIME_DIR`, else `/run/hetckpt` for root, else `$XDG_RUNTIME_DIR/hetckpt`, else `/tmp/hetckpt-<uid>`;
//! mode 0700, owned by the user.

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
    PathBuf::from(format!("/tmp/hetckpt-{uid}"))
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

/// The log of the server of application `pid`.
#[must_use]
pub fn log_path(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("app-{pid}.log"))
}

/// The application whose server listens at `path`, if it is such a socket's name.
#[must_use]
pub fn pid_of_socket(path: &Path) -> Option<u32> {
    path.file_name()?
        .to_str()?
        .strip_prefix("app-")?
        .strip_suffix(".sock")?
        .parse()
        .ok()
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
mod tests {
    use super::*;

    #[test]
    fn it_is_where_the_environment_says() {
        assert_eq!(runtime_dir_of(1000, |_| None), PathBuf::from("/tmp/hetckpt-1000"));
        let of_session = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
        assert_eq!(runtime_dir_of(7, of_session), PathBuf::from("/run/user/7/hetckpt"));
        assert_eq!(runtime_dir_of(0, of_session), PathBuf::from("/run/hetckpt"));
        let named = |name: &str| (name == "HETCKPT_RUNTIME_DIR").then(|| "/named".into());
        assert_eq!(runtime_dir_of(0, named), PathBuf::from("/named"));
    }
}
