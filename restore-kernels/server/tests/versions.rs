//! Snapshots that outlive the versions of ring and state with which they were made.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "other tests use it")]
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use hetckpt_ring::command::{Command, DeviceIndex, StreamId};
use hetckpt_ring::version::{PROTOCOL_VERSION, Readable};
use hetckpt_server::error::ServerError;
use hetckpt_server::restore::read_state;
use hetckpt_server::state_files::StateFiles;
use hetckpt_state::allocation::Owner;
use support::fake_device::Shared;
use support::fixtures::{fixture, ring_of, store_ring};
use support::{App, Server, start, start_with_variables_at};

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

/// Never run again for versions 2 and 3: their fixtures stay as they are.
#[test]
#[ignore = "writes the fixture of a new version"]
fn write_fixture() {
    let dir = fixture(3);
    std::fs::create_dir_all(&dir).unwrap();
    let (app, _server, _) = with_variables(&dir);
    store_ring(&app, &dir);
}

#[test]
fn the_fixture_of_version_2_goes_on() {
    let dir = fixture(2);
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

/// Made by `nvcc -cubin -arch=sm_90` of `variables.cu`.
const VARIABLES: &[u8] = include_bytes!("data/variables.cubin");
/// Where a device places its variables before a capture, and another one after it.
const BEFORE: u64 = 0x7000_0000_0000;
const AFTER: u64 = 0x7100_0000_0000;

/// Loads the module with the variables; the address of `table`.
fn table(app: &App) -> u64 {
    let globals = app.load_image(VARIABLES).globals;
    globals.iter().find(|global| global.name == "table").unwrap().addr
}

/// Lets the memory at `place` hold `address`.
fn store_address(app: &App, place: u64, address: u64) {
    app.fill(DEFAULT, place, 1, address as u32);
    app.fill(DEFAULT, place + 4, 1, (address >> 32) as u32);
    assert_eq!(app.words(DEFAULT, place, 1), [address as u32]);
}

/// An application with a variable of machine code that has been filled, with another fill of it held back; the
/// variable's address.
fn with_variables(dir: &Path) -> (App, Server, u64) {
    let (app, server) = start_with_variables_at(BEFORE);
    let table = table(&app);
    app.fill(DEFAULT, table, 3, 77);
    assert_eq!(app.words(DEFAULT, table, 4), [77, 77, 77, 0]);
    server.pause();
    app.fill(DEFAULT, table + 16, 2, 88);
    server.capture(dir);
    (app, server, table)
}

/// What the application finds in the variable once the held-back fill is done.
const FOUND: [u32; 7] = [77, 77, 77, 0, 88, 88, 0];

#[test]
fn variables_of_machine_code_are_led_to_where_they_have_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (app, server, table) = with_variables(dir.path());
    drop(server);
    let moved = Server::rebuild(dir.path(), Shared::with_variables_at(AFTER)).unwrap();
    let moved = moved.go_on(&app.ring);
    assert_eq!(app.words(DEFAULT, table, 7), FOUND);
    let mut bytes = [0; 4];
    moved.session.device.read(table - BEFORE + AFTER, &mut bytes).unwrap();
    assert_eq!(bytes, 77_u32.to_le_bytes());
    // The second time it is where it was at first.
    moved.pause();
    let again = tempfile::tempdir().unwrap();
    moved.capture(again.path());
    drop(moved);
    let back = Server::rebuild(again.path(), Shared::with_variables_at(BEFORE)).unwrap();
    let _back = back.go_on(&app.ring);
    assert_eq!(app.words(DEFAULT, table, 7), FOUND);
}

#[test]
fn a_variable_that_device_memory_points_to_must_not_move() {
    let dir = tempfile::tempdir().unwrap();
    let (app, server) = start_with_variables_at(BEFORE);
    let table = table(&app);
    let out = app.malloc(4096);
    store_address(&app, out + 8, table + 12);
    server.pause();
    server.capture(dir.path());
    drop(server);
    let moved = Server::rebuild(dir.path(), Shared::with_variables_at(AFTER));
    let error = moved.err().unwrap();
    assert!(
        matches!(&error, ServerError::VariableMoved { name, .. } if name == "table"),
        "{error}"
    );
    Server::rebuild(dir.path(), Shared::with_variables_at(BEFORE)).unwrap();
}

/// A restore could not tell then whether the address is the program's or the one after the move.
#[test]
fn a_variable_that_has_moved_must_not_be_pointed_to() {
    let dir = tempfile::tempdir().unwrap();
    let (app, server) = start_with_variables_at(BEFORE);
    let table = table(&app);
    let out = app.malloc(4096);
    server.pause();
    server.capture(dir.path());
    drop(server);
    let moved = Server::restore_on(dir.path(), &app, Shared::with_variables_at(AFTER));
    store_address(&app, out, table - BEFORE + AFTER);
    moved.pause();
    let error = moved.try_capture(tempfile::tempdir().unwrap().path()).err().unwrap();
    assert!(matches!(error, ServerError::OutOfReach { .. }), "{error}");
    moved.release();
    assert_eq!(app.words(DEFAULT, table, 1), [0]);
}

#[test]
fn the_fixture_of_version_3_goes_on() {
    let dir = fixture(3);
    let files = StateFiles::open(&dir, PID).unwrap();
    let state = read_state(&files, Readable::HERE).unwrap();
    let table = state.modules[0]
        .globals
        .iter()
        .find(|v| v.name == "table")
        .unwrap()
        .addr;
    let server = Server::rebuild(&dir, Shared::with_variables_at(AFTER)).unwrap();
    let server = server.go_on(&ring_of(&dir));
    let word = |at: u64| {
        let mut bytes = [0; 4];
        server
            .session
            .device
            .read(table - BEFORE + AFTER + 4 * at, &mut bytes)
            .unwrap();
        u32::from_le_bytes(bytes)
    };
    let since = Instant::now();
    while (0..7).map(word).ne(FOUND) {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
}
