//! Archives made to take memory, room or time. What they make us allocate is counted: in proportion to the length of
//! their headers and indices, 256 MiB at most beyond what is taken out of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod forged;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::manifest::{CarriedFile, Encoding};
use hetckpt_archive::member::tar_header;
use hetckpt_archive::packed_state::{self, PackedStateError};
use hetckpt_archive::reader::Archive;
use hetckpt_state::codec::CodecError;
use hetckpt_state::names::FORMAT_VERSION;

use forged::{add, end_at, manifest, member, member_of_parts, write, write_texts};

/// A third of what a header or an index may have, and of what it may take.
const TEXT_BYTES: usize = 21 << 20;
const MOST_BYTES: u64 = (256 << 20) / 3;

/// The text of `value`, whose `field` is `content` now.
fn replaced(value: &impl serde::Serialize, field: &str, content: &str) -> String {
    let mut value = serde_json::to_value(value).unwrap();
    value.as_object_mut().unwrap().remove(field);
    let rest = serde_json::to_string(&value).unwrap();
    format!("{{\"{field}\":{content},{}", rest.strip_prefix('{').unwrap())
}

/// A list that is nothing but `element`, of [`TEXT_BYTES`].
fn list_of(element: &str) -> String {
    format!("[{}]", vec![element; TEXT_BYTES / (element.len() + 1)].join(","))
}

/// Opens an archive that has these texts, and sees what that takes.
fn open_with(folder: &Path, header: &str, index: &str, what: &str) -> Result<Archive, ArchiveError> {
    let path = folder.join("a.hetsnap");
    write_texts(&path, header.as_bytes(), index.as_bytes(), &[]);
    let mut opened = None;
    let allocated = allocation_counter::measure(|| opened = Some(Archive::open(&path)));
    assert!(allocated.bytes_max < MOST_BYTES, "{what}: {allocated:?}");
    opened.unwrap()
}

#[test]
fn large_texts_take_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (header, index) = (manifest().header, manifest().index);
    let plain = (
        serde_json::to_string(&header).unwrap(),
        serde_json::to_string(&index).unwrap(),
    );
    let part = format!("[0,0,\"{}\"]", "0".repeat(64));
    for (field, element) in [
        ("processes", "{\"\":0}".to_owned()),
        ("members", "[\"\",\"zstd\",[]]".to_owned()),
        ("members", format!("[\"\",\"zstd\",[{part}]]")),
        ("files", "[\"\",\"\",0,0,\"\"]".to_owned()),
    ] {
        let hostile = replaced(&index, field, &list_of(&element));
        let opened = open_with(folder.path(), &plain.0, &hostile, field);
        assert!(matches!(opened, Err(ArchiveError::Damaged { .. })), "{field}");
    }
    let parts = format!("[[\"a\",\"zstd\",{}]]", list_of(&part));
    let opened = open_with(folder.path(), &plain.0, &replaced(&index, "members", &parts), "parts");
    assert!(matches!(opened, Err(ArchiveError::Damaged { .. })));
    // One process, whose description is a list of the smallest things that take most.
    let process = format!("[{{\"summary\":{}}}]", list_of("{\"\":0}"));
    let opened = open_with(
        folder.path(),
        &plain.0,
        &replaced(&index, "processes", &process),
        "one process",
    );
    assert!(matches!(opened, Err(ArchiveError::Damaged { .. })));
    // Words, and a text that must be put together.
    for command in [list_of("\"\""), format!("[\"{}\\n\"]", "x".repeat(TEXT_BYTES))] {
        let opened = open_with(
            folder.path(),
            &replaced(&header, "command", &command),
            &plain.1,
            "command",
        );
        assert!(matches!(opened, Err(ArchiveError::Damaged { .. })));
    }
}

