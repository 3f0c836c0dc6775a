#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use hetckpt_archive::manifest::Index;
use hetckpt_criu::image_messages::Regular;
use hetckpt_report::finding::Verdict;

fn needed(path: &Path, role: Role) -> NeededFile {
    let found = fs::metadata(path).unwrap();
    let regular = Regular {
        name: path.as_os_str().as_bytes().to_vec(),
        size: found.is_file().then_some(found.len()),
        mode: Some(found.mode()),
        flags: if role == Role::Output { 1 } else { 0 },
        ..Regular::default()
    };
    NeededFile { regular, role }
}

fn manifest(files: Vec<CarriedFile>, stdio: Vec<String>) -> Manifest {
    let header = serde_json::json!({
        "format": "", "format_version": 2, "written_by": "", "criu_version": "", "created_unix": 0, "root_pid": 7,
        "command": [], "stdio": stdio,
    });
    Manifest {
        header: serde_json::from_value(header).unwrap(),
        index: Index {
            files,
            ..Index::default()
        },
    }
}

fn examined(file: &NeededFile, manifest: &Manifest, adaptation: &Adaptation) -> (Plan, Result<(), String>) {
    let needs = Needs {
        files: vec![file.clone()],
        ..Needs::default()
    };
    let (plan, findings) = examine(&needs, manifest, adaptation);
    let problem = findings.iter().find(|finding| finding.verdict == Verdict::Problem);
    (
        plan,
        problem.map_or(Ok(()), |finding| Err(format!("{}: {}", finding.check, finding.found))),
    )
}

#[test]
fn names_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, b"12345").unwrap();
    let as_it_is = needed(&path, Role::Other);
    assert_eq!(complaint(&as_it_is), None);
    let mut larger = as_it_is.clone();
    larger.regular.size = Some(6);
    assert!(complaint(&larger).unwrap().contains("5 bytes instead of 6"));
    let mut log = larger;
    log.regular.flags = 0o2001;
    assert_eq!(complaint(&log), None);
    let mut program = as_it_is.clone();
    program.regular.mode = Some(0o100_755);
    assert!(complaint(&program).unwrap().contains("instead of 100755"));
    fs::remove_file(&path).unwrap();
    assert!(complaint(&as_it_is).unwrap().contains("is missing"));
}

#[test]
fn build_ids_are_those_of_the_file() {
    let own = std::env::current_exe().unwrap();
    let mut file = needed(&own, Role::Mapped);
    let libc = fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    assert!(build_id::read(&libc).is_some_and(|id| id.len() == 5));
    file = NeededFile {
        role: file.role,
        ..needed(&libc, Role::Mapped)
    };
    file.regular.build_id = build_id::read(&libc).unwrap();
    assert_eq!(complaint(&file), None);
    file.regular.build_id[4] ^= 1;
    assert!(complaint(&file).unwrap().contains("another build"));
}

#[test]
fn carried_files_stand_in_for_what_is_missing_or_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libx.so");
    fs::write(&path, b"12345").unwrap();
    let file = needed(&path, Role::Mapped);
    let text = path.to_str().unwrap();
    let packed = carried::pack(
        fs::File::open(&path).unwrap(),
        text,
        "files/hetckpt-file-0.zst",
        &mut std::io::sink(),
    )
    .unwrap();
    let manifest = manifest(vec![packed.clone()], vec![]);
    let adaptation = Adaptation::default();

    let (plan, result) = examined(&file, &manifest, &adaptation);
    assert!(result.is_ok() && plan.lacking.is_empty() && plan.changes.is_empty());
    let mut private = file.clone();
    private.regular.mode = Some(0o100_700);
    let (plan, result) = examined(&private, &manifest, &adaptation);
    assert!(result.is_ok() && plan.changes[&file.regular.name].mode == file.regular.mode);
    // As long as it was, but with another content.
    fs::write(&path, b"54321").unwrap();
    let (plan, result) = examined(&file, &manifest, &adaptation);
    assert!(result.is_ok() && plan.lacking == [packed]);
    fs::remove_file(&path).unwrap();
    let (plan, result) = examined(&file, &manifest, &adaptation);
    assert!(result.is_ok() && plan.lacking_bytes() == 5);
    let (_, result) = examined(&file, &self::manifest(vec![], vec![]), &adaptation);
    assert!(result.unwrap_err().contains("libx.so is missing"));
}

#[test]
fn outputs_that_have_grown_are_rewound_only_if_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    fs::write(&path, b"12345").unwrap();
    let file = needed(&path, Role::Output);
    let none = manifest(vec![], vec![]);
    let rewinding = Adaptation {
        rewind_outputs: true,
        ..Adaptation::default()
    };
    assert!(examined(&file, &none, &Adaptation::default()).1.is_ok());
    fs::write(&path, b"1234567").unwrap();
    let (_, result) = examined(&file, &none, &Adaptation::default());
    assert!(result.unwrap_err().starts_with("output-files: "));
    let (plan, result) = examined(&file, &none, &rewinding);
    assert!(result.is_ok() && plan.rewound == BTreeMap::from([(path.clone(), 5)]));
    // What is not there any more cannot come back.
    fs::write(&path, b"123").unwrap();
    assert!(examined(&file, &none, &rewinding).1.is_err());

    let of_program = manifest(vec![], vec!["/dev/null".into(), path.to_str().unwrap().into()]);
    let own = Adaptation {
        own_stdio: true,
        ..Adaptation::default()
    };
    let (plan, result) = examined(&file, &of_program, &own);
    assert!(result.is_ok() && plan.replaced == BTreeMap::from([(1, path)]));
    assert!(examined(&file, &none, &own).1.is_err());
}

#[test]
fn the_working_folder_can_be_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("work");
    fs::create_dir(&path).unwrap();
    let file = needed(&path, Role::WorkingFolder);
    let none = manifest(vec![], vec![]);
    assert!(examined(&file, &none, &Adaptation::default()).1.is_ok());
    let mut private = file.clone();
    private.regular.mode = Some(0o040_000);
    let (plan, result) = examined(&private, &none, &Adaptation::default());
    assert!(result.is_ok() && plan.changes.len() == 1);
    fs::remove_dir(&path).unwrap();
    let (_, result) = examined(&file, &none, &Adaptation::default());
    assert!(result.unwrap_err().starts_with("working-folder: "));
    let there = Adaptation {
        cwd: Some(folder.path().to_owned()),
        ..Adaptation::default()
    };
    let (plan, result) = examined(&file, &none, &there);
    let real = fs::canonicalize(folder.path()).unwrap();
    assert!(result.is_ok());
    assert_eq!(
        plan.changes[&file.regular.name].path.as_deref(),
        Some(real.as_os_str().as_bytes())
    );
    let nowhere = Adaptation {
        cwd: Some(path),
        ..Adaptation::default()
    };
    assert!(examined(&file, &none, &nowhere).1.is_err());
}
