//! Every case, whole and paused: what the probes and continuations do must not show in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_interp::cases::{self, Case};
use hetckpt_interp::{GlobalMemory, Launch, Pause, Run, run};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;
use hetckpt_ir::validate;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};

fn lowered(case: &Case) -> Kernel {
    let module = hetckpt_ptx::lower_module(case.ptx).unwrap();
    let mut kernel = module.kernels.into_iter().find(|k| k.name == case.kernel).unwrap();
    let addresses: BTreeMap<String, u64> = case.globals.iter().map(|(n, a)| ((*n).to_string(), *a)).collect();
    bind_globals(&mut kernel, &addresses).unwrap();
    validate::kernel(&kernel).unwrap();
    kernel
}

fn memory(case: &Case) -> GlobalMemory {
    let mut memory = GlobalMemory::new();
    case.memory
        .iter()
        .for_each(|(address, bytes)| memory.map(*address, bytes.clone()));
    memory
}

fn launch(case: &Case, program: &Program, from: PausedGrid, pause: Pause, memory: &mut GlobalMemory) -> Run {
    let layout = ThreadStateLayout::new(&program.kernel);
    let dynamic_shared_bytes = case.dynamic_shared_bytes;
    let launch = Launch::new(program, &layout, case.grid, case.block, &case.params);
    run(
        Launch {
            from,
            pause,
            dynamic_shared_bytes,
            ..launch
        },
        memory,
    )
    .unwrap_or_else(|e| panic!("{}, {pause:?}: {e}", case.name))
}

fn whole(case: &Case, kernel: &Kernel) -> (GlobalMemory, Run) {
    let mut memory = memory(case);
    let program = Program::from_start(kernel.clone());
    let run = launch(case, &program, Launch::all_blocks(case.grid), Pause::Never, &mut memory);
    assert!(run.left.is_finished(), "{}", case.name);
    (memory, run)
}

/// Resume points of the threads that a pause caught part-way.
fn points_of(grid: &PausedGrid) -> Vec<ResumePointId> {
    let mut points: Vec<u32> = grid
        .paused
        .iter()
        .flat_map(|b| b.resume_points.iter().copied())
        .collect();
    points.sort_unstable();
    points.dedup();
    points
        .into_iter()
        .filter(|p| *p != FINISHED)
        .map(ResumePointId)
        .collect()
}

/// Goes on from `left`, as a device does: a continuation for the blocks that were caught, the kernel itself for others.
fn go_on(
    case: &Case,
    probed: &Kernel,
    left: PausedGrid,
    peel: Peel,
    pause: Pause,
    memory: &mut GlobalMemory,
) -> PausedGrid {
    let program = continuation(probed, &points_of(&left), peel).unwrap();
    validate::kernel(&program.kernel).unwrap();
    let paused = PausedGrid {
        paused: left.paused,
        not_started: vec![],
    };
    let mut still = launch(case, &program, paused, pause, memory).left;
    let fresh = PausedGrid {
        paused: vec![],
        not_started: left.not_started,
    };
    // What a paused continuation leaves is not overtaken by blocks that have not started.
    if still.is_finished() {
        launch(case, &Program::from_start(probed.clone()), fresh, pause, memory).left
    } else {
        still.not_started.extend(fresh.not_started);
        still.not_started.sort_unstable();
        still
    }
}

fn probed(kernel: &Kernel, options: &Options) -> Kernel {
    let probed = hetckpt_probes::probe(kernel, options).unwrap();
    validate::probed_kernel(&probed).unwrap();
    probed
}

fn check_expected(case: &Case, memory: &GlobalMemory) {
    for (address, bytes) in &case.expected {
        assert_eq!(memory.range(*address).unwrap(), bytes, "{} at {address:#x}", case.name);
    }
}

#[test]
fn kernels_compute_what_their_sources_say() {
    for case in cases::all() {
        let kernel = lowered(&case);
        let (result, _) = whole(&case, &kernel);
        check_expected(&case, &result);
        assert_ne!(result, memory(&case), "{} has done something", case.name);
    }
}

#[test]
fn probes_do_not_show() {
    for case in cases::all() {
        let kernel = lowered(&case);
        let (expected, _) = whole(&case, &kernel);
        for options in [Options::default(), Options::dense(4), Options::dense(1)] {
            let (result, run) = whole(&case, &probed(&kernel, &options));
            assert!(result == expected, "{} with {options:?}", case.name);
            assert!(run.polls > 0, "{} with {options:?}", case.name);
        }
    }
}

/// Pauses the case at each resume point that threads come to, the first time, in the middle and the last time.
fn pause_everywhere(case: &Case, options: &Options) -> usize {
    let kernel = probed(&lowered(case), options);
    let (expected, run) = whole(case, &kernel);
    let program = Program::from_start(kernel.clone());
    let mut caught = 0;
    for (point, visits) in (0..).map(ResumePointId).zip(&run.visits) {
        let mut occurrences = vec![0, visits / 2, visits.saturating_sub(1)];
        occurrences.dedup();
        for occurrence in occurrences.into_iter().filter(|o| o < visits) {
            let pause = Pause::AtResumePoint { point, occurrence };
            let mut memory = memory(case);
            let left = launch(case, &program, Launch::all_blocks(case.grid), pause, &mut memory).left;
            assert!(!left.is_finished(), "{}: {pause:?} stops something", case.name);
            caught += left.paused.len();
            let peel = if occurrence == 0 { Peel::Loops } else { Peel::None };
            let left = go_on(case, &kernel, left, peel, Pause::Never, &mut memory);
            assert!(left.is_finished(), "{}: {pause:?}", case.name);
            assert!(
                memory == expected,
                "{}: memory differs after {pause:?} and {peel:?}",
                case.name
            );
        }
    }
    caught
}

macro_rules! paused_everywhere {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let case = cases::all().into_iter().find(|c| c.name == stringify!($name)).unwrap();
                assert!(pause_everywhere(&case, &Options::dense(8)) > 0, "blocks are caught part-way");
            }
        )*

        #[test]
        fn every_case_is_paused() {
            let names = [$(stringify!($name)),*];
            assert_eq!(cases::all().iter().map(|c| c.name).collect::<Vec<_>>(), names);
        }
    };
}

mod paused_at_every_resume_point {
    use super::*;

    paused_everywhere! {
        vector_add saxpy matmul reduce_values scan_tiles scan_tile_sums bit_count monte_carlo_pi dense_relu persistent
        heat_step peak_bits
    }
}

#[test]
fn pauses_again_and_again() {
    for case in cases::all() {
        let kernel = probed(&lowered(&case), &Options::dense(8));
        let (expected, run) = whole(&case, &kernel);
        let program = Program::from_start(kernel.clone());
        let mut memory = memory(&case);
        // Each leg gets a share of the polls, so that a handful of pauses cuts the run up.
        let pause = Pause::AtPoll(run.polls / 5 + 1);
        let mut left = launch(&case, &program, Launch::all_blocks(case.grid), pause, &mut memory).left;
        let mut pauses = 0;
        while !left.is_finished() {
            pauses += 1;
            assert!(pauses < 200, "{} makes no progress", case.name);
            let peel = if pauses % 2 == 0 { Peel::Loops } else { Peel::None };
            left = go_on(&case, &kernel, left, peel, pause, &mut memory);
        }
        assert!(pauses > 1, "{}: {pauses} pauses", case.name);
        assert!(memory == expected, "{} after {pauses} pauses", case.name);
    }
}
