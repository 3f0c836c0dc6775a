//! The two forms of a snapshot: a folder with CRIU's images and the device servers' files, and an archive. Which file
//! becomes which member, and back.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::manifest::{
    CarriedFile, Clocks, Encoding, FORMAT, FORMAT_VERSION, Header, INCREMENTAL_VERSION, Index, Manifest, MemberEntry,
};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::writer::Source;
use hetckpt_criu::images::MAX_IMAGE_BYTES;
use hetckpt_criu::memory_sink::Sizes;
use hetckpt_report::remark;
use hetckpt_state::names::{lender_file, pid_of_memory, place_file, state_file};
use hetckpt_state::summary::Description;

use crate::carried;
use crate::folder_error::FolderError;

/// Prefix of CRIU's images in the archive.
const CRIU_PREFIX: &str = "criu/";

/// Prefix of the device servers' files in the archive.
const DEVICE_PREFIX: &str = "device/";

/// How CRIU's images of memory begin.
const MEMORY_IMAGE: &str = "pages-";

/// How the device servers' files begin.
const DEVICE_FILE: &str = "hetgpu-";

/// Largest description of a process's device state.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 20;

/// What the files alone do not tell of a dump.
#[derive(Debug)]
pub struct Origin {
    /// Root of the process tree.
    pub root_pid: i32,
    /// Its command line.
    pub command: Vec<String>,
    /// What its stdin, stdout and stderr were open on.
    pub stdio: Vec<String>,
    /// The CRIU that made the images; empty if nobody knows.
    pub criu_version: String,
    /// Seconds from the Unix epoch.
    pub created_unix: u64,
    /// See [`Index::clocks`].
    pub clocks: Option<Clocks>,
    /// Files of device memory that are on their way already.
    pub streamed: Sizes,
    /// The archive borrows from another.
    pub borrows: bool,
}

