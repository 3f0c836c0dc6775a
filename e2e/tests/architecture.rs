//! Who may import whom, as ARCHITECTURE.md says it, against what `cargo metadata` finds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Each package with the packages of this workspace that it imports. A new edge changes this list and ARCHITECTURE.md.
const IMPORTS: &[(&str, &[&str])] = &[
    ("hetckpt-shim-cuda", &["ring"]),
    ("hetckpt-fatbin", &[]),
    ("hetckpt-ptx", &["ir"]),
    ("hetckpt-ir", &[]),
    ("hetckpt-probes", &["ir"]),
    ("hetckpt-interp", &["abi", "ir"]),
    ("hetckpt-resegment", &["abi", "ir"]),
    ("hetckpt-abi", &["ir"]),
    ("hetckpt-codegen", &["abi", "ir"]),
    ("hetckpt-codegen-llvm", &["abi", "ir"]),
    ("hetckpt-devices", &["abi", "ir"]),
    ("hetckpt-ring", &[]),
    (
        "hetckpt-server",
        &[
            "abi",
            "archive",
            "codegen",
            "devices",
            "fatbin",
            "ir",
            "probes",
            "ptx",
            "resegment",
            "ring",
            "state",
        ],
    ),
    ("hetckpt-state", &[]),
    ("hetckpt-archive", &["state"]),
    (
        "hetckpt",
        &[
            "abi",
            "archive",
            "codegen",
            "ir",
            "probes",
            "ptx",
            "resegment",
            "ring",
            "state",
        ],
    ),
    ("hetckpt-criu-plugin", &["ring"]),
    ("hetckpt-e2e", &[]),
];

fn workspace() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root);
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Packages of the workspace with what they import of it, tests' and build scripts' imports aside.
fn imports(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let imports_of = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null()).map(name);
        normal.filter(|import| ours.contains(import)).collect::<BTreeSet<_>>()
    };
    packages
        .iter()
        .map(|package| (name(package), imports_of(package)))
        .collect()
}

#[test]
fn packages_import_only_what_the_architecture_allows() {
    let found = imports(&workspace());
    let allowed: BTreeMap<String, BTreeSet<String>> = IMPORTS
        .iter()
        .map(|(name, imports)| {
            (
                (*name).to_owned(),
                imports.iter().map(|import| format!("hetckpt-{import}")).collect(),
            )
        })
        .collect();
    let names = |map: &BTreeMap<String, BTreeSet<String>>| map.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(
        names(&found),
        names(&allowed),
        "the packages of the workspace are not those of the list"
    );
    for (name, imports) in &found {
        let surplus: Vec<_> = imports.difference(&allowed[name]).collect();
        assert!(
            surplus.is_empty(),
            "{name} imports {surplus:?}, which the architecture does not allow"
        );
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

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    let allowed = [
        "instrument/shim-cuda",
        "restore-kernels/abi",
        "restore-kernels/codegen-llvm",
        "restore-kernels/devices",
        "restore-kernels/ring",
        "restore-kernels/server",
        "criu-plugin",
        "hetckpt",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut opened = vec![];
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                if text
                    .lines()
                    .any(|line| line.starts_with("#![") && line.contains("(unsafe_code"))
                {
                    opened.push(path.strip_prefix(&root).unwrap().to_owned());
                }
            }
        }
    }
    let surplus: Vec<_> = opened
        .iter()
        .filter(|path| !allowed.iter().any(|a| path.starts_with(a)))
        .collect();
    assert!(surplus.is_empty(), "unsafe code is opened in {surplus:?}");
}
