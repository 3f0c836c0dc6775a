//! Archives written and read back, and damaged in every way that a disk or a person can.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

mod forged;

use std::cell::Cell;
use std::fs;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::file_id::FileId;
use hetckpt_archive::manifest::{CarriedFile, Encoding, INCREMENTAL_VERSION};
use hetckpt_archive::member::tar_header;
use hetckpt_archive::part_appender::PartAppender;
use hetckpt_archive::part_pipeline::PART_BYTES;
use hetckpt_archive::reader::Archive;
use hetckpt_archive::sections::Whole;
use hetckpt_archive::stream_writer::{ArchiveStream, Compression};
use hetckpt_archive::verify::verify;
use hetckpt_archive::writer::{self, ArchiveName, Options, Source};

use forged::manifest;

fn sources(folder: &Path) -> Vec<Source> {
    let mut noise = 1u32;
    let bytes: Vec<u8> = (0..300_001)
        .map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .collect();
    fs::write(folder.join("pages"), &bytes).unwrap();
    fs::write(folder.join("core"), vec![7u8; 100_000]).unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    [
        ("criu/pages-1.img", "pages", Encoding::Zstd),
        ("device/mem", "core", Encoding::Stored),
        ("criu/e", "empty", Encoding::Zstd),
    ]
    .into_iter()
    .map(|(name, file, encoding)| Source {
        name: name.into(),
        path: folder.join(file),
        encoding,
    })
    .collect()
}

fn write_to(folder: &Path) -> PathBuf {
    let target = folder.join("job.hetsnap");
    let size = writer::write(
        &ArchiveName::find(&target),
        manifest(),
        &sources(folder),
        Options::default(),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(fs::metadata(&target).unwrap().len(), size);
    target
}

#[test]
fn what_goes_in_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let archive = verify(&write_to(folder.path())).unwrap();
    let out = folder.path().join("out");
    archive.extract_all("criu/", &out).unwrap();
    archive.extract_all("device/", &out).unwrap();
    for (name, original) in [("pages-1.img", "pages"), ("mem", "core"), ("e", "empty")] {
        assert!(
            fs::read(out.join(name)).unwrap() == fs::read(folder.path().join(original)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(archive.manifest().header, manifest().header);
}

#[test]
fn a_carried_file_that_could_escape_is_refused() {
    for (path, member) in [
        ("/../../etc/cron.d/x", "device/mem"),
        ("etc/cron.d/x", "device/mem"),
        ("/opt/x", "device/../mem"),
        ("/opt/x", "files/none"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("job.hetsnap");
        let mut manifest = manifest();
        manifest.index.files = vec![CarriedFile {
            path: path.into(),
            member: member.into(),
            size_bytes: 1,
            mode: 0o100_755,
            blake3: String::new(),
        }];
        let error = writer::write(
            &ArchiveName::find(&target),
            manifest,
            &sources(folder.path()),
            Options::default(),
            &mut |_| {},
        );
        let error = error.unwrap_err();
        assert!(error.to_string().contains("is not allowed"), "{error}");
        assert!(!target.exists());
    }
}

#[test]
fn plain_tar_and_zstd_open_it() {
    let folder = tempfile::tempdir().unwrap();
    let target = write_to(folder.path());
    let status = Command::new("tar")
        .arg("-xf")
        .arg(&target)
        .arg("-C")
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    let unpacked = zstd::decode_all(&fs::read(folder.path().join("criu/pages-1.img.zst")).unwrap()[..]).unwrap();
    assert!(unpacked == fs::read(folder.path().join("pages")).unwrap());
    let text: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join("header.json")).unwrap()).unwrap();
    assert_eq!(text["root_pid"], 42);
}

#[test]
fn archive_and_members_are_for_the_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let target = write_to(folder.path());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn every_truncation_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(write_to(folder.path())).unwrap();
    let cut = folder.path().join("cut");
    for length in (0..whole.len()).step_by(997).chain([whole.len() - 1]) {
        fs::write(&cut, &whole[..length]).unwrap();
        assert!(verify(&cut).is_err(), "cut to {length} bytes");
    }
}

#[test]
fn flipped_bits_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(write_to(folder.path())).unwrap();
    let flipped = folder.path().join("flipped");
    let original = folder.path().join("out0");
    Archive::open(&folder.path().join("job.hetsnap"))
        .unwrap()
        .extract_all("", &original)
        .unwrap();
    for position in (0..whole.len()).step_by(1009) {
        let mut bytes = whole.clone();
        bytes[position] ^= 1 << (position % 8);
        fs::write(&flipped, &bytes).unwrap();
        // What no reader looks at (padding, the end mark, unused header fields) may differ; the contents may not.
        if let Ok(archive) = verify(&flipped) {
            let out = tempfile::tempdir_in(folder.path()).unwrap();
            archive.extract_all("", out.path()).unwrap();
            for name in ["criu/pages-1.img", "device/mem", "criu/e"] {
                let same = fs::read(out.path().join(name)).unwrap() == fs::read(original.join(name)).unwrap();
                assert!(same, "byte {position} flipped: {name} differs");
            }
        }
    }
}

