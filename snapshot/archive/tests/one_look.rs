//! What is verified is what is taken out: neither takes what the other refuses.
#![allow(clippy::unwrap_used, reason = "tests")]

mod forged;

use std::path::Path;

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::manifest::{CarriedFile, Encoding, MemberEntry};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::verify::verify;

use forged::{manifest, member, write};

const CONTENT: &[u8] = b"what the file held";

fn compressed() -> Vec<u8> {
    zstd::encode_all(CONTENT, 1).unwrap()
}

/// What is wrong with an archive of one member, which both must find.
fn found_by_both(folder: &Path, member: (MemberEntry, Vec<Vec<u8>>)) -> String {
    let path = folder.join("a.hetsnap");
    write(&path, manifest(), vec![member]);
    let verified = verify(&path).map(drop).unwrap_err();
    let out = tempfile::tempdir_in(folder).unwrap();
    let taken_out = Archive::open(&path).and_then(|archive| archive.extract_all("", out.path()));
    assert_eq!(taken_out.unwrap_err().to_string(), verified.to_string());
    assert!(matches!(verified, ArchiveError::Damaged { .. }), "{verified}");
    verified.to_string()
}

#[test]
fn a_wrong_length_is_found_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let length = CONTENT.len() as u64;
    for raw_bytes in [0, length - 1, length + 1, 1 << 20] {
        for (name, encoding, stored) in [
            ("criu/x.zst", Encoding::Zstd, compressed()),
            ("device/x", Encoding::Stored, CONTENT.to_vec()),
        ] {
            let found = found_by_both(folder.path(), member(name, encoding, raw_bytes, stored));
            assert!(found.contains(name), "{found}");
        }
    }
}

#[test]
fn a_member_is_one_frame_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let length = CONTENT.len() as u64;
    let whole = compressed();
    let cut = whole[..whole.len() - 1].to_vec();
    let twice = [whole.clone(), whole.clone()].concat();
    let more = [whole.clone(), vec![0]].concat();
    for (stored, raw_bytes, what) in [
        (cut, length, "ends inside its frame"),
        (vec![], 0, "ends inside its frame"),
        (twice, 2 * length, "goes on behind its frame"),
        (more, length, "goes on behind its frame"),
        (b"no zstd".to_vec(), 7, "cannot be decompressed"),
    ] {
        let found = found_by_both(folder.path(), member("criu/x.zst", Encoding::Zstd, raw_bytes, stored));
        assert!(found.contains(what), "{found}");
    }
}

#[test]
fn a_carried_file_of_another_content_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let packed = compressed();
    let carried = |size_bytes, content: &[u8]| CarriedFile {
        path: "/opt/x".into(),
        member: "files/x.zst".into(),
        size_bytes,
        mode: 0o100_755,
        blake3: blake3::hash(content).to_hex().to_string(),
    };
    let length = CONTENT.len() as u64;
    for (file, is_right) in [
        (carried(length, CONTENT), true),
        (carried(length, b"another"), false),
        (carried(length + 1, CONTENT), false),
        (carried(length - 1, CONTENT), false),
    ] {
        let mut manifest = manifest();
        manifest.index.files = vec![file];
        let stored = member("files/x.zst", Encoding::Stored, packed.len() as u64, packed.clone());
        write(&path, manifest, vec![stored]);
        assert_eq!(verify(&path).is_ok(), is_right);
    }
}
