//! Launches stopped and continued.

use std::thread::sleep;
use std::time::{Duration, Instant};

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_devices::device::{Device as _, Launch, Queue};

use crate::fixture::{Bench, left, on_devices, rest};
use crate::programs::{expected, steps};

/// Lets a launch run for a while, stops it, and so on until it has finished; what it left each time.
fn run_in_pieces(bench: &Bench, queue: &dyn Queue, launch: &Launch, piece: Duration) -> Vec<PausedGrid> {
    let mut pauses = Vec::new();
    let mut next = launch.clone();
    loop {
        let running = queue.launch(next).unwrap();
        // At last it is let run, for the sake of devices that do not stop.
        if pauses.len() < 6 {
            sleep(piece);
            bench.device.request_pause().unwrap();
        }
        let what_is_left = left(running.wait());
        bench.device.end_pause().unwrap();
        if what_is_left.is_finished() {
            return pauses;
        }
        pauses.push(what_is_left.clone());
        next = rest(launch, what_is_left);
    }
}

fn stops_and_goes_on(stops: Stops, threads: u32, num_steps: u64) {
    on_devices(|bench| {
        let kernel = bench.device.load(&steps(stops, threads)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        let blocks = 24;
        let launch = bench.launch(&kernel, blocks, threads, num_steps);
        // The first time may include building.
        let warm = queue.launch(bench.launch(&kernel, blocks, threads, 10)).unwrap();
        assert!(left(warm.wait()).is_finished());
        let begin = Instant::now();
        assert!(left(queue.launch(launch.clone()).unwrap().wait()).is_finished());
        let whole = begin.elapsed();
        let wanted = bench.results(blocks * threads);
        if stops == Stops::Threads {
            assert_eq!(wanted[0], expected(num_steps));
        }
        // On a machine that had other work while `whole` was measured, the launch may now end within the first piece:
        // then it is tried again in shorter ones.
        let mut piece = whole / 4;
        let pauses = loop {
            bench.clear(blocks * threads);
            let pauses = run_in_pieces(bench, &*queue, &launch, piece);
            assert!(bench.results(blocks * threads) == wanted);
            if !pauses.is_empty() || piece < Duration::from_millis(1) {
                break pauses;
            }
            piece /= 4;
        };
        let sizes: Vec<_> = pauses.iter().map(|g| (g.paused.len(), g.num_not_started())).collect();
        eprintln!("in {whole:?}; paused and not started: {sizes:?}");
        if bench.stops_surely {
            assert!(pauses.iter().any(|grid| !grid.paused.is_empty()));
            // A large device starts all at once.
            let num_multiprocessors = bench.device.describe().num_multiprocessors;
            assert!(num_multiprocessors >= blocks || pauses.iter().any(|grid| !grid.not_started.is_empty()));
        }
        let points = pauses.iter().flat_map(|g| &g.paused).flat_map(|b| &b.resume_points);
        assert!(points.into_iter().all(|&point| point == 1 || point == FINISHED));
    });
}

#[test]
fn threads_stop_each_on_its_own() {
    stops_and_goes_on(Stops::Threads, 32, 300_000);
}

#[test]
fn blocks_stop_as_a_whole() {
    stops_and_goes_on(Stops::Blocks, 16, 200_000);
}

/// One block leaves a processor free, so that this works where transfers wait for one.
#[test]
fn a_lone_block_stops() {
    on_devices(|bench| {
        for (stops, num_steps) in [(Stops::Threads, 6_000_000), (Stops::Blocks, 400_000)] {
            let kernel = bench.device.load(&steps(stops, 16)).unwrap();
            let queue = bench.device.create_queue(0).unwrap();
            let launch = bench.launch(&kernel, 1, 16, num_steps);
            assert!(left(queue.launch(launch.clone()).unwrap().wait()).is_finished());
            let wanted = bench.results(16);
            bench.clear(16);
            let pauses = run_in_pieces(bench, &*queue, &launch, Duration::from_millis(5));
            eprintln!("{stops:?}: {} pauses", pauses.len());
            assert_eq!(bench.results(16), wanted);
        }
    });
}

#[test]
fn what_is_queued_behind_a_paused_launch_does_not_run() {
    on_devices(|bench| {
        let kernel = bench.device.load(&steps(Stops::Threads, 32)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        bench.clear(256);
        let long = bench.launch(&kernel, 4, 32, 3_000_000);
        let short = bench.launch(&kernel, 8, 32, 10);
        let first = queue.launch(long.clone()).unwrap();
        let behind = [(); 3].map(|()| queue.launch(short.clone()).unwrap());
        sleep(Duration::from_millis(20));
        bench.device.request_pause().unwrap();
        let held = queue.launch(short.clone()).unwrap();
        let all = PausedGrid {
            paused: vec![],
            not_started: vec![(0, 8)],
        };
        assert_eq!(left(held.wait()), all);
        let of_first = left(first.wait());
        let of_others = behind.map(|launch| left(launch.wait()));
        if bench.stops_surely {
            assert!(!of_first.is_finished());
            assert!(of_others.iter().all(|left| *left == all));
            // Threads of the first may have finished; the others' results would be these, or lie behind its own.
            let results = bench.results(256);
            assert!(results.iter().all(|&value| value != expected(10)));
            assert_eq!(results[128..], [0xeeee_eeee_eeee_eeee; 128]);
        }
        bench.device.end_pause().unwrap();
        if !of_first.is_finished() {
            assert!(left(queue.launch(rest(&long, of_first)).unwrap().wait()).is_finished());
        }
        for left_over in of_others.into_iter().filter(|left| !left.is_finished()) {
            let launch = queue.launch(rest(&short, left_over)).unwrap();
            assert!(left(launch.wait()).is_finished());
        }
        assert_eq!(bench.results(256), [expected(10); 256]);
    });
}

#[test]
fn a_continuation_that_is_turned_away_keeps_its_blocks() {
    on_devices(|bench| {
        if !bench.stops_surely {
            eprintln!("skipped: running kernels may not see the request");
            return;
        }
        let kernel = bench.device.load(&steps(Stops::Blocks, 16)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        let launch = bench.launch(&kernel, 24, 16, 200_000);
        let running = queue.launch(launch.clone()).unwrap();
        sleep(Duration::from_millis(10));
        bench.device.request_pause().unwrap();
        let before = left(running.wait());
        bench.device.end_pause().unwrap();
        let in_front = queue.launch(launch.clone()).unwrap();
        let behind = queue.launch(rest(&launch, before.clone())).unwrap();
        sleep(Duration::from_millis(5));
        bench.device.request_pause().unwrap();
        assert!(!left(in_front.wait()).is_finished());
        assert_eq!(left(behind.wait()), before);
        bench.device.end_pause().unwrap();
    });
}

#[test]
fn a_device_dropped_with_a_launch_under_way_stops_it() {
    on_devices(|bench| {
        let kernel = bench.device.load(&steps(Stops::Threads, 32)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        drop(queue.launch(bench.launch(&kernel, 16, 32, 1_000_000)).unwrap());
    });
}
