//! What compilers and compression made, on disk, by the hash of everything that it depends on. Many processes may use
//! one folder: files are written under another name and renamed, whatever does not verify is as good as absent, and
//! what has not been used for longest goes when there is too much.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 8] = b"HKCODE01";
/// No file larger than this is read.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// All files together.
const MAX_BYTES: u64 = 2 << 30;
/// Reading a file marks it as used if it was last marked before this.
const MARK_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The CPU device's code.
    Cpu,
    /// The OpenCL device's code.
    OpenCl,
    /// A file that archives carry, compressed.
    Carried,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu-",
            Kind::OpenCl => "opencl-",
            Kind::Carried => "carried-",
        }
    }

    /// What may be somebody's own is nobody else's.
    const fn mode(self) -> u32 {
        match self {
            Kind::Cpu | Kind::OpenCl => 0o666,
            Kind::Carried => 0o600,
        }
    }
}

/// What names a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    name: String,
    mode: u32,
}

impl Key {
    /// Of everything that its content depends on.
    #[must_use]
    pub fn new(kind: Kind, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self {
            name: format!("{}{}", kind.prefix(), hasher.finalize().to_hex()),
            mode: kind.mode(),
        }
    }
}

/// A folder of them.
#[derive(Clone, Debug)]
pub struct CacheFolder {
    folder: PathBuf,
    max_bytes: u64,
}

impl CacheFolder {
    /// One in `folder`, which need not be there; other files in it are left alone.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        let max_bytes = MAX_BYTES;
        Self { folder, max_bytes }
    }

    /// What was stored, if it is whole.
    #[must_use]
    pub fn read(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.folder.join(&key.name);
        let metadata = fs::metadata(&path).ok()?;
        if metadata.len() > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = fs::read(&path).ok()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (hash, body) = rest.split_first_chunk::<32>()?;
        if magic != MAGIC || blake3::hash(body).as_bytes() != hash {
            return None;
        }
        let is_marked = |at: SystemTime| at.elapsed().is_ok_and(|age| age < MARK_AFTER);
        if !metadata.modified().is_ok_and(is_marked) {
            // Another user's file cannot be marked; its owner does.
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        bytes.drain(..MAGIC.len() + blake3::OUT_LEN);
        Some(bytes)
    }

    /// Stores; a failure costs only the time to make it again.
    pub fn write(&self, key: &Key, content: &[u8]) {
        let done = self.try_write(key, content).and_then(|()| self.make_room());
        if let Err(error) = done {
            tracing::debug!(folder = %self.folder.display(), %error, "not cached");
        }
    }

    fn try_write(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
        let temporary = self
            .folder
            .join(format!("{}.tmp-{}", key.name, unique.replace(['(', ')'], "")));
        let result = (|| {
            let mut options = File::options();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(key.mode)
                .open(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(blake3::hash(content).as_bytes())?;
            file.write_all(content)?;
            fs::rename(&temporary, self.folder.join(&key.name))
        })();
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    /// Removes what has not been used for longest, so that not each new file has to make room again.
    fn make_room(&self) -> io::Result<()> {
        let mut files = vec![];
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = [Kind::Cpu, Kind::OpenCl, Kind::Carried]
                .iter()
                .any(|kind| name.as_encoded_bytes().starts_with(kind.prefix().as_bytes()));
            // Another process may have removed it.
            let Some(metadata) = entry.metadata().ok().filter(|metadata| is_ours && metadata.is_file()) else {
                continue;
            };
            files.push((metadata.modified()?, metadata.len(), entry.path()));
        }
        let mut bytes: u64 = files.iter().map(|(_, size, _)| size).sum();
        if bytes <= self.max_bytes {
            return Ok(());
        }
        files.sort();
        for (_, size, path) in files {
            if bytes <= self.max_bytes / 4 * 3 {
                break;
            }
            if fs::remove_file(path).is_ok() {
                bytes -= size;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("hetckpt-cache-{name}-{}", std::process::id()));
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn damaged_code_is_absent() {
        let folder = Folder::new("damaged");
        let cache = CacheFolder::new(folder.0.clone());
        let (key, other) = (Key::new(Kind::Cpu, &[b"ab", b"c"]), Key::new(Kind::Cpu, &[b"a", b"bc"]));
        assert_eq!(cache.read(&key), None);
        cache.write(&key, b"code");
        assert_eq!(cache.read(&key).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.read(&other), None);
        let path = folder.0.join(&key.name);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.read(&key), None, "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.read(&key), None, "{at} bytes");
        }
    }

    #[test]
    fn what_was_not_used_goes_first() {
        let folder = Folder::new("room");
        let cache = CacheFolder {
            max_bytes: 4000,
            ..CacheFolder::new(folder.0.clone())
        };
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.0.join("notes"), [0; 9000]).unwrap();
        let keys: Vec<Key> = (0..5u8).map(|i| Key::new(Kind::OpenCl, &[&[i]])).collect();
        let days = |n: u64| SystemTime::now() - MARK_AFTER * u32::try_from(n).unwrap();
        for (key, age) in keys.iter().zip([4, 9, 3, 2, 1]) {
            cache.write(key, &[0; 700]);
            let file = File::open(folder.0.join(&key.name)).unwrap();
            file.set_modified(days(age)).unwrap();
        }
        // The second is the oldest, but used now.
        assert!(cache.read(&keys[1]).is_some());
        cache.write(&Key::new(Kind::Cpu, &[]), &[0; 700]);
        let there: Vec<bool> = keys.iter().map(|key| cache.read(key).is_some()).collect();
        assert_eq!(there, [false, true, false, true, true]);
        assert!(folder.0.join("notes").exists());
    }
}
