//! Reads from CRIU's images what a snapshot's manifest says of the process, and whether they are all there.
//!
//! Only for images that somebody else had CRIU write: `hetckpt dump` asks the running process instead. The bytes are
//! hostile.
//!
//! # Source
//! CRIU, `images/*.proto` (the fields) and `criu/include/magic.h`. An image is one magic number or two, then entries: a
//! length of four bytes and a protobuf message.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::image_error::ImageError;
use crate::image_messages::{Core, Descriptor, FileEntry, Ids, Inventory, Mm, PagemapEntry, PagemapHead, PstreeEntry};

/// Largest image that is read: descriptions of processes and files, never their memory.
pub const MAX_IMAGE_BYTES: u64 = 64 << 20;

/// Most memory for an image and its decoded messages together, as [`Messages::cost`] reckons.
const MAX_MEMORY_BYTES: usize = 224 << 20;

/// Bytes of a magic number, and of a message's length.
const WORD_BYTES: usize = 4;

/// Longest command line that is looked up, bytes.
const MAX_COMMAND_BYTES: u64 = 1 << 20;

/// First word of an image of most kinds; the inventory has only its own.
pub(super) const COMMON_MAGIC: u32 = 0x5456_4319;

/// What the dump as a whole was.
pub(crate) const INVENTORY_IMAGE: &str = "inventory.img";
pub(crate) const INVENTORY_MAGIC: u32 = 0x5831_3116;

pub(super) const PSTREE_MAGIC: u32 = 0x5027_3030;

pub(super) const CORE_MAGIC: u32 = 0x5505_3847;

pub(super) const IDS_MAGIC: u32 = 0x5443_2030;

pub(super) const FDINFO_MAGIC: u32 = 0x5621_3732;

/// Of the image that describes open and mapped files.
pub const FILES_MAGIC: u32 = 0x5630_3138;

pub(super) const MM_MAGIC: u32 = 0x5749_2820;

pub(super) const MEMFD_MAGIC: u32 = 0x4845_3499;

pub(super) const PAGEMAP_MAGIC: u32 = 0x5608_4025;

/// What a folder of images tells of the dump.
#[derive(Debug)]
pub struct Dumped {
    /// Root of the process tree.
    pub root_pid: i32,
    /// Command line of the root; empty if its memory does not hold it.
    pub command: Vec<String>,
    /// What stdin, stdout and stderr of the root were open on, as `/proc/PID/fd` has it; empty for what is neither pipe
    /// nor file.
    pub stdio: Vec<String>,
    /// CRIU plugins without which the images cannot be restored.
    pub plugins: Vec<String>,
}

/// Reads the images in `folder` and makes sure that they are those of a whole dump; else says what is missing or wrong.
pub fn read(folder: &Path) -> Result<Dumped, ImageError> {
    let images = Images(folder);
    // CRIU writes the inventory when all else is written.
    let inventory: Inventory = first(&images, INVENTORY_IMAGE, INVENTORY_MAGIC)?;
    let tree: Vec<PstreeEntry> = images.entries("pstree.img", PSTREE_MAGIC)?;
    let root = tree.first().ok_or(ImageError::NoProcess)?;
    for process in &tree {
        images.ensure_whole(process)?;
    }
    Ok(Dumped {
        root_pid: i32::try_from(root.pid).map_err(|_| ImageError::ProcessId)?,
        command: images.command(root.pid).unwrap_or_default(),
        stdio: images.stdio(root.pid)?,
        plugins: inventory.plugins.unwrap_or_default().names,
    })
}

/// The first message of an image.
pub(super) fn first<M: Message + Default>(images: &Images<'_>, name: &str, magic: u32) -> Result<M, ImageError> {
    let entries = images.entries(name, magic)?;
    entries
        .into_iter()
        .next()
        .ok_or_else(|| ImageError::Empty { name: name.to_owned() })
}

/// The failure for what the system says of an image that is read.
fn unreadable(name: &str) -> impl Fn(io::Error) -> ImageError + '_ {
    move |source| ImageError::Read {
        name: name.to_owned(),
        source,
    }
}

/// A folder of images.
pub struct Images<'a>(pub &'a Path);

