//! Small kernels paused at each resume point in turn and continued: memory must be what it is without a pause.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_interp::{GlobalMemory, Launch, Pause, Run, run};
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::parse;
use hetckpt_ir::types::Dim3;
use hetckpt_probes::check::check;
use hetckpt_probes::options::Options;
use hetckpt_probes::probe;
use hetckpt_resegment::continuation::{Peel, continuation};

const OUT: u64 = 0x2000_0000_0000;
const GRID: Dim3 = Dim3 { x: 3, y: 1, z: 1 };
const BLOCK: Dim3 = Dim3 { x: 64, y: 1, z: 1 };

fn start_memory() -> GlobalMemory {
    let mut memory = GlobalMemory::new();
    memory.map(OUT, vec![0; 1024]);
    memory
}

fn params(n: u32) -> Vec<u8> {
    [OUT.to_le_bytes().as_slice(), n.to_le_bytes().as_slice(), &[0; 4]].concat()
}

fn launch<'a>(program: &'a Program, layout: &'a ThreadStateLayout, params: &'a [u8]) -> Launch<'a> {
    Launch::new(program, layout, GRID, BLOCK, params)
}

/// Resume points that threads of `left` stopped at, and the entry for what has not started.
fn points(left: &PausedGrid) -> Vec<ResumePointId> {
    let stopped = left.paused.iter().flat_map(|block| block.resume_points.iter().copied());
    let points: BTreeSet<u32> = stopped.filter(|&p| p != FINISHED).chain([0]).collect();
    points.into_iter().map(ResumePointId).collect()
}

/// Continues what is left until it has finished, pausing again and again `pause` times, each in a new continuation.
fn finish(
    probed: &Kernel,
    layout: &ThreadStateLayout,
    params: &[u8],
    left: PausedGrid,
    peel: Peel,
    pauses: u32,
    memory: &mut GlobalMemory,
) {
    let mut left = left;
    let mut pauses = pauses;
    while !left.is_finished() {
        let program = continuation(probed, &points(&left), peel).unwrap();
        let mut launch = launch(&program, layout, params);
        launch.from = left;
        launch.pause = if pauses > 0 {
            Pause::AtPoll(u64::from(pauses) * 50)
        } else {
            Pause::Never
        };
        pauses = pauses.saturating_sub(1);
        left = run(launch, memory).unwrap().left;
    }
}

fn peels(text: &str) -> &'static [Peel] {
    // Lanes and threads must meet at the same instructions: no copies there.
    if text.contains("barrier 0") || text.contains("warp.") {
        &[Peel::None]
    } else {
        &[Peel::None, Peel::Loops]
    }
}

fn pause_everywhere(text: &str, counts: &[u32]) {
    let kernel = parse::kernel(text).unwrap();
    let mut mid_flight = 0;
    for &n in counts {
        let params = params(n);
        let unprobed = Program::from_start(kernel.clone());
        let no_layout = ThreadStateLayout::new(&kernel);
        let mut expected = start_memory();
        run(launch(&unprobed, &no_layout, &params), &mut expected).unwrap();
        for chunk in [1, 4] {
            let probed = probe(&kernel, &Options::dense(chunk)).unwrap();
            check(&kernel, &probed).unwrap();
            let layout = ThreadStateLayout::new(&probed);
            let program = Program::from_start(probed.clone());
            let mut memory = start_memory();
            let whole: Run = run(launch(&program, &layout, &params), &mut memory).unwrap();
            assert_eq!(memory, expected, "probed, not paused, n = {n}");
            for (index, &visits) in whole.visits.iter().enumerate() {
                let point = ResumePointId(u32::try_from(index).unwrap());
                for occurrence in BTreeSet::from([0, 1, visits / 2, visits.saturating_sub(1)]) {
                    for &peel in peels(text) {
                        let mut memory = start_memory();
                        let mut launch = launch(&program, &layout, &params);
                        launch.pause = Pause::AtResumePoint { point, occurrence };
                        let stopped = run(launch, &mut memory).unwrap();
                        mid_flight += stopped.left.paused.len();
                        let pauses = u32::try_from(occurrence % 3).unwrap();
                        finish(&probed, &layout, &params, stopped.left, peel, pauses, &mut memory);
                        assert_eq!(memory, expected, "n = {n}, paused at {point} ({occurrence}), {peel:?}");
                    }
                }
            }
        }
    }
    assert!(mid_flight > 20, "only {mid_flight} blocks were caught part-way");
}

#[test]
fn nested_divergent() {
    pause_everywhere(include_str!("kernels/nested_divergent.ir"), &[0, 1, 3, 4, 5, 9]);
}

#[test]
fn collatz() {
    pause_everywhere(include_str!("kernels/collatz.ir"), &[1, 7]);
}

#[test]
fn barrier_loop() {
    pause_everywhere(include_str!("kernels/barrier_loop.ir"), &[0, 1, 4, 5]);
}

#[test]
fn warp_loop() {
    pause_everywhere(include_str!("kernels/warp_loop.ir"), &[0, 1, 4]);
}

#[test]
fn local_frame() {
    pause_everywhere(include_str!("kernels/local_frame.ir"), &[0, 3, 4, 9]);
}
