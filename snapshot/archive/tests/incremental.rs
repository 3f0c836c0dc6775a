//! Archives that borrow from others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod forged;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hetckpt_archive::carried;
use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::known_parts::KnownParts;
use hetckpt_archive::manifest::{Borrowed, Encoding, FORMAT_VERSION, INCREMENTAL_VERSION, Manifest, Parent};
use hetckpt_archive::memory_source::MemorySource;
use hetckpt_archive::merge;
use hetckpt_archive::part_appender::PartAppender;
use hetckpt_archive::reader::Archive;
use hetckpt_archive::sections::{Sections, Whole};
use hetckpt_archive::stream_writer::{ArchiveStream, Compression};
use hetckpt_archive::verify::verify;

use forged::{manifest, member, write};

const MEMBER: &str = "device/mem";

fn lent(parent: u32, offset_bytes: u64, size_bytes: u64) -> Borrowed {
    Borrowed {
        parent,
        member: MEMBER.to_owned(),
        offset_bytes,
        size_bytes,
        after_parts: None,
    }
}

fn listed(archive: &Path) -> Parent {
    Parent {
        file: archive.file_name().unwrap().to_str().unwrap().to_owned(),
        manifest: blake3::Hash::from_hex(Archive::open(archive).unwrap().manifest_hash()).unwrap(),
    }
}

/// Writes the archive `name` with `pieces` of memory, and more from `parents`.
fn archive(folder: &Path, name: &str, pieces: &[&[u8]], parents: &[&Path], borrowed: Vec<Borrowed>) -> PathBuf {
    let path = folder.join(name);
    let mut file = &fs::File::create_new(&path).unwrap();
    let Manifest { mut header, mut index } = manifest();
    header.format_version = INCREMENTAL_VERSION;
    index.parents = parents.iter().map(|parent| listed(parent)).collect();
    let mut stream = ArchiveStream::new(file, &path, &header, Compression::default()).unwrap();
    let appender = PartAppender::new(file, MEMBER).unwrap();
    for piece in pieces {
        appender.add(piece, blake3::hash(piece)).unwrap();
    }
    stream
        .adopt(MEMBER, appender.finish().unwrap().parts, borrowed)
        .unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(stream.position())).unwrap();
    stream
        .add("criu/e", Encoding::Zstd, Whole(name.as_bytes()), &mut |_| {})
        .unwrap();
    stream.finish(index).unwrap();
    path
}

/// Three, of which the last borrows from both others, whole parts and some of them, and has nothing itself.
fn chain(folder: &Path) -> ([PathBuf; 3], Vec<u8>) {
    let first = archive(folder, "first", &[b"abcdef", b"", b"ghijkl", b"mnopqr"], &[], vec![]);
    let unused = archive(folder, "unused", &[b"none"], &[], vec![]);
    let second = archive(folder, "second", &[b"SECOND"], &[&first], vec![lent(0, 0, 12)]);
    let borrowed = vec![lent(2, 6, 6), lent(0, 1, 2), lent(2, 9, 6), lent(0, 0, 6)];
    let third = archive(folder, "third", &[], &[&second, &unused, &first], borrowed);
    ([first, second, third], b"ghijklECjklmnoSECOND".to_vec())
}

#[test]
fn what_is_borrowed_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let ([_, second, third], memory) = chain(folder.path());
    let archive = verify(&third).unwrap();
    // What nothing is borrowed from is not listed.
    assert_eq!(archive.manifest().index.parents.len(), 2);
    let out = folder.path().join("out");
    archive.extract_all("device/", &out).unwrap();
    assert_eq!(fs::read(out.join("mem")).unwrap(), memory);

    let place = archive.place(archive.locate(MEMBER).unwrap()).unwrap();
    let opened = [&archive].into_iter().chain(archive.parents().unwrap());
    let files = opened.map(|archive| fs::File::open(archive.path()).unwrap().into());
    let source = MemorySource::member(files.collect(), &place);
    for from in 0..memory.len() {
        let mut bytes = vec![0; memory.len() - from];
        source.read_exact_at(&mut bytes, from as u64).unwrap();
        assert_eq!(bytes, &memory[from..]);
    }
    assert_eq!(
        Archive::open(&second)
            .unwrap()
            .locate(MEMBER)
            .unwrap()
            .entry
            .raw_bytes(),
        18
    );
}

