//! Order, pause, capture and restore, with a device that is a few lines long.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "other tests use it")]
mod support;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hetckpt_ring::command::{Command, DeviceIndex, EventId, KernelId, ModuleId, Rows, StreamId};
use hetckpt_ring::control_socket::{ControlSocket, MAX_FDS, listen};
use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::reply::Reply;
use hetckpt_ring::runtime_dir::socket_path;
use hetckpt_ring::version::Readable;
use hetckpt_server::choose_device::DeviceChoice;
use hetckpt_server::control::Control;
use hetckpt_server::own_files::{OwnFiles, SocketFile};
use hetckpt_state::names::description_file;
use hetckpt_state::process::ProcessState;
use hetckpt_state::queue::Work;
use hetckpt_state::summary::Description;
use support::fake_device::Shared;
use support::{
    Server, start, start_blind, start_with_deadline, start_with_registers, start_with_registers_loading_alone,
    start_without_machine_code,
};

const DEFAULT: StreamId = StreamId::LEGACY_DEFAULT;

#[test]
fn module_has_its_kernel_and_variable() {
    let (app, _server) = start();
    let module = app.load();
    assert_eq!(module.kernels[0].name, "count");
    assert_eq!(module.kernels[0].params.len(), 2);
    assert_eq!(
        (module.globals[0].name.as_str(), module.globals[0].size_bytes),
        ("base", 4)
    );
    assert_eq!(app.words(DEFAULT, module.globals[0].addr, 1), [1000]);
}

#[test]
fn managed_variables_lie_where_the_application_says() {
    const MANAGED: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n\
        .visible .global .attribute(.managed) .align 4 .u32 first = 7;\n\
        .visible .global .attribute(.managed) .align 8 .b8 second[16];\n\0";
    let (app, _server) = start();
    let (module, device) = (ModuleId(1), DeviceIndex::FIRST);
    let refused = app.try_load_as(ModuleId(2), MANAGED).unwrap_err();
    assert!(refused.0 == 801 && refused.1.contains("too old"), "{refused:?}");
    let data = app.producer.payload(MANAGED).unwrap();
    app.send(Command::ModuleData { module, part: 0, data });
    let load = || app.call(Command::ModuleLoadPlaced { module, device });
    let Reply::ManagedVariables(wanted) = load() else {
        panic!("the server was to ask where the variables lie")
    };
    let names: Vec<(&str, u64)> = wanted.iter().map(|v| (&*v.name, v.size_bytes)).collect();
    assert_eq!(names, [("first", 4), ("second", 16)]);
    let places = [app.malloc(4), app.malloc(16)];
    // One by one, as where there are too many for one answer.
    let place = |which: usize| {
        let (name, addr) = (wanted[which].name.clone(), places[which]);
        app.send(Command::ModulePlace { module, name, addr });
    };
    place(0);
    assert_eq!(load(), Reply::ManagedVariables(vec![wanted[1].clone()]));
    place(1);
    let Reply::ModuleLoaded { description_bytes, .. } = load() else {
        panic!("all variables have their places")
    };
    let description = app.describe(module, description_bytes);
    let addresses: Vec<u64> = description.globals.iter().map(|v| v.addr).collect();
    assert_eq!(addresses, places);
    assert_eq!(app.words(DEFAULT, places[0], 1), [7]);
    assert_eq!(app.words(DEFAULT, places[1], 4), [0; 4]);
}

#[test]
fn commands_of_a_stream_happen_in_order() {
    let (app, _server) = start();
    app.load();
    let out = app.malloc(64);
    let kept = app.malloc(64);
    app.fill(DEFAULT, out, 4, 100);
    app.count(DEFAULT, out, 4, 5);
    app.count(DEFAULT, out, 2, 3);
    app.copy(DEFAULT, kept, out, 4);
    app.fill(DEFAULT, out, 4, 7);
    app.count(DEFAULT, out, 4, 1);
    assert_eq!(app.words(DEFAULT, kept, 4), [108, 108, 105, 105]);
    assert_eq!(app.words(DEFAULT, out, 4), [8; 4]);
}

