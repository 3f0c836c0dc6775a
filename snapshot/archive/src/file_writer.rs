//! Several threads that write to one file.
//!
//! The system locks a file for each write, so threads write one after the other. A disk is slower than that; shared
//! memory (tmpfs) is not, and takes 4 GiB in 1.9 s so, whatever the number of threads. There they copy into a mapping
//! of the file: only setting the room aside is done one by one then (0.5 to 0.8 s), ahead of those who copy.
#![allow(unsafe_code, reason = "maps the file")]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, fallocate, fcntl};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use parking_lot::Mutex;

/// What of a file can be mapped: no machine has more memory for it.
const WINDOW_BYTES: usize = 1 << 40;
const PAGE_BYTES: u64 = 4096;
/// So much room is set aside at once, and as much as has been written at most, as soon as less than half of it is left.
const AHEAD_BYTES: u64 = 128 << 20;

/// A file that several threads write to, each to places of its own.
pub struct FileWriter<'a> {
    file: &'a File,
    window: Option<Window>,
}

impl<'a> FileWriter<'a> {
    /// `file` is open for writing. What is written follows what it has, without gaps in the end; nobody makes it
    /// shorter meanwhile.
    #[must_use]
    pub fn new(file: &'a File) -> Self {
        Self {
            file,
            window: Window::of(file),
        }
    }

    /// Ends the file behind byte `end`: all has been written. Until then it can be longer than what was written.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(self, end: u64) -> io::Result<()> {
        match self.window {
            Some(_) => self.file.set_len(end),
            None => Ok(()),
        }
    }

    /// Writes `parts` one behind the other, the first at byte `offset`.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_all_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        if let Some(window) = &self.window
            && window.write(self.file, parts, offset)?
        {
            return Ok(());
        }
        let mut at = offset;
        for part in parts {
            self.file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

/// The file's first [`WINDOW_BYTES`], mapped, whether it has them or not.
struct Window {
    base: NonNull<libc::c_void>,
    /// Up to there the file has room. Held by whoever makes some.
    room: Mutex<()>,
    room_end: AtomicU64,
    /// There the file ended.
    begin: u64,
}

// SAFETY: it is only copied to, by pointers, and threads do not copy to the same bytes.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// `None` where writing is as good.
    fn of(file: &File) -> Option<Self> {
        let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL).ok()?);
        let is_shared_memory = fstatfs(file.as_fd()).ok()?.filesystem_type() == TMPFS_MAGIC;
        if !is_shared_memory || !flags.contains(OFlag::O_RDWR) || flags.contains(OFlag::O_APPEND) {
            return None;
        }
        let length = NonZeroUsize::new(WINDOW_BYTES)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe { mmap(None, length, protection, flags, file, 0) }.ok()?;
        let begin = file.metadata().ok()?.len();
        Some(Self {
            base,
            room: Mutex::new(()),
            room_end: AtomicU64::new(begin),
            begin,
        })
    }

    /// Sees to it that the file has room up to `end`. What it has no room for must not be touched.
    fn make_room(&self, file: &File, end: u64) -> nix::Result<()> {
        let has_room = |end| end <= self.room_end.load(Ordering::Acquire);
        let ahead = end.saturating_sub(self.begin).min(AHEAD_BYTES);
        if has_room(end + ahead / 2) {
            return Ok(());
        }
        let room = match has_room(end) {
            true => self.room.try_lock(),
            false => Some(self.room.lock()),
        };
        // Somebody is at it, or has been.
        if room.is_none() || has_room(end + ahead / 2) {
            return Ok(());
        }
        let from = self.room_end.load(Ordering::Relaxed);
        let allocate = |to: u64| {
            let length = to.saturating_sub(from);
            fallocate(file, FallocateFlags::empty(), from.cast_signed(), length.cast_signed()).map(|()| to)
        };
        let made = match allocate((end.max(from) + ahead).min(WINDOW_BYTES as u64)) {
            // So much need not be allowed.
            Err(_) if has_room(end) => return Ok(()),
            Err(_) => allocate(end),
            made => made,
        };
        self.room_end.store(made?, Ordering::Release);
        Ok(())
    }

    /// False if these bytes have to be written otherwise.
    fn write(&self, file: &File, parts: &[&[u8]], offset: u64) -> io::Result<bool> {
        let length = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let end = offset.checked_add(length);
        if length == 0 || end.is_none_or(|end| end > WINDOW_BYTES as u64) {
            return Ok(length == 0);
        }
        match self.make_room(file, offset + length) {
            Ok(()) => {}
            Err(Errno::EOPNOTSUPP) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let base = self.base.as_ptr().cast::<u8>();
        let mut to = base.wrapping_add(offset as usize);
        for part in parts {
            // SAFETY: within the mapping, and the file has these bytes, as was just seen to; `part` is other memory.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
            to = to.wrapping_add(part.len());
        }
        // The file has it; this process need not go on having it mapped.
        let first = offset.next_multiple_of(PAGE_BYTES);
        let whole = ((offset + length) / PAGE_BYTES * PAGE_BYTES).saturating_sub(first);
        if let Some(at) = NonNull::new(base.wrapping_add(first as usize).cast()).filter(|_| whole > 0) {
            // SAFETY: pages of the mapping; shared ones keep their content.
            let _ = unsafe { madvise(at, whole as usize, MmapAdvise::MADV_DONTNEED) };
        }
        Ok(true)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody uses any more.
        let _ = unsafe { munmap(self.base, WINDOW_BYTES) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn in_shared_memory() -> File {
        tempfile::tempfile_in("/dev/shm").unwrap()
    }

    #[test]
    fn shared_memory_is_mapped_and_disks_are_not() {
        assert!(FileWriter::new(&in_shared_memory()).window.is_some());
        let written_only = File::options().write(true).open("/dev/null").unwrap();
        assert!(FileWriter::new(&written_only).window.is_none());
    }

    #[test]
    fn threads_write_each_its_own_bytes() {
        for file in [in_shared_memory(), tempfile::tempfile().unwrap()] {
            let piece = |number: u64| -> Vec<u8> { (0..10_007 + number).map(|i| (i * number) as u8).collect() };
            let places: Vec<u64> = (0..64)
                .scan(77, |end, number| {
                    let at = *end;
                    *end += piece(number).len() as u64 + 3;
                    Some(at)
                })
                .collect();
            let writer = FileWriter::new(&file);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (writer, places) = (&writer, &places);
                    scope.spawn(move || {
                        for number in (thread..64).step_by(4) {
                            let bytes = piece(number);
                            let (front, back) = bytes.split_at(5000);
                            writer
                                .write_all_at(&[front, &[], back], places[number as usize])
                                .unwrap();
                        }
                    });
                }
            });
            for (number, at) in (0..).zip(&places) {
                let mut bytes = vec![0; piece(number).len()];
                file.read_exact_at(&mut bytes, *at).unwrap();
                assert_eq!(bytes, piece(number), "{number}");
            }
            writer.write_all_at(&[&[], &[]], 1 << 50).unwrap();
            let end = places[63] + piece(63).len() as u64;
            writer.finish(end).unwrap();
            assert_eq!(file.metadata().unwrap().len(), end);
        }
    }

    #[test]
    fn what_lies_far_behind_is_written() {
        let file = in_shared_memory();
        let writer = FileWriter::new(&file);
        let far = WINDOW_BYTES as u64 - 2;
        writer.write_all_at(&[b"far away"], far).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, far).unwrap();
        assert_eq!(&bytes, b"far away");
    }
}
