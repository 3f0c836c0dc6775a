//! How long an archive of many tiny members takes: `cargo run -p hetckpt-archive --example many_members -- [MEMBERS]`.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::error::Error;
use std::fs;
use std::time::Instant;

use hetckpt_archive::manifest::{Encoding, FORMAT, FORMAT_VERSION, Header, Index, Manifest};
use hetckpt_archive::reader::Archive;
use hetckpt_archive::verify::verify;
use hetckpt_archive::writer::{self, ArchiveName, Options, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(3000), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let (images, out) = (folder.path().join("images"), folder.path().join("out"));
    fs::create_dir(&images)?;
    let mut sources = vec![];
    for at in 0..count {
        let path = images.join(format!("core-{at}.img"));
        fs::write(&path, format!("image {at} ").repeat(20 + at % 200))?;
        sources.push(Source {
            name: format!("criu/core-{at}.img"),
            path,
            encoding: Encoding::Zstd,
        });
    }
    let manifest = Manifest {
        header: Header {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            written_by: "example".into(),
            criu_version: String::new(),
            created_unix: 0,
            root_pid: 1,
            command: vec!["app".into()],
            stdio: vec![],
        },
        index: Index::default(),
    };
    let target = folder.path().join("a.hetsnap");
    let timed = |what: &str, started: Instant| println!("{what:<9}{:>7} ms", started.elapsed().as_millis());

    let started = Instant::now();
    writer::write(
        &ArchiveName::find(&target),
        manifest,
        &sources,
        Options::default(),
        &mut |_| {},
    )?;
    timed("written", started);
    let started = Instant::now();
    verify(&target)?;
    timed("verified", started);
    let started = Instant::now();
    Archive::open(&target)?.extract_all("criu/", &out)?;
    timed("unpacked", started);
    let started = Instant::now();
    let archive = Archive::open(&target)?;
    for member in archive.members() {
        archive.extract(member, &mut Vec::new())?;
    }
    timed("one by one", started);
    Ok(())
}
