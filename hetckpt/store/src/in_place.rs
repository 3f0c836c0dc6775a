//! An archive that is read where the store has it: only what is wanted is fetched, and nothing is kept on this machine.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use age::stream::StreamReader;
use bytes::Bytes;
use nix::sys::signal::SigSet;
use parking_lot::Mutex;

use crate::encryption::{Encryption, KeyError};
use crate::error::{Damage, StoreError};
use crate::store::Store;

/// Bytes of one request.
const BLOCK: u64 = 2 << 20;
/// Blocks that are kept.
const KEPT_BLOCKS: usize = 48;
/// Blocks that are fetched ahead of whoever reads one after the other.
const AHEAD: u64 = 16;
/// Requests at a time for those.
const FETCHERS: usize = 8;
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
    kept: Mutex<Kept>,
}

/// Whoever locks it first fetches it.
type Block = Arc<Mutex<Option<Bytes>>>;

#[derive(Default)]
struct Kept {
    /// With their numbers, the latest last.
    blocks: VecDeque<(u64, Block)>,
    /// The last one that somebody wanted.
    wanted: u64,
    /// Whoever fetches ahead.
    fetchers: Option<Sender<Vec<(u64, Block)>>>,
}

impl Kept {
    /// The block `number`, and whether it is new.
    fn block(&mut self, number: u64) -> (Block, bool) {
        let found = self.blocks.iter().position(|(known, _)| *known == number);
        let entry = found.and_then(|at| self.blocks.remove(at));
        let is_new = entry.is_none();
        let (_, block) = entry.unwrap_or_default();
        self.blocks.push_back((number, Arc::clone(&block)));
        if self.blocks.len() > KEPT_BLOCKS {
            self.blocks.pop_front();
        }
        (block, is_new)
    }
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

    fn read_at(self: &Arc<Self>, out: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        if offset >= self.bytes || out.is_empty() {
            return Ok(0);
        }
        let number = offset / BLOCK;
        let block = self.block(number);
        let mut block = block.lock();
        let bytes = match &*block {
            Some(bytes) => bytes,
            None => block.insert(self.fetch(number)?),
        };
        let from = bytes.get((offset - number * BLOCK) as usize..).unwrap_or_default();
        let count = out.len().min(from.len());
        out[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    /// A block that is wanted. Others are fetched behind it, if the one before it was wanted lately.
    fn block(self: &Arc<Self>, number: u64) -> Block {
        let mut kept = self.kept.lock();
        let goes_on = (1..=AHEAD).contains(&number.wrapping_sub(kept.wanted));
        if number >= kept.wanted || kept.wanted - number > AHEAD {
            kept.wanted = number;
        }
        let (block, _) = kept.block(number);
        if goes_on {
            let end = (number + 1 + AHEAD).min(self.bytes.div_ceil(BLOCK));
            let ahead: Vec<_> = (number + 1..end)
                .filter_map(|number| {
                    let (block, is_new) = kept.block(number);
                    is_new.then_some((number, block))
                })
                .collect();
            if !ahead.is_empty() {
                let fetchers = kept.fetchers.get_or_insert_with(|| start_fetchers(self));
                // They are there as long as this is.
                let _ = fetchers.send(ahead);
            }
        }
        block
    }

    fn fetch(&self, number: u64) -> Result<Bytes, StoreError> {
        let start = number * BLOCK;
        let end = self.bytes.min(start + BLOCK);
        self.store.objects.read_range(&self.name, start..end)
    }
}

/// Starts threads that fetch what is sent to them, until `object` is gone.
fn start_fetchers(object: &Arc<Object>) -> Sender<Vec<(u64, Block)>> {
    let (sender, receiver) = mpsc::channel::<Vec<(u64, Block)>>();
    let queue = Arc::new(Mutex::new((receiver, VecDeque::new())));
    for _ in 0..FETCHERS {
        let (object, queue) = (Arc::downgrade(object), Arc::clone(&queue));
        thread::spawn(move || {
            // Signals are for whoever waits for them.
            let _ = SigSet::all().thread_block();
            loop {
                let next = {
                    let (receiver, left) = &mut *queue.lock();
                    if left.is_empty() {
                        let Ok(more) = receiver.recv() else { return };
                        left.extend(more);
                    }
                    left.pop_front()
                };
                let (Some((number, block)), Some(object)) = (next, object.upgrade()) else {
                    return;
                };
                let mut block = block.lock();
                if block.is_none() {
                    // Whoever wants it tries again, and says why it cannot be had.
                    *block = object.fetch(number).ok();
                }
            }
        });
    }
    sender
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
