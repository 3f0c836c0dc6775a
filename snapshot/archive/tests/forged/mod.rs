//! Archives that no writer of ours would make.
#![allow(dead_code, reason = "each file of tests uses some of it")]

use std::fs;
use std::path::Path;

use hetckpt_archive::manifest::{
    Encoding, FORMAT, FORMAT_VERSION, Header, Index, Manifest, MemberEntry, Part, part_name,
};
use hetckpt_archive::member::{tar_header, tar_padding};

/// A manifest without members.
pub fn manifest() -> Manifest {
    Manifest {
        header: header(),
        index: Index::default(),
    }
}

/// A header.
pub fn header() -> Header {
    Header {
        format: FORMAT.into(),
        format_version: FORMAT_VERSION,
        written_by: "test".into(),
        root_pid: 42,
        command: vec!["app".into(), "--n=1".into()],
        criu_version: "4.2".into(),
        created_unix: 1,
        stdio: vec!["/dev/null".into(); 3],
    }
}

/// A member of one part with its bytes as they are stored; `raw_bytes` is what the index is to say.
pub fn member(name: &str, encoding: Encoding, raw_bytes: u64, stored: Vec<u8>) -> (MemberEntry, Vec<Vec<u8>>) {
    member_of_parts(name, encoding, vec![(raw_bytes, stored)])
}

/// The same of several parts.
pub fn member_of_parts(name: &str, encoding: Encoding, parts: Vec<(u64, Vec<u8>)>) -> (MemberEntry, Vec<Vec<u8>>) {
    let entries = parts.iter().map(|(raw_bytes, stored)| Part {
        stored_bytes: stored.len() as u64,
        raw_bytes: *raw_bytes,
        blake3: blake3::hash(stored),
    });
    let entry = MemberEntry {
        name: name.into(),
        encoding,
        parts: entries.collect(),
        borrowed: vec![],
    };
    (entry, parts.into_iter().map(|(_, stored)| stored).collect())
}

/// Writes an archive of `members` to `path`.
pub fn write(path: &Path, mut manifest: Manifest, members: Vec<(MemberEntry, Vec<Vec<u8>>)>) {
    let (entries, stored): (Vec<MemberEntry>, Vec<_>) = members.into_iter().unzip();
    let files = entries.iter().zip(stored).flat_map(|(entry, parts)| {
        let named = |(number, bytes)| (part_name(&entry.name, number), bytes);
        parts.into_iter().enumerate().map(named).collect::<Vec<_>>()
    });
    let files: Vec<(String, Vec<u8>)> = files.collect();
    manifest.index.members = entries;
    let header = serde_json::to_vec(&manifest.header).unwrap();
    let index = serde_json::to_vec(&manifest.index).unwrap();
    write_texts(path, &header, &index, &files);
}

/// Writes an archive with whatever header and index.
pub fn write_texts(path: &Path, header: &[u8], index: &[u8], files: &[(String, Vec<u8>)]) {
    let mut bytes = vec![];
    add(&mut bytes, "header.json", header);
    for (name, stored) in files {
        add(&mut bytes, name, stored);
    }
    add_end(&mut bytes, header, index);
    fs::write(path, bytes).unwrap();
}

/// Adds a file of the tar.
pub fn add(archive: &mut Vec<u8>, name: &str, content: &[u8]) {
    archive.extend(tar_header(name, content.len() as u64).unwrap().as_bytes());
    archive.extend(content);
    archive.resize(archive.len() + tar_padding(content.len() as u64), 0);
}

/// Adds index, seal and end.
pub fn add_end(archive: &mut Vec<u8>, header: &[u8], index: &[u8]) {
    end_at(archive, header, index, archive.len() as u64);
}

/// The same for an archive that has `at` bytes before.
pub fn end_at(archive: &mut Vec<u8>, header: &[u8], index: &[u8], at: u64) {
    let hash = blake3::hash(&[header, index].concat());
    add(archive, "index.json", index);
    add(
        archive,
        "index.blake3",
        format!("{} {at:020}\n", hash.to_hex()).as_bytes(),
    );
    archive.resize(archive.len() + 1024, 0);
}
