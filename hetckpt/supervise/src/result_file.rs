//! A small file that the user asked for and that tells of a program: opened, and given room, before the program starts,
//! written when there is something to say. Not for archives, which are flushed and verified.

use hetckpt_ring::failure_code::Code;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;

/// How the name of a file begins that is to get another.
pub const PREFIX: &str = ".hetckpt-";

/// Room that a new file takes before there is anything to write: the disk may be full by then, and others wait for the
/// file.
const RESERVED: [u8; 256] = [b' '; 256];

/// A file that can be written. Until [`ResultFile::write`] a new one does not exist under its name: others wait for it.
pub struct ResultFile {
    path: PathBuf,
    opened: Opened,
}

enum Opened {
    /// It was there: a pipe or a device, perhaps, so it stays what it is.
    Existing(File),
    /// It gets its name once it is complete.
    New(NamedTempFile),
}

impl ResultFile {
    /// Opens `path`, or a file beside it that will take its name; `code` is the failure's.
    pub fn open(path: &Path, code: Code) -> Result<Self, Failure> {
        let opened = if path.exists() {
            File::options().write(true).open(path).map(Opened::Existing)
        } else {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
            tempfile::Builder::new()
                .prefix(PREFIX)
                .suffix(path.file_name().unwrap_or(OsStr::new("")))
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(folder.unwrap_or(Path::new(".")))
                .and_then(|mut file| file.write_all(&RESERVED).map(|()| Opened::New(file)))
        };
        let opened =
            opened.map_err(|e| Failure::new(code, format!("cannot write {}", path.display())).note(e.to_string()))?;
        Ok(Self {
            path: path.to_owned(),
            opened,
        })
    }

    /// Writes `text` as all the file holds. The program runs by now: a full disk is a remark and no reason to leave it.
    pub fn write(self, text: &str) {
        let written = match self.opened {
            Opened::Existing(mut file) => {
                // A pipe has no length to set.
                let _ = file.set_len(0);
                file.write_all(text.as_bytes())
            }
            Opened::New(mut file) => file
                .rewind()
                .and_then(|()| file.write_all(text.as_bytes()))
                .and_then(|()| file.as_file().set_len(text.len() as u64))
                .and_then(|()| file.persist(&self.path).map(drop).map_err(|e| e.error)),
        };
        if let Err(error) = written {
            remark::note(format!("cannot write {}: {error}", self.path.display()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_new_file_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times");
        let file = ResultFile::open(&path, Code::CannotWrite).unwrap();
        assert!(!path.exists());
        file.write("{}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_in_place_and_only_when_there_is_something_to_say() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        fs::write(&path, "something longer").unwrap();
        let file = ResultFile::open(&path, Code::StandIn).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "something longer");
        file.write("12\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "12\n");
    }

    #[test]
    fn what_cannot_be_written_is_known_at_once_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("no/such/folder"), folder.path().to_owned()] {
            assert_eq!(
                ResultFile::open(&path, Code::CannotWrite).err().unwrap().code,
                Code::CannotWrite
            );
        }
        drop(ResultFile::open(&folder.path().join("unused"), Code::CannotWrite).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
