//! Are the files that the program had open or mapped here, and the same?
//!
//! # Source
//! CRIU, `criu/files-reg.c`: a file must have the size and mode of the dump, but the size of one that is only appended to.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::criu::image_messages::Regular;
use crate::criu::images::Needs;
use crate::finding::Finding;

const CHECK: &str = "files";
/// How many are named.
const MAX_NAMED: usize = 5;

/// Compares all of them.
pub fn examine(needs: &Needs) -> Finding {
    let wrong: BTreeSet<String> = needs.files.iter().filter_map(complaint).collect();
    if wrong.is_empty() {
        let paths: BTreeSet<&[u8]> = needs.files.iter().map(|file| &*file.name).collect();
        return Finding::ok(
            CHECK,
            format!("all {} are here, with their sizes and modes", paths.len()),
        );
    }
    let named = wrong.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = match wrong.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Finding::problem(
        CHECK,
        format!("{named}{more}"),
        "put the files of the machine where the program was dumped at the same paths",
    )
}

/// What is wrong with a file, if anything.
fn complaint(file: &Regular) -> Option<String> {
    let path = Path::new(OsStr::from_bytes(&file.name));
    let name = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Some(format!("{name} is missing")),
        Err(e) => return Some(format!("{name}: {e}")),
    };
    if let Some(mode) = file.mode.filter(|mode| *mode != found.mode()) {
        return Some(format!("{name} has mode {:o} instead of {mode:o}", found.mode()));
    }
    let is_log = is_appended_to(file.flags);
    let size = file.size.filter(|_| found.is_file() && !is_log);
    size.filter(|size| *size != found.len())
        .map(|size| format!("{name} has {} bytes instead of {size}", found.len()))
}

/// True if the file was open for appending alone.
fn is_appended_to(flags: u32) -> bool {
    const O_ACCMODE: u32 = 0o3;
    const O_WRONLY: u32 = 0o1;
    const O_APPEND: u32 = 0o2000;
    flags & O_ACCMODE == O_WRONLY && flags & O_APPEND != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::write(&path, b"12345").unwrap();
        let as_it_is = Regular {
            id: 1,
            flags: 0,
            name: path.as_os_str().as_bytes().to_vec(),
            size: Some(5),
            is_external: None,
            mode: Some(fs::metadata(&path).unwrap().mode()),
        };
        assert_eq!(complaint(&as_it_is), None);
        let larger = Regular {
            size: Some(6),
            ..as_it_is.clone()
        };
        assert!(complaint(&larger).unwrap().contains("5 bytes instead of 6"));
        let log = Regular {
            flags: 0o2001,
            ..larger
        };
        assert_eq!(complaint(&log), None);
        let program = Regular {
            mode: Some(0o100_755),
            ..as_it_is.clone()
        };
        assert!(complaint(&program).unwrap().contains("instead of 100755"));
        fs::remove_file(&path).unwrap();
        assert!(complaint(&as_it_is).unwrap().contains("is missing"));
    }
}
