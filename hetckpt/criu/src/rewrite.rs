//! Changes some fields in CRIU's images, and nothing else: the paths that they have for files, and whose memory a
//! memfd's mapping is. (What eventfds become is said in `eventfds.rs`.)
//!
//! With other paths, files that a node lacks, or has in another version, can lie elsewhere: nothing of the node's is
//! covered or replaced, and CRIU, the device server and all other programs keep the node's own libraries. A mount
//! namespace would do the former, not the latter, and it would take away the folders around what is missing: what the
//! program writes there would be lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::mman::MapFlags;
use prost::Message;

use crate::image_error::ImageError;
use crate::image_messages::{Area, FileEntry, IS_MEMFD, IS_SHARED_FILE, IS_SHARED_MEMORY, IS_SYSV, MemfdInode};
use crate::images::{COMMON_MAGIC, FILES_MAGIC, Images, MEMFD_MAGIC, MM_MAGIC};

/// The image of all open and mapped files.
pub const FILES_IMAGE: &str = "files.img";

/// Field of an entry that has a regular file.
const REGULAR: usize = 3;

/// Fields of a regular file.
const NAME: usize = 6;

const MODE: usize = 10;

/// Field of a process's memory that has an area.
const AREA: usize = 14;

/// Fields of an area.
const FILE_ID: usize = 4;

const FLAGS: usize = 6;

const STATUS: usize = 7;

const FILE_FLAGS: usize = 10;

/// What becomes of the files that had a certain path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Their path from now on; `None`: as it was.
    pub path: Option<Vec<u8>>,
    /// Kind and permissions that they are to have; `None`: as they were.
    pub mode: Option<u32>,
}

/// The image of files in `folder`, with the `changes` by path.
pub fn files(folder: &Path, changes: &BTreeMap<Vec<u8>, Change>) -> Result<Vec<u8>, ImageError> {
    changed(folder, FILES_IMAGE, FILES_MAGIC, |message| entry(message, changes))
}

/// The image `name` of the kind `magic` in `folder`, with each message changed.
pub(super) fn changed(
    folder: &Path,
    name: &str,
    magic: u32,
    change: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, ImageError> {
    let mut image = [COMMON_MAGIC.to_le_bytes(), magic.to_le_bytes()].concat();
    for message in Images(folder).image(name, magic)?.messages() {
        let message = change(message?).ok_or_else(|| ImageError::Entry { name: name.to_owned() })?;
        let size = u32::try_from(message.len()).map_err(|_| ImageError::TooLarge { name: name.to_owned() })?;
        image.extend(size.to_le_bytes());
        image.extend(message);
    }
    Ok(image)
}

/// Makes mappings of memfds what they were, where CRIU took them for anonymous shared memory of the same content:
/// without privileges it sees no more of a mapping than `/proc/PID/maps` does. Restored like that, what the process
/// writes there would no longer be what the device server reads in the memfd.
pub fn attach_memfds(folder: &Path) -> Result<(), ImageError> {
    let images = Images(folder);
    let inodes: BTreeMap<u64, u64> = match images.entries::<MemfdInode>("memfd.img", MEMFD_MAGIC) {
        Ok(inodes) => inodes.iter().map(|inode| (inode.id, inode.shmid.into())).collect(),
        Err(_) if !folder.join("memfd.img").exists() => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut memfds = BTreeMap::new();
    for file in images.entries::<FileEntry>(FILES_IMAGE, FILES_MAGIC)? {
        let Some(memfd) = file.memfd else { continue };
        if let Some(&shmid) = inodes.get(&memfd.inode_id.into()) {
            memfds.insert(shmid, (file.id, memfd.flags));
        }
    }
    let entries = fs::read_dir(folder).map_err(ImageError::List)?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("mm-") && name.ends_with(".img")) {
            continue;
        }
        let image = changed(folder, &name, MM_MAGIC, |message| memory(message, &memfds))?;
        fs::write(entry.path(), image).map_err(|source| ImageError::Write { name, source })?;
    }
    Ok(())
}

/// A process's memory; `memfds` has the id and the `O_*` of an open file by the number of its pages.
fn memory(message: &[u8], memfds: &BTreeMap<u64, (u32, u32)>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len());
    for field in fields(message)? {
        match field.content.filter(|_| field.number == AREA) {
            Some(content) => put_content(AREA, &area(content, memfds)?, &mut out),
            None => out.extend(field.whole),
        }
    }
    Some(out)
}

