//! docs/errors.md lists exactly the error codes that the code gives.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every `HK` followed by four digits in `text`.
fn codes_in(text: &str) -> BTreeSet<String> {
    text.match_indices("HK")
        .filter_map(|(at, _)| text.get(at..at + 6))
        .filter(|code| code[2..].bytes().all(|b| b.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

fn codes_below(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            codes_below(&path, codes);
        } else if path.extension().is_some_and(|e| e == "rs") {
            codes.extend(codes_in(&fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn documentation_lists_the_codes_that_are_given() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut given = BTreeSet::new();
    for folder in ["hetckpt/src", "restore-kernels/server/src"] {
        codes_below(&root.join(folder), &mut given);
    }
    let listed = codes_in(&fs::read_to_string(root.join("docs/errors.md")).unwrap());
    assert!(given.len() > 10);
    assert_eq!(given, listed);
}
