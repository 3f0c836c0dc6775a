//! The archive that a dump borrows from: what it has of memory and carried files, in its own file or in those that it
//! borrows from itself, need not be written again.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::memfd::{MFdFlags, memfd_create};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::known_parts::KnownParts;
use hetckpt_archive::known_pieces::{self, KnownPiece};
use hetckpt_archive::limits::MAX_PARENTS;
use hetckpt_archive::manifest::{Borrowed, CarriedFile, Encoding, MemberEntry, Parent as Listed};
use hetckpt_archive::packed_state;
use hetckpt_archive::reader::{Archive, Member};
use hetckpt_report::archive_error;
use hetckpt_report::failure::Failure;
use hetckpt_state::memory_index::Piece;
use hetckpt_state::names::memory_file;

use crate::snapshot_files;

/// An archive to borrow from.
#[derive(Debug)]
pub struct Parent {
    archive: Archive,
    /// It, and those that it borrows from, as the new archive lists them.
    listed: Vec<Listed>,
    /// Where each known piece is.
    places: Vec<Borrowed>,
    /// The list of known pieces, as device servers read it.
    known: File,
    /// Known parts of members that are compressed here, such as processes' memory.
    known_parts: Arc<KnownParts>,
    /// Where carried files are, by hash and length of their content.
    files: BTreeMap<(String, u64), Vec<Borrowed>>,
}

impl Parent {
    /// Opens the archive at `path`, for a new one at `output`.
    pub fn open(path: &Path, output: &Path) -> Result<Self, Failure> {
        let archive = Archive::open(path).map_err(archive_error::failure)?;
        let parents = archive.parents().map_err(archive_error::failure)?;
        let folder = folder_of(output)?;
        if parents.len() >= MAX_PARENTS {
            let what = format!("{} borrows from {} archives already", path.display(), parents.len());
            return Err(Failure::new(Code::CannotWrite, what).help("make one of them first: `hetckpt merge`"));
        }
        let mut listed = vec![];
        for archive in [&archive].into_iter().chain(parents) {
            if archive.is_at(output) {
                let what = format!(
                    "{} would be replaced, and the new archive borrows from it",
                    output.display()
                );
                return Err(Failure::new(Code::CannotWrite, what).help("name another file"));
            }
            listed.push(listed_as(archive, &folder)?);
        }
        let (mut pieces, mut places) = (vec![], vec![]);
        for process in &archive.manifest().index.processes {
            let pid = process.summary.pid;
            let packed = snapshot_files::packed_state(&archive, pid).map_err(archive_error::failure)?;
            let state = packed_state::unpack(&packed).map_err(|e| cannot_read(path, e.to_string()))?;
            let (name, _) = snapshot_files::member(&memory_file(pid));
            let member = archive.locate(&name).map_err(archive_error::failure)?;
            for piece in &state.memory.pieces {
                // What contradicts the index is stored anew.
                let Some(place) = place_of(member, piece) else { continue };
                pieces.push(KnownPiece {
                    hash: piece.hash,
                    stored_bytes: piece.stored_bytes,
                    raw_bytes: piece.raw_bytes,
                });
                places.push(place);
            }
        }
        let mut files = BTreeMap::new();
        for file in &archive.manifest().index.files {
            let member = archive.locate(&file.member).map_err(archive_error::failure)?;
            files.insert((file.blake3.clone(), file.size_bytes), all_of(member));
        }
        let known = listed_in_memory(&pieces).map_err(|e| cannot_read(path, e.to_string()))?;
        let known_parts = KnownParts::of(&archive).map_err(archive_error::failure)?.into();
        Ok(Self {
            archive,
            listed,
            places,
            known,
            known_parts,
            files,
        })
    }

    /// Makes sure that all archives are where they were; if `reads_back`, also that what can be borrowed has its
    /// hashes.
    pub fn ensure_there(&self, reads_back: bool) -> Result<(), Failure> {
        let parents = self.archive.parents().map_err(archive_error::failure)?;
        for archive in [&self.archive].into_iter().chain(parents) {
            let path = archive.path();
            if !path.canonicalize().is_ok_and(|path| archive.is_at(&path)) {
                let what = format!("{} is not where it was when the dump began", path.display());
                return Err(Failure::new(Code::ParentMissing, what));
            }
            if reads_back {
                archive.verify_stored().map_err(archive_error::failure)?;
            }
        }
        Ok(())
    }

    /// The list of known pieces.
    pub fn known(&self) -> BorrowedFd<'_> {
        self.known.as_fd()
    }

    /// The compressed parts of members that are known.
    pub fn known_parts(&self) -> Arc<KnownParts> {
        self.known_parts.clone()
    }

    /// Where the packed content of a carried file is, if it is known.
    pub fn file(&self, file: &CarriedFile) -> Option<&[Borrowed]> {
        let found = self.files.get(&(file.blake3.clone(), file.size_bytes));
        found.map(Vec::as_slice).filter(|places| !places.is_empty())
    }

    /// The archives that the new one may borrow from.
    pub fn listed(&self) -> Vec<Listed> {
        self.listed.clone()
    }

    /// Where the known pieces with these numbers are: neighbours together. None if there are no such pieces.
    pub fn borrowed(&self, numbers: &[u32]) -> Option<Vec<Borrowed>> {
        let mut all: Vec<Borrowed> = vec![];
        for &number in numbers {
            let place = self.places.get(number as usize)?;
            match all.last_mut() {
                Some(last) if last.is_continued_by(place) => last.size_bytes += place.size_bytes,
                _ => all.push(place.clone()),
            }
        }
        Some(all)
    }
}

