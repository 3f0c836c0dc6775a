//! Each of the ten programs is dumped at random moments, killed, restored, and must end as if nothing had happened.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration::{self, Baseline};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::{Attempt, Job, is_mid_flight, kernels_in_flight};
use hetckpt_e2e::process::Outcome;
use hetckpt_e2e::program::{Program, TEN};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use hetckpt_e2e::statistics::Durations;
use serde_json::Value;

/// One test for each program.
pub fn tests() -> Vec<Test> {
    let count = num_preemptions();
    let test = |program: Program| {
        Test::new(format!("preempt_{}", program.name), move |context| {
            preempt(context, &program, count)
        })
        .times(1 + count / 20)
    };
    TEN.into_iter().map(test).collect()
}

fn num_preemptions() -> u32 {
    std::env::var("HETCKPT_PREEMPTIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3)
}

/// True if `HETCKPT_E2E_IN_KERNEL` is set: then all moments lie between the first kernel's start and the last one's end.
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

fn preempt(context: &mut Context, program: &Program, count: u32) -> Result<()> {
    let baseline = calibration::baseline(program)?;
    let mut tally = Tally::default();
    let mut window = if wants_kernels() {
        baseline.kernels * 4 / 5
    } else {
        baseline.duration
    };
    while tally.preempted < count {
        ensure!(
            tally.ended_first < 10 + count,
            "the program keeps ending before it can be dumped"
        );
        let moment = context.random.moment(window);
        let ended_first = tally.ended_first;
        let sandbox = Sandbox::new()?;
        preempt_once(&sandbox, program, &baseline, moment, &mut tally).with_context(|| {
            let number = tally.preempted + 1;
            format!(
                "preemption {number}, dumped after {moment:?} of {:?}\n{}",
                baseline.duration,
                sandbox.logs()
            )
        })?;
        if tally.ended_first > ended_first {
            // The machine is not as busy as it was for the baseline: moments as late as this one are too late.
            window = (window + moment) / 2;
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
    Ok(())
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

/// The output must be the same to the byte; that of a floating-point program that moved to another device kind need only
/// pass the program's own check.
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
