//! Folders for images, which hold a program's memory.

mod abandoned;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

/// A folder in `parent` that only we may enter and that is gone when it is dropped: images hold a program's memory, and
/// CRIU lets everybody read them. Of those whose owner was killed it is the next that removes them.
pub fn private_folder(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    let end = abandoned::name_end();
    abandoned::remove(parent, prefix, &end);
    loop {
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .suffix(&end)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        if abandoned::claim(folder.path())? {
            return Ok(folder);
        }
    }
}