#[test]
fn legacy_default_stream_joins_blocking_streams_only() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    let (blocking, free) = (app.stream(1, false), app.stream(2, true));
    app.count(blocking, out, 1, 200);
    app.count(free, out + 1024, 1, 100_000);
    server.wait_additions(4);
    // Behind `blocking`, not behind `free`.
    assert_eq!(app.words(DEFAULT, out, 1), [200]);
    app.count(DEFAULT, out, 1, 100);
    // And the other way round.
    assert_eq!(app.words(blocking, out, 1), [300]);
    let answer = app.producer.call(Command::StreamQuery { stream: free }).unwrap();
    assert_eq!(answer.result, 600);
    let answer = app.producer.call(Command::StreamQuery { stream: blocking }).unwrap();
    assert_eq!(answer.result, 0);
}

#[test]
fn stream_waits_for_the_latest_record_of_an_event() {
    let (app, _server) = start();
    app.load();
    let out = app.malloc(4096);
    let (first, second) = (app.stream(1, true), app.stream(2, true));
    let (start, end) = (EventId(1), EventId(2));
    for event in [start, end] {
        app.send(Command::EventCreate {
            event,
            device: DeviceIndex::FIRST,
            timing: true,
        });
    }
    app.send(Command::EventRecord {
        event: start,
        stream: first,
    });
    app.count(first, out, 1, 100);
    app.send(Command::EventRecord {
        event: end,
        stream: first,
    });
    assert_eq!(
        app.producer.call(Command::EventQuery { event: end }).unwrap().result,
        600
    );
    app.send(Command::StreamWaitEvent {
        stream: second,
        event: end,
    });
    app.copy(second, out + 4, out, 1);
    assert_eq!(app.words(second, out, 2), [100, 100]);
    let Reply::Milliseconds(ms) = app.call(Command::EventElapsed { start, end }) else {
        panic!()
    };
    assert!(ms >= 20.0, "{ms}");
    let wait = |start| app.call(Command::EventSynchronizeElapsed { start, end });
    assert_eq!(wait(start), Reply::Milliseconds(ms));
    assert_eq!(wait(EventId(3)), Reply::Nothing, "no such event");
}

#[test]
fn host_function_holds_its_stream() {
    let (app, _server) = start();
    app.load();
    let out = app.malloc(64);
    app.send(Command::HostFunction {
        stream: DEFAULT,
        id: 77,
    });
    app.fill(DEFAULT, out, 1, 5);
    assert_eq!(app.producer.wait_callback(Duration::from_secs(20)).unwrap(), Some(77));
    assert_eq!(
        app.producer
            .call(Command::StreamQuery { stream: DEFAULT })
            .unwrap()
            .result,
        600
    );
    app.send(Command::HostFunctionDone { id: 77 });
    assert_eq!(app.words(DEFAULT, out, 1), [5]);
}

#[test]
fn bad_addresses_are_refused() {
    let (app, _server) = start();
    let out = app.malloc(100);
    for (addr, length) in [(out - 1, 4), (out + (2 << 20) - 2, 4), (0, 8), (u64::MAX - 2, 8)] {
        let chunk = app.producer.take_chunk().unwrap();
        let src = Rows::range(addr, length);
        let command = Command::CopyOut {
            stream: DEFAULT,
            src,
            chunk: chunk.first(usize::try_from(length).unwrap()),
        };
        assert_eq!(app.producer.call(command).unwrap().result, 1, "{addr:#x}");
    }
    assert_eq!(app.producer.call(Command::Free { addr: out + 4 }).unwrap().result, 1);
    assert_eq!(app.producer.call(Command::Free { addr: out }).unwrap().result, 0);
    assert_eq!(app.producer.call(Command::Free { addr: out }).unwrap().result, 1);
    assert_eq!(
        app.producer
            .call(Command::Malloc {
                size_bytes: 1 << 40,
                device: DeviceIndex::FIRST
            })
            .unwrap()
            .result,
        2
    );
    assert_eq!(app.producer.fault(), 0);
}

