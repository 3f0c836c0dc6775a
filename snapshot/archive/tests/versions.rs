//! Archives of every version that was ever fixed stay readable.
#![allow(clippy::unwrap_used, reason = "tests")]

mod forged;

use std::fs;
use std::path::{Path, PathBuf};

use hetckpt_archive::manifest::{CarriedFile, Clocks, Encoding, Manifest};
use hetckpt_archive::verify::verify;
use hetckpt_state::summary::Description;

use forged::{manifest, member, member_of_parts, write};

const PAGES: [&[u8]; 2] = [&[7; 5000], b"the end"];
const MEMORY: &[u8] = b"device memory";
const LIBRARY: &[u8] = b"a library";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-2.hetsnap")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn described() -> Manifest {
    let description = r#"{
        "format_version": 2,
        "summary": {
            "pid": 42,
            "devices": [{"captured_on_kind": "cuda", "captured_on": "GPU", "virtual_device": "GPU"}],
            "allocations": [{"addr": 35184372088832, "size_bytes": 64}],
            "allocated_bytes": 64, "mapped_bytes": 2097152, "stored_bytes": 13, "pinned_bytes": 0,
            "num_modules": 1, "num_streams": 1, "num_events": 0, "num_held_commands": 2,
            "kernels_in_flight": [{
                "name": "k", "device": 0, "stream": 0, "grid": [3, 1, 1], "block": [2, 1, 1],
                "blocks_finished": 1, "blocks_paused": 1, "blocks_not_started": 1,
                "resume_points": {"4": 2}, "threads_finished": 0
            }],
            "restorable_on": ["cpu", "cuda", "opencl"],
            "requires": {
                "memory_bytes": 2097152, "threads_per_block": 2, "shared_bytes_per_block": 0, "cooperative_blocks": 0
            }
        },
        "members": [{"name": "hetgpu-42.mem", "size_bytes": 13, "blake3": ""}],
        "server_user": {"uid": 0, "gid": 0}
    }"#;
    let mut manifest = manifest();
    manifest.index.clocks = Some(Clocks {
        monotonic_ns: 5,
        boottime_ns: 6,
    });
    manifest.index.processes = vec![Description::parse(description.as_bytes()).unwrap()];
    manifest.index.files = vec![CarriedFile {
        path: "/usr/lib/libx.so".into(),
        member: "files/hetckpt-file-0.zst".into(),
        size_bytes: LIBRARY.len() as u64,
        mode: 0o100_644,
        blake3: blake3::hash(LIBRARY).to_hex().to_string(),
    }];
    manifest
}

/// Never run again for version 2: the fixture stays as it is.
#[test]
#[ignore = "writes the fixture of a new version"]
fn write_fixture() {
    let parts = PAGES.iter().map(|bytes| (bytes.len() as u64, packed(bytes))).collect();
    let library = packed(LIBRARY);
    let members = vec![
        member_of_parts("criu/pages-1.img.zst", Encoding::Zstd, parts),
        member(
            "device/hetgpu-42.mem",
            Encoding::Stored,
            MEMORY.len() as u64,
            MEMORY.to_vec(),
        ),
        member(
            "files/hetckpt-file-0.zst",
            Encoding::Stored,
            library.len() as u64,
            library,
        ),
    ];
    fs::create_dir_all(fixture().parent().unwrap()).unwrap();
    write(&fixture(), described(), members);
}

#[test]
fn the_fixture_of_version_2_is_read() {
    let archive = verify(&fixture()).unwrap();
    let (found, expected) = (archive.manifest(), described());
    assert_eq!(found.header.format_version, 2);
    assert_eq!(
        (&found.header.command, found.header.root_pid),
        (&expected.header.command, 42)
    );
    assert_eq!(found.index.processes, expected.index.processes);
    assert_eq!(found.index.files, expected.index.files);
    assert_eq!(found.index.clocks, expected.index.clocks);
    let out = tempfile::tempdir().unwrap();
    archive.extract_all("", out.path()).unwrap();
    assert_eq!(fs::read(out.path().join("criu/pages-1.img")).unwrap(), PAGES.concat());
    assert_eq!(fs::read(out.path().join("device/hetgpu-42.mem")).unwrap(), MEMORY);
}
