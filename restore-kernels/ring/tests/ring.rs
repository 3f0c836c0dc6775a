//! Both ends of the ring at work: through two mappings of the same memory, as two processes have them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hetckpt_ring::command::{Command, DeviceIndex, ModuleId, Payload, Rows, StreamId};
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::error::RingError;
use hetckpt_ring::layout;
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::producer::Producer;
use hetckpt_ring::reply::Reply;
use hetckpt_ring::server_side::ServerSide;
use hetckpt_ring::version::Readable;
use nix::sys::uio::{pread, pwrite};

fn ring_with(is_alive: impl Fn() -> bool + Send + Sync + 'static) -> (OwnedFd, Producer) {
    let (fd, memory) = Producer::create().unwrap();
    (fd, Producer::new(memory, Box::new(is_alive)))
}

fn ring() -> (OwnedFd, Producer) {
    ring_with(|| true)
}

/// Answers copies in with the sum of their bytes, copies out with a pattern, everything else with its id.
fn serve(fd: &OwnedFd, until: &AtomicBool) -> u64 {
    let (mut consumer, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    let mut handled = 0;
    while !until.load(Ordering::Acquire) {
        while let Some(envelope) = consumer.take().unwrap() {
            handled += 1;
            let reply = act(&side, envelope.command);
            if let Some(slot) = envelope.reply {
                side.answer(slot, 0, &reply).unwrap();
            }
        }
        consumer.sleep(consumer.bell(), Some(Duration::from_millis(50)));
    }
    handled
}

fn act(side: &ServerSide, command: Command) -> Reply {
    match command {
        Command::CopyIn { data, .. } => {
            let sum = |bytes: &[u8]| Reply::Address(bytes.iter().map(|&b| u64::from(b)).sum());
            match data {
                Payload::Inline(bytes) => sum(&bytes),
                Payload::Staged(chunk) => {
                    let reply = sum(side.chunk_bytes(chunk).unwrap());
                    side.release_chunk(chunk).unwrap();
                    reply
                }
            }
        }
        Command::CopyOut { src, chunk, .. } => {
            side.with_chunk(chunk, |bytes| bytes.fill(src.addr as u8)).unwrap();
            Reply::Nothing
        }
        Command::Malloc { size_bytes, .. } => Reply::Address(size_bytes),
        _ => Reply::Nothing,
    }
}

fn with_server(fd: &OwnedFd, body: impl FnOnce()) -> u64 {
    let until = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(fd, &until));
        body();
        until.store(true, Ordering::Release);
        server.join().unwrap()
    })
}

#[test]
fn many_threads_get_their_own_answers_while_the_fifo_wraps() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 300;
    let (fd, producer) = ring();
    let handled = with_server(&fd, || {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let producer = &producer;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // Inline records of several lengths, 4 MiB in all: the 1 MiB FIFO wraps at odd places.
                        let bytes = vec![(round % 251) as u8; ((thread * 911 + round * 37) % 4096) as usize];
                        let dst = Rows::range(0, bytes.len() as u64);
                        let stream = StreamId(thread);
                        let sum = bytes.iter().map(|&b| u64::from(b)).sum();
                        let data = producer.payload(&bytes).unwrap();
                        producer
                            .send(Command::CopyIn {
                                stream,
                                dst,
                                data: data.clone(),
                            })
                            .unwrap();
                        let answer = producer.call(Command::CopyIn { stream, dst, data }).unwrap();
                        assert_eq!(answer.reply, Reply::Address(sum));
                    }
                });
            }
        });
    });
    assert_eq!(handled, THREADS * ROUNDS * 2);
}

#[test]
fn chunks_go_round() {
    let (fd, producer) = ring();
    with_server(&fd, || {
        let big = vec![3_u8; layout::CHUNK_BYTES];
        for _ in 0..3 * layout::NUM_CHUNKS {
            let data = producer.payload(&big).unwrap();
            assert!(matches!(data, Payload::Staged(_)));
            let dst = Rows::range(0, big.len() as u64);
            producer
                .send(Command::CopyIn {
                    stream: StreamId(0),
                    dst,
                    data,
                })
                .unwrap();
        }
        let (a, b) = (producer.take_chunk().unwrap(), producer.take_chunk().unwrap());
        let copy = |addr: u64, chunk| Command::CopyOut {
            stream: StreamId(0),
            src: Rows::range(addr, 100),
            chunk,
        };
        let first = producer.begin(copy(7, a.first(100))).unwrap();
        let second = producer.begin(copy(9, b.first(100))).unwrap();
        assert_eq!((first.wait().unwrap().result, second.wait().unwrap().result), (0, 0));
        let (mut from_a, mut from_b) = ([0; 10], [0; 10]);
        a.read(90, &mut from_a);
        b.read(0, &mut from_b);
        assert_eq!((from_a, from_b), ([7; 10], [9; 10]));
    });
}

