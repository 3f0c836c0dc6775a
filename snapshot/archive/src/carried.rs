//! Files of the node that an archive carries: one zstd frame each, told by the hash of their content.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::manifest::CarriedFile;
use crate::member::{HashingReader, HashingWriter, PIECE_BYTES, copy_in_pieces};
use crate::parallel::cores;
use crate::unpack::{UnpackError, Unpacker};

/// Little is gained by more: these are programs and libraries.
const LEVEL: i32 = 1;

/// How files are compressed, the form's number and the level: what was compressed otherwise does not stand for it.
pub const FORM: &[u8] = &[b'1', LEVEL as u8];

/// Length from which on all cores compress a file together.
pub const SHARED_BYTES: u64 = 64 << 20;

/// Failure to take a carried file out.
#[derive(Debug, thiserror::Error)]
pub enum CarriedError {
    /// It cannot be read or written (host).
    #[error("{}", path.display())]
    Io {
        /// The file that is read or written.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Its bytes are not those that were carried (input).
    #[error("the content of carried file {path} does not have its hash")]
    Damaged {
        /// Where the file was.
        path: String,
    },
}

/// What an archive says of the file `input`, which is at `path` and is to be `member`.
///
/// # Errors
/// As reading; if it is no regular file.
pub fn describe(mut input: &File, path: &str, member: &str) -> io::Result<CarriedFile> {
    let found = regular(input)?;
    let mut hashed = HashingWriter::new(io::sink());
    input.rewind()?;
    copy_in_pieces(&mut input, &mut hashed)?;
    let (size_bytes, hash) = hashed.finish();
    Ok(CarriedFile {
        path: path.to_owned(),
        member: member.to_owned(),
        size_bytes,
        mode: found.mode(),
        blake3: hash.to_hex().to_string(),
    })
}

fn regular(input: &File) -> io::Result<Metadata> {
    let found = input.metadata()?;
    match found.is_file() {
        true => Ok(found),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file")),
    }
}

/// A file's content on its way into an archive: reading gives it compressed, as one zstd frame.
pub struct Compressing {
    encoder: zstd::stream::read::Encoder<'static, BufReader<HashingReader<File>>>,
    mode: u32,
}

impl Compressing {
    /// Of the regular file `input`, from its beginning.
    ///
    /// # Errors
    /// As reading; if it is no regular file.
    pub fn new(mut input: File) -> io::Result<Self> {
        let found = regular(&input)?;
        input.rewind()?;
        let piece_bytes = found.len().clamp(1, PIECE_BYTES as u64) as usize;
        let input = BufReader::with_capacity(piece_bytes, HashingReader::new(input));
        let mut encoder = zstd::stream::read::Encoder::with_buffer(input, LEVEL)?;
        encoder.include_checksum(true)?;
        if found.len() >= SHARED_BYTES {
            encoder.multithread(u32::try_from(cores()).unwrap_or(1))?;
        }
        Ok(Self {
            encoder,
            mode: found.mode(),
        })
    }

    /// What an archive says of the file, which was at `path` and is `member`, once all of it has been read.
    #[must_use]
    pub fn finish(self, path: &str, member: &str) -> CarriedFile {
        let (size_bytes, hash) = self.encoder.finish().into_inner().finish();
        CarriedFile {
            path: path.to_owned(),
            member: member.to_owned(),
            size_bytes,
            mode: self.mode,
            blake3: hash.to_hex().to_string(),
        }
    }
}

impl Read for Compressing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.encoder.read(buffer)
    }
}

/// Compresses the file `input`, which was at `path` and is to be `member`, into `out`.
///
/// # Errors
/// As reading and writing; if it is no regular file.
pub fn pack(input: File, path: &str, member: &str, out: &mut impl Write) -> io::Result<CarriedFile> {
    let mut compressing = Compressing::new(input)?;
    io::copy(&mut compressing, out)?;
    Ok(compressing.finish(path, member))
}