#[test]
fn held_back_work_takes_no_effect_until_the_pause_ends() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 3, 400);
    app.count(DEFAULT, out, 3, 10);
    server.wait_additions(20);
    server.pause();
    let before = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    app.fill(DEFAULT, out + 1024, 1, 9);
    app.count(DEFAULT, out + 1024, 1, 2);
    std::thread::sleep(Duration::from_millis(20));
    let after = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    assert!(before < 1230 && before == after, "{before} {after}");
    server.release();
    assert_eq!(app.words(DEFAULT, out, 3), [410; 3]);
    assert_eq!(app.words(DEFAULT, out + 1024, 1), [11]);
}

#[test]
fn many_pauses_lose_nothing() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    let side = app.stream(1, true);
    for _ in 0..20 {
        app.count(DEFAULT, out, 3, 7);
        app.count(side, out + 1024, 2, 11);
    }
    for i in 0..60 {
        std::thread::sleep(Duration::from_micros(i * 37 % 900));
        server.pause();
        server.release();
    }
    assert_eq!(app.words(DEFAULT, out, 3), [140; 3]);
    assert_eq!(app.words(side, out + 1024, 2), [220; 2]);
}

#[test]
fn another_server_finishes_what_was_captured() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    let big = app.malloc(9 << 20);
    let side = app.stream(1, true);
    let event = EventId(1);
    app.send(Command::EventCreate {
        event,
        device: DeviceIndex::FIRST,
        timing: true,
    });
    app.fill(DEFAULT, out, 512, 1);
    app.fill(DEFAULT, big + (5 << 20), 1 << 10, 0xabcd);
    app.count(DEFAULT, out, 3, 300);
    app.send(Command::EventRecord { event, stream: DEFAULT });
    app.send(Command::StreamWaitEvent { stream: side, event });
    app.copy(side, out + 1024, out, 3);
    app.count(DEFAULT, out, 2, 4);
    // A thread that waits over the restore.
    let waiting = app
        .producer
        .begin(Command::Synchronize {
            device: DeviceIndex::FIRST,
        })
        .unwrap();
    let measuring = Command::EventSynchronizeElapsed {
        start: event,
        end: event,
    };
    let measuring = app.producer.begin(measuring).unwrap();
    let free = app.producer.begin(Command::Free { addr: big }).unwrap();
    server.wait_additions(10);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());

    let json = std::fs::read(dir.path().join(description_file(4242))).unwrap();
    let description: Description = serde_json::from_slice(&json).unwrap();
    let kernels = &description.summary.kernels_in_flight;
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    assert_eq!((kernels[0].name.as_str(), kernels[0].grid), ("count", [3, 1, 1]));
    assert_eq!((kernels[0].blocks_paused, kernels[0].blocks_not_started), (1, 2));
    assert_eq!(
        description.summary.num_held_commands, 7,
        "record, wait, copy, launch, synchronise twice, free"
    );

    let restored = Server::restore(dir.path(), &app);
    assert_eq!(waiting.wait().unwrap().result, 0);
    assert_eq!(measuring.wait().unwrap().result, 0);
    assert_eq!(free.wait().unwrap().result, 0);
    assert_eq!(app.words(DEFAULT, out, 3), [305, 305, 301]);
    // The copy waits for the first kernel alone: what the second has added by then it may see or not.
    let copied = app.words(side, out + 1024, 3);
    let is_possible = copied
        .iter()
        .zip([305, 305, 301])
        .all(|(&word, last)| (301..=last).contains(&word));
    assert!(is_possible, "{copied:?}");
    // What the first server did is not done again.
    let here = restored.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    let there = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(here + there, 900 + 8);
}