impl Images<'_> {
    /// The path of an image, if that is a regular file and no link.
    fn regular(&self, name: &str) -> Result<PathBuf, ImageError> {
        let path = self.0.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Ok(path),
            Ok(_) => Err(ImageError::NotAFile { name: name.to_owned() }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(ImageError::Missing { name: name.to_owned() }),
            Err(source) => Err(unreadable(name)(source)),
        }
    }

    /// True if there is an image of that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    /// An image of the kind `magic`, whose messages are not decoded yet.
    pub fn image(&self, name: &str, magic: u32) -> Result<Image, ImageError> {
        let file = fs::File::open(self.regular(name)?).map_err(unreadable(name))?;
        let mut bytes = vec![];
        file.take(MAX_IMAGE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable(name))?;
        if bytes.len() as u64 > MAX_IMAGE_BYTES {
            return Err(ImageError::TooLarge { name: name.to_owned() });
        }
        Image::new(name, bytes, magic)
    }

    /// The messages of an image, decoded.
    pub fn entries<M: Message + Default>(&self, name: &str, magic: u32) -> Result<Vec<M>, ImageError> {
        self.image(name, magic)?.messages().decoded()
    }

    /// Makes sure that the images of a process are there.
    fn ensure_whole(&self, process: &PstreeEntry) -> Result<(), ImageError> {
        let pid = process.pid;
        let core: Core = first(self, &format!("core-{pid}.img"), CORE_MAGIC)?;
        if core.has_ended() {
            // Its list of threads, which there are none of, is not to be relied on.
            return Ok(());
        }
        for thread in &process.threads {
            self.regular(&format!("core-{thread}.img"))?;
        }
        self.regular(&format!("ids-{pid}.img"))?;
        self.regular(&format!("mm-{pid}.img"))?;
        self.ensure_pages(pid)
    }

    /// Which pages of process `pid` lie where.
    fn pagemap(&self, pid: u32) -> Result<Image, ImageError> {
        self.image(&format!("pagemap-{pid}.img"), PAGEMAP_MAGIC)
    }

    /// Makes sure that the memory of process `pid` is there in full length.
    fn ensure_pages(&self, pid: u32) -> Result<(), ImageError> {
        let pagemap = self.pagemap(pid)?;
        let (pages_id, mut entries) = pagemap.runs()?;
        let name = format!("pages-{pages_id}.img");
        let expected = entries.try_fold(0, |sum: u64, entry| {
            entry.map(|entry| sum.saturating_add(entry.stored_bytes()))
        })?;
        if expected == 0 {
            return Ok(());
        }
        let found = fs::metadata(self.regular(&name)?).map_err(unreadable(&name))?;
        match found.len() < expected {
            true => Err(ImageError::CutOff {
                name,
                found_bytes: found.len(),
                expected_bytes: expected,
            }),
            false => Ok(()),
        }
    }

    fn stdio(&self, root: u32) -> Result<Vec<String>, ImageError> {
        let ids: Ids = first(self, &format!("ids-{root}.img"), IDS_MAGIC)?;
        let descriptors: Vec<Descriptor> = self.entries(&format!("fdinfo-{}.img", ids.files_id), FDINFO_MAGIC)?;
        let files: Vec<FileEntry> = self.entries("files.img", FILES_MAGIC)?;
        let open_on = |fd: u32| {
            let descriptor = descriptors.iter().find(|descriptor| descriptor.fd == fd)?;
            let file = files.iter().find(|file| file.id == descriptor.file_id)?;
            let pipe = file.pipe.as_ref().map(|pipe| format!("pipe:[{}]", pipe.inode));
            let regular = file.regular.as_ref();
            pipe.or_else(|| regular.map(|file| String::from_utf8_lossy(&file.name).into_owned()))
        };
        Ok((0..3).map(|fd| open_on(fd).unwrap_or_default()).collect())
    }

    /// The command line of process `pid`, out of its memory.
    fn command(&self, pid: u32) -> Option<Vec<String>> {
        let mm: Mm = first(self, &format!("mm-{pid}.img"), MM_MAGIC).ok()?;
        let size = mm.arg_end.checked_sub(mm.arg_start)?;
        if size == 0 || size > MAX_COMMAND_BYTES {
            return None;
        }
        let pagemap = self.pagemap(pid).ok()?;
        let (pages_id, entries) = pagemap.runs().ok()?;
        let mut before: u64 = 0;
        for entry in entries {
            let entry = entry.ok()?;
            let offset = mm.arg_start.checked_sub(entry.address);
            let stored = entry.stored_bytes();
            if let Some(offset) = offset.filter(|offset| offset.checked_add(size).is_some_and(|end| end <= stored)) {
                let mut bytes = vec![0; usize::try_from(size).ok()?];
                let pages = fs::File::open(self.regular(&format!("pages-{pages_id}.img")).ok()?).ok()?;
                pages.read_exact_at(&mut bytes, before.checked_add(offset)?).ok()?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                return Some(text.trim_end_matches('\0').split('\0').map(str::to_owned).collect());
            }
            before = before.checked_add(stored)?;
        }
        None
    }
}

