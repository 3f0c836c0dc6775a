//! Device memory to and from the memory file: chunks hashed, compressed and written by all cores at once.
//!
//! A chunk is 4 MiB of device memory. All-zero chunks are not stored; chunks of equal content are stored once. A chunk
//! is compressed fast (zstd level 1) unless a sample of it does not shrink: then it is stored as it is, for a restore
//! must wait for every byte and incompressible data costs time twice.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use hetckpt_state::allocation::Mapping;
use hetckpt_state::memory_index::{CHUNK_BYTES, ChunkRef, MemoryIndex, Piece};

use crate::memory_file::MemoryFile;

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

/// Runs `job` for each of `0..count` on all cores; after an error no further one is started.
fn in_parallel<E: Send>(count: usize, job: impl Fn(usize, &mut Vec<u8>) -> Result<(), E> + Sync) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let first_error = Mutex::new(None);
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(count) {
            scope.spawn(|| {
                let mut buffer = Vec::new();
                while !failed.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    if let Err(error) = job(at, &mut buffer) {
                        failed.store(true, Ordering::Relaxed);
                        first_error.lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    first_error.into_inner().map_or(Ok(()), Err)
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

/// Writes the content of `mappings` to `file`, to which nothing has been written, and returns the index. `read` fills a
/// buffer from a device address; several threads call it at once.
///
/// # Errors
/// [`ChunkError::Device`], [`ChunkError::File`], [`ChunkError::TooMany`].
pub fn write_memory<E: std::error::Error + Send + 'static>(
    file: &MemoryFile<'_>,
    mappings: &[Mapping],
    read: impl Fn(u64, &mut [u8]) -> Result<(), E> + Sync,
) -> Result<MemoryIndex, ChunkError<E>> {
    let ranges = chunk_ranges(mappings);
    if u32::try_from(ranges.len()).is_err() {
        return Err(ChunkError::TooMany { count: ranges.len() });
    }
    let index = Mutex::new((MemoryIndex::default(), HashMap::<[u8; 32], u32>::new()));
    in_parallel(ranges.len(), |at, buffer| {
        let (addr, len) = ranges[at];
        buffer.resize(len as usize, 0);
        read(addr, buffer).map_err(|source| ChunkError::Device { addr, source })?;
        if is_zero(buffer) {
            return Ok(());
        }
        let raw_hash = blake3::hash(buffer);
        let hash = *raw_hash.as_bytes();
        let piece = {
            let mut guard = index.lock();
            let (index, known) = &mut *guard;
            // There are no more pieces than chunks.
            let next = index.pieces.len() as u32;
            let piece = *known.entry(hash).or_insert(next);
            index.chunks.push(ChunkRef { addr, piece });
            if piece != next {
                return Ok(());
            }
            index.pieces.push(Piece {
                offset_bytes: 0,
                stored_bytes: 0,
                raw_bytes: len,
                hash,
            });
            piece as usize
        };
        let compressed = compress(buffer);
        let stored = compressed.as_deref().unwrap_or(buffer);
        let known = compressed.is_none().then_some(raw_hash);
        let offset_bytes = file.add(stored, known).map_err(ChunkError::File)?;
        if let Some(entry) = index.lock().0.pieces.get_mut(piece) {
            entry.offset_bytes = offset_bytes;
            // No more than the chunk has: what compression makes longer is stored as it is.
            entry.stored_bytes = stored.len() as u32;
        }
        Ok(())
    })?;
    let (mut index, _) = index.into_inner();
    index.chunks.sort_by_key(|c| c.addr);
    Ok(index)
}

/// Content of a piece of the memory file, checked against its hash.
///
/// # Errors
/// [`ChunkError::File`], [`ChunkError::Index`], [`ChunkError::Hash`]; `addr` is only for the message.
pub fn read_piece<E: std::error::Error + 'static>(
    file: &File,
    piece: &Piece,
    addr: u64,
) -> Result<Vec<u8>, ChunkError<E>> {
    if u64::from(piece.raw_bytes) > CHUNK_BYTES || piece.stored_bytes > piece.raw_bytes {
        return Err(ChunkError::Index { addr });
    }
    let end = piece.offset_bytes.checked_add(u64::from(piece.stored_bytes));
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(ChunkError::Index { addr });
    }
    let mut stored = vec![0; piece.stored_bytes as usize];
    file.read_exact_at(&mut stored, piece.offset_bytes)
        .map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => ChunkError::Index { addr },
            _ => ChunkError::File(error),
        })?;
    let raw = if piece.stored_bytes == piece.raw_bytes {
        stored
    } else {
        zstd::bulk::decompress(&stored, piece.raw_bytes as usize).map_err(|_| ChunkError::Hash { addr })?
    };
    if raw.len() != piece.raw_bytes as usize || *blake3::hash(&raw).as_bytes() != piece.hash {
        return Err(ChunkError::Hash { addr });
    }
    Ok(raw)
}

/// Reads what [`write_memory`] wrote and hands it to `write` (device address, bytes), several threads at once. Device
/// memory must be zero where nothing is written.
///
/// # Errors
/// Any [`ChunkError`]; every byte handed out had the right hash and lies inside `mappings`.
pub fn read_memory<E: std::error::Error + Send + 'static>(
    file: &File,
    mappings: &[Mapping],
    index: &MemoryIndex,
    write: impl Fn(u64, &[u8]) -> Result<(), E> + Sync,
) -> Result<(), ChunkError<E>> {
    let places = places(mappings, index)?;
    in_parallel(places.len(), |at, _| {
        let (addr, piece) = places[at];
        let raw = read_piece(file, piece, addr)?;
        write(addr, &raw).map_err(|source| ChunkError::Device { addr, source })
    })
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
            (end <= mapping.size_bytes).then_some(piece)
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
    use std::os::fd::OwnedFd;

    use super::*;

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
        let mappings = vec![Mapping {
            addr: BASE,
            size_bytes: memory.len() as u64,
            device: 0,
        }];
        let file = MemoryFile::new(file).unwrap();
        let index = write_memory(&file, &mappings, |addr, buffer| {
            let at = usize::try_from(addr - BASE).unwrap();
            buffer.copy_from_slice(&memory[at..at + buffer.len()]);
            Ok(())
        })?;
        Ok((mappings, index))
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

    fn ensure_reads_as(memory: &[u8], file: &File, mappings: &[Mapping], index: &MemoryIndex) {
        let back = Mutex::new(vec![0; memory.len()]);
        read_memory(file, mappings, index, |addr, bytes| {
            let at = usize::try_from(addr - BASE).unwrap();
            back.lock()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        })
        .unwrap();
        assert!(back.into_inner() == memory);
    }

    #[test]
    fn every_damaged_piece_is_found() {
        let (file, mappings, index) = written(&memory());
        for piece in &index.pieces {
            let mut byte = [0];
            let at = piece.offset_bytes + u64::from(piece.stored_bytes) / 2;
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let result = read_memory(&file, &mappings, &index, |_, _| Ok::<(), Infallible>(()));
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
            let result = read_memory(&file, &mappings, &index, |_, _| Ok::<(), Infallible>(()));
            assert!(matches!(result, Err(ChunkError::Index { .. })), "{i}: {result:?}");
        }
    }

    #[test]
    fn chunk_outside_the_mappings_is_refused() {
        let (file, mappings, mut index) = written(&memory());
        index.chunks[0].addr = BASE + mappings[0].size_bytes;
        let result = read_memory(&file, &mappings, &index, |_, _| Ok::<(), Infallible>(()));
        assert!(matches!(result, Err(ChunkError::Index { .. })), "{result:?}");
    }
}
