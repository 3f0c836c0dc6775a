//! Launches that nothing stops.

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_devices::device::{Device as _, Outcome};
use hetckpt_devices::error::DeviceError;
use hetckpt_devices::opencl::OpenClOptions;

use crate::fixture::{left, on_devices, on_devices_with, rest};
use crate::programs::{expected, plain, steps};

#[test]
fn many_small_launches_run_in_order() {
    const TEXT: &str = "
        typedef struct { ulong out; ulong add; } P;
        __kernel void plain(__global uchar *arena, ulong arena_base, P p MORE_ARENAS) {
            const ulong out = p.out + 8 * get_global_id(0);
            GLOBAL(ulong, out) = GLOBAL(ulong, out) * 3 + p.add;
        }";
    on_devices(|bench| {
        let kernel = bench.device.load(&plain(TEXT)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        bench.clear(64);
        let first = bench.results(1)[0];
        let begin = std::time::Instant::now();
        let launches: Vec<_> = (0..2000)
            .map(|i| queue.launch(bench.launch(&kernel, 2, 32, i)).unwrap())
            .collect();
        launches.last().unwrap().wait_stopped();
        eprintln!("2000 launches: {:?}", begin.elapsed());
        assert!(launches.iter().all(|launch| launch.is_done()));
        let wanted = (0..2000u64).fold(first, |value, i| value.wrapping_mul(3).wrapping_add(i));
        assert_eq!(bench.results(64), [wanted; 64]);
    });
}

/// As in one queue, though they are in two.
#[test]
fn grids_that_must_not_meet_run_in_order() {
    const TEXT: &str = "
        typedef struct { ulong out; ulong add; } P;
        __kernel void plain(__global uchar *arena, ulong arena_base, P p MORE_ARENAS) {
            const ulong out = p.out + 8 * get_local_id(0);
            if (get_group_id(0) == 0) GLOBAL(ulong, out) = GLOBAL(ulong, out) * 3 + p.add;
        }";
    let options = OpenClOptions {
        mixes_grids: true,
        ..OpenClOptions::default()
    };
    on_devices_with(&options, |bench| {
        let kernels = [(); 2].map(|()| bench.device.load(&plain(TEXT)).unwrap());
        let queues = [(); 2].map(|()| bench.device.create_queue(0).unwrap());
        bench.clear(32);
        let first = bench.results(1)[0];
        let launch = |i: u64| {
            let which = i as usize % 2;
            // One kernel at first, then one that was loaded twice.
            let kernel = &kernels[if i < 150 { 0 } else { which }];
            queues[which].launch(bench.launch(kernel, [1, 300][which], 32, i))
        };
        let launches: Vec<_> = (0..300).map(|i| launch(i).unwrap()).collect();
        for launch in &launches {
            assert!(left(launch.wait()).is_finished());
        }
        let wanted = (0..300u64).fold(first, |value, i| value.wrapping_mul(3).wrapping_add(i));
        assert_eq!(bench.results(32), [wanted; 32]);
    });
}

/// Ever wider ones, in two queues, of one kernel that was loaded twice.
#[test]
fn grids_of_one_kernel_may_meet() {
    on_devices(|bench| {
        let kernels = [(); 2].map(|()| bench.device.load(&steps(Stops::Threads, 32)).unwrap());
        let queues = [(); 2].map(|()| bench.device.create_queue(0).unwrap());
        bench.clear(32 * 32);
        let launch = |i: usize| queues[i % 2].launch(bench.launch(&kernels[i / 2 % 2], i as u32 + 1, 32, 10_000));
        let launches: Vec<_> = (0..32).map(|i| launch(i).unwrap()).collect();
        for launch in &launches {
            assert!(left(launch.wait()).is_finished());
        }
        assert_eq!(bench.results(32 * 32), [expected(10_000); 32 * 32]);
    });
}

#[test]
fn dropped_launches_run_on() {
    on_devices(|bench| {
        let kernel = bench.device.load(&steps(Stops::Threads, 32)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        bench.clear(64);
        for _ in 0..3 {
            drop(queue.launch(bench.launch(&kernel, 2, 32, 100_000)).unwrap());
        }
        let last = queue.launch(bench.launch(&kernel, 2, 32, 1000)).unwrap();
        drop(queue);
        assert!(left(last.wait()).is_finished());
        assert!(left(last.wait()).is_finished());
        assert_eq!(bench.results(64), [expected(1000); 64]);
    });
}

#[test]
fn what_the_device_cannot_do_is_refused() {
    on_devices(|bench| {
        let device = &bench.device;
        let kernel = device.load(&steps(Stops::Blocks, 32)).unwrap();
        let queue = device.create_queue(0).unwrap();
        let good = bench.launch(&kernel, 2, 32, 10);
        let mut bad = [(); 7].map(|()| good.clone());
        bad[0].shape.block = [2048, 1, 1];
        bad[1].shape.block = [0, 1, 1];
        bad[2].shape.grid = [1 << 20, 1 << 12, 1];
        bad[3].shape.dynamic_shared_bytes = device.describe().max_shared_bytes;
        bad[4].params = [0; 4].into();
        bad[5] = rest(
            &good,
            PausedGrid {
                paused: vec![],
                not_started: vec![(1, 3)],
            },
        );
        bad[6].shape.grid = [100_000, 1, 1];
        bad[6].shape.cooperative = true;
        for launch in bad {
            let error = queue.launch(launch).err().unwrap();
            assert!(matches!(error, DeviceError::Launch { .. }), "{error}");
        }
        let plain = device.load(&plain(
            "__kernel void plain(__global uchar *a, ulong b, ulong2 p MORE_ARENAS) {}",
        ));
        let mut launch = bench.launch(&plain.unwrap(), 4, 1, 0);
        assert!(left(queue.launch(launch.clone()).unwrap().wait()).is_finished());
        launch = rest(
            &launch,
            PausedGrid {
                paused: vec![],
                not_started: vec![(0, 2)],
            },
        );
        let error = queue.launch(launch).err().unwrap();
        assert!(error.to_string().contains("list of blocks"), "{error}");
    });
}

#[test]
fn an_empty_grid_has_finished() {
    on_devices(|bench| {
        let kernel = bench.device.load(&steps(Stops::Threads, 32)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        let launch = queue.launch(bench.launch(&kernel, 0, 32, 10)).unwrap();
        assert!(launch.is_done());
        assert!(left(launch.wait()).is_finished());
    });
}

#[test]
fn a_trap_fails_the_launch() {
    on_devices(|bench| {
        let kernel = bench.device.load(&steps(Stops::Threads, 32)).unwrap();
        let queue = bench.device.create_queue(0).unwrap();
        let outcome = queue.launch(bench.launch(&kernel, 8, 32, 13)).unwrap().wait();
        match outcome {
            Outcome::Failed(DeviceError::Fault { cuda_result: 719, .. }) => {}
            other => panic!("{other:?}"),
        }
        let next = queue.launch(bench.launch(&kernel, 8, 32, 10)).unwrap();
        assert!(left(next.wait()).is_finished());
    });
}