#[test]
fn a_restored_session_can_be_captured_again() {
    let (app, mut server) = start();
    app.load();
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 5, 200);
    let mut old = Vec::new();
    for _ in 0..4 {
        server.wait_additions(30);
        server.pause();
        let dir = tempfile::tempdir().unwrap();
        server.capture(dir.path());
        let restored = Server::restore(dir.path(), &app);
        old.push(std::mem::replace(&mut server, restored));
    }
    assert_eq!(app.words(DEFAULT, out, 5), [200; 5]);
}

#[test]
fn blocks_too_large_for_the_device_are_refused_before_the_application_runs() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 1, 6000);
    server.wait_additions(10);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    let refused = Server::rebuild(dir.path(), Shared::narrow(1)).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "launch of `count` refused: 2 threads; 1 to 1 are possible"
    );
    assert!(Server::rebuild(dir.path(), Shared::narrow(2)).is_ok());
    server.release();
}

#[test]
fn more_pinned_memory_is_attached_than_one_message_can_carry() {
    const AREAS: usize = 2 * MAX_FDS + 53;
    let (app, server) = start();
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    let restored = Server::rebuild(dir.path(), Shared::new(false)).unwrap();
    let session = Arc::clone(&restored.session);
    let mut socket = restored.serve(dir.path());

    let memfds: Vec<OwnedFd> = (0..AREAS).map(|_| app.pinned()).collect();
    let areas = (0u64..).zip(&memfds).map(|(i, memfd)| PinnedArea {
        addr: 0x3e00_0000_0000 + (i << 21),
        size_bytes: 4096,
        fd: memfd.as_raw_fd(),
    });
    let areas: Vec<PinnedArea> = areas.collect();
    for (areas, memfds) in areas.chunks(MAX_FDS).zip(memfds.chunks(MAX_FDS)) {
        let areas = areas.to_vec();
        let fds: Vec<_> = memfds.iter().map(AsFd::as_fd).collect();
        let short = socket.ask(&Request::AddPinned { areas: areas.clone() }, &fds[1..]);
        assert!(matches!(short, Err(RingError::Refused { .. })), "{short:?}");
        socket.ask(&Request::AddPinned { areas }, &fds).unwrap();
    }
    let pid = std::process::id();
    let mut attach = |num_pinned| app.attach(&mut socket, &Request::Attach { pid, num_pinned });
    assert!(attach(AREAS as u64 - 1).is_err(), "some are missing");
    attach(AREAS as u64).unwrap();
    assert_eq!(session.pinned.areas(), areas);
}

#[test]
fn what_was_stopped_is_built_before_any_of_it_runs() {
    let (app, server) = start();
    app.load();
    let outs = [(); 2].map(|()| {
        let out = app.malloc(4096);
        app.count(DEFAULT, out, 1, 6000);
        out
    });
    server.wait_additions(100);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    let restored = Server::restore_on(dir.path(), &app, Shared::new(true));
    restored.wait_additions(1);
    restored.pause();
    let dir = tempfile::tempdir().unwrap();
    restored.capture(dir.path());
    let again = Server::restore(dir.path(), &app);
    assert_eq!(outs.map(|out| app.words(DEFAULT, out, 1)), [[6000], [6000]]);
    // Had the second been built while the first ran, the pause would have come after the first.
    assert!(again.device.additions.load(std::sync::atomic::Ordering::SeqCst) > 6000);
}

#[test]
fn launches_that_stop_of_their_own_accord_go_on_in_order() {
    let (app, server) = start_blind(50);
    app.load();
    let (out, kept) = (app.malloc(4096), app.malloc(4096));
    let side = app.stream(1, true);
    for i in 0..20 {
        app.count(DEFAULT, out, 3, 70);
        app.copy(DEFAULT, kept + 16 * i, out, 3);
        app.count(side, out + 1024, 2, 110);
    }
    assert_eq!(app.words(DEFAULT, out, 3), [1400; 3]);
    assert_eq!(app.words(side, out + 1024, 2), [2200; 2]);
    for i in 0..20 {
        let so_far = 70 * (u32::try_from(i).unwrap() + 1);
        assert_eq!(app.words(DEFAULT, kept + 16 * i, 3), [so_far; 3]);
    }
    assert_eq!(
        server.device.additions.load(std::sync::atomic::Ordering::SeqCst),
        20 * (210 + 220)
    );
}

