//! Kernels that run for a while, paused at any time by another thread and continued until they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_ir::entity::ResumePointId;
use hetckpt_ir::kernel::Kernel;
use hetckpt_probes::options::Options;
use hetckpt_resegment::continuation::{Peel, continuation};

use super::{device, linear, load, probe_ptx, quick_device};
use crate::cpu::CpuDevice;
use crate::cpu::kernel::CpuKernel;
use crate::device::{Blocks, Device, Launch, LoadedKernel, Outcome};

/// Every thread steps a generator; every round its state goes round its warp by a shuffle and round the block through
/// shared memory between barriers, and how long it steps depends on it. A divergent, chatty kernel.
const CHATTY: &str = r"
.version 8.0
.target sm_80
.address_size 64
.visible .entry chatty(.param .u64 out, .param .u64 rounds)
{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b8 tile[512];
    .local .align 4 .b8 frame[16];
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r20, [rounds];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mad.lo.u32 %r5, %r4, 747796405, 12345;
    st.local.u32 [frame+4], %r4;
    mov.u32 %r6, tile;
    shl.b32 %r7, %r1, 2;
    add.u32 %r8, %r6, %r7;
    add.u32 %r9, %r1, 1;
    rem.u32 %r9, %r9, %r3;
    shl.b32 %r9, %r9, 2;
    add.u32 %r9, %r6, %r9;
$round:
    and.b32 %r10, %r5, 63;
$step:
    shl.b32 %r11, %r5, 13;
    xor.b32 %r5, %r5, %r11;
    shr.u32 %r11, %r5, 17;
    xor.b32 %r5, %r5, %r11;
    shl.b32 %r11, %r5, 5;
    xor.b32 %r5, %r5, %r11;
    add.u32 %r10, %r10, -1;
    setp.gt.s32 %p1, %r10, 0;
    @%p1 bra $step;
    shfl.sync.bfly.b32 %r12|%p2, %r5, 5, 31, -1;
    setp.gt.u32 %p3, %r12, %r5;
    vote.sync.ballot.b32 %r13, %p3, -1;
    add.u32 %r5, %r5, %r13;
    st.shared.u32 [%r8], %r5;
    bar.sync 0;
    ld.shared.u32 %r14, [%r9];
    ld.local.u32 %r15, [frame+4];
    xor.b32 %r5, %r14, %r15;
    bar.sync 0;
    add.u32 %r20, %r20, -1;
    setp.ne.u32 %p4, %r20, 0;
    @%p4 bra $round;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r5;
    ret;
}
";

const THREADS: u32 = 128;
const BLOCKS: u32 = 23;

/// What the kernel computes.
fn expected(blocks: u32, rounds: u64) -> Vec<u32> {
    let mut out = Vec::new();
    for block in 0..blocks {
        let ids: Vec<u32> = (0..THREADS).map(|t| block * THREADS + t).collect();
        let mut state: Vec<u32> = ids
            .iter()
            .map(|id| id.wrapping_mul(747_796_405).wrapping_add(12_345))
            .collect();
        for _ in 0..rounds {
            for s in &mut state {
                for _ in 0..(*s & 63).max(1) {
                    *s ^= *s << 13;
                    *s ^= *s >> 17;
                    *s ^= *s << 5;
                }
            }
            let before = state.clone();
            for (warp, lanes) in state.chunks_mut(32).enumerate() {
                let ballot = (0..32).fold(0u32, |mask, lane| {
                    let at = warp * 32 + lane;
                    mask | u32::from(before[warp * 32 + (lane ^ 5)] > before[at]) << lane
                });
                lanes.iter_mut().for_each(|s| *s = s.wrapping_add(ballot));
            }
            let shared = state.clone();
            for (t, s) in state.iter_mut().enumerate() {
                *s = shared[(t + 1) % THREADS as usize] ^ ids[t];
            }
        }
        out.extend(state);
    }
    out
}

fn points_of(grid: &PausedGrid) -> Vec<ResumePointId> {
    let mut points: Vec<u32> = grid
        .paused
        .iter()
        .flat_map(|b| b.resume_points.iter().copied())
        .collect();
    points.extend((!grid.not_started.is_empty()).then_some(0));
    points.sort_unstable();
    points.dedup();
    points
        .into_iter()
        .filter(|p| *p != FINISHED)
        .map(ResumePointId)
        .collect()
}

