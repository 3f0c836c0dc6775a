//! Device memory to and from the memory file: chunks hashed, compressed and written by all cores at once.
//!
//! A chunk is 4 MiB of device memory. All-zero chunks are not stored; chunks of equal content are stored once. A chunk
//! is compressed fast (zstd level 1) unless a sample of it does not shrink: then it is stored as it is, for a restore
//! must wait for every byte and incompressible data costs time twice.

use std::collections::HashMap;
use std::io::ErrorKind;

use parking_lot::Mutex;

use hetckpt_state::allocation::Mapping;
use hetckpt_state::memory_index::{CHUNK_BYTES, ChunkRef, MemoryIndex, Piece};

use crate::known_pieces::KnownPieces;
use crate::memory_file::MemoryFile;
use crate::memory_source::MemorySource;
use crate::parallel::{cores, in_parallel};

const LEVEL: i32 = 1;
/// [`CHUNK_BYTES`], as pieces count them.
const MAX_CHUNK: u32 = CHUNK_BYTES as u32;
const _: () = assert!(MAX_CHUNK as u64 == CHUNK_BYTES);
/// Bytes compressed first to see whether it pays.
const SAMPLE_BYTES: usize = 64 << 10;

/// Failure of a transfer; `E` is the device's error.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError<E: std::error::Error + 'static> {
    /// The device's fault.
    #[error("device memory at {addr:#x} cannot be transferred")]
    Device {
        /// First device address of the chunk.
        addr: u64,
        /// The device's words.
        #[source]
        source: E,
    },
    /// The host's fault: disk full, input/output error.
    #[error("the memory file cannot be read or written")]
    File(#[source] std::io::Error),
    /// More device memory than an index can list (the program's fault).
    #[error("{count} chunks are more than a memory file can have")]
    TooMany {
        /// Chunks.
        count: usize,
    },
    /// Damaged input: the index contradicts itself or the mappings.
    #[error("the index of the memory file is damaged: chunk at {addr:#x}")]
    Index {
        /// First device address of the chunk.
        addr: u64,
    },
    /// Damaged input.
    #[error("the content of the chunk at {addr:#x} does not have the hash that the index gives")]
    Hash {
        /// First device address of the chunk.
        addr: u64,
    },
}

/// Address and size of each chunk.
fn chunk_ranges(mappings: &[Mapping]) -> Vec<(u64, u32)> {
    let mut ranges = Vec::new();
    for mapping in mappings {
        let mut done = 0;
        while done < mapping.size_bytes {
            let left = mapping.size_bytes - done;
            let len = u32::try_from(left).map_or(MAX_CHUNK, |left| left.min(MAX_CHUNK));
            ranges.push((mapping.addr + done, len));
            done += u64::from(len);
        }
    }
    ranges
}

fn is_zero(bytes: &[u8]) -> bool {
    // SIMD-friendly: whole 64-byte groups are or-ed before the one test.
    let (groups, rest) = bytes.as_chunks::<64>();
    groups.iter().all(|g| g.iter().fold(0, |a, &b| a | b) == 0) && rest.iter().all(|&b| b == 0)
}

/// What goes into the file for `raw`: a zstd frame, or `None` if it is to be stored as it is.
fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    let sample = raw.get(..SAMPLE_BYTES.min(raw.len()))?;
    let shrunk = zstd::bulk::compress(sample, LEVEL).ok()?.len();
    if shrunk * 20 > sample.len() * 19 {
        return None;
    }
    zstd::bulk::compress(raw, LEVEL).ok().filter(|c| c.len() < raw.len())
}

/// What became of device memory.
#[derive(Debug)]
pub struct WrittenMemory {
    /// Where its pieces are.
    pub index: MemoryIndex,
    /// Numbers of the known pieces that it has. They were not written, and follow, in this order, what was.
    pub borrowed: Vec<u32>,
}