/// Where all of a member of the first archive is; nowhere if it is compressed there.
fn all_of(member: Member<'_>) -> Vec<Borrowed> {
    let entry = member.entry;
    let own = Borrowed {
        parent: 0,
        member: entry.name.clone(),
        offset_bytes: 0,
        size_bytes: entry.stored_bytes(),
        after_parts: None,
    };
    let others = entry.borrowed.iter().map(|borrowed| Borrowed {
        parent: borrowed.parent + 1,
        ..borrowed.clone()
    });
    let all = [own].into_iter().chain(others);
    match entry.encoding {
        Encoding::Stored => all.filter(|place| place.size_bytes > 0).collect(),
        Encoding::Zstd => vec![],
    }
}

/// Where a piece of a member of the first archive is: device servers' members have what they borrow behind their own
/// parts.
fn place_of(member: Member<'_>, piece: &Piece) -> Option<Borrowed> {
    let size_bytes = u64::from(piece.stored_bytes);
    let end = piece.offset_bytes.checked_add(size_bytes).filter(|_| size_bytes > 0)?;
    let own_bytes = MemberEntry::stored_bytes(member.entry);
    if end <= own_bytes {
        return Some(Borrowed {
            parent: 0,
            member: member.entry.name.clone(),
            offset_bytes: piece.offset_bytes,
            size_bytes,
            after_parts: None,
        });
    }
    let mut start = own_bytes;
    for borrowed in &member.entry.borrowed {
        let next = start.checked_add(borrowed.size_bytes)?;
        if (start..next).contains(&piece.offset_bytes) {
            return (end <= next).then(|| Borrowed {
                parent: borrowed.parent + 1,
                member: borrowed.member.clone(),
                offset_bytes: borrowed.offset_bytes + (piece.offset_bytes - start),
                size_bytes,
                after_parts: None,
            });
        }
        start = next;
    }
    None
}

/// How an archive in the folder `folder` calls `archive`: by its name, if that lies there, too.
fn listed_as(archive: &Archive, folder: &Path) -> Result<Listed, Failure> {
    let path = archive.path();
    let full = path.canonicalize().map_err(|e| cannot_read(path, e.to_string()))?;
    let file = full.strip_prefix(folder).unwrap_or(&full);
    let file = file
        .to_str()
        .ok_or_else(|| cannot_read(path, "its path is no UTF-8".to_owned()))?;
    let manifest = blake3::Hash::from_hex(archive.manifest_hash());
    Ok(Listed {
        file: file.to_owned(),
        manifest: manifest.map_err(|e| cannot_read(path, e.to_string()))?,
    })
}

fn folder_of(output: &Path) -> Result<PathBuf, Failure> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    folder.canonicalize().map_err(|e| {
        Failure::new(Code::CannotWrite, format!("cannot write {}", output.display()))
            .note(format!("{}: {e}", folder.display()))
            .help("name a file in a folder that exists and that you may write to")
    })
}

fn cannot_read(path: &Path, why: String) -> Failure {
    archive_error::failure(ArchiveError::Damaged {
        path: path.to_owned(),
        what: why,
    })
}

fn listed_in_memory(pieces: &[KnownPiece]) -> io::Result<File> {
    let file = File::from(memfd_create("hetckpt-known-pieces", MFdFlags::MFD_CLOEXEC)?);
    known_pieces::write_list(&file, pieces)?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};

    use super::*;
    use crate::snapshot_files::tests::archive;

    fn code(result: Result<(), Failure>) -> Option<Code> {
        result.err().map(|failure| failure.code)
    }

    #[test]
    fn what_is_borrowed_from_must_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = archive(folder.path()).path().to_owned();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let output = folder.path().join("new");
        for path in [&path, &link] {
            Parent::open(path, &output).unwrap().ensure_there(true).unwrap();
        }
        // It would be replaced.
        let refused = Parent::open(&link, &path).map(drop);
        assert_eq!(code(refused), Some(Code::CannotWrite));

        let parent = Parent::open(&path, &output).unwrap();
        let away = folder.path().join("away");
        fs::rename(&path, &away).unwrap();
        assert_eq!(code(parent.ensure_there(false)), Some(Code::ParentMissing));
        fs::copy(&away, &path).unwrap();
        assert_eq!(code(parent.ensure_there(false)), Some(Code::ParentMissing));
        fs::rename(&away, &path).unwrap();
        parent.ensure_there(true).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"#", file.metadata().unwrap().len() / 2).unwrap();
        parent.ensure_there(false).unwrap();
        assert_eq!(code(parent.ensure_there(true)), Some(Code::Damaged));
    }
}