/// The files in the image folder, each with its place in the archive. CRIU's logs and statistics stay behind.
///
/// Gives the reason if there is something that does not belong into an archive, as a link or a folder.
pub fn sources(images: &Path) -> Result<Vec<Source>, FolderError> {
    let mut sources = vec![];
    for entry in fs::read_dir(images).map_err(FolderError::Folder)? {
        let entry = entry.map_err(FolderError::Folder)?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| FolderError::NameIsNoText {
            name: name.to_string_lossy().into_owned(),
        })?;
        if name.ends_with(".log") || name.starts_with("stats-") {
            continue;
        }
        // The entry's own type: links are not followed.
        let kind = entry.file_type().map_err(|source| FolderError::Read {
            name: name.to_owned(),
            source,
        })?;
        if !kind.is_file() {
            return Err(match name {
                "parent" => FolderError::EarlierDump,
                _ => FolderError::NotAFile { name: name.to_owned() },
            });
        }
        sources.push(source(name, entry.path()));
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn source(name: &str, path: PathBuf) -> Source {
    let (name, encoding) = member(name);
    Source { name, path, encoding }
}

/// Place in the archive of the file that is called `name` in the folder of images, and how it is kept there.
pub fn member(name: &str) -> (String, Encoding) {
    let (is_device, is_carried) = (name.starts_with(DEVICE_FILE), name.starts_with(carried::NAME_START));
    let prefix = match (is_device, is_carried) {
        (true, _) => DEVICE_PREFIX,
        (_, true) => carried::PREFIX,
        _ => CRIU_PREFIX,
    };
    let is_packed = name.ends_with(".zst") || name.ends_with(".mem");
    // Small device files stay readable with plain tar.
    let encoding = match is_device || is_carried || is_packed {
        true => Encoding::Stored,
        false => Encoding::Zstd,
    };
    (format!("{prefix}{name}"), encoding)
}

/// Size of all `sources`, as far as it can be told.
pub fn total_bytes(sources: &[Source]) -> u64 {
    let sizes = sources.iter().filter_map(|source| fs::metadata(&source.path).ok());
    sizes.map(|found| found.len()).sum()
}

/// The manifest for the files in `images`, and for those that go along, `carried`; its members are filled in by the
/// writer. Gives the reason if it cannot be made.
pub fn manifest(images: &Path, origin: Origin, carried: Vec<CarriedFile>) -> Result<Manifest, FolderError> {
    let mut names = vec![];
    for entry in fs::read_dir(images).map_err(FolderError::Folder)? {
        let name = entry
            .map_err(FolderError::Folder)?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if hetckpt_state::names::pid_of_description(&name).is_some() {
            names.push(name);
        }
    }
    names.sort();
    let processes = names.iter().map(|name| description(images, name, &origin.streamed));
    let index = Index {
        clocks: origin.clocks,
        processes: processes.collect::<Result<_, _>>()?,
        files: carried,
        members: vec![],
        parents: vec![],
    };
    let header = header(origin);
    Ok(Manifest { header, index })
}

/// The header alone, which asks for no files.
pub fn header(origin: Origin) -> Header {
    Header {
        format: FORMAT.to_owned(),
        format_version: match origin.borrows {
            true => INCREMENTAL_VERSION,
            false => FORMAT_VERSION,
        },
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        criu_version: origin.criu_version,
        created_unix: origin.created_unix,
        root_pid: origin.root_pid,
        command: origin.command,
        stdio: origin.stdio,
    }
}

/// The description of a process's device state, once it is sure that the files it describes are there, or were
/// `streamed`, in full length.
fn description(images: &Path, name: &str, streamed: &Sizes) -> Result<Description, FolderError> {
    let unreadable = |source| FolderError::Read {
        name: name.to_owned(),
        source,
    };
    let path = images.join(name);
    let found = fs::symlink_metadata(&path).map_err(unreadable)?;
    if !found.is_file() || found.len() > MAX_DESCRIPTION_BYTES {
        return Err(FolderError::NoDescription { name: name.to_owned() });
    }
    let text = fs::read(&path).map_err(unreadable)?;
    let described = Description::parse(&text).map_err(|source| FolderError::Description {
        name: name.to_owned(),
        source,
    })?;
    for file in &described.members {
        if !file.name.starts_with(DEVICE_FILE) || file.name.contains('/') {
            return Err(FolderError::ForeignFile { name: name.to_owned() });
        }
        let size = match (streamed.get(&file.name), fs::symlink_metadata(images.join(&file.name))) {
            (Some(&size), _) => size,
            (None, Ok(found)) if found.is_file() => found.len(),
            (None, Ok(_)) => {
                return Err(FolderError::NotAFile {
                    name: file.name.clone(),
                });
            }
            (None, Err(source)) => {
                return Err(FolderError::Read {
                    name: file.name.clone(),
                    source,
                });
            }
        };
        if size != file.size_bytes {
            return Err(FolderError::Length {
                name: file.name.clone(),
                found_bytes: size,
                expected_bytes: file.size_bytes,
            });
        }
    }
    Ok(described)
}

/// The name of an archive's member in a folder of images.
fn image_name(member: &MemberEntry) -> Option<&str> {
    let prefixes = [CRIU_PREFIX, DEVICE_PREFIX, carried::PREFIX];
    prefixes
        .into_iter()
        .find_map(|prefix| member.raw_name().strip_prefix(prefix))
}

/// The same, if it is an image of CRIU's that may be read to see what a restore needs.
fn description_name(member: &MemberEntry) -> Option<&str> {
    let name = member.raw_name().strip_prefix(CRIU_PREFIX)?;
    let is_read = !name.starts_with(MEMORY_IMAGE) && !name.contains('/') && member.raw_bytes() <= MAX_IMAGE_BYTES;
    is_read.then_some(name)
}

/// Unpacks the images of CRIU's that describe the program into `folder`, which is empty, if there is room for them.
/// Each is checked against its hash.
pub fn unpack_descriptions(archive: &Archive, folder: &Path) -> Result<(), ArchiveError> {
    archive.extract_where(folder, description_name, &mut |_| ()).map(drop)
}

/// The name of a member's image if CRIU reads it from a pipe while it restores: the memory of processes. None of
/// processes with `huge_pages`, as CRIU cannot read these so (4.2, `premap_priv_vmas`).
pub fn streamed_name(member: &MemberEntry, huge_pages: bool) -> Option<&str> {
    let name = member.raw_name().strip_prefix(CRIU_PREFIX)?;
    let is_memory = name.starts_with(MEMORY_IMAGE) && !name.contains('/');
    (is_memory && !huge_pages).then_some(name)
}

/// The members of which that is so, by the names of their images.
pub fn streamed_images(archive: &Archive, huge_pages: bool) -> BTreeMap<String, String> {
    let names = archive.members().filter_map(|member| {
        let name = streamed_name(member.entry, huge_pages)?;
        Some((name.to_owned(), member.entry.name.clone()))
    });
    names.collect()
}

/// Bytes of `members`.
pub fn streamed_bytes(archive: &Archive, members: &BTreeMap<String, String>) -> u64 {
    let members = members.values().filter_map(|name| archive.locate(name).ok());
    members
        .map(|member| member.entry.raw_bytes())
        .fold(0, u64::saturating_add)
}

/// Makes `folder`, into which [`unpack_descriptions`] has unpacked, one that CRIU and the device servers restore from:
/// unpacks what that has left out, but images with a [`streamed_name`], carried files, of which this machine may have
/// most, and device memory, which the servers read where the archive has it: in its file, or on the socket `served`.
pub fn unpack_rest(
    archive: &Archive,
    folder: &Path,
    served: Option<&Path>,
    huge_pages: bool,
) -> Result<(), ArchiveError> {
    let archives = archive.parents()?.iter();
    // Whoever has put another file in the place of one has not put it in ours.
    let path_of = |archive: &Archive| match (archive.remote(), served) {
        (Some(_), Some(socket)) => Some(socket.to_owned()),
        _ => archive.path().canonicalize().ok().filter(|path| archive.is_at(path)),
    };
    let paths: Option<Vec<PathBuf>> = [archive].into_iter().chain(archives).map(path_of).collect();
    let mut in_place = BTreeSet::new();
    for member in archive.members() {
        let (Some(pid), Some(paths)) = (memory_of(member.entry), &paths) else {
            continue;
        };
        let place = archive.place(member)?;
        let cannot_write = |name: String, source| ArchiveError::Io {
            action: "write",
            path: folder.join(name),
            source,
        };
        let text = serde_json::to_vec(&place).map_err(|e| cannot_write(place_file(pid), e.into()))?;
        fs::write(folder.join(place_file(pid)), text).map_err(|e| cannot_write(place_file(pid), e))?;
        for (number, path) in (0..).zip(paths) {
            let name = lender_file(pid, number);
            symlink(path, folder.join(&name)).map_err(|e| cannot_write(name, e))?;
        }
        in_place.insert(pid);
    }
    unpack_where(archive, folder, |member| match description_name(member) {
        Some(_) => None,
        None if is_carried(member) => None,
        None if streamed_name(member, huge_pages).is_some() => None,
        None if memory_of(member).is_some_and(|pid| in_place.contains(&pid)) => None,
        None => image_name(member),
    })
    .map(drop)
}

/// Makes sure that device memory has its hashes.
pub fn verify_memory(archive: &Archive) -> Result<(), ArchiveError> {
    let mut members = archive.members().filter(|member| memory_of(member.entry).is_some());
    members.try_for_each(|member| archive.extract(member, &mut io::sink()))
}

/// Bytes that device memory has in the archive.
pub fn memory_bytes(archive: &Archive) -> u64 {
    let members = archive.members().filter(|member| memory_of(member.entry).is_some());
    members
        .map(|member| member.entry.raw_bytes())
        .fold(0, u64::saturating_add)
}

/// The process whose device memory a member is.
pub fn memory_of(member: &MemberEntry) -> Option<u32> {
    pid_of_memory(member.name.strip_prefix(DEVICE_PREFIX)?)
}

/// True if a member is a carried file, or their list.
pub fn is_carried(member: &MemberEntry) -> bool {
    member.name.starts_with(carried::PREFIX)
}

/// The state of process `pid` on its device, as it is packed in an archive.
pub fn packed_state(archive: &Archive, pid: u32) -> Result<Vec<u8>, ArchiveError> {
    let member = archive.locate(&format!("{DEVICE_PREFIX}{}", state_file(pid)))?;
    let mut packed = vec![];
    archive.extract(member, &mut packed)?;
    Ok(packed)
}

/// Unpacks an archive into `folder`, which is empty, if there is room for all of it. Each member is checked against its
/// hash.
pub fn unpack(archive: &Archive, folder: &Path) -> Result<u64, ArchiveError> {
    unpack_where(archive, folder, image_name)
}

fn unpack_where(
    archive: &Archive,
    folder: &Path,
    place: impl Fn(&MemberEntry) -> Option<&str>,
) -> Result<u64, ArchiveError> {
    let wanted = archive.members().filter(|member| place(member.entry).is_some());
    let total = wanted
        .map(|member| member.entry.raw_bytes())
        .fold(0, u64::saturating_add);
    archive.extract_where(folder, place, &mut remark::byte_progress("unpacking", total))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests {
    use std::fs::File;

    use hetckpt_archive::memory_source::{MemberPlace, MemorySource};
    use hetckpt_archive::writer;

    use super::*;

    /// More than one part.
    const MEMORY_BYTES: usize = (32 << 20) + 5;

    /// An archive in `folder`, of a folder of images that is made there.
    pub(crate) fn archive(folder: &Path) -> Archive {
        let images = folder.join("images");
        fs::create_dir(&images).unwrap();
        let memory: Vec<u8> = (0..MEMORY_BYTES).map(|at| (at % 251) as u8).collect();
        fs::write(images.join("hetgpu-7.mem"), memory).unwrap();
        fs::write(images.join("hetgpu-7.user"), "user").unwrap();
        fs::write(images.join("inventory.img"), "inventory").unwrap();
        fs::write(images.join("pages-1.img"), "pages").unwrap();
        let header = header(Origin {
            root_pid: 7,
            command: vec![],
            stdio: vec![],
            criu_version: String::new(),
            created_unix: 0,
            clocks: None,
            streamed: Sizes::new(),
            borrows: false,
        });
        let manifest = Manifest {
            header,
            index: Index::default(),
        };
        let path = folder.join("x.hetsnap");
        let mut file = File::create(&path).unwrap();
        let sources = sources(&images).unwrap();
        writer::write_to(
            &mut file,
            &path,
            manifest,
            &sources,
            writer::Options::default(),
            &mut |_| (),
        )
        .unwrap();
        Archive::open(&path).unwrap()
    }

    fn restored(archive: &Archive, folder: &Path) -> PathBuf {
        let images = folder.join("restored");
        unpack_descriptions(archive, &images).unwrap();
        assert_eq!(fs::read_dir(&images).unwrap().count(), 1);
        unpack_rest(archive, &images, None, true).unwrap();
        for (name, text) in [
            ("hetgpu-7.user", "user"),
            ("inventory.img", "inventory"),
            ("pages-1.img", "pages"),
        ] {
            assert_eq!(fs::read_to_string(images.join(name)).unwrap(), text);
        }
        images
    }

    #[test]
    fn a_restore_leaves_device_memory_where_the_archive_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path());
        let images = restored(&archive, folder.path());
        let memory = images.join("hetgpu-7.mem");
        assert!(fs::symlink_metadata(&memory).unwrap().is_symlink());
        let place: MemberPlace = serde_json::from_slice(&fs::read(images.join("hetgpu-7.place")).unwrap()).unwrap();
        assert!(place.parts.len() > 1);
        let mut bytes = vec![0; MEMORY_BYTES];
        let source = MemorySource::member(vec![File::open(memory).unwrap().into()], &place);
        source.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == fs::read(folder.path().join("images/hetgpu-7.mem")).unwrap());
    }

    #[test]
    fn what_another_file_has_come_in_place_of_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path());
        fs::rename(archive.path(), folder.path().join("elsewhere")).unwrap();
        fs::write(archive.path(), "another").unwrap();
        let images = restored(&archive, folder.path());
        assert!(fs::symlink_metadata(images.join("hetgpu-7.mem")).unwrap().is_file());
        assert!(!images.join("hetgpu-7.place").exists());
    }
}
