//! Lets device servers of other users write into the folder of the images, which only root may enter: each its own
//! files, and nothing else. Who could write CRIU's images could be restored as whoever he likes.
//!
//! # Source
//! acl(5); Linux, `include/uapi/linux/posix_acl_xattr.h`.

use hetckpt_ring::failure_code::Code;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, lchown};
use std::path::Path;

use nix::unistd::geteuid;
use rustix::fs::{XattrFlags, setxattr};

use hetckpt_report::failure::Failure;
use hetckpt_state::names::{description_file, memory_file, parts_file, state_file};
use hetckpt_supervise::server_client::Hold;

/// Opens the folder `images` to the servers of `holds`; what is there already under their files' names, a pipe perhaps,
/// stays.
pub fn grant(images: &Path, holds: &[Hold]) -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let users = holds.iter().filter_map(|hold| Some((hold.user()?, hold.app()?)));
    let others: Vec<(u32, u32)> = users.filter(|&(user, _)| user != 0).collect();
    if others.is_empty() {
        return Ok(());
    }
    let granted = others.iter().try_for_each(|&(user, app)| give_files(images, user, app));
    let mut users: Vec<u32> = others.into_iter().map(|(user, _)| user).collect();
    users.sort_unstable();
    users.dedup();
    let entered = granted.and_then(|()| Ok(setxattr(images, ACCESS, &searchable_by(&users), XattrFlags::empty())?));
    entered.map_err(|e| {
        Failure::new(
            Code::CannotWrite,
            format!(
                "cannot let another user's device server write into {}",
                images.display()
            ),
        )
        .note(e.to_string())
        .help("dump into a folder on a file system with access control lists, or as that user")
    })
}

fn give_files(images: &Path, user: u32, app: u32) -> io::Result<()> {
    // Memory goes through a pipe, which is there then, or into the archive.
    let memory = match images.join(memory_file(app)).exists() {
        true => memory_file(app),
        false => parts_file(app),
    };
    for name in [description_file(app), state_file(app), memory] {
        let path = images.join(name);
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => lchown(&path, Some(user), None)?,
        }
    }
    Ok(())
}

/// The attribute that holds a file's access control list.
const ACCESS: &str = "system.posix_acl_access";

/// The list of a folder in which its owner may do everything, and `users`, in order, may open what they have the name
/// of.
fn searchable_by(users: &[u32]) -> Vec<u8> {
    const VERSION: u32 = 2;
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x04;
    const MASK: u16 = 0x10;
    const OTHERS: u16 = 0x20;
    const ALL: u16 = 7;
    const SEARCH: u16 = 1;
    const NOBODY_NAMED: u32 = u32::MAX;
    let named = users.iter().map(|&user| (USER, SEARCH, user));
    let before = [(OWNER, ALL, NOBODY_NAMED)];
    let after = [
        (GROUP, 0, NOBODY_NAMED),
        (MASK, SEARCH, NOBODY_NAMED),
        (OTHERS, 0, NOBODY_NAMED),
    ];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in before.into_iter().chain(named).chain(after) {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn linux_takes_the_list() {
        let folder = tempfile::tempdir().unwrap();
        match setxattr(folder.path(), ACCESS, &searchable_by(&[7, 1000]), XattrFlags::empty()) {
            Err(rustix::io::Errno::NOTSUP) => {}
            result => {
                result.unwrap();
                // The mask stands where the group's permissions do.
                let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o710);
            }
        }
    }
}
