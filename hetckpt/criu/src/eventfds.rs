//! Eventfds that count down by one (`EFD_SEMAPHORE`): CRIU dumps and restores them as others, whose readers take all
//! there is, and wait for ever where each was to have its turn. Nothing can set that flag later, so the eventfd has to
//! be made with it.
//!
//! In the images they become files that a plugin makes (CRIU's kind `EXT`). What the plugin needs to know lies beside
//! the images, in [`LIST`]: a line for each, `ID FLAGS COUNT`. Images with such a file cannot be restored without the
//! plugin, which CRIU then says.
//!
//! # Source
//! CRIU, `images/fdinfo.proto`, `images/eventfd.proto`, `images/ext-file.proto`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use procfs::process::Process;
use prost::Message;

use crate::image_error::ImageError;
use crate::image_messages::{Descriptor, EventFd, FileEntry, Ids};
use crate::images::{FDINFO_MAGIC, FILES_MAGIC, IDS_MAGIC, Images, first};
use crate::rewrite::{FILES_IMAGE, changed, fields, put_content, put_varint};

/// The list for the plugin (`criu-plugin/src/eventfds.rs`).
pub const LIST: &str = "hetgpu-eventfds";

/// CRIU's kind of a file that a plugin makes.
const EXTERNAL: usize = 16;

/// Fields of a descriptor, and of an open file, that have its kind.
const DESCRIPTOR_KIND: usize = 3;

const FILE_KIND: usize = 1;

/// Fields of an open file that have an eventfd and a file of a plugin's.
const EVENTFD: usize = 8;

const PLUGINS: usize = 15;

/// Fields of an eventfd, and of a file of a plugin's, that tell who gets its signals.
const EVENTFD_OWNER: usize = 3;

const PLUGINS_OWNER: usize = 5;

/// The field of the latter with its id.
const PLUGINS_ID: usize = 1;

/// Has those of the processes `tree`, which stand still, restored as what they are.
pub fn keep_semaphores(images: &Path, tree: &[i32]) -> Result<(), ImageError> {
    let mut ids = BTreeSet::new();
    for &pid in tree {
        let numbers = semaphores_of(pid);
        if !numbers.is_empty() {
            ids.extend(files_of(images, pid, &numbers)?);
        }
    }
    match ids.is_empty() {
        true => Ok(()),
        false => give_to_plugin(images, &ids),
    }
}

/// Descriptors of process `pid` that are such eventfds. One that has ended has none.
fn semaphores_of(pid: i32) -> BTreeSet<u32> {
    let Ok(descriptors) = Process::new(pid).and_then(|process| process.fd()) else {
        return BTreeSet::new();
    };
    let is_one = |fd: i32| {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        info.lines().any(|line| {
            line.strip_prefix("eventfd-semaphore:")
                .is_some_and(|flag| flag.trim() == "1")
        })
    };
    let open = descriptors.flatten().map(|open| open.fd).filter(|&fd| is_one(fd));
    open.filter_map(|fd| u32::try_from(fd).ok()).collect()
}

/// What the descriptors `numbers` of process `pid` are open on.
fn files_of(folder: &Path, pid: i32, numbers: &BTreeSet<u32>) -> Result<Vec<u32>, ImageError> {
    let images = Images(folder);
    let ids: Ids = first(&images, &format!("ids-{pid}.img"), IDS_MAGIC)?;
    let descriptors: Vec<Descriptor> = images.entries(&format!("fdinfo-{}.img", ids.files_id), FDINFO_MAGIC)?;
    let found = descriptors.iter().filter(|descriptor| numbers.contains(&descriptor.fd));
    Ok(found.map(|descriptor| descriptor.file_id).collect())
}

fn give_to_plugin(folder: &Path, ids: &BTreeSet<u32>) -> Result<(), ImageError> {
    let mut list = String::new();
    for file in Images(folder).entries::<FileEntry>(FILES_IMAGE, FILES_MAGIC)? {
        if let Some(EventFd { flags, count }) = file.eventfd.filter(|_| ids.contains(&file.id)) {
            // Text has all the room that it wants.
            let _ = writeln!(list, "{} {flags} {count}", file.id);
        }
    }
    let put = |name: &str, content: &[u8]| {
        fs::write(folder.join(name), content).map_err(|source| ImageError::Write {
            name: name.to_owned(),
            source,
        })
    };
    put(LIST, list.as_bytes())?;
    put(
        FILES_IMAGE,
        &changed(folder, FILES_IMAGE, FILES_MAGIC, |message| file(message, ids))?,
    )?;
    for entry in fs::read_dir(folder).map_err(ImageError::List)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("fdinfo-") && name.ends_with(".img") {
            let image = changed(folder, &name, FDINFO_MAGIC, |message| descriptor(message, ids))?;
            put(&name, &image)?;
        }
    }
    Ok(())
}