/// Writes the content of `mappings` to `file`, to which nothing has been written, but for what is `known`. `read` fills
/// a buffer from a device address; several threads call it at once.
///
/// # Errors
/// [`ChunkError::Device`], [`ChunkError::File`], [`ChunkError::TooMany`].
pub fn write_memory<E: std::error::Error + Send + 'static>(
    file: &MemoryFile<'_>,
    mappings: &[Mapping],
    known: &KnownPieces,
    read: impl Fn(u64, &mut [u8]) -> Result<(), E> + Sync,
) -> Result<WrittenMemory, ChunkError<E>> {
    let ranges = chunk_ranges(mappings);
    if u32::try_from(ranges.len()).is_err() {
        return Err(ChunkError::TooMany { count: ranges.len() });
    }
    let listing = Mutex::new(Listing::default());
    in_parallel(cores(), ranges.len(), |at, buffer: &mut Vec<u8>| {
        let (addr, len) = ranges[at];
        buffer.resize(len as usize, 0);
        read(addr, buffer).map_err(|source| ChunkError::Device { addr, source })?;
        if is_zero(buffer) {
            return Ok(());
        }
        let raw_hash = blake3::hash(buffer);
        let Some(piece) = listing.lock().add(addr, *raw_hash.as_bytes(), len, known) else {
            return Ok(());
        };
        let compressed = compress(buffer);
        let stored = compressed.as_deref().unwrap_or(buffer);
        let known = compressed.is_none().then_some(raw_hash);
        let offset_bytes = file.add(stored, known).map_err(ChunkError::File)?;
        if let Some(entry) = listing.lock().index.pieces.get_mut(piece) {
            entry.offset_bytes = offset_bytes;
            // No more than the chunk has: what compression makes longer is stored as it is.
            entry.stored_bytes = stored.len() as u32;
        }
        Ok(())
    })?;
    Ok(listing.into_inner().finish(file.size_bytes()))
}

/// Chunks and pieces so far.
#[derive(Default)]
struct Listing {
    index: MemoryIndex,
    /// Number of the piece that has this content.
    by_hash: HashMap<[u8; 32], u32>,
    /// Pieces that are known, and what they are known by.
    borrowed: Vec<(usize, u32)>,
}

impl Listing {
    /// Lists a chunk; gives the number of its piece if that has to be written.
    fn add(&mut self, addr: u64, hash: [u8; 32], raw_bytes: u32, known: &KnownPieces) -> Option<usize> {
        // There are no more pieces than chunks.
        let next = self.index.pieces.len() as u32;
        let piece = *self.by_hash.entry(hash).or_insert(next);
        self.index.chunks.push(ChunkRef { addr, piece });
        if piece != next {
            return None;
        }
        let found = known.find(&hash, raw_bytes);
        self.index.pieces.push(Piece {
            offset_bytes: 0,
            stored_bytes: found.map_or(0, |(_, piece)| piece.stored_bytes),
            raw_bytes,
            hash,
        });
        match found {
            Some((number, _)) => {
                self.borrowed.push((next as usize, number));
                None
            }
            None => Some(next as usize),
        }
    }

    /// Borrowed pieces come behind the `own_bytes` that were written.
    fn finish(mut self, own_bytes: u64) -> WrittenMemory {
        // Neighbours there are neighbours here, and make one range.
        self.borrowed.sort_unstable_by_key(|&(_, number)| number);
        let mut end = own_bytes;
        for &(piece, _) in &self.borrowed {
            if let Some(entry) = self.index.pieces.get_mut(piece) {
                entry.offset_bytes = end;
                end = end.saturating_add(u64::from(entry.stored_bytes));
            }
        }
        self.index.chunks.sort_by_key(|c| c.addr);
        WrittenMemory {
            index: self.index,
            borrowed: self.borrowed.into_iter().map(|(_, number)| number).collect(),
        }
    }
}

/// What is known of pieces that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// They come from outside: their hashes are checked.
    Outside,
    /// This process has written them to memory that is its own.
    OwnMemory,
}

