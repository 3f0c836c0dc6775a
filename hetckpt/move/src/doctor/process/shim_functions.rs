//! What our driver library answers, by what its file exports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

/// A name that only our driver library exports.
const MARK: &str = "HETCKPT_VERSION";

/// Section of the functions that answer "not supported".
const STUBS: &str = "hetckpt_stubs";

/// What the library exports.
#[derive(Debug, Default)]
pub struct Shim {
    answered: BTreeSet<String>,
    is_ours: bool,
}

impl Shim {
    /// What the library at `path` exports; nothing if it cannot be read.
    pub fn read(path: &Path) -> Self {
        let Ok(data) = fs::read(path) else {
            return Self::default();
        };
        let Ok(file) = ElfFile64::<Endianness>::parse(&data[..]) else {
            return Self::default();
        };
        let mut shim = Self::default();
        for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
            let Ok(name) = symbol.name() else { continue };
            shim.is_ours |= name == MARK;
            let section = symbol
                .section_index()
                .and_then(|index| file.section_by_index(index).ok());
            if section.is_none_or(|section| section.name() != Ok(STUBS)) {
                shim.answered.insert(name.to_owned());
            }
        }
        shim
    }

    /// True if the library at `path` is ours.
    pub fn is_at(path: &Path) -> bool {
        Self::read(path).is_ours
    }

    /// True if it does what `function` of the CUDA driver API is for.
    pub fn has(&self, function: &str) -> bool {
        self.answered.contains(function)
    }
}
