//! An archive or folder that a verb is given: a path, or a store's URL, from which the archive is fetched.

use std::path::{Path, PathBuf};

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_store::address::{Fetched, archive_at};
use hetckpt_store::failure::failure;
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

    /// True if it was made for this.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Fetched(fetched) if fetched.is_temporary())
    }
}
