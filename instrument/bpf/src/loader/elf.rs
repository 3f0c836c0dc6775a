//! The entry points that a library exports, and where in its file they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD, SHN_UNDEF, STT_FUNC};
use object::read::elf::{FileHeader, ProgramHeader, Sym};

use hetckpt_bpf::boundary::is_entry_point;

/// Why a library's entry points are not known.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// It is no library, or is damaged.
    #[error("is no library for this machine: {0}")]
    Elf(#[from] object::Error),
}

/// Offsets in the file of the functions that begin with `prefix`, with one name each: of names for one function the
/// last in the alphabet, which has the highest version.
pub fn entry_points(path: &Path, prefix: &str) -> Result<BTreeMap<usize, String>, Unreadable> {
    let data = fs::read(path)?;
    let data = &data[..];
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let sections = header.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
    let offset_of = |address: u64| {
        segments.iter().find_map(|segment| {
            let start = segment.p_vaddr(endian);
            let is_its =
                segment.p_type(endian) == PT_LOAD && (start..start + segment.p_filesz(endian)).contains(&address);
            is_its.then(|| address - start + segment.p_offset(endian))
        })
    };
    let mut found = BTreeMap::new();
    for symbol in symbols.iter() {
        // What STT_GNU_IFUNC names is not the function.
        if symbol.st_type() != STT_FUNC || symbol.st_shndx(endian) == SHN_UNDEF {
            continue;
        }
        let name = symbol.name(endian, symbols.strings())?;
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        if !is_entry_point(name, prefix) {
            continue;
        }
        let Some(offset) = offset_of(symbol.st_value(endian)).and_then(|offset| usize::try_from(offset).ok()) else {
            continue;
        };
        let kept: &mut String = found.entry(offset).or_default();
        if kept.as_str() < name {
            name.clone_into(kept);
        }
    }
    Ok(found)
}
