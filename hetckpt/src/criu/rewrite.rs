//! Changes the paths that CRIU's images have for files, and nothing else in them.
//!
//! So files that a node lacks, or has in another version, can lie elsewhere: nothing of the node's is covered or replaced, and CRIU,
//! the device server and all other programs keep the node's own libraries. A mount namespace would do the former, not the
//! latter, and it would take away the folders around what is missing: what the program writes there would be lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::criu::images::{COMMON_MAGIC, FILES_MAGIC, Images};

/// The image of all open and mapped files.
pub const FILES_IMAGE: &str = "files.img";
/// Field of an entry that has a regular file.
const REGULAR: usize = 3;
/// Fields of a regular file.
const NAME: usize = 6;
const MODE: usize = 10;

/// What becomes of the files that had a certain path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Their path from now on; `None`: as it was.
    pub path: Option<Vec<u8>>,
    /// Kind and permissions that they are to have; `None`: as they were.
    pub mode: Option<u32>,
}

/// The image of files in `folder`, with the `changes` by path.
pub fn files(folder: &Path, changes: &BTreeMap<Vec<u8>, Change>) -> Result<Vec<u8>, String> {
    let mut image = [COMMON_MAGIC.to_le_bytes(), FILES_MAGIC.to_le_bytes()].concat();
    for message in Images(folder).raw(FILES_IMAGE, FILES_MAGIC)? {
        let message =
            entry(&message, changes).ok_or_else(|| format!("{FILES_IMAGE} has an entry that makes no sense"))?;
        let size = u32::try_from(message.len()).map_err(|_| format!("{FILES_IMAGE} is too large"))?;
        image.extend(size.to_le_bytes());
        image.extend(message);
    }
    Ok(image)
}

/// Writes [`files`] in the place of that image; what links to the old one keeps it.
pub fn replace(folder: &Path, changes: &BTreeMap<Vec<u8>, Change>) -> Result<(), String> {
    let image = files(folder, changes)?;
    let path = folder.join(FILES_IMAGE);
    fs::remove_file(&path)
        .and_then(|()| fs::write(&path, image))
        .map_err(|e| format!("{FILES_IMAGE} cannot be written: {e}"))
}

/// A field of a message.
#[derive(Clone, Copy)]
struct Field<'a> {
    number: usize,
    /// All its bytes.
    whole: &'a [u8],
    /// What is in it, if it has a length.
    content: Option<&'a [u8]>,
}

/// The fields of `message`; `None` if it is none.
fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
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

fn put_varint(value: usize, out: &mut Vec<u8>) {
    // A vector grows as it is written to.
    let _ = prost::encode_length_delimiter(value, out);
}

fn put_content(number: usize, content: &[u8], out: &mut Vec<u8>) {
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
    use crate::criu::image_messages::{FileEntry, Regular};
    use prost::Message;

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
