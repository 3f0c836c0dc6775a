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

/// What both archives call the member that borrows and lends, by how it is stored.
fn name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Stored => "device/m",
        Encoding::Zstd => "criu/z.zst",
    }
}

/// What ranges are said to be borrowed from: those, and none.
const LENT: [&str; 3] = ["device/m", "criu/z.zst", "device/none"];
const MOST_PARTS: u8 = 4;
const MOST_RANGES: usize = 8;

/// What is verified can be taken out, has the right bytes, lies where it is said to lie, and can be merged into an
/// archive of its own.
pub fn borrowed_members(data: &[u8]) {
    let mut data = Bytes(data);
    let Some((damaged, [kind])) = data.take().map(u16::from_le_bytes).zip(data.take()) else {
        return;
    };
    let encoding = [Encoding::Stored, Encoding::Zstd][usize::from(kind % 2)];
    let folder = tempfile::tempdir().unwrap();
    let Some((lender, lent)) = lender(&mut data, damaged, &folder.path().join("p.hetsnap")) else {
        return;
    };
    let Some(own) = parts(&mut data) else { return };
    let borrowed = ranges(&mut data);

    let mut bytes = vec![];
    let entry = MemberEntry {
        borrowed: borrowed.clone(),
        ..put(&mut bytes, encoding, &own, None)
    };
    let index = Index {
        members: vec![entry.clone()],
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
    let right = right(&own, &borrowed, &lent);
    assert_eq!(fs::read(out.join(entry.raw_name())).unwrap(), right);
    let archive = Archive::open(&file).unwrap();
    assert_eq!(merged(&archive, &entry.name, folder.path()), right);
    if encoding == Encoding::Stored {
        let place = archive.place(archive.locate(&entry.name).unwrap()).unwrap();
        let files = [&file, &folder.path().join("p.hetsnap")].map(|path| File::open(path).unwrap().into());
        let mut read = vec![0; right.len()];
        let source = MemorySource::member(files.into(), &place);
        source.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, right);
    }
}

/// What a member has that is made of these.
fn right(own: &[&[u8]], borrowed: &[Borrowed], lent: &[u8]) -> Vec<u8> {
    let (mut right, mut next) = (vec![], 0);
    for range in borrowed {
        let after = range.after_parts.map_or(own.len(), |count| count as usize);
        right.extend(own[next..after].concat());
        next = after;
        let from = usize::try_from(range.offset_bytes).unwrap();
        right.extend(&lent[from..from + usize::try_from(range.size_bytes).unwrap()]);
    }
    right.extend(own[next..].concat());
    right
}

/// Writes the archive that lends to `path`; its manifest's hash, and what each of its members has. If its bytes reach
/// so far, byte `damaged` of each part is another than its hash was made of.
fn lender(data: &mut Bytes<'_>, damaged: u16, path: &Path) -> Option<(blake3::Hash, Vec<u8>)> {
    let parts = parts(data)?;
    let mut bytes = vec![];
    let encodings = [Encoding::Stored, Encoding::Zstd];
    let members = encodings.map(|encoding| put(&mut bytes, encoding, &parts, Some(damaged)));
    let index = Index {
        members: members.into(),
        ..Index::default()
    };
    let (archive, hash) = sealed(&forged_header(FORMAT_VERSION), &bytes, &index);
    fs::write(path, archive).unwrap();
    Some((hash, parts.concat()))
}

fn parts<'a>(data: &mut Bytes<'a>) -> Option<Vec<&'a [u8]>> {
    let [count] = data.take()?;
    (0..1 + count % MOST_PARTS).map(|_| data.part()).collect()
}

/// Puts a member of these parts behind `archive`.
fn put(archive: &mut Vec<u8>, encoding: Encoding, parts: &[&[u8]], damaged: Option<u16>) -> MemberEntry {
    let mut listed = vec![];
    for (number, part) in parts.iter().enumerate() {
        let mut stored = match encoding {
            Encoding::Stored => part.to_vec(),
            Encoding::Zstd => zstd::bulk::compress(part, 1).unwrap(),
        };
        listed.push(Part {
            stored_bytes: stored.len() as u64,
            raw_bytes: part.len() as u64,
            blake3: blake3::hash(&stored),
        });
        if let Some(byte) = damaged.and_then(|at| stored.get_mut(usize::from(at))) {
            *byte ^= 1;
        }
        put_member(archive, &part_name(name(encoding), number), &stored);
    }
    MemberEntry {
        name: name(encoding).to_owned(),
        encoding,
        parts: listed,
        borrowed: vec![],
    }
}

fn ranges(data: &mut Bytes<'_>) -> Vec<Borrowed> {
    let mut ranges = vec![];
    while let (Some([parent, member, after]), Some(offset), Some(size), true) =
        (data.take(), data.take(), data.take(), ranges.len() < MOST_RANGES)
    {
        ranges.push(Borrowed {
            parent: u32::from(parent % 2),
            member: LENT[usize::from(member) % LENT.len()].to_owned(),
            offset_bytes: u64::from(u16::from_le_bytes(offset)),
            size_bytes: u64::from(u16::from_le_bytes(size)),
            after_parts: (after < 8).then_some(after.into()),
        });
    }
    ranges
}

/// The member `name` of the archive that has all that `archive` borrows.
fn merged(archive: &Archive, name: &str, folder: &Path) -> Vec<u8> {
    let path = folder.join("merged.hetsnap");
    let mut file = File::create(&path).unwrap();
    let stream = ArchiveStream::new(&mut file, &path, &merge::header(archive), Compression::default());
    let Ok(mut stream) = stream else {
        panic!("the header is not written")
    };
    merge::merge(archive, &mut stream, &mut |_| ()).unwrap();
    let merged = Archive::open(&path).unwrap();
    let mut bytes = vec![];
    merged.extract(merged.locate(name).unwrap(), &mut bytes).unwrap();
    bytes
}
