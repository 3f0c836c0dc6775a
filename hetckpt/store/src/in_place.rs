//! An archive that is read where the store has it: only what is wanted is fetched, and nothing is kept on this machine.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use age::stream::StreamReader;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::encryption::{Encryption, KeyError};
use crate::error::{Damage, StoreError};
use crate::store::Store;

/// What is fetched for reads of less.
const BLOCK: u64 = 2 << 20;
/// Blocks that are kept.
const KEPT_BLOCKS: usize = 24;
/// Most bytes of one request.
const MOST_BYTES: usize = 8 << 20;
/// What every age file begins with.
pub(crate) const AGE_MAGIC: &[u8] = b"age-encryption.org/";

/// An archive in a store, read where it lies. It may be read by many threads at once.
pub struct StoredArchive {
    object: Arc<Object>,
    size_bytes: u64,
    /// None if it is not encrypted.
    decryption: Option<Decryption>,
}

struct Decryption {
    key: Encryption,
    /// Each thread that reads has one.
    idle: Mutex<Vec<StreamReader<Cursor>>>,
}

/// The object with what is stored.
struct Object {
    store: Store,
    name: String,
    bytes: u64,
    /// The latest last.
    kept: Mutex<VecDeque<(u64, Arc<Mutex<Option<Bytes>>>)>>,
}

/// A place in the object.
struct Cursor {
    object: Arc<Object>,
    position: u64,
}

impl StoredArchive {
    /// The object `name`; `shown` is what errors call the snapshot. Whether it is encrypted is seen in it.
    pub(crate) fn open(store: Store, name: String, shown: &str, bytes: u64) -> Result<Self, StoreError> {
        let object = Arc::new(Object {
            store,
            name,
            bytes,
            kept: Mutex::default(),
        });
        let mut head = vec![0; AGE_MAGIC.len()];
        let count = object.read_at(&mut head, 0)?;
        if head[..count] != *AGE_MAGIC {
            return Ok(Self {
                size_bytes: bytes,
                object,
                decryption: None,
            });
        }
        let key = object.store.encryption.clone().filter(Encryption::has_identity);
        let key = key.ok_or_else(|| KeyError::Needed { name: shown.to_owned() })?;
        let mut first = object.decrypted(&key, shown)?;
        // The last piece says that it is the last.
        let end = first.seek(SeekFrom::End(0));
        let size_bytes = end.map_err(|_| object.store.damaged(shown, Damage::Encryption))?;
        let idle = Mutex::new(vec![first]);
        Ok(Self {
            object,
            size_bytes,
            decryption: Some(Decryption { key, idle }),
        })
    }

    /// Size of the archive, decrypted.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads from `offset` on, as many bytes as there are at once; none at the end.
    ///
    /// # Errors
    /// What the store says, and that it is damaged.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(Decryption { key, idle }) = &self.decryption else {
            return self.object.read_at(out, offset).map_err(told);
        };
        if offset >= self.size_bytes {
            return Ok(0);
        }
        let idle_one = idle.lock().pop();
        let mut reader = match idle_one {
            Some(reader) => reader,
            None => self.object.decrypted(key, &self.object.name).map_err(told)?,
        };
        let read = reader.seek(SeekFrom::Start(offset)).and_then(|_| reader.read(out));
        idle.lock().push(reader);
        read
    }
}

impl Object {
    fn decrypted(self: &Arc<Self>, key: &Encryption, shown: &str) -> Result<StreamReader<Cursor>, StoreError> {
        let cursor = Cursor {
            object: Arc::clone(self),
            position: 0,
        };
        let opened = key.decrypt(cursor);
        opened.map_err(|_| KeyError::Other { name: shown.to_owned() }.into())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = out.len().min(left).min(MOST_BYTES);
        if count == 0 {
            return Ok(0);
        }
        if count as u64 >= BLOCK {
            let bytes = self.fetch(offset, count as u64)?;
            out[..count].copy_from_slice(&bytes);
            return Ok(count);
        }
        let number = offset / BLOCK;
        let start = number * BLOCK;
        let kept = self.block(number);
        let mut block = kept.lock();
        let bytes = match &*block {
            Some(bytes) => bytes,
            None => block.insert(self.fetch(start, BLOCK.min(self.bytes - start))?),
        };
        let from = bytes.get((offset - start) as usize..).unwrap_or_default();
        let count = count.min(from.len());
        out[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    /// A block, which is fetched by whoever locks it first.
    fn block(&self, number: u64) -> Arc<Mutex<Option<Bytes>>> {
        let mut kept = self.kept.lock();
        let found = kept.iter().position(|(known, _)| *known == number);
        let entry = match found.and_then(|at| kept.remove(at)) {
            Some(entry) => entry,
            None => (number, Arc::default()),
        };
        let block = Arc::clone(&entry.1);
        kept.push_back(entry);
        if kept.len() > KEPT_BLOCKS {
            kept.pop_front();
        }
        block
    }

    fn fetch(&self, offset: u64, count: u64) -> Result<Bytes, StoreError> {
        self.store.objects.read_range(&self.name, offset..offset + count)
    }
}

impl Read for Cursor {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.object.read_at(out, self.position).map_err(told)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.object.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// The error with its causes, for those who know no stores.
fn told(error: StoreError) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        text = format!("{text}: {why}");
        cause = why.source();
    }
    io::Error::other(text)
}