#[test]
fn more_waiting_threads_than_slots_all_get_answers() {
    let (fd, producer) = ring();
    let answers = AtomicU64::new(0);
    with_server(&fd, || {
        thread::scope(|scope| {
            for n in 0..u64::from(layout::NUM_REPLY_SLOTS) + 40 {
                let (producer, answers) = (&producer, &answers);
                scope.spawn(move || {
                    assert_eq!(
                        producer
                            .call(Command::Malloc {
                                size_bytes: n,
                                device: DeviceIndex::FIRST
                            })
                            .unwrap()
                            .reply,
                        Reply::Address(n)
                    );
                    answers.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(answers.into_inner(), u64::from(layout::NUM_REPLY_SLOTS) + 40);
}

#[test]
fn a_new_server_carries_on_where_the_old_one_stopped() {
    let (fd, producer) = ring();
    for size_bytes in 0..5 {
        producer
            .send(Command::Malloc {
                size_bytes,
                device: DeviceIndex::FIRST,
            })
            .unwrap();
    }
    let pending = producer
        .begin(Command::Malloc {
            size_bytes: 77,
            device: DeviceIndex::FIRST,
        })
        .unwrap();
    {
        let (mut old, _) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
        for expected in 0..3 {
            let taken = old.take().unwrap().unwrap();
            assert_eq!(
                taken.command,
                Command::Malloc {
                    size_bytes: expected,
                    device: DeviceIndex::FIRST
                }
            );
        }
    }
    let (mut new, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    assert_eq!(
        new.take().unwrap().unwrap().command,
        Command::Malloc {
            size_bytes: 3,
            device: DeviceIndex::FIRST
        }
    );
    assert_eq!(
        new.take().unwrap().unwrap().command,
        Command::Malloc {
            size_bytes: 4,
            device: DeviceIndex::FIRST
        }
    );
    let last = new.take().unwrap().unwrap();
    side.answer(last.reply.unwrap(), 0, &act(&side, last.command)).unwrap();
    assert_eq!(pending.wait().unwrap().reply, Reply::Address(77));
}

#[test]
fn a_dead_server_is_an_error_not_a_hang() {
    let alive = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&alive);
    let (_fd, producer) = ring_with(move || seen.load(Ordering::Acquire));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            producer.call(Command::Synchronize {
                device: DeviceIndex::FIRST,
            })
        });
        thread::sleep(Duration::from_millis(20));
        alive.store(false, Ordering::Release);
        assert!(matches!(waiting.join().unwrap(), Err(RingError::ServerGone)));
    });
    // Also a thread that waits for room in the FIFO.
    let data = Payload::Inline(vec![0; 4000]);
    let send = || {
        producer.send(Command::ModuleData {
            module: ModuleId(1),
            part: 0,
            data: data.clone(),
        })
    };
    let error = (0..1000).find_map(|_| send().err());
    assert!(matches!(error, Some(RingError::ServerGone)));
}

#[test]
fn the_first_fault_sticks_until_it_is_cleared() {
    let (fd, producer) = ring();
    let (_consumer, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    assert_eq!(producer.fault(), 0);
    side.set_fault(700);
    side.set_fault(719);
    producer.set_fault(46);
    assert_eq!(producer.fault(), 700);
    side.clear_fault();
    assert_eq!(producer.fault(), 0);
}

#[test]
fn callbacks_arrive_in_order_and_not_more_than_fit() {
    let (fd, producer) = ring();
    let (_consumer, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    let capacity = (0..).take_while(|&id| side.push_callback(id)).count() as u64;
    assert_eq!(capacity, layout::NUM_CALLBACKS);
    for id in 0..capacity {
        assert_eq!(producer.wait_callback(Duration::ZERO).unwrap(), Some(id));
    }
    assert_eq!(producer.wait_callback(Duration::ZERO).unwrap(), None);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            loop {
                if let Some(id) = producer.wait_callback(Duration::from_secs(5)).unwrap() {
                    break id;
                }
            }
        });
        thread::sleep(Duration::from_millis(10));
        assert!(side.push_callback(4711));
        assert_eq!(waiting.join().unwrap(), 4711);
    });
}

#[test]
fn pinned_areas_are_found_by_who_opens_the_memory() {
    let (fd, producer) = ring();
    let area = |n: i32| PinnedArea {
        addr: 0x2f00_0000_0000 + n as u64 * 4096,
        size_bytes: 4096,
        fd: 100 + n,
    };
    (0..3).for_each(|n| producer.pinned_table().insert(area(n)).unwrap());
    assert!(producer.pinned_table().remove(area(1).addr));
    assert!(!producer.pinned_table().remove(area(1).addr));
    producer.set_identity(42, 101, 102);
    let (_consumer, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    assert_eq!(side.pinned_table().areas(), [area(0), area(2)]);
    assert_eq!(side.identity(), (42, 101, 102));
}

#[test]
fn waking_the_reader_ends_its_wait() {
    let (fd, _producer) = ring();
    let (consumer, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(20));
            side.wake_reader();
        });
        consumer.sleep(consumer.bell(), Some(Duration::from_secs(600)));
    });
}