#[test]
fn pauses_come_between_launches_that_stop_of_their_own_accord() {
    let (app, server) = start_blind(30);
    app.load();
    let out = app.malloc(4096);
    let side = app.stream(1, true);
    for _ in 0..20 {
        app.count(DEFAULT, out, 3, 50);
        app.count(side, out + 1024, 2, 60);
    }
    let additions = || server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    for i in 0..60 {
        std::thread::sleep(Duration::from_micros(i * 173 % 9000));
        server.pause();
        let before = additions();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(before, additions());
        server.release();
    }
    assert_eq!(app.words(DEFAULT, out, 3), [1000; 3]);
    assert_eq!(app.words(side, out + 1024, 2), [1200; 2]);
}

#[test]
fn what_stops_of_its_own_accord_can_be_captured() {
    let (app, mut server) = start_blind(40);
    app.load();
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 5, 200);
    app.count(DEFAULT, out, 5, 3);
    let mut old = Vec::new();
    for _ in 0..4 {
        server.wait_additions(100);
        server.pause();
        let dir = tempfile::tempdir().unwrap();
        server.capture(dir.path());
        let restored = Server::restore_on(dir.path(), &app, Shared::blind(40));
        old.push(std::mem::replace(&mut server, restored));
    }
    assert_eq!(app.words(DEFAULT, out, 5), [203; 5]);
}

/// The first bytes of a cubin.
#[test]
fn probed_kernels_are_launched_wherever_the_original_would_be() {
    let (app, server) = start_with_registers(256, 1024);
    app.load();
    let out = app.malloc(4096);
    let tight = || server.device.tight_programs.load(std::sync::atomic::Ordering::SeqCst);
    app.count_in(DEFAULT, out, [2, 256], 3, false);
    assert_eq!(app.words(DEFAULT, out, 2), [3; 2]);
    assert_eq!(tight(), 0, "there was no need");
    for _ in 0..2 {
        app.count_in(DEFAULT, out, [2, 1024], 3, false);
    }
    assert_eq!(app.words(DEFAULT, out, 2), [9; 2]);
    assert_eq!(tight(), 1, "built once");
    // Blocks that wait for one another: three on the one multiprocessor.
    app.count_in(DEFAULT, out, [3, 200], 1, true);
    assert_eq!(app.words(DEFAULT, out, 3), [10, 10, 1]);
    assert_eq!(tight(), 2);
    // What the program is told is the original's.
    let kernel = KernelId {
        module: ModuleId(1),
        index: 0,
    };
    let Reply::KernelAttributes(told) = app.call(Command::KernelAttributes { kernel }) else {
        panic!()
    };
    assert_eq!(told.max_threads_per_block, 1024);
    assert_eq!(app.producer.fault(), 0);
}

#[test]
fn attributes_are_told_while_a_kernel_runs() {
    let (app, server) = start_with_registers_loading_alone(256, 1024);
    app.load();
    let out = app.malloc(64);
    app.count(DEFAULT, out, 1, 5000);
    server.wait_additions(1);
    let threads = || {
        let kernel = KernelId {
            module: ModuleId(1),
            index: 0,
        };
        match app.call(Command::KernelAttributes { kernel }) {
            Reply::KernelAttributes(told) => told.max_threads_per_block,
            other => panic!("{other:?}"),
        }
    };
    // The original cannot be loaded now, and the kernel may wait for the program.
    assert_eq!(threads(), 256);
    let so_far = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    assert!(so_far < 5000, "{so_far}");
    assert_eq!(app.words(DEFAULT, out, 1), [5000]);
    assert_eq!(threads(), 1024);
}