#[test]
fn newer_version_is_told_from_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut newer = manifest();
    newer.header.format_version = INCREMENTAL_VERSION + 1;
    let target = folder.path().join("new.hetsnap");
    let error = writer::write(
        &ArchiveName::find(&target),
        newer,
        &sources(folder.path()),
        Options::default(),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        matches!(error, ArchiveError::Version { found, .. } if found == INCREMENTAL_VERSION + 1),
        "{error}"
    );
    assert!(!target.exists(), "an archive that does not verify is not published");
}

#[test]
fn other_files_are_no_archives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for bytes in [&b""[..], b"hello", &[0u8; 4096], &[0xff; 4096]] {
        fs::write(&path, bytes).unwrap();
        assert!(matches!(
            verify(&path),
            Err(ArchiveError::NotAnArchive { .. } | ArchiveError::Damaged { .. })
        ));
    }
    assert!(matches!(
        verify(&folder.path().join("absent")),
        Err(ArchiveError::Io { .. })
    ));
}

#[test]
fn nothing_is_left_behind_when_a_source_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = sources(folder.path());
    sources[1].path = folder.path().join("absent");
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let result = writer::write(
        &ArchiveName::find(&out.join("a.hetsnap")),
        manifest(),
        &sources,
        Options::default(),
        &mut |_| {},
    );
    assert!(matches!(result, Err(ArchiveError::Io { action: "read", .. })));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}

#[test]
fn what_is_interrupted_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sources = sources(folder.path());
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    // At each moment at which it is asked, the last of them when all is written.
    for moment in 0.. {
        let asked = Cell::new(0);
        let is_interrupted = || asked.replace(asked.get() + 1) >= moment;
        let options = Options {
            is_interrupted: Some(&is_interrupted),
            ..Options::default()
        };
        let name = ArchiveName::find(&out.join("a.hetsnap"));
        match writer::write(&name, manifest(), &sources, options, &mut |_| {}) {
            Ok(_) => return assert!(moment > 4 && asked.get() == moment),
            Err(error) => assert!(matches!(error, ArchiveError::Interrupted { .. }), "{error}"),
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
}

#[test]
fn a_name_that_somebody_else_has_taken_meanwhile_is_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let sources = sources(folder.path());
    let target = folder.path().join("job.hetsnap");
    let write = |name: &ArchiveName| writer::write(name, manifest(), &sources, Options::default(), &mut |_| {});
    let (first, second) = (ArchiveName::find(&target), ArchiveName::find(&target));
    write(&first).unwrap();
    let written = fs::read(&target).unwrap();
    for name in [&second, &first] {
        assert!(matches!(write(name).unwrap_err(), ArchiveError::NameTaken { .. }));
        assert_eq!(fs::read(&target).unwrap(), written);
    }
    let third = ArchiveName::find(&target);
    let id_file = folder.path().join("id");
    let options = Options {
        id_file: Some(&id_file),
        ..Options::default()
    };
    writer::write(&third, manifest(), &sources, options, &mut |_| {}).unwrap();
    let id = FileId::at(&target).unwrap();
    assert_eq!(fs::read_to_string(&id_file).unwrap(), id.to_string());
    fs::remove_file(&target).unwrap();
    write(&third).unwrap();
}

#[test]
fn whatever_takes_bytes_gets_the_same_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_to(folder.path());
    let mut bytes: Vec<u8> = vec![];
    let sources = sources(folder.path());
    let options = Options::default();
    let written = writer::write_to(&mut bytes, &path, manifest(), &sources, options, &mut |_| {}).unwrap();
    assert_eq!(written.size_bytes, bytes.len() as u64);
    assert_eq!(bytes, fs::read(&path).unwrap());
    assert_eq!(verify(&path).unwrap().manifest_hash(), written.manifest_hash);
}