#[test]
fn hostile_lengths_and_positions_are_refused() {
    let put = |fd: &OwnedFd, offset: usize, bytes: &[u8]| {
        assert_eq!(pwrite(fd, bytes, offset as i64).unwrap(), bytes.len());
    };
    for length in [u32::MAX, layout::MAX_RECORD_BYTES as u32, 64, 9] {
        let (fd, _producer) = ring();
        put(&fd, layout::COMMANDS, &length.to_le_bytes());
        put(&fd, layout::COMMAND_TAIL, &16_u64.to_le_bytes());
        let (mut consumer, _) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
        assert!(
            matches!(consumer.take(), Err(RingError::BadRecord { .. })),
            "length {length}"
        );
    }
    for tail in [u64::MAX, layout::COMMAND_BYTES as u64 + 8, 3] {
        let (fd, _producer) = ring();
        put(&fd, layout::COMMAND_TAIL, &tail.to_le_bytes());
        let (mut consumer, _) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
        assert!(
            matches!(consumer.take(), Err(RingError::BadPositions { .. })),
            "tail {tail}"
        );
    }
}

#[test]
fn slots_and_chunks_out_of_range_are_refused() {
    use hetckpt_ring::command::{Chunk, SlotId};
    let (fd, _producer) = ring();
    let (_consumer, side) = Consumer::open(fd.as_fd(), Readable::HERE).unwrap();
    assert!(
        side.answer(SlotId(layout::NUM_REPLY_SLOTS), 0, &Reply::Nothing)
            .is_err()
    );
    for (index, length) in [
        (layout::NUM_CHUNKS, 1),
        (0, layout::CHUNK_BYTES as u32 + 1),
        (u32::MAX, u32::MAX),
    ] {
        let chunk = Chunk { index, length };
        assert!(side.chunk_bytes(chunk).is_err() && side.release_chunk(chunk).is_err());
    }
    assert!(
        side.fill_chunk(Chunk { index: 0, length: 8 }, usize::MAX, &[0; 2])
            .is_err()
    );
    assert!(side.fill_chunk(Chunk { index: 0, length: 8 }, 7, &[0; 2]).is_err());
}

#[test]
fn other_memory_is_not_taken_for_a_ring() {
    let (fd, _producer) = ring();
    let mut version = [0; 4];
    pread(&fd, &mut version, layout::VERSION as i64).unwrap();
    version[0] += 1;
    pwrite(&fd, &version, layout::VERSION as i64).unwrap();
    assert!(
        matches!(Consumer::open(fd.as_fd(), Readable::HERE), Err(RingError::Version { theirs, .. }) if theirs == u32::from(version[0]))
    );
    pwrite(&fd, &[0; 8], layout::MAGIC as i64).unwrap();
    assert!(matches!(
        Consumer::open(fd.as_fd(), Readable::HERE),
        Err(RingError::NotARing { .. })
    ));
    let file = nix::sys::memfd::memfd_create("x", nix::sys::memfd::MFdFlags::empty()).unwrap();
    assert!(matches!(
        Consumer::open(file.as_fd(), Readable::HERE),
        Err(RingError::NotARing { .. })
    ));
    nix::unistd::ftruncate(&file, layout::TOTAL_BYTES as i64).unwrap();
    assert!(
        matches!(
            Consumer::open(file.as_fd(), Readable::HERE),
            Err(RingError::NotARing { .. })
        ),
        "its size is not sealed"
    );
}
