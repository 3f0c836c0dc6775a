//! A disk that is full is not a damaged archive, nor is a folder that cannot be written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod forged;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use hetckpt_archive::carried::{self, CarriedError};
use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::manifest::{CarriedFile, Encoding, MemberEntry};
use hetckpt_archive::reader::Archive;

use forged::{manifest, member, write};

const RAW_BYTES: usize = 3 << 20;

fn members() -> Vec<(MemberEntry, Vec<Vec<u8>>)> {
    let raw = vec![7; RAW_BYTES];
    let packed = zstd::encode_all(&raw[..], 1).unwrap();
    vec![
        member("criu/x.img.zst", Encoding::Zstd, RAW_BYTES as u64, packed),
        member("device/x.mem", Encoding::Stored, RAW_BYTES as u64, raw),
    ]
}

fn archive(folder: &Path) -> Archive {
    let path = folder.join("a.hetsnap");
    write(&path, manifest(), members());
    Archive::open(&path).unwrap()
}

/// Takes what fits, as the disk does.
struct Disk {
    room: usize,
}

impl io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        match taken {
            0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ensure_is_of_writing(error: ArchiveError, expected: &Path) {
    match error {
        ArchiveError::Io {
            action: "write",
            path,
            source,
        } => assert_eq!((&*path, source.kind()), (expected, io::ErrorKind::StorageFull)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_is_told_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    for room in [0, 1, RAW_BYTES / 2, RAW_BYTES - 1] {
        for (member, name) in archive.members().zip(["criu/x.img", "device/x.mem"]) {
            let error = archive.extract(member, &mut Disk { room }).unwrap_err();
            ensure_is_of_writing(error, Path::new(name));
        }
    }
    let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (member, name) in archive.members().zip(["criu/x.img", "device/x.mem"]) {
        let error = archive.extract(member, &mut full).unwrap_err();
        ensure_is_of_writing(error, Path::new(name));
    }
    // The next is unpacked as if nothing had been.
    for member in archive.members() {
        archive.extract(member, &mut Disk { room: RAW_BYTES }).unwrap();
    }
}

#[test]
fn what_comes_first_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hetsnap");
    let (mut entry, stored) = members().remove(0);
    entry.parts[0].blake3 = blake3::Hash::from_bytes([0; 32]);
    write(&path, manifest(), vec![(entry, stored)]);
    let archive = Archive::open(&path).unwrap();
    let member = archive.members().next().unwrap();
    for (room, is_damaged) in [(0, false), (RAW_BYTES, true)] {
        let error = archive.extract(member, &mut Disk { room }).unwrap_err();
        assert_eq!(matches!(error, ArchiveError::Damaged { .. }), is_damaged, "{error}");
    }
}

#[test]
fn a_carried_file_that_cannot_be_read_is_not_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("x");
    fs::write(&source, "content").unwrap();
    let packed = folder.path().join("packed");
    let file: CarriedFile = {
        let mut out = File::create(&packed).unwrap();
        carried::pack(File::open(&source).unwrap(), "/opt/x", "files/x.zst", &mut out).unwrap()
    };
    // A folder can be opened, but not read.
    let unreadable: PathBuf = folder.path().to_owned();
    let target = folder.path().join("out");
    match carried::unpack(&file, &unreadable, &target) {
        Err(CarriedError::Io { path, .. }) => assert_eq!(path, unreadable),
        other => panic!("{other:?}"),
    }
    assert!(!target.exists());
}