#[test]
fn what_takes_long_holds_nothing_up() {
    let (app, server) = start_with_registers_loading_alone(256, 1024);
    app.load();
    let out = app.malloc(64);
    app.count(DEFAULT, out, 1, 5000);
    server.wait_additions(1);
    // Building its kernel waits for the one that runs.
    let module = ModuleId(2);
    app.try_load_as(module, support::PTX.as_bytes()).unwrap();
    let kernel = KernelId { module, index: 0 };
    let asked = app.producer.begin(Command::KernelAttributes { kernel }).unwrap();
    let other = app.malloc(64);
    app.fill(app.stream(65, true), other, 1, 7);
    assert_eq!(app.words(StreamId(65), other, 1), [7]);
    let so_far = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    assert!(so_far < 5000, "{so_far}");
    assert_eq!(asked.wait().unwrap().result, 0);
    assert_eq!(app.words(DEFAULT, out, 1), [5000]);
}

#[test]
fn a_pause_does_not_wait_for_a_program_that_is_to_be_loaded() {
    let (app, server) = start_with_registers_loading_alone(1024, 1024);
    app.load();
    let (out, other) = (app.malloc(64), app.malloc(64));
    app.count(DEFAULT, out, 1, 5000);
    server.wait_additions(1);
    let module = ModuleId(2);
    app.try_load_as(module, support::PTX.as_bytes()).unwrap();
    let stream = app.stream(65, true);
    app.count_by(module, stream, other, [1, 2], 10, false);
    // Until the first kernel has ended, or stopped, the second cannot be loaded.
    std::thread::sleep(Duration::from_millis(20));
    server.pause();
    let so_far = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    assert!(so_far < 5000, "{so_far}");
    server.release();
    assert_eq!(app.words(DEFAULT, out, 1), [5000]);
    assert_eq!(app.words(stream, other, 1), [10]);
}

#[test]
fn a_capture_waits_for_what_takes_long() {
    let (app, server) = start();
    app.load();
    server.pause();
    let driver = server.device.driver.lock();
    let kernel = KernelId {
        module: ModuleId(1),
        index: 0,
    };
    let asked = app.producer.begin(Command::KernelAttributes { kernel }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let captured = scope.spawn(|| server.capture(folder.path()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!captured.is_finished(), "the program's answer is in no snapshot");
        drop(driver);
    });
    assert_eq!(asked.wait().unwrap().result, 0);
}

#[test]
fn what_the_original_could_not_be_launched_with_is_refused() {
    let (app, server) = start_with_registers(256, 512);
    app.load();
    let out = app.malloc(64);
    app.count_in(DEFAULT, out, [1, 513], 1, false);
    let answer = app
        .producer
        .call(Command::StreamSynchronize { stream: DEFAULT })
        .unwrap();
    assert_eq!(answer.result, 701);
    assert_eq!(
        server.device.tight_programs.load(std::sync::atomic::Ordering::SeqCst),
        0
    );
}

#[test]
fn a_stopped_launch_goes_on_with_blocks_as_large_as_they_were() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    app.count_in(DEFAULT, out, [2, 1024], 300, false);
    server.wait_additions(20);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    drop(server);
    // Where continuations take more registers than the program that was captured.
    let server = Server::restore_on(dir.path(), &app, Shared::with_registers(64, 0));
    assert_eq!(app.words(DEFAULT, out, 2), [300; 2]);
    assert_eq!(
        server.device.tight_programs.load(std::sync::atomic::Ordering::SeqCst),
        1
    );
}

