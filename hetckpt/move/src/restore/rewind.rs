//! Cutting files that have grown since the dump back to what they were then: the program writes the rest again.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;

/// What the copies' names end in; a number follows if there is one already.
const SUFFIX: &str = ".after-dump";

/// Files that have been cut. When this is dropped they get back what was cut off, unless [`Rewound::keep`] was called.
#[derive(Default)]
pub struct Rewound {
    /// File, size at the dump, copy of what it was.
    cut: Vec<(PathBuf, u64, PathBuf)>,
}

impl Rewound {
    /// Copies the files, and cuts them to the sizes given.
    pub fn cut(files: &BTreeMap<PathBuf, u64>) -> Result<Self, Failure> {
        let mut rewound = Self::default();
        for (path, &size) in files {
            let cannot = |e: io::Error| {
                Failure::new(Code::CannotWrite, format!("cannot cut {} back", path.display()))
                    .note(e.to_string())
                    .help("make room for a copy of it, or put it back yourself")
            };
            let copy = copy(path).map_err(cannot)?;
            rewound.cut.push((path.clone(), size, copy));
            File::options()
                .write(true)
                .open(path)
                .and_then(|file| file.set_len(size))
                .map_err(cannot)?;
        }
        Ok(rewound)
    }

    /// The program goes on with them as they are.
    pub fn keep(mut self) {
        for (path, size, copy) in std::mem::take(&mut self.cut) {
            remark::note(format!(
                "{} was cut back to {size} bytes; {} has what it was",
                path.display(),
                copy.display()
            ));
        }
    }
}

impl Drop for Rewound {
    fn drop(&mut self) {
        for (path, size, copy) in &self.cut {
            match put_back(path, *size, copy) {
                // It is as it was.
                Ok(()) => drop(fs::remove_file(copy)),
                Err(e) => remark::note(format!(
                    "{} was cut back to {size} bytes and cannot be put back ({e}): {} has what it was",
                    path.display(),
                    copy.display()
                )),
            }
        }
    }
}

/// Copies the file to a new one beside it.
fn copy(path: &Path) -> io::Result<PathBuf> {
    for number in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(SUFFIX);
        if number > 0 {
            name.push(format!(".{number}"));
        }
        let to = PathBuf::from(name);
        let mut new = match File::create_new(&to) {
            Ok(new) => new,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        };
        let copied = File::open(path).and_then(|mut old| {
            new.set_permissions(old.metadata()?.permissions())?;
            io::copy(&mut old, &mut new)?;
            new.sync_all()
        });
        if let Err(e) = copied {
            // The first failure is the one to tell.
            let _ = fs::remove_file(&to);
            return Err(e);
        }
        return Ok(to);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Appends what was cut off.
fn put_back(path: &Path, size: u64, copy: &Path) -> io::Result<()> {
    let mut from = File::open(copy)?;
    from.seek(SeekFrom::Start(size))?;
    let mut to = File::options().write(true).open(path)?;
    to.set_len(size)?;
    to.seek(SeekFrom::Start(size))?;
    io::copy(&mut from, &mut to).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn files_are_cut_and_kept_or_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let copy = |number: &str| fs::read_to_string(folder.path().join(format!("out.after-dump{number}"))).ok();
        fs::write(&path, "before, after").unwrap();
        let files = BTreeMap::from([(path.clone(), 6)]);
        let rewound = Rewound::cut(&files).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        drop(rewound);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before, after");
        assert_eq!(copy(""), None);
        for number in ["", ".1"] {
            fs::write(&path, "before, after").unwrap();
            Rewound::cut(&files).unwrap().keep();
            assert_eq!(fs::read_to_string(&path).unwrap(), "before");
            assert_eq!(copy(number).as_deref(), Some("before, after"));
        }
        fs::remove_file(&path).unwrap();
        assert!(Rewound::cut(&files).is_err());
    }
}
