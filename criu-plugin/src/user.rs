//! Which user a program's device server runs as. The plugin records it at the dump. What the server itself writes among
//! the images, any program of that user could forge, so root does not learn from there whom to become.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::error::PluginError;
use crate::host;

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// Whom the server of process `pid` runs as; `known` is whom the system says that is. Fails if the process cannot
/// become that user: its server, with other rights than it has itself, would be restored with them.
pub fn of_server(pid: u32, known: Option<User>) -> Result<User, PluginError> {
    let server = known.ok_or(PluginError::UnknownUser { pid })?;
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let status = fs::read_to_string(&path).map_err(|source| PluginError::Read { path, source })?;
    if may_be(&status, server) {
        return Ok(server);
    }
    let User { uid, gid } = server;
    Err(PluginError::OtherUser { pid, uid, gid })
}

/// True if the process with this `status` has the user and the group, as its real, its effective or its saved one.
fn may_be(status: &str, user: User) -> bool {
    let has = |field: &str, id: u32| {
        let ids = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("");
        ids.split_whitespace().take(3).any(|text| text.parse() == Ok(id))
    };
    has("Uid:", user.uid) && has("Gid:", user.gid)
}

/// Notes among the images that the server of process `pid` runs as `user`, in a file of the dumper's own.
pub fn note(pid: u32, user: User) -> Result<(), PluginError> {
    let path = host::image_dir()?.join(format!("hetgpu-{pid}.user"));
    let write = || {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        // Whoever made one meanwhile may have it open.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        writeln!(file, "{{\"uid\": {}, \"gid\": {}}}", user.uid, user.gid)
    };
    write().map_err(|source| PluginError::Write { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_of_the_users_that_its_process_is() {
        let status = "Name:\tspin\nUid:\t1000\t1001\t1002\t0\nGid:\t100\t100\t100\t100\n";
        for (uid, gid, may) in [
            (1000, 100, true),
            (1001, 100, true),
            (1002, 100, true),
            (0, 100, false),
            (1000, 0, false),
            (100, 100, false),
        ] {
            assert_eq!(may_be(status, User { uid, gid }), may, "{uid}:{gid}");
        }
    }
}
