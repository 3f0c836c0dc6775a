//! The content of device memory that this process keeps: in a file that it was given, or in shared memory, of which it
//! takes several files so that several threads can write ([`hetckpt_archive::stripes`]).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use hetckpt_archive::memory_source::MemberPlace;
use hetckpt_archive::parallel::cores;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Most files of shared memory.
const MAX_FILES: usize = 64;

/// Device memory's content.
#[derive(Debug)]
pub struct KeptMemory {
    files: Vec<File>,
    /// Where it lies in the files, once it is there, if they are several.
    place: OnceLock<MemberPlace>,
}

impl KeptMemory {
    /// None yet: for shared memory.
    ///
    /// # Errors
    /// What the system says.
    pub fn in_memory() -> io::Result<Self> {
        let files = (0..cores().clamp(1, MAX_FILES)).map(|_| in_memory("hetckpt-memory"));
        Ok(Self {
            files: files.collect::<io::Result<_>>()?,
            place: OnceLock::new(),
        })
    }

    /// That of `files`, or for them.
    #[must_use]
    pub fn of(files: Vec<File>, place: Option<MemberPlace>) -> Self {
        Self {
            files,
            place: place.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Its files: more than none.
    #[must_use]
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Where it lies in them, if they are several.
    #[must_use]
    pub fn place(&self) -> Option<&MemberPlace> {
        self.place.get()
    }

    /// It has been written, and lies there.
    pub fn set_place(&self, place: MemberPlace) {
        // It is written once.
        let _ = self.place.set(place);
    }

    /// Copies it to `to`, in its order.
    ///
    /// # Errors
    /// What the system says, and if there is less of it than there should be.
    pub fn copy_to(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let Some(place) = self.place() else {
            return self.files.iter().try_for_each(|file| copy_whole(file, to));
        };
        let mut files = self.files.iter().map(from_its_start).collect::<io::Result<Vec<_>>>()?;
        for part in &place.parts {
            let file = files.get_mut(part.file as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
            file.seek(SeekFrom::Start(part.offset_bytes))?;
            if io::copy(&mut file.take(part.size_bytes), to)? != part.size_bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// A file of shared memory.
///
/// # Errors
/// What the system says.
pub fn in_memory(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC)?.into())
}

/// Copies all of `from` to `to`, wherever whoever else has it open stands.
///
/// # Errors
/// What the system says.
pub fn copy_whole(from: &File, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
    io::copy(&mut from_its_start(from)?, to).map(drop)
}

/// A descriptor of its own has a position of its own.
fn from_its_start(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use hetckpt_archive::memory_source::PartPlace;
    use hetckpt_archive::stripes::Stripes;

    use super::*;

    #[test]
    fn it_is_copied_in_its_order() {
        let files = vec![in_memory("a").unwrap(), in_memory("b").unwrap()];
        let stripes = Stripes::new(&files);
        for piece in ["one ", "two ", "three ", "four"] {
            stripes.add(piece.as_bytes()).unwrap();
        }
        let place = stripes.finish();
        let memory = KeptMemory::of(files, None);
        memory.set_place(place.clone());
        let mut copy = vec![];
        memory.copy_to(&mut copy).unwrap();
        assert_eq!(copy, b"one two three four");

        let missing = PartPlace {
            file: 1,
            offset_bytes: 0,
            size_bytes: 100,
        };
        let parts = [place.parts, vec![missing]].concat();
        let memory = KeptMemory::of(memory.files, Some(MemberPlace { parts }));
        let error = memory.copy_to(&mut vec![]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn one_file_is_copied_whole() {
        let mut file = in_memory("a").unwrap();
        file.write_all(b"all").unwrap();
        let mut copy = vec![];
        KeptMemory::of(vec![file], None).copy_to(&mut copy).unwrap();
        assert_eq!(copy, b"all");
    }
}