#[test]
fn stopped_blocks_that_memory_cannot_hold_are_refused_before_they_are_made() {
    let (app, server) = start();
    app.load();
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 2, 300);
    server.wait_additions(20);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    drop(server);
    // A little of a state can stand for a lot of memory.
    let swell = |state: &mut ProcessState| {
        let work = state.streams.iter_mut().flat_map(|stream| &mut stream.work);
        for item in work {
            if let Work::Resume(run) = &mut item.work {
                run.shape.dynamic_shared_bytes = u32::MAX;
                run.stopped = vec![run.stopped[0].clone(); 4096];
            }
        }
    };
    let refused = Server::rebuild_from(dir.path(), Shared::new(false), Readable::HERE, swell)
        .err()
        .unwrap();
    let text = refused.to_string();
    assert!(
        text.contains("bytes of memory") && text.contains("are available"),
        "{text}"
    );
}

const MACHINE_CODE: &[u8] = b"\x7fELF and so on";

/// A fat binary of these entries: kind (1 PTX, 2 machine code), compute capability, flags and content.
fn fatbin(entries: &[(u16, u32, u64, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for &(kind, arch, flags, content) in entries {
        let padded = content.len().next_multiple_of(8);
        let mut header = vec![0_u8; 64];
        header[..2].copy_from_slice(&kind.to_le_bytes());
        header[4..8].copy_from_slice(&64_u32.to_le_bytes());
        header[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        header[28..32].copy_from_slice(&arch.to_le_bytes());
        header[40..48].copy_from_slice(&flags.to_le_bytes());
        body.extend(header);
        body.extend(content);
        body.resize(body.len() + padded - content.len(), 0);
    }
    let mut image = vec![0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0];
    image.extend((body.len() as u64).to_le_bytes());
    image.extend(body);
    image
}

const PTX: &[u8] = include_bytes!("data/count.ptx");

#[test]
fn machine_code_that_fits_is_taken_where_the_ptx_does_not() {
    let (app, _server) = start();
    let both = fatbin(&[(2, 80, 0, b"\x7fELF"), (2, 90, 0, b"\x7fELF"), (1, 120, 0, PTX)]);
    let module = app.load_image(&both);
    assert_eq!(module.kernels[0].name, "machine");
    // Programs choose by it how to launch.
    assert_eq!(module.kernels[0].ptx_version, 90);
    let ptx_suits = fatbin(&[(2, 90, 0, b"\x7fELF"), (1, 80, 0, PTX)]);
    assert_eq!(app.load_image(&ptx_suits).kernels[0].name, "count");
}

#[test]
fn newer_ptx_is_taken_where_no_machine_code_can_be() {
    let none_fits = fatbin(&[(2, 80, 0, b"\x7fELF"), (2, 100, 0, b"\x7fELF"), (1, 120, 0, PTX)]);
    let fits = fatbin(&[(2, 90, 0, b"\x7fELF"), (1, 120, 0, PTX)]);
    for ((app, _server), image) in [(start(), &none_fits), (start_without_machine_code(), &fits)] {
        assert_eq!(app.load_image(image).kernels[0].name, "count");
    }
}

#[test]
fn a_refused_module_is_told_with_its_kernels() {
    const ARCH_SPECIFIC: u64 = 0x10_0000;
    let (app, _server) = start();
    let image = fatbin(&[(1, 100, ARCH_SPECIFIC, PTX), (2, 80, 0, b"\x7fELF")]);
    let (result, log) = app.try_load(&image).unwrap_err();
    assert_eq!(result, 209);
    assert!(
        log.contains("no PTX for sm_90") && log.ends_with("kernels: `count`"),
        "{log}"
    );
}

#[test]
fn pause_waits_for_machine_code_and_runs_none_behind_a_stopped_kernel() {
    let (app, server) = start();
    assert_eq!(app.load_image(MACHINE_CODE).kernels[0].name, "machine");
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 1, 300);
    app.count(DEFAULT, out, 1, 7);
    server.wait_additions(5);
    server.pause();
    let done = server.device.additions.load(std::sync::atomic::Ordering::SeqCst);
    assert!(done == 300, "{done}");
    server.release();
    assert_eq!(app.words(DEFAULT, out, 1), [307]);
}

#[test]
fn pause_that_is_not_heeded_fails_and_everything_goes_on() {
    let (app, server) = start_with_deadline(Duration::from_millis(50));
    app.load_image(MACHINE_CODE);
    let out = app.malloc(4096);
    app.count(DEFAULT, out, 1, 3000);
    app.fill(DEFAULT, out + 4, 1, 8);
    server.wait_additions(5);
    let error = hetckpt_server::pause::pause(&server.session, 1, None).unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().contains("`machine`")),
        (hetckpt_ring::failure_code::Code::NotStopped, true),
        "{error}"
    );
    assert!(!hetckpt_server::pause::is_held(&server.session));
    assert_eq!(app.words(DEFAULT, out, 2), [3000, 8]);
}

