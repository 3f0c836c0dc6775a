//! Files that an archive carries for nodes that lack them or have others in their place: the program, the driver
//! library it was given, its shared libraries. Chosen and packed at a dump, laid out at a restore.
//!
//! A restored process maps its files anew, and what is mapped is not in CRIU's images. So it needs the very files of
//! the dump. Where the node has them, they are used; else they lie in a folder of the restore's own, to which CRIU's
//! images are led ([`hetckpt_criu::rewrite`]), for as long as the program runs.

pub mod choice;
pub mod pack;
mod pipeline;
pub mod layout;
pub mod keeper;

use std::path::Path;
use std::{fs, io};

use hetckpt_archive::manifest::CarriedFile;

use crate::folder_error::FolderError;

/// Prefix of the files in the archive.
pub const PREFIX: &str = "files/";

/// How the names of all of them begin in a folder of images.
pub const NAME_START: &str = "hetckpt-file";

/// Their list in a folder of images.
pub const INDEX: &str = "hetckpt-files.json";

/// Largest list that is read.
const MAX_INDEX_BYTES: u64 = 16 << 20;

/// The files that the folder of images carries. Gives the reason if its list cannot be trusted.
pub fn read_index(images: &Path) -> Result<Vec<CarriedFile>, FolderError> {
    let path = images.join(INDEX);
    match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(source) => return Err(unreadable(INDEX)(source)),
        Ok(found) if !found.is_file() || found.len() > MAX_INDEX_BYTES => {
            return Err(FolderError::NoList { name: INDEX });
        }
        Ok(_) => {}
    }
    let text = fs::read(&path).map_err(unreadable(INDEX))?;
    let files: Vec<CarriedFile> =
        serde_json::from_slice(&text).map_err(|source| FolderError::List { name: INDEX, source })?;
    for file in &files {
        if !file.is_safe() {
            return Err(FolderError::Path {
                name: INDEX,
                path: file.path.clone(),
            });
        }
        let name = packed_name(file).ok_or_else(|| FolderError::ForeignFile { name: INDEX.to_owned() })?;
        match fs::symlink_metadata(images.join(name)) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(FolderError::NotAFile { name: name.to_owned() }),
            Err(source) => return Err(unreadable(name)(source)),
        }
    }
    Ok(files)
}

fn unreadable(name: &str) -> impl Fn(io::Error) -> FolderError + '_ {
    move |source| FolderError::Read {
        name: name.to_owned(),
        source,
    }
}

/// The name of a carried file in a folder of images; `None` if it is that of something else.
pub fn packed_name(file: &CarriedFile) -> Option<&str> {
    let name = file.member.strip_prefix(PREFIX)?;
    (name.starts_with(NAME_START) && !name.contains('/')).then_some(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_leads_elsewhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(read_index(folder).unwrap(), []);
        let list = |path: &str, member: &str| {
            let file =
                serde_json::json!({ "path": path, "member": member, "size_bytes": 1, "mode": 33261, "blake3": "" });
            fs::write(folder.join(INDEX), serde_json::json!([file]).to_string()).unwrap();
            read_index(folder)
        };
        fs::write(folder.join("hetckpt-file-0.zst"), "").unwrap();
        fs::write(folder.join("pages-1.img"), "").unwrap();
        assert_eq!(list("/opt/x", "files/hetckpt-file-0.zst").unwrap().len(), 1);
        for (path, member) in [
            ("/opt/../../etc/x", "files/hetckpt-file-0.zst"),
            ("opt/x", "files/hetckpt-file-0.zst"),
            ("/opt/x", "files/hetckpt-file-1.zst"),
            ("/opt/x", "files/pages-1.img"),
            ("/opt/x", "files/../hetckpt-file-0.zst"),
            ("/opt/x", "files/hetckpt-file/0.zst"),
            ("/opt/x", "hetckpt-file-0.zst"),
        ] {
            assert!(list(path, member).is_err(), "{path} {member}");
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.join("hetckpt-file-2.zst")).unwrap();
        assert!(
            list("/opt/x", "files/hetckpt-file-2.zst")
                .unwrap_err()
                .to_string()
                .contains("no regular")
        );
        fs::write(folder.join(INDEX), "{").unwrap();
        assert!(read_index(folder).is_err());
    }
}
