//! Small members cost little: no buffer and no context is made for each. Allocations are counted, not time.
#![allow(clippy::unwrap_used, reason = "tests")]

mod forged;

use std::fs;

use hetckpt_archive::manifest::Encoding;
use hetckpt_archive::reader::Archive;
use hetckpt_archive::verify::verify;
use hetckpt_archive::writer::{self, ArchiveName, Options, Source};

const MEMBERS: usize = 400;
/// For each member, at most: paths, names, entries, temporary lists.
const BYTES_EACH: u64 = 8 << 10;
/// Once, at most: buffers that are kept.
const BYTES_KEPT: u64 = 16 << 20;

/// Bytes that `work` allocates, those that it frees again too.
fn allocated_by(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).bytes_total
}

#[test]
fn small_members_cost_little() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = vec![];
    for at in 0..MEMBERS {
        let path = folder.path().join(format!("{at}"));
        fs::write(&path, format!("image {at} ").repeat(20 + at)).unwrap();
        let name = format!("criu/core-{at}.img");
        let encoding = if at % 4 == 0 { Encoding::Stored } else { Encoding::Zstd };
        sources.push(Source { name, path, encoding });
    }
    let path = folder.path().join("a.hetsnap");
    let name = ArchiveName::find(&path);
    let out = folder.path().join("out");
    let most = MEMBERS as u64 * BYTES_EACH + BYTES_KEPT;
    let written = allocated_by(|| {
        writer::write(&name, forged::manifest(), &sources, Options::default(), &mut |_| {}).unwrap();
    });
    let verified = allocated_by(|| drop(verify(&path).unwrap()));
    let taken_out = allocated_by(|| {
        Archive::open(&path).unwrap().extract_all("criu/", &out).unwrap();
    });
    let one_by_one = allocated_by(|| {
        let archive = Archive::open(&path).unwrap();
        for member in archive.members() {
            archive.extract(member, &mut std::io::sink()).unwrap();
        }
    });
    for (what, bytes) in [
        ("writing", written),
        ("verifying", verified),
        ("taking out", taken_out),
        ("one by one", one_by_one),
    ] {
        assert!(bytes <= most, "{what}: {bytes} bytes allocated, {most} at most");
    }
}
