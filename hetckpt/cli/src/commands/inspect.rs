//! `hetckpt inspect`: what an archive holds.

use std::process::ExitCode;

use serde::Serialize;

use hetckpt_archive::manifest::{CarriedFile, Encoding, MemberEntry, Parent};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::verify;
use hetckpt_report::archive_error;
use hetckpt_state::summary::Summary;

use crate::arguments::Inspect;
use crate::located::Located;
use crate::{manifest_text, output};

/// What `inspect --json` says. It borrows: a manifest may have millions of entries.
#[derive(Serialize)]
struct Inspected<'a> {
    archive: &'a str,
    format_version: u32,
    written_by: &'a str,
    created_unix: u64,
    criu_version: &'a str,
    root_pid: i32,
    command: &'a [String],
    processes: Vec<&'a Summary>,
    files: &'a [CarriedFile],
    members: Vec<Member<'a>>,
    /// What members borrow from.
    parents: &'a [Parent],
}

/// A member, without its parts.
#[derive(Serialize)]
struct Member<'a> {
    name: &'a str,
    encoding: Encoding,
    stored_bytes: u64,
    raw_bytes: u64,
    borrowed_bytes: u64,
    parts: usize,
}

impl<'a> Member<'a> {
    fn of(entry: &'a MemberEntry) -> Self {
        Self {
            name: &entry.name,
            encoding: entry.encoding,
            stored_bytes: entry.stored_bytes(),
            raw_bytes: entry.raw_bytes(),
            borrowed_bytes: entry.borrowed_bytes(),
            parts: entry.parts.len(),
        }
    }
}

/// Shows the manifest and the devices' state.
pub fn run(options: &Inspect) -> anyhow::Result<ExitCode> {
    let found = Located::find(&options.archive, &options.key)?;
    let archive = match options.verify {
        true => verify::verify(found.path()),
        false => Archive::open(found.path()),
    }
    .map_err(archive_error::failure)?;
    let manifest = archive.manifest();
    if options.json {
        output::json(&Inspected {
            archive: &options.archive.to_string_lossy(),
            format_version: manifest.header.format_version,
            written_by: &manifest.header.written_by,
            created_unix: manifest.header.created_unix,
            criu_version: &manifest.header.criu_version,
            root_pid: manifest.header.root_pid,
            command: &manifest.header.command,
            processes: manifest.summaries().collect(),
            files: &manifest.index.files,
            members: manifest.index.members.iter().map(Member::of).collect(),
            parents: &manifest.index.parents,
        });
    } else {
        manifest_text::print(manifest);
    }
    Ok(ExitCode::SUCCESS)
}
