//! Taking members out of an archive into a folder, several parts at once.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::ArchiveError;
use crate::manifest::MemberEntry;
use crate::member::is_safe_name;
use crate::parallel::{cores, in_parallel};
use crate::reader::Archive;
use crate::room;

/// Least bytes that several threads unpack.
const PARALLEL_BYTES: u64 = 8 << 20;
/// Most threads that do: each takes some 10 MiB.
const MAX_THREADS: usize = 16;

impl Archive {
    /// Writes the members whose names start with `prefix` into `folder` (mode 0600), without the prefix and without
    /// `.zst`. Returns the number of raw bytes.
    ///
    /// # Errors
    /// As [`Archive::extract_where`].
    pub fn extract_all(&self, prefix: &str, folder: &Path) -> Result<u64, ArchiveError> {
        self.extract_where(folder, |member| member.raw_name().strip_prefix(prefix), &mut |_| ())
    }

    /// Writes the members for which `place` gives a name, each under that name, into `folder` (mode 0600), several
    /// parts at once. `progress` is told, now and then, how many raw bytes have been written. Returns their number.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`], [`ArchiveError::Io`]; also, before anything is written, if two are to have one name,
    /// and if there is no room for all of them.
    pub fn extract_where(
        &self,
        folder: &Path,
        place: impl Fn(&MemberEntry) -> Option<&str>,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<u64, ArchiveError> {
        let io_error = |action, path: &Path, source| ArchiveError::Io {
            action,
            path: path.to_owned(),
            source,
        };
        let wanted: Vec<_> = self
            .members()
            .filter_map(|member| Some((member, place(member.entry)?)))
            .collect();
        let mut names = BTreeSet::new();
        if let Some((member, _)) = wanted
            .iter()
            .find(|(_, name)| !is_safe_name(name) || !names.insert(*name))
        {
            return Err(self.damaged(member.entry, "has no place of its own"));
        }
        let total = wanted.iter().map(|(member, _)| member.entry.raw_bytes()).sum();
        fs::create_dir_all(folder).map_err(|e| io_error("create", folder, e))?;
        room::ensure(folder, total).map_err(|e| io_error("write", folder, e))?;
        let mut parent = folder.to_owned();
        let mut jobs = Vec::new();
        for (member, name) in wanted {
            let path = folder.join(name);
            if let Some(above) = path.parent().filter(|above| *above != parent) {
                fs::create_dir_all(above).map_err(|e| io_error("create", above, e))?;
                parent = above.to_owned();
            }
            let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            created.map_err(|e| io_error("create", &path, e))?;
            let path = Arc::new(path);
            let mut position = 0u64;
            for stretch in self.stretches(member)? {
                let start = position;
                position = position.saturating_add(stretch.size);
                jobs.push((stretch, Arc::clone(&path), start));
            }
        }
        let told = Mutex::new(Told::new(progress));
        let threads = match total < PARALLEL_BYTES {
            true => 1,
            false => cores().min(MAX_THREADS),
        };
        in_parallel(threads, jobs.len(), |at, (): &mut ()| {
            let (stretch, path, position) = &jobs[at];
            // Not kept open: an archive may have more members than a process files.
            let opened = OpenOptions::new().write(true).open(&**path);
            let file = opened.map_err(|e| io_error("write", path, e))?;
            let mut out = PartFile {
                told: &told,
                file,
                position: *position,
            };
            stretch.unpack(&mut out, path)
        })?;
        Ok(total)
    }
}

/// Bytes that are written, and whoever wants to know of them.
struct Told<'a> {
    progress: &'a mut (dyn FnMut(u64) + Send),
    written: u64,
    /// At how many bytes it is told again.
    tell_at: u64,
}

impl<'a> Told<'a> {
    const STEP_BYTES: u64 = 4 << 20;

    fn new(progress: &'a mut (dyn FnMut(u64) + Send)) -> Self {
        Self {
            progress,
            written: 0,
            tell_at: Self::STEP_BYTES,
        }
    }

    fn add(&mut self, count: u64) {
        self.written += count;
        if self.written >= self.tell_at {
            self.tell_at = self.written + Self::STEP_BYTES;
            (self.progress)(self.written);
        }
    }
}

/// A part's place in a file, and who is told of what comes there.
struct PartFile<'t, 'a> {
    told: &'t Mutex<Told<'a>>,
    file: File,
    position: u64,
}

impl Write for PartFile<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.position)?;
        self.position += count as u64;
        self.told.lock().add(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
