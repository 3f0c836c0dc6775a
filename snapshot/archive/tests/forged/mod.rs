//! Archives that no writer of ours would make.
#![allow(dead_code, reason = "each file of tests uses some of it")]

use std::fs;
use std::path::Path;

use hetckpt_archive::manifest::{Encoding, FORMAT, FORMAT_VERSION, Manifest, MemberEntry};
use hetckpt_archive::member::{tar_header, tar_padding};

/// A manifest without members.
pub fn manifest() -> Manifest {
    Manifest {
        format: FORMAT.into(),
        format_version: FORMAT_VERSION,
        written_by: "test".into(),
        root_pid: 42,
        command: vec!["app".into(), "--n=1".into()],
        criu_version: "4.2".into(),
        created_unix: 1,
        clocks: None,
        processes: vec![],
        stdio: vec!["/dev/null".into(); 3],
        files: vec![],
        members: vec![],
    }
}

/// A member with its bytes as they are stored; `raw_bytes` is what the manifest is to say.
pub fn member(name: &str, encoding: Encoding, raw_bytes: u64, stored: Vec<u8>) -> (MemberEntry, Vec<u8>) {
    let entry = MemberEntry {
        name: name.into(),
        stored_bytes: stored.len() as u64,
        raw_bytes,
        encoding,
        blake3: blake3::hash(&stored).to_hex().to_string(),
    };
    (entry, stored)
}

/// Writes an archive of `members` to `path`.
pub fn write(path: &Path, mut manifest: Manifest, members: Vec<(MemberEntry, Vec<u8>)>) {
    let (entries, stored): (_, Vec<_>) = members.into_iter().unzip();
    manifest.members = entries;
    let text = serde_json::to_vec(&manifest).unwrap();
    let names = manifest.members.iter().map(|member| &*member.name);
    write_text(path, &text, &names.zip(stored).collect::<Vec<_>>());
}

/// Writes an archive with whatever manifest.
pub fn write_text(path: &Path, text: &[u8], members: &[(&str, Vec<u8>)]) {
    let hash = blake3::hash(text).to_hex().to_string() + "\n";
    let mut bytes = vec![];
    let mut add = |name: &str, content: &[u8]| {
        bytes.extend(tar_header(name, content.len() as u64).unwrap().as_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len() + tar_padding(content.len() as u64), 0);
    };
    add("manifest.json", text);
    for (name, stored) in members {
        add(name, stored);
    }
    add("manifest.blake3", hash.as_bytes());
    bytes.resize(bytes.len() + 1024, 0);
    fs::write(path, bytes).unwrap();
}