#[test]
fn a_merged_archive_needs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let ([first, second, third], memory) = chain(folder.path());
    let path = folder.path().join("merged");
    let archive = Archive::open(&third).unwrap();
    let file = fs::File::create_new(&path).unwrap();
    let mut stream = ArchiveStream::new(file, &path, &merge::header(&archive), Compression::default()).unwrap();
    let mut done = 0;
    let written = merge::merge(&archive, &mut stream, &mut |bytes| done = bytes).unwrap();
    assert!(done > 0 && fs::metadata(&path).unwrap().len() == written.size_bytes);
    for path in [first, second, third] {
        fs::remove_file(path).unwrap();
    }
    let merged = verify(&path).unwrap();
    assert_eq!(merged.manifest().header.format_version, FORMAT_VERSION);
    assert!(merged.manifest().index.parents.is_empty());
    for (name, content) in [(MEMBER, &memory[..]), ("criu/e.zst", b"third")] {
        let mut bytes = vec![];
        merged.extract(merged.locate(name).unwrap(), &mut bytes).unwrap();
        assert_eq!(bytes, content);
    }
}

#[test]
fn a_parent_that_is_away_or_another_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let ([first, _, third], _) = chain(folder.path());
    let away = folder.path().join("away");
    fs::rename(&first, &away).unwrap();
    // What it has itself can be told all the same.
    let archive = Archive::open(&third).unwrap();
    match archive.parents().map(drop) {
        Err(ArchiveError::NoParent { parent, .. }) => assert_eq!(parent, first.canonicalize().unwrap_or(first.clone())),
        other => panic!("{other:?}"),
    }
    assert!(matches!(verify(&third).map(drop), Err(ArchiveError::NoParent { .. })));
    fs::copy(folder.path().join("second"), &first).unwrap();
    assert!(matches!(
        archive.parents().map(drop),
        Err(ArchiveError::OtherParent { .. })
    ));
    // Links do not lead to other parents.
    fs::rename(&away, &first).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&third, elsewhere.path().join("link")).unwrap();
    verify(&elsewhere.path().join("link")).unwrap();
}

#[test]
fn damage_in_a_parent_is_found() {
    for byte in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let ([first, _, third], _) = chain(folder.path());
        let at = fs::read(&first)
            .unwrap()
            .windows(6)
            .position(|bytes| bytes == b"mnopqr")
            .unwrap();
        let file = fs::File::options().write(true).open(&first).unwrap();
        file.write_all_at(b"#", (at + byte) as u64).unwrap();
        // Also where only other bytes of the part are borrowed.
        assert!(matches!(verify(&third).map(drop), Err(ArchiveError::Damaged { .. })));
        let archive = Archive::open(&third).unwrap();
        let sink = std::io::sink();
        let mut stream = ArchiveStream::new(sink, &third, &merge::header(&archive), Compression::default()).unwrap();
        assert!(merge::merge(&archive, &mut stream, &mut |_| {}).is_err());
    }
}

