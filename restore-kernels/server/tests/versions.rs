//! Snapshots that outlive the versions of ring and state with which they were made.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "other tests use it")]
mod support;

use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hetckpt_ring::command::{Command, DeviceIndex, StreamId};
use hetckpt_ring::version::{PROTOCOL_VERSION, Readable};
use hetckpt_server::error::ServerError;
use hetckpt_server::restore::read_state;
use hetckpt_server::state_files::StateFiles;
use hetckpt_state::allocation::Owner;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use support::fake_device::Shared;
use support::{App, Server, start};

const DEFAULT: StreamId = StreamId::LEGACY_DEFAULT;
/// As in the support's snapshots.
const PID: u32 = 4242;
/// A server whose ring has got another version since.
const NEWER: Readable = Readable {
    oldest: Readable::HERE.oldest,
    newest: PROTOCOL_VERSION + 1,
};

/// An application with a launch that is stopped, and behind it a launch, a copy and fills that are held back.
fn stopped(dir: &Path) -> (App, Server, u64) {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    let side = app.stream(70, true);
    app.count(DEFAULT, out, 3, 300);
    app.count(DEFAULT, out, 2, 4);
    app.copy(DEFAULT, out + 1024, out, 3);
    app.fill(DEFAULT, out + 2048, 3, 77);
    app.fill(side, out + 3072, 1, 5);
    server.wait_additions(10);
    server.pause();
    server.capture(dir);
    (app, server, out)
}

#[test]
fn a_snapshot_of_an_older_ring_goes_on_and_is_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let (app, server, out) = stopped(dir.path());
    drop(server);
    let newer = |dir: &Path| Server::rebuild_from(dir, Shared::new(false), NEWER, |_| {}).unwrap();
    let restored = newer(dir.path()).go_on(&app.ring);
    restored.wait_additions(10);
    restored.pause();
    let again = tempfile::tempdir().unwrap();
    restored.capture(again.path());
    let state = read_state(&StateFiles::open(again.path(), PID).unwrap(), NEWER).unwrap();
    // The program goes on with the driver library that it was started with.
    assert_eq!(state.ring_version, PROTOCOL_VERSION);
    drop(restored);
    let _restored = newer(again.path()).go_on(&app.ring);
    assert_eq!(app.words(DEFAULT, out, 3), [304, 304, 300]);
    assert_eq!(app.words(DEFAULT, out + 1024, 3), [304, 304, 300]);
    assert_eq!(app.words(DEFAULT, out + 2048, 3), [77; 3]);
    app.count(DEFAULT, out, 3, 1);
    assert_eq!(app.words(DEFAULT, out, 3), [305, 305, 301]);
}

#[test]
fn a_ring_that_is_too_old_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_app, server, _) = stopped(dir.path());
    drop(server);
    let only_newer = Readable {
        oldest: PROTOCOL_VERSION + 1,
        newest: PROTOCOL_VERSION + 1,
    };
    let refused = Server::rebuild_from(dir.path(), Shared::new(false), only_newer, |_| {});
    let error = refused.err().unwrap();
    assert!(
        matches!(
            error,
            ServerError::RingVersion {
                found: PROTOCOL_VERSION,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let (app, _server) = start();
    let device = DeviceIndex(1);
    let answer = app.producer.call(Command::Malloc { size_bytes: 64, device }).unwrap();
    assert_eq!(answer.result, 101);
}

/// A snapshot as version 2 was when it was fixed: the state's files, and the ring.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-version-2")
}

const RING: &str = "ring.zst";

/// Never run again for version 2: the fixture stays as it is.
#[test]
#[ignore = "writes the fixture of a new version"]
fn write_fixture() {
    let dir = fixture();
    fs::create_dir_all(&dir).unwrap();
    let (app, _server, _) = stopped(&dir);
    let ring = fs::read(format!("/proc/self/fd/{}", app.ring.as_raw_fd())).unwrap();
    fs::write(dir.join(RING), zstd::encode_all(&ring[..], 19).unwrap()).unwrap();
}

/// The ring of the fixture, as CRIU would give it back.
fn ring_of(dir: &Path) -> OwnedFd {
    let bytes = zstd::decode_all(&fs::read(dir.join(RING)).unwrap()[..]).unwrap();
    let ring = memfd_create(c"ring", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let mut file = fs::File::from(ring);
    file.write_all(&bytes).unwrap();
    fcntl(
        &file,
        FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW),
    )
    .unwrap();
    file.into()
}

#[test]
fn the_fixture_of_version_2_goes_on() {
    let dir = fixture();
    let files = StateFiles::open(&dir, PID).unwrap();
    let state = read_state(&files, Readable::HERE).unwrap();
    let of_program = state.allocations.iter().find(|a| a.owner == Owner::Program);
    let out = of_program.unwrap().addr;
    let server = Server::rebuild(&dir, Shared::new(false)).unwrap().go_on(&ring_of(&dir));
    let word = |addr| {
        let mut bytes = [0; 4];
        server.session.device.read(addr, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    };
    let expected = [
        (0, 304),
        (4, 304),
        (8, 300),
        (1024, 304),
        (1032, 300),
        (2048, 77),
        (3072, 5),
    ];
    let since = Instant::now();
    while expected.iter().any(|&(offset, value)| word(out + offset) != value) {
        let found: Vec<u32> = expected.iter().map(|&(offset, _)| word(out + offset)).collect();
        assert!(since.elapsed() < Duration::from_secs(20), "{found:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
