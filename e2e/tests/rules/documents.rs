//! Documents that must agree with the code.

use std::fs;
use std::path::{Path, PathBuf};

use hetckpt_ring::failure_code::{Code, Stage};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Widest line of prose.
const COLUMNS: usize = 120;

/// `text` in lines of at most [`COLUMNS`]; lines that there are begin anew, and an item of a list is indented.
fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let indent = if line.starts_with("* ") { "  " } else { "" };
        let mut width = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if width > 0 && width + 1 + length > COLUMNS {
                wrapped += "\n";
                wrapped += indent;
                width = indent.len();
            } else if width > 0 {
                wrapped += " ";
                width += 1;
            }
            wrapped += word;
            width += length;
        }
        wrapped += "\n";
    }
    wrapped
}

/// What docs/errors.md says of the codes.
fn explained() -> String {
    let mut text = String::new();
    for stage in Stage::ALL {
        text += &format!("\n## {}\n", stage.name());
        if stage == Stage::Migration {
            text += "\n";
            text += &wrapped(
                "[migration.md](migration.md) describes what happens, and what becomes of the program in each failure. What stands \
                 against a restore on the target has its own code here too, with the target's name before the message.",
            );
        }
        for code in Code::ALL.iter().filter(|code| code.stage() == stage) {
            text += &format!("\n### {code}\n\n{}", wrapped(code.meaning()));
            if code.exit() == 3 {
                text += "\n";
                text += &wrapped("Exit code 3, unless the command stands in for a program.");
            }
            text += &format!("\n{}", wrapped(&format!("**What to do:** {}", code.help())));
        }
    }
    text
}

#[test]
fn every_error_code_is_explained() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, _) = document.split_once("\n## ").expect("a heading");
    let made = format!("{before}{}", explained());
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, made).unwrap();
        return;
    }
    assert!(
        made == document,
        "docs/errors.md is not what restore-kernels/ring/src/failure_code.rs says; BLESS=1 cargo test --test rules writes it"
    );
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
fn every_error_code_is_given() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = sources(&root.join("hetckpt")) + &sources(&root.join("restore-kernels/server/src"));
    for code in Code::ALL {
        assert!(text.contains(&format!("Code::{code:?}")), "nothing fails with {code}");
    }
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

/// All files below `folder` that git would keep and whose names end with `end`.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if !matches!(name.as_str(), "target" | ".git") {
                files(&path, end, found);
            }
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
}

#[test]
fn the_python_module_has_the_version_of_the_rest() {
    let line = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let project = read("instrument/api/python/pyproject.toml");
    assert!(project.lines().any(|found| found == line), "{line}: {project}");
}

#[test]
fn lines_of_prose_are_not_too_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut documents, mut sources) = (vec![], vec![]);
    files(&root, ".md", &mut documents);
    files(&root, ".rs", &mut sources);
    // Tables and code keep their lines; a word that is longer than a line has one to itself.
    let is_text = |line: &&str| !line.starts_with('|') && !line.starts_with("    ");
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let is_too_long = |line: &&str| line.chars().count() > COLUMNS && line.trim().contains(' ');
    let mut found = vec![];
    for path in documents.iter().chain(&sources) {
        let text = fs::read_to_string(path).unwrap();
        let is_document = path.extension().is_some_and(|extension| extension == "md");
        let lines = text
            .lines()
            .filter(|line| if is_document { is_text(line) } else { is_comment(line) });
        found.extend(
            lines
                .filter(is_too_long)
                .map(|line| format!("{}: {line}", path.display())),
        );
    }
    assert!(found.is_empty(), "longer than {COLUMNS} columns:\n{}", found.join("\n"));
}