/// Runs to the end with a pause about every `period`; the number of pauses that caught blocks part-way.
fn run_with_pauses(
    device: &CpuDevice,
    probed: &Kernel,
    launch_of: &dyn Fn(Arc<dyn LoadedKernel>, Blocks) -> Launch,
    period: Duration,
    most: usize,
) -> usize {
    let queue = device.create_queue(0).unwrap();
    let mut kernel = load(device, &Program::from_start(probed.clone()));
    let mut blocks = Blocks::All;
    let mut caught = 0;
    for attempt in 0.. {
        let running = queue.launch(launch_of(kernel, blocks)).unwrap();
        if attempt < most {
            thread::sleep(period.mul_f64(0.5 + (attempt as f64 * 0.618).fract()));
            device.request_pause().unwrap();
        }
        let outcome = running.wait();
        device.end_pause().unwrap();
        match outcome {
            Outcome::Finished => break,
            Outcome::Paused(rest) => {
                caught += usize::from(!rest.paused.is_empty());
                kernel = load(device, &continuation(probed, &points_of(&rest), Peel::Loops).unwrap());
                blocks = Blocks::Rest(Arc::new(rest));
            }
            Outcome::PausedSteps(_) => panic!("it is no graph"),
            Outcome::Failed(error) => panic!("{error}"),
        }
    }
    caught
}

#[test]
fn a_kernel_paused_at_any_time_computes_the_same() {
    for device in [device(), quick_device()] {
        paused_at_any_time(&device);
    }
}

fn paused_at_any_time(device: &CpuDevice) {
    let rounds = 400;
    let expected = expected(BLOCKS, rounds);
    for options in [Options::default(), Options::dense(64)] {
        let out: Vec<AtomicU32> = (0..THREADS * BLOCKS).map(|_| AtomicU32::new(0)).collect();
        let probed = probe_ptx(CHATTY, &options);
        let params = [out.as_ptr() as u64, rounds];
        let launch_of = |kernel, blocks| Launch {
            blocks,
            ..linear(kernel, BLOCKS, THREADS, &params)
        };
        let caught = run_with_pauses(device, &probed, &launch_of, Duration::from_millis(4), 10);
        assert!(caught > 0, "no pause caught a block part-way");
        let got: Vec<u32> = out.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        assert_eq!(got, expected, "{options:?}");
    }
}

#[test]
fn blocks_that_take_turns_compute_the_same() {
    let device = device();
    // More blocks than workers, each for longer than a turn.
    let (blocks, rounds) = (5, 8000);
    let out: Vec<AtomicU32> = (0..THREADS * blocks).map(|_| AtomicU32::new(0)).collect();
    let kernel = load(&device, &Program::from_start(probe_ptx(CHATTY, &Options::default())));
    let queue = device.create_queue(0).unwrap();
    let params = [out.as_ptr() as u64, rounds];
    let running = queue.launch(linear(kernel.clone(), blocks, THREADS, &params)).unwrap();
    assert!(matches!(running.wait(), Outcome::Finished));
    let kernel: &CpuKernel = kernel.as_any().downcast_ref().unwrap();
    assert!(kernel.is_resumable(), "no turn ended before its block did");
    let got: Vec<u32> = out.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    assert_eq!(got, expected(blocks, rounds));
}

#[test]
fn a_kernel_goes_on_in_faster_code() {
    let device = quick_device();
    let (blocks, rounds) = (5, 8000);
    let out: Vec<AtomicU32> = (0..THREADS * blocks).map(|_| AtomicU32::new(0)).collect();
    let kernel = load(&device, &Program::from_start(probe_ptx(CHATTY, &Options::default())));
    let queue = device.create_queue(0).unwrap();
    let params = [out.as_ptr() as u64, rounds];
    let running = queue.launch(linear(kernel.clone(), blocks, THREADS, &params)).unwrap();
    let kernel: &CpuKernel = kernel.as_any().downcast_ref().unwrap();
    let begin = kernel.region(0).unwrap();
    kernel.optimize();
    assert!(
        !std::ptr::fn_addr_eq(begin, kernel.region(0).unwrap()),
        "it has no other code"
    );
    assert!(!running.is_done(), "it ended before its code was there");
    assert!(matches!(running.wait(), Outcome::Finished));
    let got: Vec<u32> = out.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    assert_eq!(got, expected(blocks, rounds));
}

#[test]
fn a_kernel_turns_hot_once() {
    let device = quick_device();
    let kernel = load(&device, &Program::from_start(probe_ptx(CHATTY, &Options::default())));
    let kernel: &CpuKernel = kernel.as_any().downcast_ref().unwrap();
    let times = [1, 9_000, 1, 5_000].map(|ms| kernel.count_run(Duration::from_millis(ms)));
    assert_eq!(times, [false, true, false, false]);
}
