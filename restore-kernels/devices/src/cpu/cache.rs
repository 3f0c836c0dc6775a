//! Compiled objects on disk, by the hash of everything they depend on. Many processes may use one folder: files are
//! written under another name and renamed, and whatever does not verify is as good as absent.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use hetckpt_abi::cpu_codegen::{Entry, Tier};

use super::code_generator::Compiled;

const MAGIC: &[u8; 8] = b"HKCPUOB1";
/// No file larger than this is read.
const MAX_BYTES: u64 = 1 << 30;

/// File for a program, or for all resume points of it if `entries` is empty.
pub fn path(dir: &Path, identity: &str, text: &str, entries: &[Entry], tier: Tier) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&tier.number().to_le_bytes());
    for part in [identity.as_bytes(), text.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    for entry in entries {
        hasher.update(&entry.resume_point.to_le_bytes());
        hasher.update(&entry.block.to_le_bytes());
    }
    dir.join(format!("cpu-{}.obj", hasher.finalize().to_hex()))
}

/// What was stored, if it is whole.
pub fn read(path: &Path) -> Option<Compiled> {
    if fs::metadata(path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (hash, body) = rest.split_first_chunk::<32>()?;
    if magic != MAGIC || blake3::hash(body).as_bytes() != hash {
        return None;
    }
    let (object_len, body) = body.split_first_chunk::<8>()?;
    let object_len = usize::try_from(u64::from_le_bytes(*object_len)).ok()?;
    let (object, tables) = body.split_at_checked(object_len)?;
    Some(Compiled {
        object: object.to_vec(),
        tables: tables.to_vec(),
    })
}

/// Stores; a failure costs only the time to compile again.
pub fn write(path: &Path, compiled: &Compiled) {
    if let Err(error) = try_write(path, compiled) {
        tracing::debug!(path = %path.display(), %error, "object not cached");
    }
}

fn try_write(path: &Path, compiled: &Compiled) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut body = (compiled.object.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(&compiled.object);
    body.extend_from_slice(&compiled.tables);
    let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let temporary = path.with_extension(format!("tmp-{}", unique.replace(['(', ')'], "")));
    let result = (|| {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(&body).as_bytes())?;
        file.write_all(&body)?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}
