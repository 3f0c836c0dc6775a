//! What a cubin says of its variables.

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::decompress::payload;
use crate::entry::{Kind, entries};
use crate::locate::{ImageKind, image_kind};

/// A `__device__` or `__constant__` variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable {
    /// Mangled name.
    pub name: String,
    /// Kernels may write to it: it is no `__constant__`.
    pub is_writable: bool,
}

/// The variables of all cubins in an image, each once; `None` if one of them cannot be read.
#[must_use]
pub fn variables(image: &[u8]) -> Option<BTreeSet<Variable>> {
    match image_kind(image).ok()? {
        ImageKind::Ptx => Some(BTreeSet::new()),
        ImageKind::Cubin => of_cubin(image),
        ImageKind::Fatbin => {
            let entries = entries(image).ok()?;
            let cubins = entries.iter().filter(|entry| entry.kind == Kind::Cubin);
            let variables = cubins.map(|entry| of_cubin(&payload(entry).ok()?));
            Some(variables.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
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
