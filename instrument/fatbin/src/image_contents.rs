//! What an image that the driver takes as it is has beside kernels: variables, and what nobody can look into.

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::decompress::{payload, ptx, text};
use crate::entry::entries;
use crate::hidden::{Hidden, HiddenSince};
use crate::locate::{ImageKind, best_cubin, best_ptx, image_kind};
use crate::ptx_reach::Functions;

const PRINT: &str = "vprintf";
const HEAP: &str = "a heap of its own (`malloc` in kernels)";

/// What names of tables of virtual functions begin with (Itanium C++ ABI, 5.1.4.1).
const VIRTUAL_TABLE: &str = "_ZTV";

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
    /// What else it has, which nobody can look into.
    pub hidden: Vec<Hidden>,
    /// Kernels of it may print, by the driver's `vprintf`.
    pub prints: bool,
}

/// The contents of what a GPU of compute capability `device` (times ten plus minor) takes of an image. PTX is not
/// parsed: of its variables only that there are some is known, unless `known` are their names.
#[must_use]
pub fn contents(image: &[u8], device: u32, known: &[String]) -> Contents {
    let unknown = || Contents {
        hidden: vec![Hidden {
            what: "what cannot be read".to_owned(),
            since: HiddenSince::Loading,
        }],
        prints: true,
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
        contents.prints |= name == PRINT && symbol.is_undefined();
        let hidden = match name {
            "malloc" | "free" if symbol.is_undefined() => Some(HEAP.to_owned()),
            _ if name.starts_with(VIRTUAL_TABLE) => Some(format!("a table of virtual functions (`{name}`)")),
            _ => None,
        };
        contents.hidden.extend(hidden.map(|what| Hidden {
            what,
            since: HiddenSince::AnyKernel,
        }));
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
    let functions = Functions::of(text);
    let found = [
        (HEAP, functions.since(|word| matches!(word, "malloc" | "free"))),
        (
            "calls of functions by their addresses",
            functions.since(|word| matches!(word, ".callprototype" | ".calltargets")),
        ),
        ("addresses of functions", functions.since_taking_addresses()),
        (
            "a table of virtual functions",
            functions.since(|word| word.starts_with(VIRTUAL_TABLE)),
        ),
    ];
    let found = found
        .into_iter()
        .filter_map(|(what, since)| Some((what.to_owned(), since?)));
    let mut hidden: Vec<Hidden> = found.map(|(what, since)| Hidden { what, since }).collect();
    if variables.is_empty() && text.lines().any(|line| is_declaration(line.trim_start())) {
        hidden.push(Hidden {
            what: "variables in PTX that is not understood".to_owned(),
            since: HiddenSince::Loading,
        });
    }
    Contents {
        variables,
        hidden,
        prints: text.contains(PRINT),
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
        assert_eq!((known.variables.len(), known.hidden), (1, vec![]));
        let variables = of(".visible .global .align 4 .u32 counter;", &[]).hidden;
        assert!(matches!(
            &variables[..],
            [Hidden {
                since: HiddenSince::Loading,
                ..
            }]
        ));
        for (body, word) in [
            ("call.uni (r), malloc, (p);", "heap"),
            ("proto: .callprototype _ (.param .b32 _);", "calls"),
            ("mov.u64 %rd1, _ZTV1A;", "virtual"),
        ] {
            let text = format!(".entry loud() {{ {body} }} .entry quiet() {{ ret; }}");
            let hidden = of(&text, &[]).hidden;
            let [Hidden { what, since }] = &hidden[..] else {
                panic!("{hidden:?}")
            };
            assert!(what.contains(word), "{what}");
            let is_there = |ran: &str| since.is_there(["loud", "quiet"], |kernel| kernel == ran);
            assert!(is_there("loud") && !is_there("quiet") && !is_there("neither"));
        }
    }

    #[test]
    fn what_cannot_be_read_hides_something() {
        assert!(contents(b"\x7fELF and no more", 90, &[]).hidden.len() == 1);
        assert!(contents(b"", 90, &[]).hidden.len() == 1);
    }
}
