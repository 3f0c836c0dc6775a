//! Members: tar headers, safe names, hashed copying.

use std::io::{self, Read, Write};

use crate::limits::MAX_NAME_BYTES;

/// Size of a tar block.
pub const TAR_BLOCK: u64 = 512;

/// True if `name` is a plain relative path that stays below where it is unpacked: ordinary components only, no NUL,
/// short enough for a tar header.
#[must_use]
pub fn is_safe_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
        && name
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

/// A tar header for a regular file of mode 0600.
///
/// # Errors
/// If the name does not fit.
pub fn tar_header(name: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_size(size);
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    Ok(header)
}

/// Bytes that pad `size` to a whole number of tar blocks.
#[must_use]
pub fn tar_padding(size: u64) -> usize {
    usize::try_from((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK).unwrap_or(0)
}

/// Passes bytes on, counting and hashing them.
pub struct HashingWriter<W> {
    inner: W,
    hasher: blake3::Hasher,
    count: u64,
}

impl<W: Write> HashingWriter<W> {
    /// Starts at zero.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: blake3::Hasher::new(),
            count: 0,
        }
    }

    /// Number of bytes and their hash.
    #[must_use]
    pub fn finish(self) -> (u64, blake3::Hash) {
        (self.count, self.hasher.finalize())
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        update(&mut self.hasher, &buf[..n]);
        self.count += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Passes bytes on as they are read, counting and hashing them.
pub(crate) struct HashingReader<R> {
    inner: R,
    hasher: blake3::Hasher,
    count: u64,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: blake3::Hasher::new(),
            count: 0,
        }
    }

    /// Number of bytes and their hash.
    pub(crate) fn finish(self) -> (u64, blake3::Hash) {
        (self.count, self.hasher.finalize())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        update(&mut self.hasher, &buf[..n]);
        self.count += n as u64;
        Ok(n)
    }
}

/// Size of the pieces in which members are moved: large enough for all processors to hash one together.
pub const PIECE_BYTES: usize = 8 << 20;

/// Hashes `bytes`, on all processors where that pays.
pub fn update(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    if bytes.len() >= 1 << 18 {
        hasher.update_rayon(bytes);
    } else {
        hasher.update(bytes);
    }
}

/// A buffer for bytes on their way: small for what is small, as large as [`PIECE_BYTES`] for what is large. It is to be
/// kept.
#[derive(Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// Bytes of the latest piece.
    filled: usize,
}

impl Pieces {
    /// Bytes of the first piece.
    pub(crate) const FIRST_BYTES: usize = 1 << 20;

    /// The next bytes of `input`: as many as fit, fewer only at its end, none behind it.
    pub(crate) fn fill(&mut self, input: &mut impl Read) -> io::Result<&[u8]> {
        let size = self.bytes.len();
        if size < PIECE_BYTES && self.filled == size {
            let larger = if size == 0 { Self::FIRST_BYTES } else { PIECE_BYTES };
            // New rather than longer: what it holds is of no use.
            self.bytes = vec![0; larger];
        }
        self.filled = 0;
        while self.filled < self.bytes.len() {
            match input.read(&mut self.bytes[self.filled..]) {
                Ok(0) => break,
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.bytes[..self.filled])
    }
}

/// Copies all of `input` to `out` in large pieces; returns the number of bytes.
///
/// # Errors
/// As reading and writing.
pub fn copy_in_pieces(input: &mut impl Read, out: &mut impl Write) -> io::Result<u64> {
    let mut pieces = Pieces::default();
    let mut total = 0;
    loop {
        let piece = pieces.fill(input)?;
        if piece.is_empty() {
            return Ok(total);
        }
        out.write_all(piece)?;
        total += piece.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_escape_are_unsafe() {
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "./a",
            "a/",
            "a\0b",
            "a b",
            "x\\y",
            &"n".repeat(100),
        ] {
            assert!(!is_safe_name(name), "{name:?}");
        }
        for name in ["manifest.json", "criu/pages-1.img.zst", "device/hetgpu-12.mem"] {
            assert!(is_safe_name(name), "{name:?}");
        }
    }
}
