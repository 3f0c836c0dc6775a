//! Device code in files of the host: objects (`nvcc -c`) and static libraries of them (`nvcc -lib`).

use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _};

use crate::entry::{FATBIN_HEADER_BYTES, FATBIN_MAGIC, length};
use crate::error::FatbinError;

/// Sections with fat binaries: of whole programs, and of what is still to be linked (`nvcc -dc`).
const SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];
const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";

/// `e_machine` of device code, which is an ELF file too.
const CUDA_MACHINE: [u8; 2] = 190_u16.to_le_bytes();

/// True of a static library, and of an object that is not device code itself.
#[must_use]
pub fn is_host_file(image: &[u8]) -> bool {
    image.starts_with(ARCHIVE_MAGIC) || is_elf(image) && image.get(18..20).is_some_and(|of| of != CUDA_MACHINE)
}

/// The fat binaries of an object or a static library, in their order. Members of a library that are no objects are left
/// out.
///
/// # Errors
/// [`FatbinError::HostFile`] if it is neither; else what is wrong with a fat binary's header.
pub fn fat_binaries(file: &[u8]) -> Result<Vec<&[u8]>, FatbinError> {
    let wrong = |reason: String| FatbinError::HostFile { reason };
    if file.starts_with(ARCHIVE_MAGIC) {
        let mut found = Vec::new();
        let archive = ArchiveFile::parse(file).map_err(|error| wrong(error.to_string()))?;
        for member in archive.members() {
            let member = member.and_then(|member| member.data(file));
            let member = member.map_err(|error| wrong(error.to_string()))?;
            if is_elf(member) {
                found.extend(of_object(member)?);
            }
        }
        Ok(found)
    } else {
        of_object(file)
    }
}

fn is_elf(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF")
}

fn of_object(object: &[u8]) -> Result<Vec<&[u8]>, FatbinError> {
    let wrong = |error: object::Error| FatbinError::HostFile {
        reason: error.to_string(),
    };
    let file = ElfFile64::<object::Endianness>::parse(object).map_err(wrong)?;
    let mut found = Vec::new();
    for section in file.sections() {
        if !section.name().is_ok_and(|name| SECTIONS.contains(&name)) {
            continue;
        }
        let mut rest = section.data().map_err(wrong)?;
        while let Some(at) = next(rest) {
            let fatbin = &rest[at..];
            let (fatbin, behind) = fatbin.split_at(length(fatbin)?);
            found.push(fatbin);
            rest = behind;
        }
    }
    Ok(found)
}

/// Where the next fat binary begins: they are aligned to eight bytes.
fn next(bytes: &[u8]) -> Option<usize> {
    let is_one = |at: &usize| bytes[*at..].starts_with(&FATBIN_MAGIC.to_le_bytes());
    let last = bytes.len().checked_sub(FATBIN_HEADER_BYTES)?;
    (0..=last).step_by(4).find(is_one)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use object::write::{Object, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};
    use proptest::prelude::*;

    use super::*;

    fn fatbin(body: &[u8]) -> Vec<u8> {
        let header = [&FATBIN_MAGIC.to_le_bytes()[..], &[1, 0, 16, 0]].concat();
        [&header, &(body.len() as u64).to_le_bytes()[..], body].concat()
    }

    fn object(section: &str, data: &[u8]) -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let segment = object.segment_name(StandardSegment::Data).to_vec();
        let id = object.add_section(segment, section.into(), SectionKind::Data);
        object.append_section_data(id, data, 8);
        object.write().unwrap()
    }

    /// A static library: `ar`'s common format.
    fn library(members: &[Vec<u8>]) -> Vec<u8> {
        let mut all = ARCHIVE_MAGIC.to_vec();
        for member in members {
            all.extend(
                format!(
                    "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
                    "m.o/",
                    0,
                    0,
                    0,
                    644,
                    member.len()
                )
                .bytes(),
            );
            all.extend(member);
            all.resize(all.len().next_multiple_of(2), b'\n');
        }
        all
    }

    #[test]
    fn takes_all_out_of_an_object_and_a_library() {
        let (a, b, c) = (fatbin(b"some"), fatbin(b"12345678"), fatbin(b""));
        let two = object("__nv_relfatbin", &[&a[..], &[0; 4], &b].concat());
        assert_eq!(fat_binaries(&two).unwrap(), [&a[..], &b]);
        let all = library(&[two, b"text".to_vec(), object(".nv_fatbin", &c)]);
        assert_eq!(fat_binaries(&all).unwrap(), [&a[..], &b, &c]);
        assert!(fat_binaries(&object(".text", b"code")).unwrap().is_empty());
    }

    #[test]
    fn knows_files_of_the_host() {
        let mut cubin = object(".text", b"code");
        assert!(is_host_file(&cubin) && is_host_file(&library(&[])));
        cubin[18..20].copy_from_slice(&CUDA_MACHINE);
        assert!(!is_host_file(&cubin) && !is_host_file(&fatbin(b"")) && !is_host_file(b"\x7fELF"));
    }

    #[test]
    fn says_what_is_wrong() {
        let reason = |file: &[u8]| fat_binaries(file).unwrap_err().to_string();
        assert!(reason(b"text").contains("neither an object"));
        let mut cut = fatbin(b"four");
        cut[8] = 200;
        assert!(reason(&object(".nv_fatbin", &cut)).contains("truncated"));
    }

    proptest! {
        #[test]
        fn never_panics(position in 0_usize..4096, byte: u8) {
            let mut file = library(&[object(".nv_fatbin", &fatbin(b"12345678"))]);
            let position = position % file.len();
            file[position] = byte;
            let _ = fat_binaries(&file);
        }
    }
}
