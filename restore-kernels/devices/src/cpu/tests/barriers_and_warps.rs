//! Threads and blocks that wait for one another, and kernels that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hetckpt_abi::program::Program;
use hetckpt_probes::options::Options;

use super::{device, linear, load, probe_ptx};
use crate::cpu::CpuDevice;
use crate::device::{Device, Launch, LoadedKernel, Outcome};
use crate::error::DeviceError;

/// PTX of a kernel with one 64-bit parameter, in `%rd1`, and `%r1` = `%tid.x`, `%r2` = `%ctaid.x`, `%r3` = `%nctaid.x`,
/// `%r4` = `%ntid.x`.
fn ptx(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b8 tile[4096];
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %nctaid.x;
    mov.u32 %r4, %ntid.x;
{body}
    ret;
}}
"
    )
}

fn build(device: &CpuDevice, body: &str) -> Arc<dyn LoadedKernel> {
    load(device, &Program::from_start(probe_ptx(&ptx(body), &Options::default())))
}

fn run(device: &CpuDevice, launch: Launch) -> Outcome {
    device.create_queue(0).unwrap().launch(launch).unwrap().wait()
}

fn failure(outcome: &Outcome) -> (u32, &str) {
    match outcome {
        Outcome::Failed(DeviceError::Fault {
            cuda_result, reason, ..
        }) => (*cuda_result, reason),
        other => panic!("{other:?}"),
    }
}

fn address(words: &[AtomicU32]) -> u64 {
    words.as_ptr() as u64
}

