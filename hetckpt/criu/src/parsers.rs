//! The parsers of bytes from outside, for the fuzz targets. Nothing else is to reach them by this way.
//!
//! What a parser must keep to besides surviving, the functions here look at; an error is a claim that does not hold.

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message as _;

use crate::image_messages::{FileEntry, PAGE_BYTES};
use crate::images::{self, FILES_MAGIC, Images};
use crate::needs;
use crate::page_protocol::{self, Command, Form};
use crate::rewrite::{self, Change};

/// Most files of an image that are renamed, one after the other.
const MAX_RENAMED: usize = 8;

/// CRIU's images in `folder`: what they tell of the program, what a restore needs, and their rewriting, which must
/// leave alone what it is not told to change.
pub fn criu_images(folder: &Path) -> Result<(), &'static str> {
    // Whatever they say, it is said.
    let _ = (images::read(folder), needs::read(folder));
    let read = || Images(folder).entries::<FileEntry>(rewrite::FILES_IMAGE, FILES_MAGIC);
    if let (Ok(files), Ok(rewritten)) = (read(), rewrite::files(folder, &BTreeMap::new())) {
        if entries_of(&rewritten)? != files {
            return Err("an entry that was not to be changed has changed");
        }
        let names = files
            .iter()
            .filter_map(|file| Some(file.regular.as_ref()?.name.clone()));
        for name in names.take(MAX_RENAMED) {
            let change = Change {
                path: Some(b"/elsewhere".to_vec()),
                mode: Some(0o100_644),
            };
            let Ok(renamed) = rewrite::files(folder, &BTreeMap::from([(name, change)])) else {
                continue;
            };
            if entries_of(&renamed)?.len() != files.len() {
                return Err("an entry is lost");
            }
        }
    }
    let _ = rewrite::attach_memfds(folder);
    Ok(())
}

/// The entries of an image that was written here.
fn entries_of(image: &[u8]) -> Result<Vec<FileEntry>, &'static str> {
    const MAGIC_BYTES: usize = 8;
    let mut rest = image.get(MAGIC_BYTES..).ok_or("the magic numbers are lost")?;
    let mut entries = vec![];
    while let Some((size, tail)) = rest.split_first_chunk() {
        let size = usize::try_from(u32::from_le_bytes(*size)).map_err(|_| "an entry is too long")?;
        let (message, tail) = tail.split_at_checked(size).ok_or("an entry is cut off")?;
        entries.push(FileEntry::decode(message).map_err(|_| "an entry is no message")?);
        rest = tail;
    }
    Ok(entries)
}

/// What CRIU says to a page server, without the pages; the first byte chooses the form of its commands.
pub fn page_protocol(data: &[u8]) -> Result<(), &'static str> {
    let Some((&kind, mut input)) = data.split_first() else {
        return Ok(());
    };
    let mut form = [None, Some(Form::Short), Some(Form::Long)][usize::from(kind % 3)];
    while let Ok(command) = page_protocol::read(&mut input, &mut form) {
        let image = match command {
            Command::Add(row) if row.address.checked_add(row.stored_bytes()).is_none() => {
                return Err("pages beyond the end of memory");
            }
            Command::Add(row) if !row.stored_bytes().is_multiple_of(PAGE_BYTES) => return Err("a part of a page"),
            Command::Add(row) => row.image,
            Command::Open(image) => image,
            Command::HasParent | Command::Close => continue,
        };
        if image.name().contains('/') {
            return Err("the name of an image leads out of its folder");
        }
    }
    Ok(())
}
