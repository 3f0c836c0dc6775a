//! The folders of jobs in the runtime directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use hetckpt_ring::error::RingError;
use hetckpt_ring::runtime_dir::ensure_runtime_dir;

use crate::namespaces::init::LOCK;

/// Folder of the jobs in the runtime directory.
pub const JOBS: &str = "jobs";

/// How old a job's folder is at least that nobody seems to use.
const STALE: Duration = Duration::from_secs(60);

/// Why there is no folder for a job (host).
#[derive(Debug, thiserror::Error)]
pub enum JobFolderError {
    /// There is no runtime directory.
    #[error("{0}")]
    RuntimeDirectory(RingError),
    /// It cannot be made.
    #[error("{}: {source}", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// A new folder in the runtime directory.
pub fn job_folder() -> Result<TempDir, JobFolderError> {
    let jobs = ensure_runtime_dir()
        .map_err(JobFolderError::RuntimeDirectory)?
        .join(JOBS);
    let cannot = |source| JobFolderError::Folder {
        folder: jobs.clone(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&jobs)
        .map_err(cannot)?;
    for folder in folders(&jobs) {
        remove_if_stale(&folder);
    }
    tempfile::Builder::new()
        .prefix("job-")
        .tempdir_in(&jobs)
        .map_err(cannot)
}

/// The folders of jobs in `jobs`.
pub fn folders(jobs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(jobs).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes the folder of a job that was killed along with its init.
fn remove_if_stale(folder: &Path) {
    let made = fs::metadata(folder).and_then(|metadata| metadata.modified());
    let is_old = made.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > STALE));
    let is_used = File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock_shared().is_err());
    if is_old && !is_used {
        // Whoever else does the same may be faster.
        let _ = fs::remove_dir_all(folder);
    }
}
