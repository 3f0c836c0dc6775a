//! What an image that the driver takes as it is has beside kernels: variables, and what nobody can look into.

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::decompress::{payload, ptx, text};
use crate::entry::entries;
use crate::locate::{ImageKind, best_cubin, best_ptx, image_kind};

/// A `__device__` or `__constant__` variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable {
    /// Mangled name.
    pub name: String,
    /// Kernels may write to it: it is no `__constant__`, or that is not known.
    pub is_writable: bool,
}

/// What an image has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Its variables, as far as they are known.
    pub variables: BTreeSet<Variable>,
    /// What holds state that is in no variable, or addresses of functions, in words.
    pub hidden: Option<String>,
}

/// The contents of what a GPU of compute capability `device` (times ten plus minor) takes of an image. PTX is not
/// parsed: of its variables only that there are some is known, unless `known` are their names.
#[must_use]
pub fn contents(image: &[u8], device: u32, known: &[String]) -> Contents {
    let unknown = || Contents {
        hidden: Some("what cannot be read".to_owned()),
        ..Contents::default()
    };
    let contents = match image_kind(image) {
        Ok(ImageKind::Cubin) => of_cubin(image),
        Ok(ImageKind::Ptx) => text(image.to_vec()).ok().map(|text| of_ptx(&text, known)),
        Ok(ImageKind::Fatbin) => entries(image).ok().and_then(|all| match best_cubin(&all, device) {
            Some(cubin) => of_cubin(&payload(cubin).ok()?),
            None => Some(of_ptx(&ptx(best_ptx(&all, device)?).ok()?, known)),
        }),
        Err(_) => None,
    };
    contents.unwrap_or_else(unknown)
}

fn of_cubin(cubin: &[u8]) -> Option<Contents> {
    let file = ElfFile64::<object::Endianness>::parse(cubin).ok()?;
    let mut contents = Contents::default();
    for symbol in file.symbols() {
        let name = symbol.name().ok()?;
        if symbol.is_undefined() && matches!(name, "malloc" | "free") {
            contents.hidden = Some("a heap of its own (`malloc` in kernels)".to_owned());
        }
        if name.starts_with("_ZTV") {
            contents.hidden = Some(format!("a table of virtual functions (`{name}`)"));
        }
        if symbol.kind() != SymbolKind::Data || symbol.size() == 0 {
            continue;
        }
        let section = symbol.section_index().and_then(|at| file.section_by_index(at).ok());
        let Some(section) = section else { continue };
        let section = section.name().unwrap_or_default();
        let is_writable = section.starts_with(".nv.global");
        if is_writable || section.starts_with(".nv.constant3") {
            contents.variables.insert(Variable {
                name: name.to_owned(),
                is_writable,
            });
        }
    }
    Some(contents)
}

fn of_ptx(text: &str, known: &[String]) -> Contents {
    let variables = known.iter().map(|name| Variable {
        name: name.clone(),
        is_writable: true,
    });
    let variables: BTreeSet<Variable> = variables.collect();
    let is_declaration = |line: &str| line.starts_with('.') && [".global ", ".const "].iter().any(|s| line.contains(s));
    let is_word = |word: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
            .any(|w| w == word)
    };
    let hidden = if is_word("malloc") {
        Some("a heap of its own (`malloc` in kernels)")
    } else if [".callprototype", ".calltargets"].iter().any(|s| text.contains(s)) {
        Some("calls of functions by their addresses")
    } else if variables.is_empty() && text.lines().any(|line| is_declaration(line.trim_start())) {
        Some("variables in PTX that is not understood")
    } else {
        None
    };
    Contents {
        variables,
        hidden: hidden.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ptx: &str, known: &[&str]) -> Contents {
        let image = format!(".version 8.0\n.target sm_90\n.address_size 64\n{ptx}");
        let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
        contents(image.as_bytes(), 90, &known)
    }

    #[test]
    fn ptx_has_what_is_known_of_it() {
        assert_eq!(
            of(".visible .entry k() { ld.global.u32 %r1, [%rd1]; ret; }", &[]),
            Contents::default()
        );
        let known = of(".visible .global .align 4 .u32 counter;", &["counter"]);
        assert_eq!((known.variables.len(), known.hidden), (1, None));
        for (text, word) in [
            (".visible .global .align 4 .u32 counter;", "variables"),
            ("call.uni (r), malloc, (p);", "heap"),
            ("proto: .callprototype _ (.param .b32 _);", "calls"),
        ] {
            assert!(
                of(text, &[]).hidden.is_some_and(|hidden| hidden.contains(word)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_hides_something() {
        assert!(contents(b"\x7fELF and no more", 90, &[]).hidden.is_some());
        assert!(contents(b"", 90, &[]).hidden.is_some());
    }
}
