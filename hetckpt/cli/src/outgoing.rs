//! A dump into a store: the archive is stored and read back while the program stands still, and only then the program
//! is ended. If that fails, or this command is killed meanwhile, the program runs on.
//!
//! A folder takes the archive as a file. To an object store it is sent as it is written, and so is what is encrypted:
//! no copy of it is made here.

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

use hetckpt_archive::manifest::Manifest;
use hetckpt_move::dump::{self, Archived, Dumped, Output};
use hetckpt_report::failure::Failure;
use hetckpt_report::{quantity, remark};
use hetckpt_ring::failure_code::Code;
use hetckpt_store::address::Destination;
use hetckpt_store::error::StoreError;
use hetckpt_store::failure::failure;
use hetckpt_store::location::is_url;
use hetckpt_store::name::SnapshotId;
use hetckpt_store::record::{Device, Draft, Occasion};
use hetckpt_store::transfer::Stored;
use hetckpt_store::watch::Watch;

use crate::arguments::Dump;

/// How often a signal is looked for while the rest of an archive is sent.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Dumps into the store that `--output` names, and gives the archive's URL. None if it names a file.
pub fn dump(options: &Dump) -> Result<Option<(Dumped, String)>, Failure> {
    let Some(url) = options.output.to_str().filter(|text| is_url(text)) else {
        return Ok(None);
    };
    let refused = |error| runs_on(failure(&error));
    let destination = Destination::find(url, options.key.open().map_err(runs_on)?).map_err(refused)?;
    if !options.force && destination.is_taken().map_err(refused)? {
        let taken = Failure::new(Code::NameTaken, format!("{} exists already", destination.url()));
        return Err(runs_on(taken.help("name another, or have this one replaced: --force")));
    }
    let dumped = match destination.local_place().map_err(refused)? {
        Some(place) => into_folder(options, &destination, &place),
        None => by_stream(options, &destination),
    };
    Ok(Some((dumped?, destination.url())))
}

fn runs_on(failure: Failure) -> Failure {
    failure.state("the program runs on; no archive was written")
}

/// Dumps to the file `place` of a store that is a folder.
fn into_folder(options: &Dump, destination: &Destination, place: &Path) -> Result<Dumped, Failure> {
    let record = |archived: &Archived<'_>| {
        watched(archived, |watch| destination.record(|id| draft(id, archived), watch)).inspect_err(|_| {
            // Without its record it is not there.
            let _ = fs::remove_file(place);
        })
    };
    dump::dump(options.pid, &options.to_file(place), Some(&record))
}

/// Dumps into a stream, from which another thread sends what comes.
fn by_stream(options: &Dump, destination: &Destination) -> Result<Dumped, Failure> {
    let cannot = |error: io::Error| {
        runs_on(Failure::new(Code::CannotWrite, "cannot begin to send the archive").note(error.to_string()))
    };
    let (to, from) = UnixStream::pair().map_err(cannot)?;
    let (is_whole, is_given_up) = (AtomicBool::new(false), AtomicBool::new(false));
    let called = destination.url();
    thread::scope(|scope| {
        let archive = Coming {
            from,
            is_whole: &is_whole,
        };
        let send = || {
            destination.send(
                archive,
                &mut Watch::new(&mut |_| {}, &|| is_given_up.load(Ordering::Relaxed)),
            )
        };
        let sending = without_signals(|| {
            thread::Builder::new()
                .name("sending".to_owned())
                .spawn_scoped(scope, send)
        });
        let sending = Cell::new(Some(sending.map_err(cannot)?));
        let complete = |archived: &Archived<'_>| {
            is_whole.store(true, Ordering::Release);
            let _ = to.shutdown(Shutdown::Write);
            let stored = sending.take().map_or(Err(StoreError::Interrupted), |sending| {
                while !sending.is_finished() {
                    if (archived.is_interrupted)() {
                        is_given_up.store(true, Ordering::Relaxed);
                    }
                    thread::sleep(LOOK_INTERVAL);
                }
                sent(sending)
            });
            watched(archived, |watch| {
                destination.complete(stored?, |id| draft(id, archived), watch)
            })
        };
        let output = Output::Stream {
            to: to.as_fd(),
            called: &called,
        };
        let dumped = dump::dump(options.pid, &options.to(output), Some(&complete));
        // If it has ended by itself, that is why nothing could be written; else it is cut short now.
        let sending = sending.take();
        let was_first = sending.as_ref().is_some_and(ScopedJoinHandle::is_finished);
        is_given_up.store(dumped.is_err(), Ordering::Relaxed);
        let _ = to.shutdown(Shutdown::Both);
        match sending.map(sent) {
            Some(Err(error)) if was_first && dumped.is_err() => Err(runs_on(failure(&error))),
            _ => dumped,
        }
    })
}

fn sent(sending: ScopedJoinHandle<'_, Result<Stored, StoreError>>) -> Result<Stored, StoreError> {
    sending.join().unwrap_or_else(|_| {
        let died = io::Error::other("the thread that sends has died");
        Err(StoreError::Runtime(died))
    })
}

/// Starts threads that leave signals to those that wait for them.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    started
}

/// An archive as it comes. Where it ends before it is whole, that is an error.
struct Coming<'a> {
    from: UnixStream,
    is_whole: &'a AtomicBool,
}

impl Read for Coming<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(out)?;
        if read == 0 && !out.is_empty() && !self.is_whole.load(Ordering::Acquire) {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the dump has ended before"));
        }
        Ok(read)
    }
}

/// Does a part of storing that a person waits for, and may interrupt.
fn watched(
    archived: &Archived<'_>,
    store: impl FnOnce(&mut Watch<'_>) -> Result<(), StoreError>,
) -> Result<(), Failure> {
    let mut progress = |done| remark::progress(format!("storing {}", quantity::bytes(done)));
    let stored = store(&mut Watch::new(&mut progress, archived.is_interrupted));
    remark::progress_done();
    stored.map_err(|error| match error {
        StoreError::Interrupted => Failure::new(Code::Interrupted, "the dump was interrupted by a signal"),
        error => failure(&error),
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
        label: archived.manifest.label().to_owned(),
        command: archived.manifest.header.command.clone(),
        needs: vec![],
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
