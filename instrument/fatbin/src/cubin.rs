//! What a cubin says of its variables.

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::decompress::payload;
use crate::entry::entries;
use crate::locate::{ImageKind, best_cubin, image_kind};

/// A `__device__` or `__constant__` variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable {
    /// Mangled name.
    pub name: String,
    /// Kernels may write to it: it is no `__constant__`.
    pub is_writable: bool,
}

/// The variables of the cubin in an image that a GPU of compute capability `device` (times ten plus minor) takes, none
/// if there is no such; `None` if it cannot be read.
#[must_use]
pub fn variables(image: &[u8], device: u32) -> Option<BTreeSet<Variable>> {
    match image_kind(image).ok()? {
        ImageKind::Ptx => Some(BTreeSet::new()),
        ImageKind::Cubin => of_cubin(image),
        ImageKind::Fatbin => {
            let entries = entries(image).ok()?;
            match best_cubin(&entries, device) {
                Some(entry) => of_cubin(&payload(entry).ok()?),
                None => Some(BTreeSet::new()),
            }
        }
    }
}

fn of_cubin(cubin: &[u8]) -> Option<BTreeSet<Variable>> {
    let file = ElfFile64::<object::Endianness>::parse(cubin).ok()?;
    let mut variables = BTreeSet::new();
    for symbol in file.symbols() {
        if symbol.kind() != SymbolKind::Data || symbol.size() == 0 {
            continue;
        }
        let section = symbol.section_index().and_then(|at| file.section_by_index(at).ok());
        let Some(section) = section else { continue };
        let section = section.name().unwrap_or_default();
        let is_writable = section.starts_with(".nv.global");
        if !is_writable && !section.starts_with(".nv.constant3") {
            continue;
        }
        variables.insert(Variable {
            name: symbol.name().ok()?.to_owned(),
            is_writable,
        });
    }
    Some(variables)
}
