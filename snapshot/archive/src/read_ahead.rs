//! Taking a member out of an archive from its beginning to its end, for those who cannot take it in pieces: several
//! threads unpack what comes next, while what they have unpacked before is taken.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::borrowing::Stretch;
use crate::error::ArchiveError;
use crate::parallel::{cores, in_parallel};
use crate::reader::{Archive, Member};

/// Most threads that unpack one member.
const MAX_THREADS: usize = 4;
/// Most parts that wait for their turn, of 4 MiB each, beside those whose turn it is.
const MAX_WAITING: usize = 12;
/// Most parts that are unpacked at the same time: each takes some 10 MiB meanwhile.
const MAX_UNPACKING: usize = 16;
/// A part that has more bytes is unpacked twice, to look at its hash and to write it, and never held in memory.
const MAX_HELD_BYTES: u64 = 32 << 20;

/// Memory for all members that are taken out at the same time.
#[derive(Debug)]
pub struct ReadAhead {
    free: Mutex<Free>,
    changed: Condvar,
}

/// What is not taken.
#[derive(Debug)]
struct Free {
    /// Places for parts that wait for their turn.
    places: usize,
    /// Further parts that may be unpacked now.
    unpacking: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            free: Mutex::new(Free {
                places: MAX_WAITING,
                unpacking: MAX_UNPACKING,
            }),
            changed: Condvar::new(),
        }
    }
}

impl ReadAhead {
    /// Writes a member's raw bytes to `out`. Unlike with [`Archive::extract`], nothing of a part is written before it
    /// is known that it has its hash.
    ///
    /// # Errors
    /// As [`Archive::extract`].
    pub fn extract(
        &self,
        archive: &Archive,
        member: Member<'_>,
        out: &mut (impl Write + Send),
    ) -> Result<(), ArchiveError> {
        let target = Path::new(member.entry.raw_name());
        let stretches = archive.stretches(member)?;
        let out = Mutex::new(out);
        let queue = Queue {
            room: self,
            turn: AtomicUsize::new(0),
        };
        in_parallel(cores().min(MAX_THREADS), stretches.len(), |at, (): &mut ()| {
            let place = queue.enter(at);
            let unpacked = self.when_few_unpack(|| Unpacked::of(&stretches[at], target));
            let written = unpacked.and_then(|unpacked| {
                // False if a part before it has failed.
                if !queue.wait_for_turn(at) {
                    return Ok(());
                }
                unpacked.write(&mut **out.lock(), target)
            });
            queue.leave(place, written.is_ok().then_some(at + 1));
            written
        })
    }

    /// Does `work`, which waits for nobody.
    fn when_few_unpack<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut free = self.free.lock();
        while free.unpacking == 0 {
            self.changed.wait(&mut free);
        }
        free.unpacking -= 1;
        drop(free);
        let done = work();
        self.free.lock().unpacking += 1;
        self.changed.notify_all();
        done
    }
}

/// A part of a member, whose hash is right.
enum Unpacked<'s, 'a> {
    Held(Vec<u8>),
    TooLarge(&'s Stretch<'a>),
}

impl<'s, 'a> Unpacked<'s, 'a> {
    fn of(stretch: &'s Stretch<'a>, target: &Path) -> Result<Self, ArchiveError> {
        if stretch.part.raw_bytes > MAX_HELD_BYTES {
            stretch.unpack(&mut std::io::sink(), target)?;
            return Ok(Self::TooLarge(stretch));
        }
        let mut bytes = vec![];
        stretch.unpack(&mut bytes, target)?;
        Ok(Self::Held(bytes))
    }

    fn write(&self, out: &mut impl Write, target: &Path) -> Result<(), ArchiveError> {
        match self {
            Self::Held(bytes) => out.write_all(bytes).map_err(|source| ArchiveError::Io {
                action: "write",
                path: target.to_owned(),
                source,
            }),
            Self::TooLarge(stretch) => stretch.unpack(out, target),
        }
    }
}

/// The parts of one member, which are written one after the other.
struct Queue<'a> {
    room: &'a ReadAhead,
    /// Number of the part that is written next; changes while `room` is locked.
    turn: AtomicUsize,
}

/// A turn that never comes: a part could not be had or written.
const BROKEN: usize = usize::MAX;

/// Whether a part has taken one of the places for parts that wait.
#[derive(PartialEq)]
enum Place {
    Taken,
    /// It was its turn.
    NotNeeded,
}

impl Queue<'_> {
    /// Waits for a place for part `at`. The one whose turn it is needs none: so there is always one that gets on.
    fn enter(&self, at: usize) -> Place {
        let mut free = self.room.free.lock();
        loop {
            if free.places > 0 {
                free.places -= 1;
                return Place::Taken;
            }
            if [at, BROKEN].contains(&self.turn.load(Ordering::Relaxed)) {
                return Place::NotNeeded;
            }
            self.room.changed.wait(&mut free);
        }
    }

    fn wait_for_turn(&self, at: usize) -> bool {
        let mut free = self.room.free.lock();
        loop {
            match self.turn.load(Ordering::Relaxed) {
                BROKEN => return false,
                turn if turn == at => return true,
                _ => self.room.changed.wait(&mut free),
            }
        }
    }

    /// Gives the place back, and lets part `next` be written; without one, none any more.
    fn leave(&self, place: Place, next: Option<usize>) {
        let mut free = self.room.free.lock();
        if place == Place::Taken {
            free.places += 1;
        }
        if self.turn.load(Ordering::Relaxed) != BROKEN {
            self.turn.store(next.unwrap_or(BROKEN), Ordering::Relaxed);
        }
        drop(free);
        self.room.changed.notify_all();
    }
}