/// Memory that a thread uses for one piece after the other: fresh memory costs more than the bytes in it.
#[derive(Default)]
struct Buffers {
    stored: Vec<u8>,
    spare: Vec<u8>,
}

/// Puts the content of a piece of the memory file into `out`, which is as large, and checks it against its hash; `addr`
/// is only for the message.
fn read_piece<E: std::error::Error + 'static>(
    file: &MemorySource,
    piece: &Piece,
    addr: u64,
    origin: Origin,
    stored: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), ChunkError<E>> {
    let is_compressed = piece.stored_bytes < piece.raw_bytes;
    let target = match is_compressed {
        true => {
            stored.resize(piece.stored_bytes as usize, 0);
            &mut stored[..]
        }
        false => &mut *out,
    };
    let read = file.read_exact_at(target, piece.offset_bytes);
    read.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => ChunkError::Index { addr },
        _ => ChunkError::File(error),
    })?;
    if is_compressed {
        let size = zstd::bulk::decompress_to_buffer(stored, out);
        if size.ok() != Some(piece.raw_bytes as usize) {
            return Err(ChunkError::Hash { addr });
        }
    }
    if origin == Origin::Outside && *blake3::hash(out).as_bytes() != piece.hash {
        return Err(ChunkError::Hash { addr });
    }
    Ok(())
}

/// Reads what [`write_memory`] wrote and hands it to `write`, several threads at once. That gets a device address, a
/// size in bytes, memory that it may use for them, and what puts them where it wants them; false from there: it cannot.
/// Device memory must be zero where nothing is written.
///
/// # Errors
/// Any [`ChunkError`]; every byte handed out lies inside `mappings`, and, from outside, had the right hash, or the
/// outcome is an error.
pub fn read_memory<E: std::error::Error + Send + 'static>(
    file: &MemorySource,
    mappings: &[Mapping],
    index: &MemoryIndex,
    origin: Origin,
    write: impl Fn(u64, usize, &mut Vec<u8>, &mut dyn FnMut(&mut [u8]) -> bool) -> Result<(), E> + Sync,
) -> Result<(), ChunkError<E>> {
    let places = places(mappings, index)?;
    in_parallel(cores(), places.len(), |at, Buffers { stored, spare }: &mut Buffers| {
        let (addr, piece) = places[at];
        let mut read = Ok(());
        let written = write(addr, piece.raw_bytes as usize, spare, &mut |out| {
            read = read_piece(file, piece, addr, origin, stored, out);
            read.is_ok()
        });
        read?;
        written.map_err(|source| ChunkError::Device { addr, source })
    })
}

/// True if it is no larger than a chunk, stored or not, and lies where a file can have it.
fn is_possible(piece: &Piece) -> bool {
    let end = piece.offset_bytes.checked_add(u64::from(piece.stored_bytes));
    let is_in_file = end.is_some_and(|end| i64::try_from(end).is_ok());
    u64::from(piece.raw_bytes) <= CHUNK_BYTES && piece.stored_bytes <= piece.raw_bytes && is_in_file
}

