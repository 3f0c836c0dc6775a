//! Each of the ten programs, one whose blocks wait for one another, one whose work is recorded as graphs, one with
//! managed memory, one that manages its memory itself, one whose kernels take memory, one of many streams, one whose
//! lanes run in step, one whose pointers lead to all kinds of memory, and the OpenCL programs is dumped at random
//! moments, killed, restored, and must end as if nothing had happened.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Attempt, Job, is_mid_flight, kernels_in_flight};
use hetckpt_e2e::process::Outcome;
use hetckpt_e2e::program::{
    DEVICE_HEAP, GENERIC_POINTERS, GRAPHS, GROWING, LANES_IN_STEP, MANAGED, MANY_STREAMS, OPENCL, Pace, Program,
    RECURSION, REGISTERED, STREAM_WORDS, TEN, VIRTUAL_CALLS,
};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use hetckpt_e2e::statistics::Durations;
use serde_json::Value;

/// Blocks that wait for one another at a barrier of the whole grid: all of them must stop, the one that spins too. Two,
/// since a processor with few cores lets more take turns.
pub const GRID_BARRIER: Program = Program {
    name: "grid_barrier",
    arguments: &["--blocks", "2"],
    small: &["--blocks", "2"],
    length: "iterations",
    shortest: 1000,
    longest: u32::MAX as u64,
    lasts: 1,
    pace: Pace::Computing,
    is_float: false,
};

/// The same with the barrier of cooperative groups, which counts in memory that the driver gives.
const GRID_SYNC: Program = Program {
    arguments: &["--blocks", "2", "--cooperative", "1"],
    small: &["--blocks", "2", "--cooperative", "1"],
    ..GRID_BARRIER
};

/// One test for each program.
pub fn tests() -> Vec<Test> {
    let count = num_preemptions();
    let named = |name: &str, program: Program, count: u32| {
        Test::new(format!("preempt_{name}"), move |context| {
            preempt(context, &program, count)
        })
        .times(1 + count / 20)
    };
    let test = |program: Program, count: u32| named(program.name, program, count);
    let cuda = TEN
        .into_iter()
        .chain([
            GRID_BARRIER,
            GRAPHS,
            MANAGED,
            REGISTERED,
            STREAM_WORDS,
            DEVICE_HEAP,
            VIRTUAL_CALLS,
            GENERIC_POINTERS,
        ])
        .map(|program| test(program, count));
    let many_streams = named("many_streams", MANY_STREAMS, count);
    let grid_sync = named("grid_sync", GRID_SYNC, count).also_needs(Requirement::NoOpenclDevice);
    let lanes_in_step = test(LANES_IN_STEP, count).also_needs(Requirement::StaysInStep);
    // OpenCL devices take up to a minute to build it, and NVIDIA's GPUs stop it at its end.
    let recursion = test(RECURSION, count).also_needs(Requirement::NoOpenclDevice);
    let recursion = recursion.also_needs(Requirement::CpuOnly);
    let growing = test(GROWING, count).also_needs(Requirement::NoOpenclDevice);
    // Most of what they do is to compile, and no kernel of theirs is of another sort.
    let opencl = OPENCL
        .into_iter()
        .map(|program| test(program, count.div_ceil(3)).also_needs(Requirement::OpenclPrograms));
    cuda.chain(opencl)
        .chain([growing, grid_sync, many_streams, lanes_in_step, recursion])
        .collect()
}

