//! `docs/cuda-api.md` is written from the tables of this folder (`BLESS=1`), and compared with them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::ENTRY_LISTS;
use super::not_implemented_table::STUBS;

const HEAD: &str = "# The CUDA driver API

Written by a test from the tables in `instrument/shim-cuda/src/api`.

What a function that is there does not do, it refuses by name; [limits.md](limits.md) has that. A function that is not
there is not found by `cuGetProcAddress`.

";

const REFUSED: &str = "
## Refused

Programs that are linked to these start. When one is called, `stderr` says so once by its name, and the program gets
`CUDA_ERROR_NOT_SUPPORTED`. Of what `cuGetProcAddress` is asked for, the CUDA runtime alone gets them, but for those of
graphics.

";

const OLD: &str = "
Of these only the form of before CUDA 3.2 or 4.0 is refused:

";

/// Names in code, in lines of 120 columns at most.
fn paragraph<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut lines = vec![String::new()];
    for name in names {
        let word = format!("`{name}`");
        let last = lines.last_mut().unwrap();
        if last.is_empty() {
            *last = word;
        } else if last.len() + 1 + word.len() <= 120 {
            *last = format!("{last} {word}");
        } else {
            lines.push(word);
        }
    }
    lines.join("\n") + "\n"
}

fn documentation() -> String {
    let mut forms: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in ENTRY_LISTS.iter().copied().flatten() {
        *forms.entry(entry.name).or_default() += 1;
    }
    let refused: BTreeSet<&str> = STUBS.iter().map(|(name, _)| *name).collect();
    let base = |name: &str| {
        let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        name.rsplit_once("_v").map_or(name, |(base, _)| base).to_owned()
    };
    let (old, refused): (Vec<&str>, Vec<&str>) = refused.iter().partition(|name| forms.contains_key(&*base(name)));
    let num_forms: usize = forms.values().sum();
    format!(
        "{HEAD}{} functions are there, in {num_forms} forms:\n\n{}{REFUSED}{}{OLD}{}",
        forms.len(),
        paragraph(forms.keys().copied()),
        paragraph(refused),
        paragraph(old)
    )
}

#[test]
fn documentation_names_what_is_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cuda-api.md");
    let expected = documentation();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/cuda-api.md differs (BLESS=1 rewrites it):\n{expected}"
    );
}