/// Where each piece goes, once it is sure that all of them lie inside the mappings and no byte is written twice: else a
/// few pieces could keep us writing for ever.
fn places<'a, E: std::error::Error + 'static>(
    mappings: &[Mapping],
    index: &'a MemoryIndex,
) -> Result<Vec<(u64, &'a Piece)>, ChunkError<E>> {
    let mut mappings = mappings.to_vec();
    mappings.sort_by_key(|mapping| mapping.addr);
    let mut places = Vec::with_capacity(index.chunks.len());
    let mut done = 0;
    for &ChunkRef { addr, piece } in &index.chunks {
        let piece = index.pieces.get(piece as usize);
        let place = piece.filter(|_| addr >= done).and_then(|piece| {
            let mapping = mappings.get(
                mappings
                    .partition_point(|mapping| mapping.addr <= addr)
                    .checked_sub(1)?,
            )?;
            let end = (addr - mapping.addr).checked_add(u64::from(piece.raw_bytes))?;
            (end <= mapping.size_bytes && is_possible(piece)).then_some(piece)
        });
        let piece = place.ok_or(ChunkError::Index { addr })?;
        done = addr.saturating_add(u64::from(piece.raw_bytes));
        places.push((addr, piece));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use std::convert::Infallible;
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::known_pieces::KnownPiece;

    const BASE: u64 = 0x2000_0000_0000;

    /// Zeros, text that shrinks, noise that does not, and the text again.
    fn memory() -> Vec<u8> {
        let chunk = usize::try_from(CHUNK_BYTES).unwrap();
        let mut bytes = vec![0; 4 * chunk + (2 << 20)];
        for (i, b) in bytes[chunk..2 * chunk].iter_mut().enumerate() {
            *b = u8::try_from(i / 7 % 50).unwrap();
        }
        let mut x = 1u64;
        for b in &mut bytes[2 * chunk..3 * chunk] {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *b = x.to_le_bytes()[7];
        }
        bytes.copy_within(chunk..2 * chunk, 3 * chunk);
        bytes[4 * chunk + 5] = 9;
        bytes
    }

    fn written(memory: &[u8]) -> (File, Vec<Mapping>, MemoryIndex) {
        let file = tempfile::tempfile().unwrap();
        let (mappings, index) = write(memory, &file).unwrap();
        (file, mappings, index)
    }

    fn write(memory: &[u8], file: &File) -> Result<(Vec<Mapping>, MemoryIndex), ChunkError<Infallible>> {
        let (mappings, written) = write_but(memory, file, &KnownPieces::default())?;
        assert!(written.borrowed.is_empty());
        Ok((mappings, written.index))
    }

    fn write_but(
        memory: &[u8],
        file: &File,
        known: &KnownPieces,
    ) -> Result<(Vec<Mapping>, WrittenMemory), ChunkError<Infallible>> {
        let mappings = vec![Mapping {
            addr: BASE,
            size_bytes: memory.len() as u64,
            device: 0,
        }];
        let file = MemoryFile::new(file).unwrap();
        let written = write_memory(&file, &mappings, known, |addr, buffer| {
            let at = usize::try_from(addr - BASE).unwrap();
            buffer.copy_from_slice(&memory[at..at + buffer.len()]);
            Ok(())
        })?;
        Ok((mappings, written))
    }

    #[test]
    fn reading_inverts_writing_and_equal_chunks_are_stored_once() {
        let memory = memory();
        let (file, mappings, index) = written(&memory);
        assert_eq!((index.chunks.len(), index.pieces.len()), (4, 3));
        assert!(index.stored_bytes() < CHUNK_BYTES + CHUNK_BYTES / 4);
        ensure_reads_as(&memory, &file, &mappings, &index);
    }

    #[test]
    fn known_pieces_follow_what_is_written() {
        let mut memory = memory();
        let (first, _, index) = written(&memory);
        let known = index.pieces.iter().map(|piece| KnownPiece {
            hash: piece.hash,
            stored_bytes: piece.stored_bytes,
            raw_bytes: piece.raw_bytes,
        });
        let known = KnownPieces::new(known);
        // One piece changes.
        let at = memory.len() - 1;
        memory[at] = 77;
        let second = tempfile::tempfile().unwrap();
        let (mappings, written) = write_but(&memory, &second, &known).unwrap();
        assert_eq!((written.index.pieces.len(), written.borrowed.len()), (3, 2));
        let own_bytes = second.metadata().unwrap().len();
        assert!(own_bytes < first.metadata().unwrap().len() / 100);
        let all = tempfile::tempfile().unwrap();
        let mut own = vec![0; usize::try_from(own_bytes).unwrap()];
        second.read_exact_at(&mut own, 0).unwrap();
        all.write_all_at(&own, 0).unwrap();
        let mut end = own_bytes;
        for number in written.borrowed {
            let piece = index.pieces[number as usize];
            let mut bytes = vec![0; piece.stored_bytes as usize];
            first.read_exact_at(&mut bytes, piece.offset_bytes).unwrap();
            all.write_all_at(&bytes, end).unwrap();
            end += bytes.len() as u64;
        }
        ensure_reads_as(&memory, &all, &mappings, &written.index);
    }

    #[test]
    fn a_pipe_gets_what_a_file_has() {
        let memory = memory();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let copy = std::thread::spawn(move || {
            std::io::copy(&mut reader, &mut file).unwrap();
            file
        });
        let (mappings, index) = write(&memory, &File::from(OwnedFd::from(writer))).unwrap();
        let file = copy.join().unwrap();
        assert_eq!(file.metadata().unwrap().len(), index.stored_bytes());
        ensure_reads_as(&memory, &file, &mappings, &index);
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error() {
        let (_, writer) = std::io::pipe().unwrap();
        let result = write(&memory(), &File::from(OwnedFd::from(writer)));
        assert!(matches!(result, Err(ChunkError::File(_))), "{result:?}");
    }

    fn source(file: &File) -> MemorySource {
        MemorySource::File(file.try_clone().unwrap())
    }

    fn ensure_reads_as(memory: &[u8], file: &File, mappings: &[Mapping], index: &MemoryIndex) {
        let back = Mutex::new(vec![0; memory.len()]);
        let file = source(file);
        read_memory(&file, mappings, index, Origin::Outside, |addr, size, spare, produce| {
            spare.resize(size, 0);
            assert!(produce(spare));
            let at = usize::try_from(addr - BASE).unwrap();
            back.lock()[at..at + size].copy_from_slice(spare);
            Ok::<(), Infallible>(())
        })
        .unwrap();
        assert!(back.into_inner() == memory);
    }

    fn read_nowhere(file: &File, mappings: &[Mapping], index: &MemoryIndex) -> Result<(), ChunkError<Infallible>> {
        read_memory(
            &source(file),
            mappings,
            index,
            Origin::Outside,
            |_, size, spare, produce| {
                spare.resize(size, 0);
                produce(spare);
                Ok(())
            },
        )
    }

    #[test]
    fn every_damaged_piece_is_found() {
        let (file, mappings, index) = written(&memory());
        for piece in &index.pieces {
            let mut byte = [0];
            let at = piece.offset_bytes + u64::from(piece.stored_bytes) / 2;
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let result = read_nowhere(&file, &mappings, &index);
            assert!(matches!(result, Err(ChunkError::Hash { .. })), "{result:?}");
            file.write_all_at(&byte, at).unwrap();
        }
    }

    #[test]
    fn an_index_that_contradicts_itself_is_refused() {
        let (file, mappings, index) = written(&memory());
        let changes: [fn(&mut MemoryIndex); 7] = [
            // The same memory twice, or all over again.
            |index| index.chunks.insert(1, index.chunks[0]),
            |index| index.chunks[1].addr = index.chunks[0].addr + 1,
            |index| index.chunks.extend(index.chunks.clone()),
            |index| index.chunks.swap(0, 1),
            // What the file does not have.
            |index| index.pieces[0].offset_bytes = 1 << 40,
            |index| index.pieces[0].offset_bytes = u64::MAX,
            |index| index.chunks[0].piece = 1000,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut index = index.clone();
            change(&mut index);
            let result = read_nowhere(&file, &mappings, &index);
            assert!(matches!(result, Err(ChunkError::Index { .. })), "{i}: {result:?}");
        }
    }

    #[test]
    fn chunk_outside_the_mappings_is_refused() {
        let (file, mappings, mut index) = written(&memory());
        index.chunks[0].addr = BASE + mappings[0].size_bytes;
        let result = read_nowhere(&file, &mappings, &index);
        assert!(matches!(result, Err(ChunkError::Index { .. })), "{result:?}");
    }
}
