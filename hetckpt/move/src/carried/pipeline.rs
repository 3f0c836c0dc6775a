//! Files on their way into an archive: compressed by all cores, while those before them are written.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hetckpt_archive::carried::{self, Compressing};
use hetckpt_archive::manifest::CarriedFile;
use hetckpt_archive::parallel::{cores, map_in_parallel};
use hetckpt_archive::sections::Whole;
use hetckpt_cache::folder::{CacheFolder, Key, Kind};
use hetckpt_criu::memory_sink::MemorySink;
use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;

use crate::carried::{NAME_START, PREFIX};
use crate::parent::Parent;

/// Bytes that go from one thread to the other at once.
const BLOCK_BYTES: u64 = 4 << 20;

/// Blocks that wait to be written.
const NUM_BLOCKS: usize = 16;

/// Bytes of the small files that are compressed together, each by a core of its own, and kept until they are written.
const BATCH_BYTES: u64 = 64 << 20;

/// A file to carry.
pub struct Input {
    /// What the program calls it.
    pub path: PathBuf,
    /// Its length.
    pub size_bytes: u64,
    /// Open for reading.
    pub file: File,
}

impl Input {
    fn described(&self, name: &str) -> io::Result<CarriedFile> {
        carried::describe(&self.file, &self.text(), &member(name))
    }

    fn compressed(&self, name: &str, bytes: &mut Vec<u8>) -> io::Result<CarriedFile> {
        carried::pack(self.file.try_clone()?, &self.text(), &member(name), bytes)
    }