fn area(message: &[u8], memfds: &BTreeMap<u64, (u32, u32)>) -> Option<Vec<u8>> {
    let area = Area::decode(message).ok()?;
    let is_shared_memory = area.status & (IS_SHARED_MEMORY | IS_SYSV) == IS_SHARED_MEMORY;
    let Some(&(file_id, file_flags)) = memfds.get(&area.file_id).filter(|_| is_shared_memory) else {
        return Some(message.to_vec());
    };
    let anonymous = u32::try_from(MapFlags::MAP_ANONYMOUS.bits()).ok()?;
    let mut out = Vec::with_capacity(message.len());
    let mut put = |number: usize, value: u32| -> Option<()> {
        put_varint(number << 3, &mut out);
        put_varint(usize::try_from(value).ok()?, &mut out);
        Some(())
    };
    put(FILE_ID, file_id)?;
    put(FLAGS, area.flags & !anonymous)?;
    put(STATUS, area.status & !IS_SHARED_MEMORY | IS_SHARED_FILE | IS_MEMFD)?;
    put(FILE_FLAGS, file_flags)?;
    for field in fields(message)? {
        if ![FILE_ID, FLAGS, STATUS, FILE_FLAGS].contains(&field.number) {
            out.extend(field.whole);
        }
    }
    Some(out)
}

/// Writes [`files`] in the place of that image; what links to the old one keeps it.
pub fn replace(folder: &Path, changes: &BTreeMap<Vec<u8>, Change>) -> Result<(), ImageError> {
    let image = files(folder, changes)?;
    let path = folder.join(FILES_IMAGE);
    fs::remove_file(&path)
        .and_then(|()| fs::write(&path, image))
        .map_err(|source| ImageError::Write {
            name: FILES_IMAGE.to_owned(),
            source,
        })
}

/// A field of a message.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) number: usize,
    /// All its bytes.
    pub(super) whole: &'a [u8],
    /// What is in it, if it has a length.
    pub(super) content: Option<&'a [u8]>,
}

/// The fields of `message`; `None` if it is none.
pub(super) fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let varint = |rest: &mut &[u8]| prost::decode_length_delimiter(rest).ok();
    let mut rest = message;
    let mut fields = vec![];
    while !rest.is_empty() {
        let start = rest;
        let key = varint(&mut rest)?;
        let mut content = None;
        match key & 7 {
            0 => drop(varint(&mut rest)?),
            1 => rest = rest.get(8..)?,
            2 => {
                let size = varint(&mut rest)?;
                let (found, tail) = rest.split_at_checked(size)?;
                (content, rest) = (Some(found), tail);
            }
            5 => rest = rest.get(4..)?,
            _ => return None,
        }
        let (whole, _) = start.split_at(start.len() - rest.len());
        fields.push(Field {
            number: key >> 3,
            whole,
            content,
        });
    }
    Some(fields)
}

pub(super) fn put_varint(value: usize, out: &mut Vec<u8>) {
    // A vector grows as it is written to.
    let _ = prost::encode_length_delimiter(value, out);
}

pub(super) fn put_content(number: usize, content: &[u8], out: &mut Vec<u8>) {
    put_varint(number << 3 | 2, out);
    put_varint(content.len(), out);
    out.extend(content);
}

/// An entry of the image, changed if it is of a file that is to be; `None` if it makes no sense.
fn entry(message: &[u8], changes: &BTreeMap<Vec<u8>, Change>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len());
    for field in fields(message)? {
        match field.content.filter(|_| field.number == REGULAR) {
            Some(content) => put_content(REGULAR, &regular(content, changes)?, &mut out),
            None => out.extend(field.whole),
        }
    }
    Some(out)
}

