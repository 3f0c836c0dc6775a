//! An archive that borrows from another, whatever ranges it names. Hashes and headers are right, unless a byte of the
//! lender was damaged.

use std::fs::{self, File};
use std::path::Path;

use hetckpt_archive::manifest::{
    Borrowed, Encoding, FORMAT_VERSION, INCREMENTAL_VERSION, Index, MemberEntry, Parent, Part, part_name,
};
use hetckpt_archive::memory_source::MemorySource;
use hetckpt_archive::merge;
use hetckpt_archive::reader::Archive;
use hetckpt_archive::stream_writer::{ArchiveStream, Compression};

use crate::{Bytes, forged_header, put_member, sealed};

/// What both archives call the member that borrows and lends.
const NAME: &str = "device/m";
const COMPRESSED: &str = "criu/z.zst";
/// What ranges are said to be borrowed from: that member, one that is compressed, and none.
const LENT: [&str; 3] = [NAME, COMPRESSED, "device/none"];
const MOST_PARTS: u8 = 4;
const MOST_RANGES: usize = 8;

/// What is verified can be taken out, has the right bytes, lies where it is said to lie, and can be merged into an
/// archive of its own.
pub fn borrowed_members(data: &[u8]) {
    let mut data = Bytes(data);
    let Some(damaged) = data.take().map(u16::from_le_bytes) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let Some((lender, lent)) = lender(&mut data, damaged, &folder.path().join("p.hetsnap")) else {
        return;
    };
    let Some(own) = data.part() else { return };
    let borrowed = ranges(&mut data);

    let entry = MemberEntry {
        borrowed: borrowed.clone(),
        ..stored(NAME, &[own])
    };
    let mut bytes = vec![];
    put_member(&mut bytes, NAME, own);
    let index = Index {
        members: vec![entry],
        parents: vec![Parent {
            file: "p.hetsnap".to_owned(),
            manifest: lender,
        }],
        ..Index::default()
    };
    let file = folder.path().join("c.hetsnap");
    fs::write(&file, sealed(&forged_header(INCREMENTAL_VERSION), &bytes, &index).0).unwrap();

    let verified = hetckpt_archive::verify::verify(&file).map(drop);
    let out = folder.path().join("out");
    let taken_out = Archive::open(&file).and_then(|archive| archive.extract_all("", &out));
    assert_eq!(verified.is_ok(), taken_out.is_ok(), "{verified:?}, {taken_out:?}");
    if taken_out.is_err() {
        return;
    }
    let mut right = own.to_vec();
    for range in &borrowed {
        let from = usize::try_from(range.offset_bytes).unwrap();
        right.extend(&lent[from..from + usize::try_from(range.size_bytes).unwrap()]);
    }
    assert_eq!(fs::read(out.join(NAME)).unwrap(), right);
    let archive = Archive::open(&file).unwrap();
    let place = archive.place(archive.locate(NAME).unwrap()).unwrap();
    let files = [&file, &folder.path().join("p.hetsnap")].map(|path| File::open(path).unwrap().into());
    let mut read = vec![0; right.len()];
    let source = MemorySource::member(files.into(), &place);
    source.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, right);
    assert_eq!(merged(&archive, folder.path()), right);
}

/// Writes the archive that lends to `path`; its manifest's hash, and what its member has. If its bytes reach so far,
/// byte `damaged` of the member is another than its hash was made of.
fn lender(data: &mut Bytes<'_>, damaged: u16, path: &Path) -> Option<(blake3::Hash, Vec<u8>)> {
    let [count] = data.take()?;
    let parts = (0..1 + count % MOST_PARTS).map(|_| data.part());
    let parts = parts.collect::<Option<Vec<&[u8]>>>()?;
    let lent = parts.concat();
    let (mut bytes, mut start) = (vec![], 0);
    for (number, part) in parts.iter().enumerate() {
        let mut part = part.to_vec();
        let at = usize::from(damaged).checked_sub(start);
        start += part.len();
        if let Some(byte) = at.and_then(|at| part.get_mut(at)) {
            *byte ^= 1;
        }
        put_member(&mut bytes, &part_name(NAME, number), &part);
    }
    let compressed = MemberEntry {
        encoding: Encoding::Zstd,
        ..stored(COMPRESSED, &[&lent])
    };
    put_member(&mut bytes, COMPRESSED, &lent);
    let index = Index {
        members: vec![stored(NAME, &parts), compressed],
        ..Index::default()
    };
    let (archive, hash) = sealed(&forged_header(FORMAT_VERSION), &bytes, &index);
    fs::write(path, archive).unwrap();
    Some((hash, lent))
}

fn stored(name: &str, parts: &[&[u8]]) -> MemberEntry {
    let part = |bytes: &&[u8]| Part {
        stored_bytes: bytes.len() as u64,
        raw_bytes: bytes.len() as u64,
        blake3: blake3::hash(bytes),
    };
    MemberEntry {
        name: name.to_owned(),
        encoding: Encoding::Stored,
        parts: parts.iter().map(part).collect(),
        borrowed: vec![],
    }
}

fn ranges(data: &mut Bytes<'_>) -> Vec<Borrowed> {
    let mut ranges = vec![];
    while let (Some([parent, member]), Some(offset), Some(size), true) =
        (data.take(), data.take(), data.take(), ranges.len() < MOST_RANGES)
    {
        ranges.push(Borrowed {
            parent: u32::from(parent % 2),
            member: LENT[usize::from(member) % LENT.len()].to_owned(),
            offset_bytes: u64::from(u16::from_le_bytes(offset)),
            size_bytes: u64::from(u16::from_le_bytes(size)),
        });
    }
    ranges
}

/// The member of the archive that has all that `archive` borrows.
fn merged(archive: &Archive, folder: &Path) -> Vec<u8> {
    let path = folder.join("merged.hetsnap");
    let mut file = File::create(&path).unwrap();
    let stream = ArchiveStream::new(&mut file, &path, &merge::header(archive), Compression::default());
    let Ok(mut stream) = stream else {
        panic!("the header is not written")
    };
    merge::merge(archive, &mut stream, &mut |_| ()).unwrap();
    let merged = Archive::open(&path).unwrap();
    let mut bytes = vec![];
    merged.extract(merged.locate(NAME).unwrap(), &mut bytes).unwrap();
    bytes
}
