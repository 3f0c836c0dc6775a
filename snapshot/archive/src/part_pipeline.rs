//! From a stream of bytes to the parts of a member: several cores compress and hash parts, while the next ones are read
//! and those before them are written, in their order.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};

use parking_lot::Mutex;

use crate::manifest::Encoding;
use crate::member::update;
use crate::pack::Packer;
use crate::sections::Sections;

/// Bytes for which there is memory before it is known that a file has more.
const FIRST_BYTES: usize = 64 << 10;

/// Bytes of a file that become one part. For each core, one or two are in memory, and once more compressed.
pub const PART_BYTES: usize = 4 << 20;

/// A part, ready to be written.
pub(crate) struct PackedPart {
    raw: Vec<u8>,
    /// None if it is stored as it is.
    packed: Option<Vec<u8>>,
    /// Of the stored bytes.
    pub hash: blake3::Hash,
}

impl PackedPart {
    /// What is stored.
    pub fn stored(&self) -> &[u8] {
        self.packed.as_deref().unwrap_or(&self.raw)
    }

    /// Its size in the file.
    pub fn raw_bytes(&self) -> u64 {
        self.raw.len() as u64
    }

    /// Makes it of `raw`; `packed` is memory to use.
    fn pack(raw: Vec<u8>, mut packed: Vec<u8>, packer: &mut Packer, encoding: Encoding) -> io::Result<Self> {
        let packed = match encoding {
            Encoding::Zstd => {
                packer.compress(&raw, &mut packed)?;
                Some(packed)
            }
            Encoding::Stored => None,
        };
        let mut hasher = blake3::Hasher::new();
        update(&mut hasher, packed.as_deref().unwrap_or(&raw));
        let hash = hasher.finalize();
        Ok(Self { raw, packed, hash })
    }
}

