//! Members taken from their beginning to their end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod forged;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::manifest::Encoding;
use hetckpt_archive::part_pipeline::PART_BYTES;
use hetckpt_archive::read_ahead::ReadAhead;
use hetckpt_archive::reader::Archive;
use hetckpt_archive::writer::{self, ArchiveName, Options, Source};

use forged::manifest;

/// More parts than may wait for their turn.
const NUM_PARTS: usize = 15;

/// No two parts are the same.
fn content(seed: u8) -> Vec<u8> {
    let mut bytes = vec![seed; NUM_PARTS * PART_BYTES + 5];
    for number in 0..NUM_PARTS {
        bytes[number * PART_BYTES] = number as u8;
    }
    bytes
}

/// An archive of members `0`, `1`, …
fn archive(folder: &Path, num_members: u8, encoding: Encoding) -> Archive {
    let sources: Vec<Source> = (0..num_members)
        .map(|seed| {
            let path = folder.join(seed.to_string());
            fs::write(&path, content(seed)).unwrap();
            let name = format!("criu/{seed}");
            Source { name, path, encoding }
        })
        .collect();
    let path = folder.join("job.hetsnap");
    writer::write(
        &ArchiveName::find(&path),
        manifest(),
        &sources,
        Options::default(),
        &mut |_| {},
    )
    .unwrap();
    Archive::open(&path).unwrap()
}

fn extract(ahead: &ReadAhead, archive: &Archive, seed: u8, out: &mut (impl Write + Send)) -> Result<(), ArchiveError> {
    ahead.extract(archive, archive.locate(&format!("criu/{seed}.zst")).unwrap(), out)
}

#[test]
fn many_at_the_same_time_come_whole_and_in_order() {
    const NUM_MEMBERS: u8 = 6;
    let folder = tempfile::tempdir().unwrap();
    let (archive, ahead) = (
        archive(folder.path(), NUM_MEMBERS, Encoding::Zstd),
        ReadAhead::default(),
    );
    thread::scope(|scope| {
        for seed in 0..NUM_MEMBERS {
            let (archive, ahead) = (&archive, &ahead);
            scope.spawn(move || {
                let mut out = vec![];
                extract(ahead, archive, seed, &mut out).unwrap();
                assert!(out == content(seed), "{seed}");
            });
        }
    });
}

/// Takes so many bytes.
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whoever_has_had_enough_is_told_and_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, ahead) = (archive(folder.path(), 1, Encoding::Zstd), ReadAhead::default());
    for _ in 0..5 {
        let stopped = extract(&ahead, &archive, 0, &mut Limited(3 * PART_BYTES));
        assert!(
            matches!(stopped, Err(ArchiveError::Io { action: "write", .. })),
            "{stopped:?}"
        );
    }
    let mut out = vec![];
    extract(&ahead, &archive, 0, &mut out).unwrap();
    assert!(out == content(0));
}

#[test]
fn nothing_of_a_damaged_part_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let whole = archive(folder.path(), 1, Encoding::Stored);
    // The second half of part 7, whose bytes lie in the file as they are, behind one header for each part.
    let at = 7 * PART_BYTES + PART_BYTES / 2;
    let file = OpenOptions::new().write(true).open(whole.path()).unwrap();
    file.write_all_at(&[content(0)[at] ^ 1], at as u64 + 16 * 1024).unwrap();
    let mut out = vec![];
    let member = whole.locate("criu/0").unwrap();
    let damaged = ReadAhead::default().extract(&whole, member, &mut out);
    assert!(matches!(damaged, Err(ArchiveError::Damaged { .. })), "{damaged:?}");
    assert!(out.len() <= 7 * PART_BYTES && out == content(0)[..out.len()]);
}
