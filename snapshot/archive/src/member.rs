//! Members: tar headers, safe names, hashed copying.

use std::io::{self, Read, Write};

use crate::limits::MAX_NAME_BYTES;

/// Size of a tar block.
pub const TAR_BLOCK: u64 = 512;

/// True if `name` is a plain relative path that stays below where it is unpacked: ordinary components only, no NUL, short
/// enough for a tar header.
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
    usize::try_from(size.next_multiple_of(TAR_BLOCK) - size).unwrap_or(0)
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

/// Copies all of `input` to `out` in large pieces; returns the number of bytes.
///
/// # Errors
/// As reading and writing.
pub fn copy_in_pieces(input: &mut impl Read, out: &mut impl Write) -> io::Result<u64> {
    let mut buffer = vec![0u8; PIECE_BYTES];
    let mut total = 0;
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        out.write_all(&buffer[..filled])?;
        total += filled as u64;
        if filled < buffer.len() {
            return Ok(total);
        }
    }
}

/// Hash of the next `size` bytes of `reader`; the reader must hold at least that many.
///
/// # Errors
/// `UnexpectedEof` if it holds fewer.
pub fn hash_exact(reader: &mut impl Read, size: u64) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut left = size;
    let mut buf = vec![0u8; PIECE_BYTES.min(usize::try_from(size).unwrap_or(PIECE_BYTES))];
    while left > 0 {
        let want = usize::try_from(left.min(buf.len() as u64)).unwrap_or(buf.len());
        reader.read_exact(&mut buf[..want])?;
        update(&mut hasher, &buf[..want]);
        left -= want as u64;
    }
    Ok(hasher.finalize())
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