/// Both take the holders' lock, and that of the queues.
#[test]
fn status_and_pauses_do_not_wait_for_each_other() {
    let (_app, server) = start();
    let dir = tempfile::tempdir().unwrap();
    let session = Arc::clone(&server.session);
    let mut asker = server.serve(dir.path());
    asker.set_timeout(Some(Duration::from_secs(60))).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let pauses = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                hetckpt_server::pause::pause(&session, 1, None).unwrap();
                hetckpt_server::pause::release(&session, 1);
            }
        }
    });
    for _ in 0..5000 {
        let status = asker.ask(&Request::Status, &[]);
        assert!(matches!(status, Ok(Response::Status(_))), "{status:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    pauses.join().unwrap();
}

/// Through the control socket, as the command line and the plugin ask.
#[test]
fn limit_of_a_pause_request_replaces_the_servers_own() {
    let (app, server) = start_with_deadline(Duration::from_millis(50));
    app.load_image(MACHINE_CODE);
    let out = app.malloc(4096);
    let dir = tempfile::tempdir().unwrap();
    let path = socket_path(dir.path(), 4242);
    let listener = listen(&path).unwrap();
    let files = OwnFiles {
        socket: SocketFile::new(path.clone()),
        log: path.with_extension("log"),
    };
    let session = Arc::clone(&server.session);
    let control = Arc::new(Control::new(session, DeviceChoice::Auto, listener, files, false));
    std::thread::spawn(move || control.serve());
    let mut client = ControlSocket::connect(&path).unwrap();
    app.count(DEFAULT, out, 1, 3000);
    server.wait_additions(5);
    for limit_ms in [0, 60] {
        let refused = client.ask(&Request::Pause { limit_ms }, &[]).unwrap_err();
        assert!(
            matches!(&refused, RingError::Refused { code, .. } if code == "HK0602"),
            "{refused:?}"
        );
    }
    let answer = client.ask(&Request::Pause { limit_ms: 60_000 }, &[]).unwrap();
    assert!(matches!(answer, Response::Done { .. }), "{answer:?}");
    assert_eq!(server.device.additions.load(std::sync::atomic::Ordering::SeqCst), 3000);
    client.ask(&Request::Release { app_is_gone: false }, &[]).unwrap();
    assert_eq!(app.words(DEFAULT, out, 1), [3000]);
}

#[test]
fn full_staging_chunks_do_not_block_a_program_behind_a_long_kernel() {
    let (app, _server) = start();
    app.load();
    let out = app.malloc(64 << 20);
    app.count(DEFAULT, out, 1, 2000);
    // More copies than there are chunks.
    for i in 0..100u32 {
        let bytes = vec![u8::try_from(i).unwrap(); 512 << 10];
        let data = app.producer.payload(&bytes).unwrap();
        let dst = Rows::range(out + 4096 + u64::from(i) * bytes.len() as u64, bytes.len() as u64);
        app.send(Command::CopyIn {
            stream: DEFAULT,
            dst,
            data,
        });
    }
    assert_eq!(
        app.producer
            .call(Command::StreamQuery { stream: DEFAULT })
            .unwrap()
            .result,
        600
    );
    assert_eq!(app.words(DEFAULT, out + 4096 + 99 * (512 << 10), 1), [0x6363_6363]);
    assert_eq!(app.words(DEFAULT, out, 1), [2000]);
}
