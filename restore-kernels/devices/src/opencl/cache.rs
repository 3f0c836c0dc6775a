//! Built programs on disk, by the hash of everything they depend on. Many processes may use one folder: files are
//! written under another name and renamed, and whatever does not verify is as good as absent.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"HKOCLBI1";
/// No file larger than this is read.
const MAX_BYTES: u64 = 1 << 30;

/// File for a program; `parts` are all that its code depends on.
pub(super) fn path(dir: &Path, parts: &[&str]) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    dir.join(format!("opencl-{}.bin", hasher.finalize().to_hex()))
}

/// What was stored, if it is whole.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    if fs::metadata(path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (hash, body) = rest.split_first_chunk::<32>()?;
    (magic == MAGIC && blake3::hash(body).as_bytes() == hash).then(|| body.to_vec())
}

/// Stores; a failure costs only the time to build again.
pub(super) fn write(path: &Path, binary: &[u8]) {
    if let Err(error) = try_write(path, binary) {
        tracing::debug!(path = %path.display(), %error, "program not cached");
    }
}

fn try_write(path: &Path, binary: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let temporary = path.with_extension(format!("tmp-{}", unique.replace(['(', ')'], "")));
    let result = (|| {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(binary).as_bytes())?;
        file.write_all(binary)?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}
