//! A dump into a store: the archive is written, sent and read back while the program stands still, and only then the
//! program is ended. If that fails, or this command is killed meanwhile, the program runs on.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use hetckpt_archive::manifest::Manifest;
use hetckpt_move::dump::{self, Archived, Dumped};
use hetckpt_report::failure::Failure;
use hetckpt_report::{quantity, remark};
use hetckpt_ring::failure_code::Code;
use hetckpt_store::address::Destination;
use hetckpt_store::error::StoreError;
use hetckpt_store::failure::failure;
use hetckpt_store::location::is_url;
use hetckpt_store::name::SnapshotId;
use hetckpt_store::record::{Device, Draft, Occasion};
use hetckpt_store::watch::Watch;

use crate::arguments::Dump;

/// Dumps into the store that `--output` names, and gives the archive's URL. None if it names a file.
pub fn dump(options: &Dump) -> Result<Option<(Dumped, String)>, Failure> {
    let Some(url) = options.output.to_str().filter(|text| is_url(text)) else {
        return Ok(None);
    };
    let runs_on = |failure: Failure| failure.state("the program runs on; no archive was written");
    let refused = |error| runs_on(failure(&error));
    let destination = Destination::find(url, options.key.open().map_err(runs_on)?).map_err(refused)?;
    if !options.force && destination.is_taken().map_err(refused)? {
        let taken = Failure::new(Code::NameTaken, format!("{} exists already", destination.url()));
        return Err(runs_on(taken.help("name another, or have this one replaced: --force")));
    }
    let place = destination.local_place().map_err(refused)?;
    let scratch = private_folder().map_err(runs_on)?;
    let archive = place.clone().unwrap_or_else(|| scratch.path().join("job.hetsnap"));
    let send = |archived: &Archived<'_>| {
        let describe = |id: SnapshotId| draft(id, archived);
        let mut progress = |done| remark::progress(format!("storing {}", quantity::bytes(done)));
        let mut watch = Watch::new(&mut progress, archived.is_interrupted);
        let stored = match &place {
            Some(_) => destination.record(describe, &mut watch),
            None => destination.put(&archive, describe, &mut watch),
        };
        remark::progress_done();
        stored.map_err(|error| {
            if place.is_some() {
                // Without its record it is not there.
                let _ = fs::remove_file(&archive);
            }
            match error {
                StoreError::Interrupted => Failure::new(Code::Interrupted, "the dump was interrupted by a signal"),
                error => failure(&error),
            }
        })
    };
    let dumped = dump::dump(options.pid, &options.how(&archive), Some(&send))?;
    Ok(Some((dumped, destination.url())))
}

fn private_folder() -> Result<TempDir, Failure> {
    // With mode 0700.
    let made = tempfile::Builder::new().prefix("hetckpt-outgoing-").tempdir();
    made.map_err(|error| {
        Failure::new(Code::CannotWrite, "cannot make a folder for the archive")
            .note(error.to_string())
            .help("set TMPDIR to a folder where you may write and where there is room for the archive")
    })
}

fn draft(id: SnapshotId, archived: &Archived<'_>) -> Draft {
    Draft {
        id,
        device: device(archived.manifest),
        host: fs::read_to_string(Path::new("/proc/sys/kernel/hostname"))
            .map_or_else(|_| String::new(), |name| name.trim().to_owned()),
        occasion: Occasion::Asked,
        dump_seconds: archived.stopped.as_secs_f64(),
        memory_bytes: 0,
        command: archived.manifest.header.command.clone(),
    }
}

/// The device of the first process that has one.
fn device(manifest: &Manifest) -> Device {
    let first = manifest.summaries().find_map(|summary| summary.devices.first());
    first.map_or_else(Device::default, |device| Device {
        kind: device.captured_on_kind.clone(),
        name: device.captured_on.clone(),
    })
}