/// A zstd frame of zeros: `num_blocks` blocks of 128 KiB, of four bytes each. Its header says that it holds
/// `said_bytes`.
fn frame_of_zeros(num_blocks: usize, said_bytes: u64) -> Vec<u8> {
    const RLE: u32 = 1 << 1;
    const LAST: u32 = 1;
    const BLOCK_BYTES: u32 = 128 << 10;
    // Eight bytes of length, a window of 128 KiB, no checksum.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 7 << 3];
    frame.extend(said_bytes.to_le_bytes());
    for at in 1..=num_blocks {
        let last = if at == num_blocks { LAST } else { 0 };
        frame.extend(&(BLOCK_BYTES << 3 | RLE | last).to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// Counts what it takes.
struct Counting(u64);

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_member_unpacks_to_what_the_index_says_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let size_bytes = 4096 * (128 << 10);
    let frame = frame_of_zeros(4096, size_bytes);
    for (said_bytes, most_bytes) in [(size_bytes, size_bytes), (5_000_000, 5_000_000), (0, 0)] {
        write(
            &path,
            manifest(),
            vec![member("criu/x.zst", Encoding::Zstd, said_bytes, frame.clone())],
        );
        let archive = Archive::open(&path).unwrap();
        let member = archive.members().next().unwrap();
        let mut out = Counting(0);
        let allocated = allocation_counter::measure(|| {
            let unpacked = archive.extract(member, &mut out);
            assert_eq!(unpacked.is_ok(), said_bytes == size_bytes);
        });
        assert!(out.0 <= most_bytes, "{} bytes", out.0);
        assert!(allocated.bytes_max < 32 << 20, "{allocated:?}");
    }
}

#[test]
fn a_length_that_no_member_can_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let frame = frame_of_zeros(1, 128 << 10);
    for (encoding, raw_bytes) in [
        (Encoding::Zstd, 1 << 40),
        (Encoding::Zstd, u64::MAX),
        (Encoding::Stored, frame.len() as u64 + 1),
        (Encoding::Stored, u64::MAX),
    ] {
        write(
            &path,
            manifest(),
            vec![member("criu/x.zst", encoding, raw_bytes, frame.clone())],
        );
        let error = Archive::open(&path).unwrap_err();
        assert!(error.to_string().contains("cannot have the length"), "{error}");
    }
}

#[test]
fn lengths_of_parts_are_possible_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let parts = |sizes: &[u64]| sizes.iter().map(|&size| (size, b"x".to_vec())).collect();
    for (parts, is_allowed) in [(parts(&[1, 1]), true), (parts(&[1, 2]), false), (parts(&[]), false)] {
        write(
            &path,
            manifest(),
            vec![member_of_parts("criu/x", Encoding::Stored, parts)],
        );
        assert_eq!(Archive::open(&path).is_ok(), is_allowed);
    }
    // What a second part is called.
    let members = vec![
        member_of_parts("criu/x", Encoding::Stored, parts(&[1, 1])),
        member("criu/x.part1", Encoding::Stored, 1, b"x".to_vec()),
    ];
    write(&path, manifest(), members);
    let error = Archive::open(&path).unwrap_err();
    assert!(error.to_string().contains("there are two members"), "{error}");
}

#[test]
fn two_members_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let packed = zstd::encode_all(&b"x"[..], 1).unwrap();
    let stored = |name| member(name, Encoding::Stored, 1, b"x".to_vec());
    for second in [
        stored("criu/x.img"),
        member("criu/x.img.zst", Encoding::Zstd, 1, packed.clone()),
    ] {
        write(&path, manifest(), vec![stored("criu/x.img"), second]);
        let error = Archive::open(&path).unwrap_err();
        assert!(error.to_string().contains("there are two members"), "{error}");
    }
}

#[test]
fn a_carried_file_has_a_member_of_its_own_and_a_length_that_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let packed = zstd::encode_all(&b"x"[..], 1).unwrap();
    let file = |path: &str, size_bytes| CarriedFile {
        path: path.into(),
        member: "files/x.zst".into(),
        size_bytes,
        mode: 0o100_755,
        blake3: blake3::hash(b"x").to_hex().to_string(),
    };
    for (files, is_allowed) in [
        (vec![file("/a", 1)], true),
        (vec![file("/a", 1), file("/b", 1)], false),
        (vec![file("/a", 1 << 40)], false),
        (vec![file("/a", u64::MAX)], false),
    ] {
        let stored = member("files/x.zst", Encoding::Stored, packed.len() as u64, packed.clone());
        let mut manifest = manifest();
        manifest.index.files = files;
        write(&path, manifest, vec![stored]);
        assert_eq!(Archive::open(&path).is_ok(), is_allowed);
    }
}

#[test]
fn what_an_archive_says_wrongly_is_told_in_few_plain_characters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    write(
        &path,
        manifest(),
        vec![member("device/x", Encoding::Stored, 1, b"x".to_vec())],
    );
    let archive = Archive::open(&path).unwrap();
    let header = serde_json::to_string(&archive.manifest().header).unwrap();
    let index = serde_json::to_string(&archive.manifest().index).unwrap();
    let hostile = format!("\"\\u001b]0;{}\\u202e\"", "x".repeat(1 << 20));
    for word in ["stored", "device/x", "test", "hetckpt-snapshot"] {
        let changed = |text: &str| text.replacen(&format!("\"{word}\""), &hostile, 1);
        let texts = (changed(&header), changed(&index));
        assert_ne!(texts, (header.clone(), index.clone()));
        let files = [("device/x".to_owned(), b"x".to_vec())];
        write_texts(&path, texts.0.as_bytes(), texts.1.as_bytes(), &files);
        let error = Archive::open(&path).unwrap_err().to_string();
        assert!(
            error.len() < 1000 && !error.contains(char::is_control),
            "{word}: {error:.1000}"
        );
    }
}