#[test]
fn what_cannot_be_borrowed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = archive(folder.path(), "first", &[b"abcdef"], &[], vec![]);
    let path = folder.path().join("forged");
    let forge = |encoding, borrowed: Vec<Borrowed>| {
        let stored = match encoding {
            Encoding::Stored => b"own".to_vec(),
            Encoding::Zstd => zstd::bulk::compress(b"own", 1).unwrap(),
        };
        let name = match encoding {
            Encoding::Stored => MEMBER,
            Encoding::Zstd => "device/mem.zst",
        };
        let (mut entry, stored) = member(name, encoding, 3, stored);
        entry.borrowed = borrowed;
        let mut manifest = manifest();
        manifest.index.parents = vec![listed(&first)];
        write(&path, manifest, vec![(entry, stored)]);
        Archive::open(&path).and_then(|archive| archive.verify())
    };
    forge(Encoding::Stored, vec![lent(0, 2, 4)]).unwrap();
    let of_other = Borrowed {
        member: "criu/e.zst".to_owned(),
        ..lent(0, 0, 1)
    };
    forge(
        Encoding::Zstd,
        vec![Borrowed {
            size_bytes: 5,
            after_parts: Some(0),
            ..of_other.clone()
        }],
    )
    .unwrap();
    let unknown = Borrowed {
        member: "device/none".to_owned(),
        ..lent(0, 0, 1)
    };
    for (encoding, borrowed) in [
        (Encoding::Stored, lent(1, 0, 1)),
        (Encoding::Stored, lent(0, 0, 0)),
        (Encoding::Stored, lent(0, 2, 5)),
        (Encoding::Stored, lent(0, 7, 1)),
        (Encoding::Stored, lent(0, u64::MAX, 2)),
        // Of the other kind, and not a whole part.
        (Encoding::Zstd, lent(0, 0, 6)),
        (Encoding::Zstd, of_other.clone()),
        (
            Encoding::Stored,
            Borrowed {
                after_parts: Some(2),
                ..lent(0, 0, 1)
            },
        ),
        (Encoding::Stored, of_other),
        (Encoding::Stored, unknown),
    ] {
        let result = forge(encoding, vec![borrowed.clone()]);
        assert!(
            matches!(result, Err(ArchiveError::Damaged { .. })),
            "{borrowed:?}: {result:?}"
        );
    }
}

const PAGES: &str = "criu/pages-1.img";
const PAGES_MEMBER: &str = "criu/pages-1.img.zst";

/// What a section has: so many bytes, of a kind of its own.
fn content((kind, size): (u8, usize)) -> Vec<u8> {
    (0..size).map(|at| kind ^ (at >> 16) as u8).collect()
}

/// Bytes in sections.
struct Pages<'a> {
    sections: &'a [(u8, usize)],
    current: io::Cursor<Vec<u8>>,
}

impl Read for Pages<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.current.read(buffer)
    }
}

impl Sections for Pages<'_> {
    fn next_section(&mut self) -> io::Result<bool> {
        let Some((&next, rest)) = self.sections.split_first() else {
            return Ok(false);
        };
        (self.sections, self.current) = (rest, io::Cursor::new(content(next)));
        Ok(true)
    }
}

/// Writes the archive `name` with a member of these sections; gives it and what the member has.
fn archive_of_sections(path: &Path, sections: &[(u8, usize)], parents: &[&Path]) -> (Archive, Vec<u8>) {
    let Manifest { mut header, mut index } = manifest();
    header.format_version = INCREMENTAL_VERSION;
    index.parents = parents.iter().map(|parent| listed(parent)).collect();
    let file = fs::File::create_new(path).unwrap();
    let mut stream = ArchiveStream::new(file, path, &header, Compression::default()).unwrap();
    if let Some(parent) = parents.first() {
        let known = KnownParts::of(&Archive::open(parent).unwrap()).unwrap();
        stream.borrow_parts(known.into());
    }
    let pages = Pages {
        sections,
        current: io::Cursor::default(),
    };
    stream.add(PAGES, Encoding::Zstd, pages, &mut |_| {}).unwrap();
    stream.finish(index).unwrap();
    let content = sections.iter().flat_map(|&section| content(section)).collect();
    (verify(path).unwrap(), content)
}