/// The bytes of an image.
pub struct Image {
    name: String,
    bytes: Vec<u8>,
    /// Where its messages begin, behind its magic numbers.
    start: usize,
}

/// The messages of an image, one after the other: of those that are short there may be millions, so none is kept.
pub struct Messages<'a> {
    name: &'a str,
    rest: &'a [u8],
}

impl Image {
    fn new(name: &str, bytes: Vec<u8>, magic: u32) -> Result<Self, ImageError> {
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .map(|word| u32::from_le_bytes(*word))
        };
        let is_common = word(0) == Some(COMMON_MAGIC);
        let at = if is_common { WORD_BYTES } else { 0 };
        if word(at) != Some(magic) {
            return Err(ImageError::OtherKind { name: name.to_owned() });
        }
        Ok(Self {
            name: name.to_owned(),
            bytes,
            start: at + WORD_BYTES,
        })
    }

    /// Its messages.
    pub fn messages(&self) -> Messages<'_> {
        Messages {
            name: &self.name,
            rest: self.bytes.get(self.start..).unwrap_or_default(),
        }
    }

    /// Of a pagemap: the number of its file of pages, and the runs of pages. There may be millions.
    fn runs(&self) -> Result<(u32, impl Iterator<Item = Result<PagemapEntry, ImageError>>), ImageError> {
        let bad = |source| ImageError::Message {
            name: self.name.clone(),
            source,
        };
        let mut messages = self.messages();
        let head = messages.next().ok_or_else(|| ImageError::Empty {
            name: self.name.clone(),
        })??;
        let head = PagemapHead::decode(head).map_err(bad)?;
        let runs = messages.map(move |message| PagemapEntry::decode(message?).map_err(bad));
        Ok((head.pages_id, runs))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<&'a [u8], ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let message = rest.split_first_chunk().and_then(|(size, tail)| {
            let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
            tail.split_at_checked(size)
        });
        Some(match message {
            Some((message, tail)) => {
                self.rest = tail;
                Ok(message)
            }
            None => Err(ImageError::Truncated {
                name: self.name.to_owned(),
            }),
        })
    }
}