#[test]
fn large_files_are_members_of_several_parts() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..2 * PART_BYTES + 3).map(|at| (at >> 12) as u8).collect();
    let exact = &content[..PART_BYTES];
    let mut bytes: Vec<u8> = vec![];
    let mut stream = ArchiveStream::new(
        &mut bytes,
        Path::new("there"),
        &manifest().header,
        Compression::default(),
    )
    .unwrap();
    for (name, encoding, content) in [
        ("criu/large", Encoding::Zstd, &content[..]),
        ("device/large", Encoding::Stored, &content),
        ("device/exact", Encoding::Stored, exact),
        ("device/empty", Encoding::Stored, &[]),
    ] {
        stream.add(name, encoding, Whole(content), &mut |_| {}).unwrap();
    }
    stream.finish(manifest().index).unwrap();
    let path = folder.path().join("a.hetsnap");
    fs::write(&path, bytes).unwrap();
    let archive = verify(&path).unwrap();
    let parts: Vec<usize> = archive.members().map(|member| member.entry.parts.len()).collect();
    assert_eq!(parts, [3, 3, 1, 1]);
    let out = folder.path().join("out");
    archive.extract_all("", &out).unwrap();
    assert!(fs::read(out.join("criu/large")).unwrap() == content);
    assert!(fs::read(out.join("device/large")).unwrap() == content);
    assert!(fs::read(out.join("device/exact")).unwrap() == exact);
    assert!(fs::read(out.join("device/empty")).unwrap().is_empty());
    // With tar, cat and zstd alone.
    let script = "tar -xf a.hetsnap && cat criu/large.zst criu/large.zst.part1 criu/large.zst.part2 | zstd -dc | cmp - out/criu/large";
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder.path())
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn the_format_that_was_never_released_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.hetsnap");
    let mut bytes = vec![];
    forged::add(
        &mut bytes,
        "manifest.json",
        b"{\"format\":\"hetckpt-snapshot\",\"format_version\":1}",
    );
    bytes.resize(bytes.len() + 1024, 0);
    fs::write(&path, bytes).unwrap();
    let error = Archive::open(&path).unwrap_err();
    assert!(matches!(error, ArchiveError::Version { found: 1, .. }), "{error}");
}

#[test]
fn a_member_that_claims_all_bytes_there_can_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::open(&write_to(folder.path())).unwrap();
    let mut manifest = archive.manifest().clone();
    let claimed = u64::MAX - 511;
    manifest.index.members.truncate(1);
    manifest.index.members[0].parts[0].stored_bytes = claimed;
    let (header, index) = (
        serde_json::to_vec(&manifest.header).unwrap(),
        serde_json::to_vec(&manifest.index).unwrap(),
    );
    let mut bytes = vec![];
    forged::add(&mut bytes, "header.json", &header);
    bytes.extend(tar_header(&manifest.index.members[0].name, claimed).unwrap().as_bytes());
    forged::add_end(&mut bytes, &header, &index);
    let path = folder.path().join("claims.hetsnap");
    fs::write(&path, bytes).unwrap();
    match Archive::open(&path) {
        Err(ArchiveError::Damaged { what, .. }) => assert!(what.starts_with("it ends inside member"), "{what}"),
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Several threads append pieces while whoever writes the archive waits; another member has none.
#[test]
fn what_others_append_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.hetsnap");
    let mut file = &fs::File::create_new(&path).unwrap();
    let header = manifest().header;
    let mut stream = ArchiveStream::new(file, &path, &header, Compression::default()).unwrap();
    let pieces: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; usize::from(n) * 100 + 1]).collect();
    let appender = PartAppender::new(file, "device/mem").unwrap();
    let places: Vec<(u64, &[u8])> = std::thread::scope(|scope| {
        let add = |piece: &[u8]| appender.add(piece, blake3::hash(piece)).unwrap();
        let threads: Vec<_> = pieces
            .iter()
            .map(|piece| scope.spawn(move || (add(piece), &piece[..])))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = appender.finish().unwrap();
    assert_eq!(first.position, stream.position());
    stream.adopt("device/mem", first.parts, vec![]).unwrap();
    let second = PartAppender::new(file, "device/none").unwrap().finish().unwrap();
    assert_eq!(second.position, stream.position());
    stream.adopt("device/none", second.parts, vec![]).unwrap();
    file.seek(SeekFrom::Start(stream.position())).unwrap();
    stream
        .add("criu/e", Encoding::Zstd, Whole(&b"after"[..]), &mut |_| {})
        .unwrap();
    let written = stream.finish(manifest().index).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), written.size_bytes);

    let archive = verify(&path).unwrap();
    let out = folder.path().join("out");
    archive.extract_all("device/", &out).unwrap();
    let memory = fs::read(out.join("mem")).unwrap();
    for (offset, piece) in places {
        let at = usize::try_from(offset).unwrap();
        assert_eq!(&memory[at..at + piece.len()], piece);
    }
    assert!(fs::read(out.join("none")).unwrap().is_empty());
}