/// Writes the content of `file`, whose compressed bytes are at `packed`, to `target`, which is new; nothing stays there
/// if it fails.
///
/// # Errors
/// [`CarriedError`].
pub fn unpack(file: &CarriedFile, packed: &Path, target: &Path) -> Result<(), CarriedError> {
    let io = |path: &Path, source| CarriedError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = || CarriedError::Damaged {
        path: file.path.clone(),
    };
    let mut input = File::open(packed).map_err(|e| io(packed, e))?;
    let mut unpacker = Unpacker::new().map_err(|e| io(packed, e))?;
    let mut out = HashingWriter::new(File::create_new(target).map_err(|e| io(target, e))?);
    let unpacked = unpacker.decompress(&mut input, &mut out, file.size_bytes);
    let (size, hash) = out.finish();
    let result = match unpacked {
        Ok(_) if size == file.size_bytes && hash.to_hex().as_str() == file.blake3 => Ok(()),
        Ok(_) | Err(UnpackError::Content(_)) => Err(damaged()),
        Err(UnpackError::Read(e)) => Err(io(packed, e)),
        Err(UnpackError::Write(e)) => Err(io(target, e)),
    };
    if result.is_err() {
        // The first failure is the one to tell.
        let _ = std::fs::remove_file(target);
    }
    result
}

/// True if the file at `path` has the content of `file`.
///
/// # Errors
/// As reading.
pub fn is_same(file: &CarriedFile, path: &Path) -> io::Result<bool> {
    let mut input = File::open(path)?;
    let found = input.metadata()?;
    if !found.is_file() || found.len() != file.size_bytes {
        return Ok(false);
    }
    let mut hashed = HashingWriter::new(io::sink());
    copy_in_pieces(&mut input, &mut hashed)?;
    Ok(hashed.finish().1.to_hex().as_str() == file.blake3)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::fs;

    fn packed(folder: &Path) -> CarriedFile {
        let source = folder.join("libx.so");
        fs::write(&source, [7; 300_000]).unwrap();
        pack(
            File::open(&source).unwrap(),
            "/opt/libx.so",
            "files/0.zst",
            &mut File::create(folder.join("packed")).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn what_is_packed_comes_out_and_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let file = packed(folder);
        assert_eq!(file.size_bytes, 300_000);
        assert!(is_same(&file, &folder.join("libx.so")).unwrap());
        unpack(&file, &folder.join("packed"), &folder.join("out")).unwrap();
        assert_eq!(fs::read(folder.join("out")).unwrap(), [7; 300_000]);
        fs::write(folder.join("out"), [8; 300_000]).unwrap();
        assert!(!is_same(&file, &folder.join("out")).unwrap());
        assert!(is_same(&file, &folder.join("none")).is_err());
        assert!(!is_same(&file, folder).unwrap());
    }

    #[test]
    fn another_content_is_not_let_out() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let file = packed(folder);
        let target = folder.join("out");
        let longer = zstd::encode_all(&[7; 300_001][..], 1).unwrap();
        let shorter = zstd::encode_all(&[7; 299_999][..], 1).unwrap();
        let other = zstd::encode_all(&[6; 300_000][..], 1).unwrap();
        for bytes in [
            longer.as_slice(),
            &shorter,
            &other,
            b"no zstd",
            &other[..other.len() / 2],
        ] {
            fs::write(folder.join("packed"), bytes).unwrap();
            let error = unpack(&file, &folder.join("packed"), &target).unwrap_err();
            assert!(matches!(error, CarriedError::Damaged { .. }), "{error:?}");
            assert!(!target.exists());
        }
        fs::write(&target, "theirs").unwrap();
        let error = unpack(&file, &folder.join("packed"), &target).unwrap_err();
        assert!(matches!(error, CarriedError::Io { .. }), "{error:?}");
    }
}
