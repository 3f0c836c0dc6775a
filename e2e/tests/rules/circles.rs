//! No file of a crate imports another that imports it, be it by way of others.
//!
//! A file imports another if a `use`, or a path, that begins with `crate`, `super` or `self` leads into it. Tests
//! aside, and so is that a folder's `mod.rs` calls its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module of a crate, as the names from its root on.
type Module = Vec<String>;

/// The files below a crate's `src`, by module.
fn files(src: &Path) -> BTreeMap<Module, PathBuf> {
    fn add(folder: &Path, module: &[String], found: &mut BTreeMap<Module, PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let mut inner = module.to_vec();
            match name.strip_suffix(".rs") {
                Some("lib" | "main" | "mod") => drop(found.insert(inner, path)),
                Some(name) => {
                    inner.push(name.to_owned());
                    found.insert(inner, path);
                }
                None if path.is_dir() && name != "bin" => {
                    inner.push(name);
                    add(&path, &inner, found);
                }
                None => {}
            }
        }
    }
    let mut found = BTreeMap::new();
    add(src, &[], &mut found);
    found
}

/// `text` without comments and without what is compiled for tests alone, which stands at a file's end.
fn code_of(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    lines
        .map(|line| line.split("//").next().unwrap().to_owned() + "\n")
        .collect()
}

/// Every path in a tree of a `use`, with `prefix` before it.
fn paths(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        found.push(format!("{prefix}{path}").split_whitespace().collect());
        return;
    };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in body.char_indices().chain([(body.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = body[start..at].trim();
                if !part.is_empty() {
                    paths(&format!("{prefix}{}", head.trim()), part, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// All paths in `code` that begin with `crate`, `super` or `self`, those of `use` taken apart.
fn paths_of(code: &str) -> Vec<String> {
    let mut found = vec![];
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            if code[..at].ends_with("use ") {
                paths("", code[at..].split(';').next().unwrap(), &mut found);
            } else {
                let end = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
                found.push(code[at..].split(end).next().unwrap().to_owned());
            }
        }
    }
    found
}

/// The file into which `path`, in `module`, leads.
fn target(path: &str, module: &[String], files: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let mut base = module.to_vec();
    let mut names = path.split("::").peekable();
    match names.next()? {
        "crate" => base.clear(),
        "super" => drop(base.pop()),
        _ => {}
    }
    while names.next_if_eq(&"super").is_some() {
        base.pop();
    }
    base.extend(names.map(str::to_owned));
    while !files.contains_key(&base) {
        base.pop()?;
    }
    Some(base)
}

/// What each file of a crate imports.
fn imports(src: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let files = files(src);
    let imports_of = |(module, path): (&Module, &PathBuf)| {
        let paths = paths_of(&code_of(&fs::read_to_string(path).unwrap()));
        let targets = paths.iter().filter_map(|path| target(path, module, &files));
        (module.clone(), targets.filter(|target| target != module).collect())
    };
    files.iter().map(imports_of).collect()
}

/// Files that are left when those that import none of the rest, or are imported by none of it, are taken away one after
/// another.
fn circles(mut imports: BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    loop {
        let left: BTreeSet<Module> = imports.keys().cloned().collect();
        let imported: BTreeSet<Module> = imports.values().flatten().cloned().collect();
        imports.retain(|module, targets| {
            targets.retain(|target| left.contains(target));
            !targets.is_empty() && imported.contains(module)
        });
        if imports.len() == left.len() {
            break;
        }
    }
    let line = |(module, targets): (&Module, &BTreeSet<Module>)| {
        let targets: Vec<String> = targets.iter().map(|target| target.join("::")).collect();
        format!("{} imports {}", module.join("::"), targets.join(", "))
    };
    imports.iter().map(line).collect()
}

/// Folders of the workspace's crates.
fn crates(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let is_ours = !matches!(entry.file_name().to_str(), Some("target" | ".git" | "src" | "tests"));
        if is_ours && entry.file_type().unwrap().is_dir() {
            if path.join("Cargo.toml").exists() && path.join("src").exists() {
                found.push(path.clone());
            }
            crates(&path, found);
        }
    }
}

#[test]
fn no_files_import_each_other() {
    let mut found = vec![];
    crates(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    assert!(found.len() > 20, "{found:?}");
    let mut all = vec![];
    for folder in found {
        let lines = circles(imports(&folder.join("src")));
        all.extend(lines.iter().map(|line| format!("{}: {line}", folder.display())));
    }
    assert!(all.is_empty(), "circles of files:\n{}", all.join("\n"));
}

#[test]
fn circles_are_found() {
    let module = |name: &str| vec![name.to_owned()];
    let imports = |pairs: &[(&str, &[&str])]| {
        let import = |&(from, to): &(&str, &[&str])| (module(from), to.iter().map(|to| module(to)).collect());
        pairs.iter().map(import).collect::<BTreeMap<Module, BTreeSet<Module>>>()
    };
    assert_eq!(
        circles(imports(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])),
        Vec::<String>::new()
    );
    let found = circles(imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])]));
    assert_eq!(found, ["b imports c", "c imports b"]);
    assert_eq!(
        paths_of("use crate::{a::{B, c as d}, e};\nfn f() { super::g::h() }"),
        ["crate::a::B", "crate::a::c", "crate::e", "super::g::h"]
    );
}