/// Reads the next bytes of `input` into `raw`, in place of what it held: none of two sections. True if there are no
/// more.
fn fill(raw: &mut Vec<u8>, input: &mut impl Sections) -> io::Result<bool> {
    let mut filled = 0;
    loop {
        if filled == raw.len() {
            if filled == PART_BYTES {
                return Ok(false);
            }
            raw.resize((4 * filled).clamp(FIRST_BYTES, PART_BYTES), 0);
        }
        match input.read(&mut raw[filled..]) {
            Ok(0) => {
                let is_over = !input.next_section()?;
                if is_over || filled > 0 {
                    raw.truncate(filled);
                    return Ok(is_over);
                }
            }
            Ok(size) => filled += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What small members are packed with, one after the other.
pub(crate) struct Kept {
    packer: Packer,
    raw: Vec<u8>,
    packed: Vec<u8>,
}

impl Kept {
    pub(crate) fn new(level: i32) -> Self {
        Self {
            packer: Packer::new(level),
            raw: vec![],
            packed: vec![],
        }
    }
}

/// Bytes that are to be packed, memory for that, and who wants it.
struct Job {
    raw: Vec<u8>,
    spare: Vec<u8>,
    answer: SyncSender<io::Result<PackedPart>>,
}

/// Has `write` write all parts of `input`, one after the other: at least one, and none that is empty but that. None has
/// bytes of two sections. As many as `threads` pack them; one that is the only one is packed with what is `kept`.
/// `failed` says what errors of reading and packing are.
pub(crate) fn write_parts<E>(
    input: &mut impl Sections,
    encoding: Encoding,
    threads: usize,
    kept: &mut Kept,
    failed: impl Fn(io::Error) -> E,
    mut write: impl FnMut(&PackedPart) -> Result<(), E>,
) -> Result<(), E> {
    let mut raw = std::mem::take(&mut kept.raw);
    if fill(&mut raw, input).map_err(&failed)? {
        let spare = std::mem::take(&mut kept.packed);
        let part = PackedPart::pack(raw, spare, &mut kept.packer, encoding).map_err(&failed)?;
        let written = write(&part);
        kept.raw = part.raw;
        kept.packed = part.packed.unwrap_or_default();
        return written;
    }
    let level = kept.packer.level();
    let (jobs, queue) = channel::<Job>();
    let queue = Mutex::new(queue);
    std::thread::scope(|scope| {
        // Gone before the threads are waited for, which then have nothing more to do.
        let jobs = jobs;
        for _ in 0..threads {
            scope.spawn(|| work(&queue, level, encoding));
        }
        let (mut is_over, mut under_way, mut idle) = (false, VecDeque::new(), vec![]);
        let mut next = Some((raw, vec![]));
        loop {
            if let Some((raw, spare)) = next.take() {
                let (answer, answered) = sync_channel(1);
                let sent = jobs.send(Job { raw, spare, answer });
                sent.map_err(|_| failed(gone()))?;
                under_way.push_back(answered);
            }
            let must_wait = is_over || under_way.len() > threads;
            while let Some(part) = first_done(&mut under_way, must_wait).map_err(&failed)? {
                write(&part)?;
                idle.push((part.raw, part.packed.unwrap_or_default()));
                if !is_over {
                    break;
                }
            }
            if is_over {
                return Ok(());
            }
            let (mut raw, spare) = idle.pop().unwrap_or_default();
            is_over = fill(&mut raw, input).map_err(&failed)?;
            next = (!raw.is_empty()).then_some((raw, spare));
        }
    })
}

/// The part that is to be written next, once it is packed. None if there is none, or it is not packed and need not be
/// waited for.
fn first_done(
    under_way: &mut VecDeque<Receiver<io::Result<PackedPart>>>,
    must_wait: bool,
) -> io::Result<Option<PackedPart>> {
    let Some(first) = under_way.front() else {
        return Ok(None);
    };
    let packed = match must_wait {
        true => first.recv().map_err(|_| gone())?,
        false => match first.try_recv() {
            Ok(packed) => packed,
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => return Err(gone()),
        },
    };
    under_way.pop_front();
    packed.map(Some)
}

fn work(queue: &Mutex<Receiver<Job>>, level: i32, encoding: Encoding) {
    let mut packer = Packer::new(level);
    loop {
        let job = queue.lock().recv();
        let Ok(Job { raw, spare, answer }) = job else { return };
        // Who has given up does not want it.
        let _ = answer.send(PackedPart::pack(raw, spare, &mut packer, encoding));
    }
}

fn gone() -> io::Error {
    io::Error::other("a thread that packs has ended (a bug in hetckpt)")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::sections::Whole;

    /// Gives so many bytes, and then fails.
    struct Breaks(usize);

    impl Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::other("broken"));
            }
            let size = buffer.len().min(self.0);
            self.0 -= size;
            buffer[..size].fill(7);
            Ok(size)
        }
    }

    #[test]
    fn errors_end_it_wherever_they_come() {
        let run = |input: &mut dyn Read, most_parts: usize| {
            let mut num_parts = 0;
            let mut input = Whole(input);
            write_parts(
                &mut input,
                Encoding::Zstd,
                3,
                &mut Kept::new(1),
                |e| e.to_string(),
                |part| {
                    num_parts += 1;
                    let is_whole = zstd::decode_all(part.stored()).unwrap().len() as u64 == part.raw_bytes();
                    assert!(is_whole);
                    (num_parts <= most_parts).then_some(()).ok_or("full".to_owned())
                },
            )
            .map(|()| num_parts)
        };
        for num_bytes in [0, 1, PART_BYTES, 9 * PART_BYTES + 5] {
            assert_eq!(run(&mut Breaks(num_bytes), 100), Err("broken".to_owned()));
            let num_parts = num_bytes.div_ceil(PART_BYTES).max(1);
            let mut whole = Breaks(usize::MAX).take(num_bytes as u64);
            assert_eq!(run(&mut whole, 100), Ok(num_parts));
            let mut whole = Breaks(usize::MAX).take(num_bytes as u64);
            assert_eq!(run(&mut whole, num_parts - 1), Err("full".to_owned()));
        }
    }
}