    fn text(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

fn member(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Has `taker` take `files`, the largest first, as numbers `first` and so on. Of those that `parent` has it gets the
/// name only, and small ones may have been compressed before, in the `cache`. Gives what the archive says of them.
///
/// A file that cannot be read to its end is a failure: a part of it may be in the archive.
pub fn send(
    mut files: Vec<Input>,
    first: usize,
    parent: Option<&Parent>,
    cache: Option<&CacheFolder>,
    taker: &mut dyn MemorySink,
) -> Result<Vec<(PathBuf, CarriedFile)>, Failure> {
    files.sort_by_key(|input| std::cmp::Reverse(input.size_bytes));
    let (sender, receiver) = sync_channel(NUM_BLOCKS);
    std::thread::scope(|scope| {
        let files = &files;
        // Gone before the other thread is waited for, which then need not go on.
        let receiver = receiver;
        scope.spawn(move || {
            let work = Work {
                first,
                parent,
                cache,
                sender,
            };
            // If nobody takes them any more, the reason is known there.
            let _ = work.compress(files);
        });
        let mut taken = vec![];
        while let Ok(Message::Begin { name }) = receiver.recv() {
            let mut content = Content {
                receiver: &receiver,
                block: io::Cursor::default(),
                end: None,
            };
            let result = taker.take(&name, &mut Whole(&mut content));
            match content.end {
                Some(End::Failed(input, error)) => return Err(cannot_carry(&files[input].path, &error)),
                Some(End::All(input, file)) if result.is_ok() => taken.push((files[input].path.clone(), file)),
                _ => return Err(result.err().unwrap_or_else(died)),
            }
        }
        match taken.len() == files.len() {
            true => Ok(taken),
            false => Err(died()),
        }
    })
}

/// The failure for a file that cannot be read.
pub fn cannot_carry(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot carry {}", path.display());
    Failure::new(Code::CannotWrite, what)
        .note(error.to_string())
        .help("see to it that the file can be read, or carry nothing: --bundle none")
}

fn died() -> Failure {
    Failure::new(Code::StandIn, "a thread of hetckpt's own died (a bug in hetckpt)")
}

/// What the compressing side says: for each file its beginning, its bytes and its end.
enum Message {
    /// A file that will be called so in a folder of images.
    Begin {
        name: String,
    },
    Block(Vec<u8>),
    End(End),
}

/// The end of a file, which has that number.
enum End {
    All(usize, CarriedFile),
    Failed(usize, io::Error),
}

/// Nobody takes what is sent.
struct Unwanted;

struct Work<'a> {
    first: usize,
    parent: Option<&'a Parent>,
    /// Has what was compressed before.
    cache: Option<&'a CacheFolder>,
    sender: SyncSender<Message>,
}

impl Work<'_> {
    fn compress(&self, files: &[Input]) -> Result<(), Unwanted> {
        // The largest come first.
        let num_large = files.partition_point(|input| input.size_bytes >= carried::SHARED_BYTES);
        let known = self.known(files);
        for (at, input) in files.iter().enumerate().take(num_large) {
            self.send(Message::Begin { name: self.name(at) })?;
            let end = match &known[at] {
                Some(file) => Ok(file.clone()),
                None => self.compress_large(input, &self.name(at))?,
            };
            self.send_end(at, end)?;
        }
        let mut at = num_large;
        while at < files.len() {
            let mut bytes = 0;
            let batch = files[at..].iter().take_while(|input| {
                let is_first = bytes == 0;
                bytes += input.size_bytes.max(1);
                is_first || bytes <= BATCH_BYTES
            });
            let end = at + batch.count();
            self.compress_batch(files, at..end, &known)?;
            at = end;
        }
        Ok(())
    }

    fn name(&self, at: usize) -> String {
        format!("{NAME_START}-{}.zst", self.first + at)
    }

    /// Of each file that the parent has what the archive is to say of it. One that cannot be read is found out later.
    fn known(&self, files: &[Input]) -> Vec<Option<CarriedFile>> {
        let Some(parent) = self.parent else {
            return vec![None; files.len()];
        };
        map_in_parallel(cores(), files.len(), |at| {
            let described = files[at].described(&self.name(at)).ok();
            described.filter(|file| parent.file(file).is_some())
        })
    }

    /// All cores compress it together.
    fn compress_large(&self, input: &Input, name: &str) -> Result<io::Result<CarriedFile>, Unwanted> {
        let mut compressing = match input.file.try_clone().and_then(Compressing::new) {
            Ok(compressing) => compressing,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
            match (&mut compressing).take(BLOCK_BYTES).read_to_end(&mut block) {
                Ok(0) => return Ok(Ok(compressing.finish(&input.text(), &member(name)))),
                Ok(_) => self.send(Message::Block(block))?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Each of them by a core.
    fn compress_batch(
        &self,
        files: &[Input],
        batch: std::ops::Range<usize>,
        known: &[Option<CarriedFile>],
    ) -> Result<(), Unwanted> {
        let packed = map_in_parallel(cores(), batch.len(), |number| {
            let at = batch.start + number;
            let mut bytes = vec![];
            let packed_file = match &known[at] {
                Some(file) => Ok(file.clone()),
                None => self.compress_small(&files[at], &self.name(at), &mut bytes),
            };
            (bytes, packed_file)
        });
        for (at, (bytes, end)) in batch.zip(packed) {
            self.send(Message::Begin { name: self.name(at) })?;
            self.send(Message::Block(bytes))?;
            self.send_end(at, end)?;
        }
        Ok(())
    }

    /// Into `bytes`, from the cache if it has been compressed before. It is read in any case, for its hash.
    fn compress_small(&self, input: &Input, name: &str, bytes: &mut Vec<u8>) -> io::Result<CarriedFile> {
        let Some(cache) = self.cache else {
            return input.compressed(name, bytes);
        };
        let described = input.described(name)?;
        let key = Key::new(Kind::Carried, &[carried::FORM, described.blake3.as_bytes()]);
        if let Some(found) = cache.read(&key) {
            *bytes = found;
            return Ok(described);
        }
        let file = input.compressed(name, bytes)?;
        // Not if it has changed in between.
        if file.blake3 == described.blake3 {
            cache.write(&key, bytes);
        }
        Ok(file)
    }

    fn send_end(&self, at: usize, end: io::Result<CarriedFile>) -> Result<(), Unwanted> {
        self.send(Message::End(match end {
            Ok(file) => End::All(at, file),
            Err(error) => End::Failed(at, error),
        }))
    }

    fn send(&self, message: Message) -> Result<(), Unwanted> {
        self.sender.send(message).map_err(|_| Unwanted)
    }
}

/// A file's bytes, until its end has come.
struct Content<'a> {
    receiver: &'a Receiver<Message>,
    block: io::Cursor<Vec<u8>>,
    end: Option<End>,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (self.block.read(buffer)?, &self.end) {
                (0, None) if !buffer.is_empty() => {}
                (0, Some(End::Failed(..))) => return Err(io::Error::other("the file cannot be read")),
                (size, _) => return Ok(size),
            }
            match self.receiver.recv() {
                Ok(Message::Block(block)) => self.block = io::Cursor::new(block),
                Ok(Message::End(end)) => self.end = Some(end),
                Ok(Message::Begin { .. }) | Err(_) => return Err(io::Error::other("the file's end is missing")),
            }
        }
    }
}
