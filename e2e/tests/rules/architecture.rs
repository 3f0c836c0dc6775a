//! Who may import whom, as ARCHITECTURE.md says it, against what `cargo metadata` finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// What the table "Crates" of ARCHITECTURE.md says: each crate's folder with the folders' names that it imports.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once("\n## Crates\n").expect("a section \"Crates\"");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [folder, _, imports, ""] = cells[..] else {
            panic!("the table has a row of another shape: {row}");
        };
        let imports = imports.split(',').map(str::trim).filter(|import| !import.is_empty());
        (
            folder.trim_end_matches('`').to_owned(),
            imports.map(str::to_owned).collect(),
        )
    };
    rows.map(row).collect()
}

fn workspace() -> Value {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Folder of a package, below the workspace's.
fn folder_of(package: &Value) -> String {
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
    folder.to_string_lossy().into_owned()
}

/// Crates of the workspace, by folder, with what they import of it, tests' and build scripts' imports aside.
fn imports(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata["packages"].as_array().expect("packages");
    let imports_of = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        let ours = dependencies.filter(|dependency| dependency["kind"].is_null() && dependency["path"].is_string());
        let folder = |dependency: &Value| {
            let path = Path::new(dependency["path"].as_str().unwrap());
            path.file_name().expect("a folder").to_string_lossy().into_owned()
        };
        ours.map(folder).collect()
    };
    packages
        .iter()
        .map(|package| (folder_of(package), imports_of(package)))
        .collect()
}

#[test]
fn crates_import_what_the_architecture_says() {
    let (found, documented) = (imports(&workspace()), documented());
    let names = |map: &BTreeMap<String, BTreeSet<String>>| map.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(
        names(&found),
        names(&documented),
        "the crates of the workspace are not those of ARCHITECTURE.md"
    );
    for (name, imports) in &found {
        assert_eq!(
            imports, &documented[name],
            "{name} imports something else than ARCHITECTURE.md says"
        );
    }
}

#[test]
fn packages_are_called_as_their_folders() {
    for package in workspace()["packages"].as_array().expect("packages") {
        let folder = folder_of(package);
        let name = format!("hetckpt-{}", folder.rsplit('/').next().unwrap());
        assert_eq!(package["name"], name.as_str(), "in {folder}");
    }
}

#[test]
fn only_the_code_generator_links_llvm_and_only_devices_know_cuda() {
    let metadata = workspace();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let owner = match dependency["name"].as_str().expect("a name") {
                "inkwell" | "llvm-sys" => "hetckpt-codegen-llvm",
                "cudarc" => "hetckpt-devices",
                _ => continue,
            };
            assert_eq!(name, owner, "{name} depends on {}", dependency["name"]);
        }
    }
}

/// Crates, and parts of two, that open what the workspace denies. All others have no unsafe code at all.
const WITH_UNSAFE_CODE: [&str; 14] = [
    "criu-plugin",
    "e2e/stand-in-driver",
    "hetckpt/supervise/src/namespaces/descriptors.rs",
    "hetckpt/supervise/src/signals.rs",
    // What libbpf-cargo generates.
    "instrument/bpf/src/loader/skeleton.rs",
    "instrument/shim-cuda",
    "instrument/shim-nvml",
    "instrument/shim-opencl",
    "restore-kernels/codegen-llvm",
    "restore-kernels/codegen/tests/opencl_device",
    "restore-kernels/devices",
    "restore-kernels/ring",
    "restore-kernels/server",
    // Writes through a mapping.
    "snapshot/archive/src/file_writer.rs",
];

/// True if a source file or manifest names the lint outside of comments: there is no other reason to than to open it,
/// be it for the file or for an item, on one line or on several.
fn opens_unsafe_code(text: &str) -> bool {
    let lint = concat!("unsafe", "_code");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|c| !is_word(c)))
        .any(|word| word == lint)
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    let root = root();
    let (mut opened, mut folders) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
                continue;
            }
            let is_source = name.ends_with(".rs") || name == "Cargo.toml" && folder != root;
            if is_source && opens_unsafe_code(&fs::read_to_string(&path).unwrap()) {
                opened.insert(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    let is_in = |path: &Path, krate: &str| path.starts_with(krate);
    let surplus: Vec<_> = opened
        .iter()
        .filter(|path| !WITH_UNSAFE_CODE.iter().any(|krate| is_in(path, krate)))
        .collect();
    assert!(surplus.is_empty(), "unsafe code is opened in {surplus:?}");
    for krate in WITH_UNSAFE_CODE {
        assert!(
            opened.iter().any(|path| is_in(path, krate)),
            "{krate} has no unsafe code any more: take it off the list"
        );
    }
}

#[test]
fn every_way_to_open_unsafe_code_is_seen() {
    let lint = concat!("unsafe", "_code");
    for text in [
        format!("#![allow({lint}, reason = \"x\")]"),
        format!("#![allow(\n    {lint},\n    reason = \"x\"\n)]"),
        format!("    #[expect({lint}, reason = \"x\")]\nfn f() {{}}"),
        format!("[lints.rust]\n{lint} = \"allow\""),
    ] {
        assert!(opens_unsafe_code(&text), "{text}");
    }
    assert!(!opens_unsafe_code(&format!("//! Nothing here allows `{lint}`.")));
}
