//! Documents that must agree with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All `HK` codes of four digits in `text` that follow `before`.
fn codes(text: &str, before: &str) -> BTreeSet<String> {
    let pattern = format!("{before}HK");
    let starts = text.match_indices(&pattern).map(|(at, _)| at + before.len());
    let words = starts.filter_map(|at| text.get(at..at + 6));
    words
        .filter(|word| word[2..].bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

/// Every source file below `folder`, one after another.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries
        .map(|path| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(extension) if extension == "rs" => fs::read_to_string(&path).unwrap(),
            _ => String::new(),
        })
        .collect()
}

#[test]
fn every_error_code_is_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let given = ["hetckpt", "restore-kernels/server/src"]
        .iter()
        .flat_map(|folder| codes(&sources(&root.join(folder)), "\""))
        .collect::<BTreeSet<_>>();
    assert!(
        given.len() > 10,
        "no codes were found in the program's sources: {given:?}"
    );
    let explained = codes(&read("docs/errors.md"), "\n### ");
    assert_eq!(
        given, explained,
        "docs/errors.md and the codes that the program gives differ"
    );
}

#[test]
fn every_make_goal_that_documents_name_exists() {
    let makefile = read("Makefile");
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "BENCHMARKS.md",
        "docs/limits.md",
        "docs/errors.md",
    ] {
        let text = read(document);
        for (at, _) in text.match_indices("`make ") {
            let goal: String = text[at + 6..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                .collect();
            assert!(
                makefile.contains(&format!("\n{goal}:")),
                "{document} names `make {goal}`, which does not exist"
            );
        }
    }
}

#[test]
fn links_in_documents_lead_to_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let top = ["README.md", "ARCHITECTURE.md", "BENCHMARKS.md", "CHANGELOG.md"].map(|name| root.join(name));
    for document in docs.chain(top) {
        let text = fs::read_to_string(&document).unwrap();
        for (at, _) in text.match_indices("](") {
            let link: String = text[at + 2..].chars().take_while(|&c| c != ')' && c != '#').collect();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            let path = document.parent().unwrap().join(&link);
            assert!(
                path.exists(),
                "{} links to {link}, which does not exist",
                document.display()
            );
        }
    }
}
