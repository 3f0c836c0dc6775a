//! Launches of bounded length, as on a device whose kernels do not see what the host writes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_devices::device::{Device as _, Launch, Queue};
use hetckpt_devices::opencl::OpenClOptions;

use crate::fixture::{Bench, OUT, left, on_devices, on_devices_with, rest};
use crate::programs::{expected, expected_of_block, steps, steps_that};

fn on_blind_devices(test: impl Fn(&Bench)) {
    let options = OpenClOptions {
        sees_host_writes: Some(false),
        ..OpenClOptions::default()
    };
    on_devices_with(&options, test);
}

/// As the server lets everything go on that has stopped of its own accord.
fn go_on(bench: &Bench) {
    bench.device.request_pause().unwrap();
    bench.device.end_pause().unwrap();
}

/// Runs launches of a queue to their end, each behind the others; what the first has left each time.
fn run_in_slices(bench: &Bench, queue: &dyn Queue, launches: &[Launch]) -> Vec<PausedGrid> {
    let mut cuts = Vec::new();
    let mut next = launches.to_vec();
    loop {
        let running: Vec<_> = next
            .iter()
            .map(|launch| queue.launch(launch.clone()).unwrap())
            .collect();
        let outcomes: Vec<_> = running.iter().map(|launch| left(launch.wait())).collect();
        let Some(first) = outcomes.iter().position(|left| !left.is_finished()) else {
            return cuts;
        };
        // Nothing has begun behind what has stopped.
        for (launch, left) in next.iter().zip(&outcomes).skip(first + 1) {
            assert!(left.paused.is_empty());
            assert_eq!(left.num_not_started(), u64::from(launch.shape.grid[0]));
        }
        cuts.push(outcomes[first].clone());
        go_on(bench);
        let stopped = next.iter().zip(outcomes).skip(first);
        next = stopped.map(|(launch, left)| rest(launch, left)).collect();
    }
}

fn is_cut_and_goes_on(stops: Stops, threads: u32, num_steps: u64) {
    on_blind_devices(|bench| {
        assert!(bench.device.cuts_launches());
        let kernel = bench.device.load(&steps_that(true, stops, threads)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        let blocks = 24;
        bench.clear(blocks * threads);
        let launch = bench.launch(&kernel, blocks, threads, num_steps);
        let begin = Instant::now();
        let cuts = run_in_slices(bench, &*queue, &[launch]);
        eprintln!("{stops:?}: {} slices in {:?}", cuts.len() + 1, begin.elapsed());
        assert!(cuts.iter().any(|left| !left.paused.is_empty()));
        let of_block = match stops {
            Stops::Threads => vec![expected(num_steps); threads as usize],
            Stops::Blocks => expected_of_block(threads, num_steps),
        };
        for results in bench.results(blocks * threads).chunks(threads as usize) {
            assert_eq!(results, of_block);
        }
    });
}

#[test]
fn threads_go_on_in_the_next_slice() {
    is_cut_and_goes_on(Stops::Threads, 32, 800_000);
}

#[test]
fn blocks_go_on_in_the_next_slice() {
    is_cut_and_goes_on(Stops::Blocks, 16, 300_000);
}

#[test]
fn launches_behind_a_cut_one_run_in_order() {
    on_blind_devices(|bench| {
        let kernel = bench.device.load(&steps_that(true, Stops::Threads, 32)).unwrap();
        let queues = [0, 1].map(|_| bench.device.create_queue(0).unwrap());
        let launch = |half: u64, num_steps: u64| Launch {
            params: [OUT + half * 8 * 32 * 8, num_steps]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
            ..bench.launch(&kernel, 8, 32, num_steps)
        };
        let mut next = [0, 1].map(|half| {
            [2_000_000, 200, 1_500_000, 10]
                .map(|steps| launch(half, steps))
                .to_vec()
        });
        let mut num_cuts = 0;
        while next.iter().any(|launches| !launches.is_empty()) {
            let running = [0, 1].map(|half: usize| {
                let given = next[half]
                    .iter()
                    .map(|launch| queues[half].launch(launch.clone()).unwrap());
                given.collect::<Vec<_>>()
            });
            for (launches, running) in next.iter_mut().zip(running) {
                let outcomes: Vec<_> = running.iter().map(|launch| left(launch.wait())).collect();
                let behind = outcomes.iter().skip_while(|left| left.is_finished()).skip(1);
                for left in behind {
                    assert_eq!((left.paused.len(), left.num_not_started()), (0, 8));
                    num_cuts += 1;
                }
                let stopped = launches.iter().zip(outcomes).filter(|(_, left)| !left.is_finished());
                *launches = stopped.map(|(launch, left)| rest(launch, left)).collect();
            }
            go_on(bench);
        }
        assert!(num_cuts > 0);
        assert_eq!(bench.results(512), [expected(10); 512]);
    });
}

#[test]
fn a_pause_needs_no_more_than_the_slice() {
    on_blind_devices(|bench| {
        let kernel = bench.device.load(&steps_that(true, Stops::Blocks, 16)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        let launch = bench.launch(&kernel, 24, 16, 400_000);
        let running = queue.launch(launch.clone()).unwrap();
        sleep(Duration::from_millis(2));
        let begin = Instant::now();
        bench.device.request_pause().unwrap();
        let what_is_left = left(running.wait());
        eprintln!("stopped after {:?}", begin.elapsed());
        assert!(!what_is_left.is_finished());
        // Nothing is launched meanwhile.
        let held = left(queue.launch(launch.clone()).unwrap().wait());
        assert_eq!(held.not_started, [(0, 24)]);
        bench.device.end_pause().unwrap();
        run_in_slices(bench, &*queue, &[rest(&launch, what_is_left)]);
        let of_block = expected_of_block(16, 400_000);
        assert!(bench.results(24 * 16).chunks(16).all(|results| results == of_block));
    });
}

/// Programs that wait for each launch are not cut where one of them would have been.
#[test]
fn a_slice_begins_anew_where_nothing_runs() {
    on_blind_devices(|bench| {
        let kernel = bench.device.load(&steps_that(true, Stops::Threads, 32)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        // The price of its looks comes to rest.
        run_in_slices(bench, &*queue, &[bench.launch(&kernel, 24, 32, 600_000)]);
        // On a busy machine it changes, and slices end early once or twice. Did they never begin anew, each would end
        // after a tenth of a second.
        let begin = Instant::now();
        let (mut launches, mut cuts) = (0, 0);
        let mut last_cut = begin;
        while last_cut.elapsed() < Duration::from_millis(500) {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{cuts} cuts in {launches} launches"
            );
            let found = run_in_slices(bench, &*queue, &[bench.launch(&kernel, 24, 32, 5_000)]).len();
            if found > 0 {
                last_cut = Instant::now();
            }
            cuts += found;
            launches += 1;
        }
        eprintln!("{launches} launches in {:?}, {cuts} cuts", begin.elapsed());
    });
}

#[test]
fn programs_that_do_not_count_their_looks_are_refused() {
    on_blind_devices(|bench| {
        assert!(bench.device.load(&steps(Stops::Threads, 32)).is_err());
    });
    on_devices(|bench| {
        if !bench.device.cuts_launches() {
            assert!(bench.device.load(&steps_that(true, Stops::Threads, 32)).is_err());
        }
    });
}