fn regular(message: &[u8], changes: &BTreeMap<Vec<u8>, Change>) -> Option<Vec<u8>> {
    let fields = fields(message)?;
    let name = fields.iter().find(|field| field.number == NAME)?.content?;
    let Some(change) = changes.get(name) else {
        return Some(message.to_vec());
    };
    let mut out = Vec::with_capacity(message.len());
    for field in fields {
        match (field.number, &change.path, change.mode) {
            (NAME, Some(path), _) => put_content(NAME, path, &mut out),
            (MODE, _, Some(mode)) => {
                put_varint(MODE << 3, &mut out);
                put_varint(usize::try_from(mode).ok()?, &mut out);
            }
            _ => out.extend(field.whole),
        }
    }
    Some(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::image_messages::Memfd;
    use crate::image_messages::Mm;
    use crate::image_messages::Regular;

    fn image(entries: &[FileEntry], unknown: &[u8]) -> Vec<u8> {
        let mut image = [COMMON_MAGIC.to_le_bytes(), FILES_MAGIC.to_le_bytes()].concat();
        for entry in entries {
            let message = [entry.encode_to_vec(), unknown.to_vec()].concat();
            image.extend(u32::try_from(message.len()).unwrap().to_le_bytes());
            image.extend(message);
        }
        image
    }

    fn file(id: u32, name: &str) -> FileEntry {
        let regular = Some(Regular {
            id,
            flags: 0o2001,
            name: name.as_bytes().to_vec(),
            size: Some(5),
            mode: Some(0o100_755),
            build_id: vec![1, 2, 3],
            ..Regular::default()
        });
        FileEntry {
            id,
            regular,
            ..FileEntry::default()
        }
    }

    #[test]
    fn only_what_is_named_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILES_IMAGE);
        // A field that nobody here knows.
        let unknown = [0xfa, 0x3f, 2, 9, 9];
        let before = image(&[file(1, "/a"), file(2, "/b"), file(3, "/c")], &unknown);
        fs::write(&path, &before).unwrap();
        let changes = BTreeMap::from([
            (
                b"/b".to_vec(),
                Change {
                    path: Some(b"/somewhere/else/b".to_vec()),
                    mode: None,
                },
            ),
            (
                b"/c".to_vec(),
                Change {
                    path: None,
                    mode: Some(0o100_700),
                },
            ),
        ]);
        replace(folder.path(), &changes).unwrap();
        let mut c = file(3, "/c");
        c.regular.as_mut().unwrap().mode = Some(0o100_700);
        let expected = image(&[file(1, "/a"), file(2, "/somewhere/else/b"), c], &unknown);
        assert_eq!(fs::read(&path).unwrap(), expected);
        replace(folder.path(), &BTreeMap::new()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), expected);
    }

    #[test]
    fn mappings_of_memfds_are_theirs_again() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, magic: u32, messages: &[Vec<u8>]| {
            let mut image = [COMMON_MAGIC.to_le_bytes(), magic.to_le_bytes()].concat();
            for message in messages {
                image.extend(u32::try_from(message.len()).unwrap().to_le_bytes());
                image.extend(message);
            }
            fs::write(folder.path().join(name), image).unwrap();
        };
        attach_memfds(folder.path()).unwrap();
        put(
            "memfd.img",
            MEMFD_MAGIC,
            &[MemfdInode { shmid: 77, id: 5 }.encode_to_vec()],
        );
        let memfd = FileEntry {
            id: 12,
            memfd: Some(Memfd {
                flags: 0o2,
                inode_id: 5,
            }),
            ..FileEntry::default()
        };
        put(FILES_IMAGE, FILES_MAGIC, &[memfd.encode_to_vec()]);
        let area = |file_id, flags, status| Area { file_id, flags, status };
        let mm = |areas: &[Area]| Mm {
            areas: areas.to_vec(),
            exe_file_id: 3,
            ..Mm::default()
        };
        let others = [
            area(78, 0x21, 1 | IS_SHARED_MEMORY),
            area(77, 0x21, 1 | IS_SHARED_MEMORY | IS_SYSV),
        ];
        let dumped = mm(&[
            others[0].clone(),
            area(77, 0x21, 1 | IS_SHARED_MEMORY),
            others[1].clone(),
        ]);
        put("mm-7.img", MM_MAGIC, &[dumped.encode_to_vec()]);
        attach_memfds(folder.path()).unwrap();
        let found: Vec<Mm> = Images(folder.path()).entries("mm-7.img", MM_MAGIC).unwrap();
        let attached = area(12, 1, 1 | IS_SHARED_FILE | IS_MEMFD);
        assert_eq!(found, [mm(&[others[0].clone(), attached, others[1].clone()])]);
    }

    #[test]
    fn any_bytes_are_survived() {
        let message = file(1, "/a").encode_to_vec();
        let changes = BTreeMap::from([(b"/a".to_vec(), Change::default())]);
        assert_eq!(entry(&message, &changes).unwrap(), message);
        for size in 0..message.len() {
            // Cut between two fields it is a message.
            let _ = entry(&message[..size], &changes);
        }
        assert!(entry(&[0xff; 16], &changes).is_none());
        assert!(entry(&[0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f], &changes).is_none());
    }
}