/// How often each program is to be preempted.
pub fn num_preemptions() -> u32 {
    std::env::var("HETCKPT_PREEMPTIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

/// From so many preemptions on, some must have been in mid-kernel.
const MANY: u32 = 5;
/// So many early ends are chance.
const FEW_EARLY_ENDS: u32 = 4;

/// True if its kernels run for nearly all of the time: those of `stencil` are many and short, on GPUs those of
/// `neural_layer` too, and some programs pause between theirs. How it is on OpenCL devices depends on the driver.
fn is_mostly_in_kernels(program: &Program) -> bool {
    let is_on_opencl = Installation::from_device().starts_with("opencl");
    let is_on_cpu = Requirement::CpuOnly.missing().is_none();
    !is_on_opencl
        && !matches!(program.pace, Pace::HostSleeps(_))
        && program.name != "stencil"
        // GPUs run these as they came.
        && (is_on_cpu || !["neural_layer", "tensor_cores", "sampling"].contains(&program.name))
}

/// True if `HETCKPT_E2E_IN_KERNEL` is set: then all moments lie between the first kernel's start and the last one's
/// end.
fn wants_kernels() -> bool {
    std::env::var_os("HETCKPT_E2E_IN_KERNEL").is_some()
}

/// What all preemptions of a program came to.
#[derive(Default)]
struct Tally {
    preempted: u32,
    mid_kernel: u32,
    ended_first: u32,
    pause: Durations,
    dump: Durations,
    restore: Durations,
}

/// All `count` preemptions of `program`. A length that was found beside other work is short when there is none, so it
/// is made longer where the program keeps ending before it can be dumped.
///
/// # Errors
/// If it does not go on as if nothing had happened.
pub fn preempt(context: &mut Context, program: &Program, count: u32) -> Result<()> {
    let mut tally = Tally::default();
    calibration::until_long_enough(&Installation::from_device(), program, 1, |baseline| {
        preempt_within(context, program, baseline, count, &mut tally)
    })
}

/// The preemptions of a run as long as that of `baseline`; nothing if it keeps ending too early.
fn preempt_within(
    context: &mut Context,
    program: &Program,
    baseline: &Baseline,
    count: u32,
    tally: &mut Tally,
) -> Result<Option<()>> {
    let mut window = if wants_kernels() {
        baseline.kernels * 4 / 5
    } else {
        baseline.duration
    };
    let most_ended = tally.ended_first + FEW_EARLY_ENDS + count / 2;
    while tally.preempted < count {
        if tally.ended_first > most_ended {
            return Ok(None);
        }
        let moment = context.random.moment(window);
        let ended_first = tally.ended_first;
        let sandbox = Sandbox::new()?;
        preempt_once(&sandbox, program, baseline, moment, tally).with_context(|| {
            format!(
                "preemption {}, dumped after {moment:?} of {:?}{}\n{}",
                tally.preempted,
                baseline.duration,
                keep_archives(&sandbox, program),
                sandbox.logs()
            )
        })?;
        if tally.ended_first > ended_first {
            // It does not run as long as it did for the baseline: moments as late as this one are too late.
            window = moment;
        }
    }
    context.note(format!(
        "{} preemptions of a run of {:.2} s, {} in mid-kernel; pause {}; dump {}; restore {}",
        tally.preempted,
        baseline.duration.as_secs_f64(),
        tally.mid_kernel,
        tally.pause.summary(),
        tally.dump.summary(),
        tally.restore.summary(),
    ));
    ensure!(
        tally.mid_kernel > 0 || tally.preempted < MANY || !is_mostly_in_kernels(program),
        "none of {} preemptions was in mid-kernel",
        tally.preempted
    );
    Ok(Some(()))
}

fn preempt_once(
    sandbox: &Sandbox,
    program: &Program,
    baseline: &Baseline,
    moment: Duration,
    tally: &mut Tally,
) -> Result<()> {
    let mut job = Job::start(sandbox, &program.command(baseline.length))?;
    if wants_kernels() {
        job.wait_for_row("a kernel in flight", |row| {
            row["running_kernels"].as_u64().is_some_and(|n| n > 0)
        })?;
        std::thread::sleep(moment);
    } else {
        std::thread::sleep(moment.saturating_sub(job.supervisor().started().elapsed()));
    }
    let dumped = match job.try_dump()? {
        Attempt::Dumped(dumped) => dumped,
        Attempt::Ended(outcome) => {
            tally.ended_first += 1;
            return check(program, &baseline.outcome, &outcome);
        }
    };
    tally.preempted += 1;
    tally.mid_kernel += u32::from(kernels_in_flight(&dumped.inspect()?).iter().any(is_mid_flight));
    tally.pause.add(dumped.seconds("pause"));
    tally.dump.add(dumped.seconds("total"));
    let started = Instant::now();
    let restored = dumped.restore()?;
    let timings: Value = serde_json::from_slice(&fs::read(sandbox.path("timings.json"))?).unwrap_or_default();
    tally.restore.add(
        timings["total"]
            .as_f64()
            .map_or(started.elapsed(), Duration::from_secs_f64),
    );
    check(program, &baseline.outcome, &restored.finish()?)
}

/// After a failure: moves the archives into the folder `HETCKPT_E2E_KEEP`, if it is set, and says where they are.
fn keep_archives(sandbox: &Sandbox, program: &Program) -> String {
    let Some(folder) = std::env::var_os("HETCKPT_E2E_KEEP").map(PathBuf::from) else {
        return String::new();
    };
    let mut kept = String::new();
    for archive in sandbox.files("hetsnap") {
        let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let to = folder.join(format!("{}-{name}", program.name));
        if fs::create_dir_all(&folder)
            .and_then(|()| fs::copy(&archive, &to))
            .is_ok()
        {
            kept += &format!(", kept as {}", to.display());
        }
    }
    kept
}

/// The output must be the same to the byte; that of a floating-point program that moved to another device kind need
/// only pass the program's own check.
pub fn check(program: &Program, expected: &Outcome, got: &Outcome) -> Result<()> {
    ensure!(
        got.code == expected.code,
        "it ended otherwise than an uninterrupted run: {}",
        got.text()
    );
    let kind = |device: String| device.split(':').next().map(str::to_owned);
    let same_kind = kind(Installation::from_device()) == kind(Installation::to_device());
    if program.is_float && !same_kind {
        ensure!(
            got.stdout.ends_with("PASS\n"),
            "it does not pass its own check: {}",
            got.text()
        );
        return Ok(());
    }
    ensure!(
        got.stdout == expected.stdout,
        "its output differs from that of an uninterrupted run, which is\n{}\nbut it was: {}",
        expected.stdout,
        got.text()
    );
    Ok(())
}