/// An open file, made a plugin's if it is one of `ids`.
fn file(message: &[u8], ids: &BTreeSet<u32>) -> Option<Vec<u8>> {
    let decoded = FileEntry::decode(message).ok()?;
    if decoded.eventfd.is_none() || !ids.contains(&decoded.id) {
        return Some(message.to_vec());
    }
    let mut out = vec![];
    for field in fields(message)? {
        match (field.number, field.content) {
            (FILE_KIND, _) => put_number(FILE_KIND, EXTERNAL, &mut out),
            (EVENTFD, Some(eventfd)) => {
                let mut plugins = vec![];
                put_number(PLUGINS_ID, usize::try_from(decoded.id).ok()?, &mut plugins);
                for field in fields(eventfd)? {
                    if let (EVENTFD_OWNER, Some(owner)) = (field.number, field.content) {
                        put_content(PLUGINS_OWNER, owner, &mut plugins);
                    }
                }
                put_content(PLUGINS, &plugins, &mut out);
            }
            _ => out.extend(field.whole),
        }
    }
    Some(out)
}

/// A descriptor, open on a plugin's file if it is on one of `ids`.
fn descriptor(message: &[u8], ids: &BTreeSet<u32>) -> Option<Vec<u8>> {
    if !ids.contains(&Descriptor::decode(message).ok()?.file_id) {
        return Some(message.to_vec());
    }
    let mut out = vec![];
    for field in fields(message)? {
        match field.number {
            DESCRIPTOR_KIND => put_number(DESCRIPTOR_KIND, EXTERNAL, &mut out),
            _ => out.extend(field.whole),
        }
    }
    Some(out)
}

fn put_number(number: usize, value: usize, out: &mut Vec<u8>) {
    put_varint(number << 3, out);
    put_varint(value, out);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use nix::sys::eventfd::{EfdFlags, EventFd as Counter};
    use std::os::fd::AsRawFd;

    use super::*;

    /// A message of numbers and messages.
    fn message(parts: &[(usize, Result<usize, &[u8]>)]) -> Vec<u8> {
        let mut out = vec![];
        for (number, part) in parts {
            match part {
                Ok(value) => put_number(*number, *value, &mut out),
                Err(content) => put_content(*number, content, &mut out),
            }
        }
        out
    }

    #[test]
    fn only_semaphores_are_found() {
        let semaphore = Counter::from_value_and_flags(3, EfdFlags::EFD_SEMAPHORE).unwrap();
        let other = Counter::from_value(3).unwrap();
        let found = semaphores_of(i32::try_from(std::process::id()).unwrap());
        let has = |counter: &Counter| {
            let fd = std::os::fd::AsFd::as_fd(counter).as_raw_fd();
            found.contains(&u32::try_from(fd).unwrap())
        };
        assert!(has(&semaphore) && !has(&other));
    }

    #[test]
    fn the_file_is_the_plugins_and_keeps_its_owner() {
        let owner = message(&[(1, Ok(7))]);
        let eventfd = message(&[(1, Ok(5)), (2, Ok(2)), (3, Err(&owner)), (4, Ok(9))]);
        let entry = message(&[(1, Ok(6)), (2, Ok(5)), (8, Err(&eventfd))]);
        assert_eq!(file(&entry, &BTreeSet::from([4])).unwrap(), entry);
        let plugins = message(&[(1, Ok(5)), (5, Err(&owner))]);
        assert_eq!(
            file(&entry, &BTreeSet::from([5])).unwrap(),
            message(&[(1, Ok(16)), (2, Ok(5)), (15, Err(&plugins))])
        );
        let opened = |kind| message(&[(1, Ok(5)), (2, Ok(0)), (3, Ok(kind)), (4, Ok(8))]);
        assert_eq!(descriptor(&opened(6), &BTreeSet::from([5])).unwrap(), opened(16));
        assert_eq!(descriptor(&opened(6), &BTreeSet::from([4])).unwrap(), opened(6));
    }
}