fn words(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

/// Counts this thread in at `[%rd1]` and spins until `%r9` threads have done so.
const MEET: &str = "
    atom.global.add.u32 %r8, [%rd1], 1;
$spin:
    ld.volatile.global.u32 %r10, [%rd1];
    setp.lt.u32 %p2, %r10, %r9;
    @%p2 bra $spin;";

#[test]
fn a_trap_fails_the_launch() {
    let device = device();
    let kernel = build(&device, "setp.eq.u32 %p1, %r2, 3;\n @%p1 trap;");
    let outcome = run(&device, linear(kernel, 8, 32, &[0]));
    let (result, reason) = failure(&outcome);
    assert_eq!(result, 719);
    assert!(reason.contains("trap in block [3, 0, 0]"), "{reason}");
}

#[test]
fn an_illegal_address_fails_the_launch_and_nothing_else() {
    let device = device();
    let bad = build(&device, "st.global.u32 [%rd1], %r1;");
    let outcome = run(&device, linear(bad.clone(), 4, 32, &[0x1230]));
    let (result, reason) = failure(&outcome);
    assert_eq!(result, 700);
    assert!(reason.contains("0x1230"), "{reason}");
    let memory = words(1);
    assert!(matches!(
        run(&device, linear(bad, 1, 5, &[address(&memory)])),
        Outcome::Finished
    ));
    assert_eq!(memory[0].load(Ordering::Relaxed), 4);
}

#[test]
fn threads_that_wait_for_each_other_at_different_places_fail_the_launch() {
    let device = device();
    // Half a warp at a barrier, half at a shuffle of the whole warp: neither can go on.
    let kernel = build(
        &device,
        "setp.lt.u32 %p1, %r1, 16;
    @%p1 bra $left;
    shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;
    bra $end;
$left:
    bar.sync 0;
$end:",
    );
    let outcome = run(&device, linear(kernel, 1, 32, &[0]));
    let (result, reason) = failure(&outcome);
    assert_eq!(result, 719);
    assert!(
        reason.contains("16 at the barrier") && reason.contains("16 at the warp operation"),
        "{reason}"
    );
}

#[test]
fn threads_that_exit_count_as_arrived() {
    let device = device();
    let kernel = build(
        &device,
        "setp.ge.u32 %p1, %r1, 40;
    @%p1 bra $end;
    bar.sync 0;
    atom.global.add.u32 %r5, [%rd1], 1;
$end:",
    );
    let memory = words(1);
    assert!(matches!(
        run(&device, linear(kernel, 3, 64, &[address(&memory)])),
        Outcome::Finished
    ));
    assert_eq!(memory[0].load(Ordering::Relaxed), 120);
}

#[test]
fn blocks_that_spin_for_all_others_finish() {
    let device = device();
    // Sixteen times as many blocks as workers, each waiting for all.
    let kernel = build(&device, &format!("mov.u32 %r9, %r3;{MEET}"));
    let memory = words(1);
    assert!(matches!(
        run(&device, linear(kernel, 48, 1, &[address(&memory)])),
        Outcome::Finished
    ));
    assert_eq!(memory[0].load(Ordering::Relaxed), 48);
}

#[test]
fn threads_that_spin_for_others_of_their_block_finish() {
    let device = device();
    let kernel = build(&device, &format!("mov.u32 %r9, %r4;{MEET}"));
    let memory = words(1);
    assert!(matches!(
        run(&device, linear(kernel, 1, 4, &[address(&memory)])),
        Outcome::Finished
    ));
    assert_eq!(memory[0].load(Ordering::Relaxed), 4);
}

/// Takes a lock at `[%rd1]`, waits in the given way, and counts at `[%rd1+4]` before it gives the lock back.
fn counting_under_a_lock(waits: &str) -> String {
    format!(
        "activemask.b32 %r5;
$spin:
    atom.global.exch.b32 %r8, [%rd1], 1;
    setp.ne.u32 %p1, %r8, 0;
    @%p1 bra $spin;
    {waits}
    ld.global.u32 %r9, [%rd1+4];
    add.u32 %r9, %r9, 1;
    st.global.u32 [%rd1+4], %r9;
    atom.global.exch.b32 %r8, [%rd1], 0;"
    )
}

#[test]
fn lanes_that_wait_under_a_lock_let_others_spin_for_it() {
    let device = device();
    // A lane in step with lanes that spin, and one that waits for nobody but is not looked after while others spin.
    for waits in ["membar.gl;", "mov.u32 %r9, %lanemask_eq; bar.warp.sync %r9;"] {
        let kernel = build(&device, &counting_under_a_lock(waits));
        let memory = words(2);
        let outcome = run(&device, linear(kernel, 2, 4, &[address(&memory)]));
        assert!(matches!(outcome, Outcome::Finished), "{waits} {outcome:?}");
        assert_eq!(memory[1].load(Ordering::Relaxed), 8, "{waits}");
    }
}

#[test]
fn a_launch_may_spin_for_one_in_another_queue() {
    let device = device();
    let spin = build(&device, &format!("mov.u32 %r9, 9;{MEET}"));
    let add = build(&device, "atom.global.add.u32 %r8, [%rd1], 1;");
    let memory = words(1);
    let (first, second) = (device.create_queue(0).unwrap(), device.create_queue(0).unwrap());
    let waiting = first.launch(linear(spin, 8, 1, &[address(&memory)])).unwrap();
    let helping = second.launch(linear(add, 1, 1, &[address(&memory)])).unwrap();
    assert!(matches!(helping.wait(), Outcome::Finished));
    assert!(matches!(waiting.wait(), Outcome::Finished));
}

#[test]
fn launches_of_one_queue_run_in_order() {
    let device = device();
    // Each launch doubles what the one before left and adds its block's threads: order shows in the result.
    let kernel = build(
        &device,
        "setp.ne.u32 %p1, %r1, 0;
    @%p1 bra $end;
    ld.global.u32 %r5, [%rd1];
    mad.lo.u32 %r6, %r5, 3, %r4;
    st.global.u32 [%rd1], %r6;
$end:",
    );
    let memory = words(1);
    let queue = device.create_queue(0).unwrap();
    let launches: Vec<_> = (1..=12)
        .map(|n| queue.launch(linear(kernel.clone(), 1, n, &[address(&memory)])).unwrap())
        .collect();
    assert!(launches.iter().all(|l| matches!(l.wait(), Outcome::Finished)));
    let expected = (1..=12u32).fold(0u32, |value, n| value.wrapping_mul(3).wrapping_add(n));
    assert_eq!(memory[0].load(Ordering::Relaxed), expected);
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let device = device();
    let kernel = build(&device, "bar.sync 0;");
    let queue = device.create_queue(0).unwrap();
    let refused = |launch: Launch| matches!(queue.launch(launch), Err(DeviceError::Launch { .. }));
    assert!(refused(linear(kernel.clone(), 1, 1025, &[0])));
    assert!(refused(linear(kernel.clone(), 0, 32, &[0])));
    assert!(refused(linear(kernel.clone(), 1, 32, &[])));
    let mut large = linear(kernel, 1, 32, &[0]);
    large.shape.dynamic_shared_bytes = 300 << 10;
    assert!(refused(large));
}