impl Messages<'_> {
    /// Those that are left, decoded.
    fn decoded<M: Message + Default>(self) -> Result<Vec<M>, ImageError> {
        let name = self.name;
        let bad = |source| ImageError::Message {
            name: name.to_owned(),
            source,
        };
        let mut left = MAX_MEMORY_BYTES.saturating_sub(self.rest.len());
        let mut decoded = vec![];
        for message in self {
            let message = message?;
            left = left
                .checked_sub(Self::cost::<M>(message))
                .ok_or_else(|| ImageError::TooManyEntries { name: name.to_owned() })?;
            decoded.push(M::decode(message).map_err(bad)?);
        }
        Ok(decoded)
    }

    /// Bytes that a message takes at most when it is decoded: in a list that has just grown to twice its length, before
    /// the old one is gone; and numbers that take a byte in the image take up to eight.
    fn cost<M>(message: &[u8]) -> usize {
        size_of::<M>()
            .saturating_mul(3)
            .saturating_add(message.len().saturating_mul(8))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::image_messages::CoreProcess;
    use crate::image_messages::IS_PRESENT;
    use crate::image_messages::Pipe;
    use crate::image_messages::Plugins;

    fn image(magic: u32, messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = [COMMON_MAGIC.to_le_bytes(), magic.to_le_bytes()].concat();
        for message in messages {
            bytes.extend(u32::try_from(message.len()).unwrap().to_le_bytes());
            bytes.extend(message);
        }
        bytes
    }

    /// A dump of process 7, whose memory is one page with its command line at byte 16, and of its zombie child 8, of
    /// whose threads CRIU says something that is not so.
    fn dump() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, magic: u32, messages: &[Vec<u8>]| {
            fs::write(folder.path().join(name), image(magic, messages)).unwrap();
        };
        let plugins = Some(Plugins {
            names: vec!["hetgpu".to_owned()],
        });
        put(
            "inventory.img",
            INVENTORY_MAGIC,
            &[Inventory {
                plugins,
                ..Inventory::default()
            }
            .encode_to_vec()],
        );
        put(
            "pstree.img",
            PSTREE_MAGIC,
            &[(7, 7), (8, 4_000_000_000)].map(|(pid, thread)| {
                let threads = vec![thread];
                let sid = pid;
                PstreeEntry { pid, sid, threads }.encode_to_vec()
            }),
        );
        for (pid, state) in [(7, 1), (8, 6)] {
            let process = Some(CoreProcess { state });
            let core = Core { process, thread: None }.encode_to_vec();
            put(&format!("core-{pid}.img"), CORE_MAGIC, &[core]);
        }
        put("ids-7.img", IDS_MAGIC, &[Ids { files_id: 2 }.encode_to_vec()]);
        put(
            "fdinfo-2.img",
            FDINFO_MAGIC,
            &[Descriptor { file_id: 9, fd: 1 }.encode_to_vec()],
        );
        let pipe = Some(Pipe { inode: 4711 });
        put(
            "files.img",
            FILES_MAGIC,
            &[FileEntry {
                id: 9,
                pipe,
                ..FileEntry::default()
            }
            .encode_to_vec()],
        );
        let mm = Mm {
            arg_start: 0x7000_0010,
            arg_end: 0x7000_0015,
            ..Mm::default()
        };
        put("mm-7.img", MM_MAGIC, &[mm.encode_to_vec()]);
        let entry = PagemapEntry {
            address: 0x7000_0000,
            short_count: 0,
            flags: IS_PRESENT,
            count: 1,
        };
        put(
            "pagemap-7.img",
            PAGEMAP_MAGIC,
            &[PagemapHead { pages_id: 1 }.encode_to_vec(), entry.encode_to_vec()],
        );
        let mut page = vec![0; 4096];
        page[16..20].copy_from_slice(b"a\0-b");
        fs::write(folder.path().join("pages-1.img"), page).unwrap();
        folder
    }

    #[test]
    fn images_tell_process_command_and_pipes() {
        let folder = dump();
        let dumped = read(folder.path()).unwrap();
        assert_eq!(dumped.root_pid, 7);
        assert_eq!(dumped.command, ["a", "-b"]);
        assert_eq!(dumped.stdio, ["", "pipe:[4711]", ""]);
        assert_eq!(dumped.plugins, ["hetgpu"]);
    }

    #[test]
    fn whatever_is_missing_or_cut_off_is_named() {
        for name in [
            "inventory.img",
            "pstree.img",
            "core-7.img",
            "core-8.img",
            "mm-7.img",
            "pagemap-7.img",
            "pages-1.img",
            "files.img",
        ] {
            let folder = dump();
            let path = folder.path().join(name);
            fs::remove_file(&path).unwrap();
            assert!(read(folder.path()).unwrap_err().to_string().contains(name), "{name}");
            std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
            assert!(
                read(folder.path()).unwrap_err().to_string().contains("no regular file"),
                "{name}"
            );
        }
        for name in [
            "inventory.img",
            "pstree.img",
            "pagemap-7.img",
            "pages-1.img",
            "files.img",
        ] {
            let folder = dump();
            let path = folder.path().join(name);
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            assert!(read(folder.path()).unwrap_err().to_string().contains(name), "{name}");
        }
    }

    #[test]
    fn any_bytes_are_survived() {
        let messages = |bytes: &[u8]| -> Result<usize, ImageError> {
            let image = Image::new("x", bytes.to_vec(), PSTREE_MAGIC)?;
            image
                .messages()
                .try_fold(0, |count, message| message.map(|_| count + 1))
        };
        let full = image(PSTREE_MAGIC, &[vec![8, 7]]);
        for size in 0..full.len() {
            // Cut between the magic numbers and the entries it is an image without entries.
            assert_eq!(messages(&full[..size]).is_ok(), size == 8);
        }
        assert_eq!(messages(&full).unwrap(), 1);
        let mut huge = full;
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(messages(&huge).is_err());
    }

    #[test]
    fn images_of_nothing_but_lengths_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let put = |num_messages: usize| {
            let lengths = vec![0; num_messages * 4];
            fs::write(
                folder.path().join("files.img"),
                [image(FILES_MAGIC, &[]), lengths].concat(),
            )
            .unwrap();
            Images(folder.path()).entries::<FileEntry>("files.img", FILES_MAGIC)
        };
        assert_eq!(put(7).unwrap().len(), 7);
        assert!(
            put(MAX_MEMORY_BYTES / size_of::<FileEntry>() + 1)
                .unwrap_err()
                .to_string()
                .contains("too many")
        );
    }
}