#[test]
fn sections_that_are_known_are_borrowed_wherever_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    // More than a part, and less.
    let (a, b, c, d, e) = (
        (0, 9 << 20),
        (0x20, 1 << 20),
        (0x40, 4097),
        (0x60, 1 << 20),
        (0x80, 70_000),
    );
    let (first, _) = archive_of_sections(&path("first"), &[a, b, c], &[]);
    assert_eq!(first.locate(PAGES_MEMBER).unwrap().entry.parts.len(), 5);
    let (second, content) = archive_of_sections(&path("second"), &[a, d, c, b], &[&path("first")]);
    let entry = second.locate(PAGES_MEMBER).unwrap().entry;
    assert_eq!((entry.parts.len(), entry.raw_bytes()), (1, content.len() as u64));
    // `c` and `b` stand the other way round there.
    let places = entry
        .borrowed
        .iter()
        .map(|borrowed| (borrowed.after_parts, borrowed.size_bytes));
    assert_eq!(
        places.collect::<Vec<_>>(),
        [(Some(0), 9 << 20), (Some(1), 4097), (Some(1), 1 << 20)]
    );
    // What the first one lent the second one comes from there.
    let (third, content) = archive_of_sections(&path("third"), &[e, a, d, b], &[&path("second"), &path("first")]);
    let entry = third.locate(PAGES_MEMBER).unwrap().entry;
    let parents = entry.borrowed.iter().map(|borrowed| borrowed.parent);
    assert_eq!((entry.parts.len(), parents.collect::<Vec<_>>()), (1, vec![1, 0, 1]));
    // All of it.
    let (fourth, _) = archive_of_sections(
        &path("fourth"),
        &[d, b],
        &[&path("third"), &path("second"), &path("first")],
    );
    assert!(fourth.locate(PAGES_MEMBER).unwrap().entry.parts.is_empty());
    assert_eq!(fourth.manifest().index.parents.len(), 2);

    let out = path("out");
    third.extract_all("criu/", &out).unwrap();
    assert!(fs::read(out.join("pages-1.img")).unwrap() == content);
    let merged = path("merged");
    let file = fs::File::create_new(&merged).unwrap();
    let mut stream = ArchiveStream::new(file, &merged, &merge::header(&third), Compression::default()).unwrap();
    merge::merge(&third, &mut stream, &mut |_| {}).unwrap();
    for name in ["first", "second", "third"] {
        fs::remove_file(path(name)).unwrap();
    }
    let mut bytes = vec![];
    let merged = verify(&merged).unwrap();
    merged
        .extract(merged.locate(PAGES_MEMBER).unwrap(), &mut bytes)
        .unwrap();
    assert!(bytes == content);
}

#[test]
fn a_carried_file_can_be_borrowed() {
    const FILE: &str = "files/hetckpt-file-0.zst";
    let folder = tempfile::tempdir().unwrap();
    let content = vec![7; 300_000];
    fs::write(folder.path().join("library"), &content).unwrap();
    let input = || fs::File::open(folder.path().join("library")).unwrap();
    let packed = folder.path().join("packed");
    let carried_file = carried::pack(input(), "/opt/library", FILE, &mut fs::File::create(&packed).unwrap()).unwrap();
    assert_eq!(carried::describe(&input(), "/opt/library", FILE).unwrap(), carried_file);

    let archive = |name: &str, stored: &[u8], parents: Vec<Parent>, borrowed: Vec<Borrowed>| {
        let path = folder.path().join(name);
        let file = fs::File::create_new(&path).unwrap();
        let Manifest { header, mut index } = manifest();
        index.files = vec![carried_file.clone()];
        index.parents = parents;
        let mut stream = ArchiveStream::new(file, &path, &header, Compression::default()).unwrap();
        stream.add(FILE, Encoding::Stored, Whole(stored), &mut |_| {}).unwrap();
        stream.lend(FILE, borrowed);
        stream.finish(index).unwrap();
        path
    };
    let stored = fs::read(&packed).unwrap();
    let borrowed = Borrowed {
        member: FILE.to_owned(),
        ..lent(0, 0, stored.len() as u64)
    };
    let first = archive("first", &stored, vec![], vec![]);
    let second = archive("second", b"", vec![listed(&first)], vec![borrowed.clone()]);
    let out = folder.path().join("out");
    verify(&second).unwrap().extract_all("files/", &out).unwrap();
    let target = folder.path().join("target");
    carried::unpack(&carried_file, &out.join("hetckpt-file-0.zst"), &target).unwrap();
    assert_eq!(fs::read(target).unwrap(), content);
    // What has something itself borrows nothing.
    let third = archive("third", &stored, vec![listed(&first)], vec![borrowed]);
    assert!(verify(&third).unwrap().manifest().index.parents.is_empty());
}
