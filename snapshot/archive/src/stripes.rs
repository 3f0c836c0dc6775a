//! Pieces of device memory in several files, into which as many threads write at once. Into one file they would write
//! one after the other: the system locks it for each of them, and shared memory then takes no more than one thread can
//! copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::limits::MAX_PARTS;
use crate::memory_source::{MemberPlace, PartPlace};

/// A member that is being written to several files.
pub struct Stripes<'a> {
    files: Vec<Stripe<'a>>,
    /// Which file is tried first for the next piece.
    next: AtomicUsize,
    member: Mutex<Member>,
}

struct Stripe<'a> {
    file: &'a File,
    /// Held by whoever writes: where the next piece goes.
    end: Mutex<u64>,
}

#[derive(Default)]
struct Member {
    size_bytes: u64,
    /// In the member's order. Those that are still being written are among them.
    parts: Vec<PartPlace>,
}

impl<'a> Stripes<'a> {
    /// `files` are open for writing, and nothing has been written to them.
    #[must_use]
    pub fn new(files: &'a [File]) -> Self {
        let stripe = |file| Stripe {
            file,
            end: Mutex::new(0),
        };
        Self {
            files: files.iter().map(stripe).collect(),
            next: AtomicUsize::new(0),
            member: Mutex::default(),
        }
    }

    /// Adds a piece; gives the place of its first byte in the member.
    ///
    /// # Errors
    /// What writing says, and if there are too many pieces, or no files. Nothing may be added then.
    pub fn add(&self, piece: &[u8]) -> io::Result<u64> {
        let (number, mut end) = self.free_file().ok_or(io::ErrorKind::InvalidInput)?;
        let size_bytes = piece.len() as u64;
        let place = PartPlace {
            // Each has a descriptor.
            file: number as u32,
            offset_bytes: *end,
            size_bytes,
        };
        let offset_bytes = self.member.lock().add(place)?;
        self.files[number].file.write_all_at(piece, *end)?;
        *end += size_bytes;
        Ok(offset_bytes)
    }

    /// One that nobody writes to, if there is such a one; its number, and where it ends.
    fn free_file(&self) -> Option<(usize, MutexGuard<'_, u64>)> {
        let first = self
            .next
            .fetch_add(1, Ordering::Relaxed)
            .checked_rem(self.files.len())?;
        let mut all = (first..self.files.len()).chain(0..first);
        let free = all.find_map(|number| Some((number, self.files[number].end.try_lock()?)));
        Some(free.unwrap_or_else(|| (first, self.files[first].end.lock())))
    }

    /// Bytes of the member so far.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.member.lock().size_bytes
    }

    /// Where all of it lies.
    #[must_use]
    pub fn finish(self) -> MemberPlace {
        MemberPlace {
            parts: self.member.into_inner().parts,
        }
    }
}

impl Member {
    fn add(&mut self, part: PartPlace) -> io::Result<u64> {
        if self.parts.len() >= MAX_PARTS {
            let text = format!("device memory has more than {MAX_PARTS} pieces");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let offset_bytes = self.size_bytes;
        self.size_bytes += part.size_bytes;
        self.parts.push(part);
        Ok(offset_bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::memory_source::{Lender, MemorySource};

    fn piece(number: usize) -> Vec<u8> {
        let byte = u8::try_from(number % 251).unwrap();
        vec![byte; 1000 + number]
    }

    #[test]
    fn what_many_threads_add_is_found_where_they_were_told() {
        let files = [(); 3].map(|()| tempfile::tempfile().unwrap());
        let stripes = Stripes::new(&files);
        let found = Mutex::new(vec![]);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (stripes, found) = (&stripes, &found);
                scope.spawn(move || {
                    for number in (thread..400).step_by(8) {
                        let offset = stripes.add(&piece(number)).unwrap();
                        found.lock().push((offset, number));
                    }
                });
            }
        });
        let all = (0..400).map(|number| piece(number).len() as u64).sum::<u64>();
        assert_eq!(stripes.size_bytes(), all);
        let place = stripes.finish();
        assert!(files.iter().all(|file| file.metadata().unwrap().len() > 0));
        let source = MemorySource::member(files.map(Lender::from).into(), &place);
        for (offset, number) in found.into_inner() {
            let mut bytes = vec![0; piece(number).len()];
            source.read_exact_at(&mut bytes, offset).unwrap();
            assert_eq!(bytes, piece(number), "{number}");
        }
    }

    #[test]
    fn without_files_nothing_is_added() {
        assert_eq!(
            Stripes::new(&[]).add(&[1]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
