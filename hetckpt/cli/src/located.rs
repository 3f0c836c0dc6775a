//! An archive or folder that a verb is given: a path, or a store's URL, from which the archive is fetched, or where it
//! is read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hetckpt_archive::backing::RemoteBytes;
use hetckpt_move::snapshot::Given;
use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_store::address::{Fetched, InPlace, archive_at, archive_in_place};
use hetckpt_store::failure::failure;
use hetckpt_store::in_place::StoredArchive;
use hetckpt_store::location::is_url;
use hetckpt_store::watch::Watch;

use crate::store_arguments::KeyFile;

/// What a verb reads.
pub enum Located {
    /// It lies at this path.
    Here(PathBuf),
    /// It was in a store.
    Fetched(Box<Fetched>),
}

impl Located {
    /// Takes `given` for a path or a URL.
    pub fn find(given: &Path, key: &KeyFile) -> Result<Self, Failure> {
        let Some(url) = given.to_str().filter(|text| is_url(text)) else {
            return Ok(Self::Here(given.to_owned()));
        };
        let mut progress = |done| remark::progress(format!("fetching {}", hetckpt_report::quantity::bytes(done)));
        let fetched = archive_at(url, key.open()?, &mut Watch::new(&mut progress, &|| false));
        remark::progress_done();
        fetched
            .map(|fetched| Self::Fetched(Box::new(fetched)))
            .map_err(|error| failure(&error))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Here(path) => path,
            Self::Fetched(fetched) => fetched.path(),
        }
    }
}

/// What a restore is `given`: a path, or a URL, whose archive stays where it is.
pub fn in_place(given: &Path, key: &KeyFile) -> Result<Given, Failure> {
    let Some(url) = given.to_str().filter(|text| is_url(text)) else {
        return Ok(Given::Path(given.to_owned()));
    };
    match archive_in_place(url, key.open()?).map_err(|error| failure(&error))? {
        InPlace::File(path) => Ok(Given::Path(path)),
        InPlace::Stored(archive) => Ok(Given::Remote(given.to_owned(), Arc::new(Remote(archive)))),
    }
}

/// Stores know nothing of archives.
struct Remote(StoredArchive);

impl RemoteBytes for Remote {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }
}