#[test]
fn what_is_no_regular_file_is_no_archive() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    for path in [&*pipe, folder.path(), Path::new("/dev/zero")] {
        let error = Archive::open(path).unwrap_err();
        assert!(matches!(error, ArchiveError::NotAnArchive { .. }), "{error:?}");
    }
}

#[test]
fn room_is_looked_at_before_anything_is_unpacked() {
    const STORED_BYTES: u64 = 1 << 40;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    // A hole, which takes no room here.
    let (first, _) = member("criu/a.img", Encoding::Stored, 1, b"x".to_vec());
    let (mut second, _) = member("criu/b.img.zst", Encoding::Zstd, 0, vec![]);
    second.parts[0].stored_bytes = STORED_BYTES;
    second.parts[0].raw_bytes = STORED_BYTES << 15;
    let mut manifest = manifest();
    manifest.index.members = vec![first, second];
    let header = serde_json::to_vec(&manifest.header).unwrap();
    let index = serde_json::to_vec(&manifest.index).unwrap();
    let mut bytes = vec![];
    add(&mut bytes, "header.json", &header);
    add(&mut bytes, "criu/a.img", b"x");
    bytes.extend(tar_header("criu/b.img.zst", STORED_BYTES).unwrap().as_bytes());
    let behind = bytes.len() as u64 + STORED_BYTES;
    fs::write(&path, bytes).unwrap();
    let mut end = vec![];
    end_at(&mut end, &header, &index, behind);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(behind)).unwrap();
    file.write_all(&end).unwrap();

    let archive = Archive::open(&path).unwrap();
    let out = folder.path().join("out");
    match archive.extract_all("criu/", &out).unwrap_err() {
        ArchiveError::Io {
            action: "write",
            path,
            source,
        } => {
            assert_eq!((path, source.kind()), (out.clone(), io::ErrorKind::StorageFull));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    // What there is room for is taken out.
    archive
        .extract_where(
            &out,
            |member| (member.raw_name() == "criu/a.img").then_some("a"),
            &mut |_| (),
        )
        .unwrap();
    assert_eq!(fs::read(out.join("a")).unwrap(), b"x");
}

/// The error of unpacking a state, which takes little memory.
fn state_error(packed: &[u8]) -> PackedStateError {
    let mut error = None;
    let allocated = allocation_counter::measure(|| error = packed_state::unpack(packed).err());
    assert!(allocated.bytes_max < 1 << 20, "{allocated:?}");
    error.unwrap()
}

#[test]
fn a_state_takes_no_more_memory_than_it_is() {
    let mut head = b"hetstate".to_vec();
    head.extend(u64::from(FORMAT_VERSION).to_le_bytes());
    // A state of a gibibyte that is small and has zeros behind.
    let zeros = io::Read::take(io::repeat(0), 1 << 30);
    let mut encoder = zstd::Encoder::new(vec![], 1).unwrap();
    encoder.set_pledged_src_size(Some((1 << 30) + 16)).unwrap();
    io::copy(&mut io::Read::chain(&head[..], zeros), &mut encoder).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 100_000);
    let error = state_error(&packed);
    assert!(
        matches!(error, PackedStateError::Codec(CodecError::TrailingBytes { .. })),
        "{error:?}"
    );
    // What says that it is larger than it can be, or not how large it is.
    for said_bytes in [4 << 30, 1 << 40, u64::MAX - 3] {
        let error = state_error(&frame_of_zeros(10, said_bytes));
        assert!(
            matches!(error, PackedStateError::Size { size_bytes, .. } if size_bytes == said_bytes),
            "{error:?}"
        );
    }
    for unsaid in [
        zstd::encode_all(&head[..], 1).unwrap(),
        vec![],
        b"no frame at all".to_vec(),
    ] {
        assert!(matches!(state_error(&unsaid), PackedStateError::NotAFrame));
    }
    // Another length than the header says.
    for said_bytes in [0, 1, 128 << 10] {
        let error = state_error(&frame_of_zeros(2, said_bytes));
        assert!(matches!(error, PackedStateError::Codec(_)), "{error:?}");
    }
}
