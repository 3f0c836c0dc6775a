//! How long each program must be told to work so that its kernels are in flight for a second or so on this machine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::baseline::Baseline;
use crate::baseline_file;
use crate::hetckpt::PATIENCE;
use crate::installation::Installation;
use crate::job::{Job, POLL_INTERVAL};
use crate::once_per_key::OncePerKey;
use crate::process::Outcome;
use crate::program::{Pace, Program};
use crate::sandbox::Sandbox;

/// Most steps of a program whose kernels sleep: devices that do not sleep would take no end of them.
const MOST_STEPS: u64 = 10_000_000;

/// Kernels in flight for so much longer are seen to be, looked for as seldom as they are.
const MEASURABLE: Duration = POLL_INTERVAL.saturating_mul(8);

/// For how long kernels of `program` are to be in flight in an uninterrupted run: `HETCKPT_E2E_MILLISECONDS`, else 0.6
/// s, times what it says itself.
fn wanted(program: &Program) -> Duration {
    let given = std::env::var("HETCKPT_E2E_MILLISECONDS").ok();
    Duration::from_millis(given.and_then(|text| text.parse().ok()).unwrap_or(600)) * program.lasts
}

/// True if kernels in flight for this long are as good as for exactly `wanted`.
fn is_good(kernels: Duration, wanted: Duration) -> bool {
    (wanted * 2 / 3..wanted * 3).contains(&kernels)
}

/// As [`baseline`], but `times` as long: for a program that several commands are tried on, one after the other.
///
/// # Errors
/// As [`baseline`].
pub fn lasting(program: &Program, times: u64) -> Result<Baseline> {
    lasting_on(&Installation::from_device(), program, times)
}

/// As [`lasting`], of a program that starts on `device`.
///
/// # Errors
/// As [`baseline`].
pub fn lasting_on(device: &str, program: &Program, times: u64) -> Result<Baseline> {
    let one = baseline_on(device, program)?;
    let length = one.length.saturating_mul(times).min(program.longest);
    match (length == one.length, u32::try_from(times)) {
        (true, _) => Ok(one),
        (false, Ok(times)) if program.pace == Pace::KernelsSleep => {
            hurried(device, program, length, one.kernels * times)
        }
        _ => uninterrupted_on(device, program, length),
    }
}

/// Calls `attempt` with an uninterrupted run on `device`, `times` as long as [`baseline_on`] has it, and with others,
/// each four times as long as the one before, for as long as it gives nothing because the program has come to its end
/// too early: a length that was found beside other work is short when there is none.
///
/// # Errors
/// As [`baseline`], those of `attempt`, and if even the longest run ends too early.
pub fn until_long_enough<T>(
    device: &str,
    program: &Program,
    times: u64,
    mut attempt: impl FnMut(&Baseline) -> Result<Option<T>>,
) -> Result<T> {
    for longer in [1, 4, 16, 64] {
        let baseline = lasting_on(device, program, times * longer)?;
        if let Some(result) = attempt(&baseline)? {
            return Ok(result);
        }
    }
    bail!(
        "{} keeps ending too early, or being caught between two kernels",
        program.name
    )
}

/// Runs `program` uninterrupted at a length that keeps its kernels in flight for as long as is wanted: once for this
/// build of it and of what runs it, now or in an earlier run of the tests.
///
/// # Errors
/// If the program does not pass its own check.
pub fn baseline(program: &Program) -> Result<Baseline> {
    baseline_on(&Installation::from_device(), program)
}

/// As [`baseline`], of a program that starts on `device`.
///
/// # Errors
/// As [`baseline`].
pub fn baseline_on(device: &str, program: &Program) -> Result<Baseline> {
    static BASELINES: OncePerKey<Baseline> = OncePerKey::new();
    BASELINES.get_or_try(&format!("{device} {program:?}"), || {
        let wanted = wanted(program);
        let kept = baseline_file::Key::new(device, program, wanted)?;
        if let Some(baseline) = kept.read() {
            return Ok(baseline);
        }
        let baseline = calibrate(device, program, wanted)?;
        kept.write(&baseline)?;
        Ok(baseline)
    })
}

/// Makes sure that a program has passed its own check.
fn ensure_passed(outcome: &Outcome) -> Result<()> {
    let has_passed = outcome.code == 0 && outcome.stdout.ends_with("PASS\n");
    ensure!(has_passed, "{}", outcome.text());
    Ok(())
}

/// Runs `program` uninterrupted at `length`.
///
/// # Errors
/// If it does not pass its own check.
pub fn uninterrupted(program: &Program, length: u64) -> Result<Baseline> {
    uninterrupted_on(&Installation::from_device(), program, length)
}

fn uninterrupted_on(device: &str, program: &Program, length: u64) -> Result<Baseline> {
    let sandbox = Sandbox::new()?;
    let started = Instant::now();
    let run = (|| -> Result<Baseline> {
        let mut job = Job::start_with(&sandbox, &program.command(length), device, |_| ())?;
        let kernels = job.watch_kernels()?;
        let outcome = job.finish_unhurried()?;
        ensure_passed(&outcome)?;
        Ok(Baseline {
            length,
            outcome,
            duration: started.elapsed(),
            kernels,
        })
    })();
    run.with_context(|| {
        format!(
            "an uninterrupted run of {} --{} {length}\n{}",
            program.name,
            program.length,
            sandbox.logs()
        )
    })
}

/// The run of a program whose kernels sleep that would keep them in flight for `kernels`: its outcome is that of one
/// that hurries.
fn hurried(device: &str, program: &Program, length: u64, kernels: Duration) -> Result<Baseline> {
    let sandbox = Sandbox::new()?;
    let started = Instant::now();
    let mut job = Job::start_with(&sandbox, &program.command(length), device, |_| ())?;
    job.wait_for_kernel()?;
    let outcome = job.finish()?;
    ensure_passed(&outcome)?;
    Ok(Baseline {
        length,
        outcome,
        duration: started.elapsed() + kernels,
        kernels,
    })
}

/// A run as long as is wanted of a program whose kernels sleep, of which there is a `first` one. Others of its kernels
/// do not get longer with it: what more steps add is in proportion.
fn in_proportion(device: &str, program: &Program, wanted: Duration, first: &Baseline) -> Result<Baseline> {
    const TIMES: u64 = 8;
    let run = |length| uninterrupted_on(device, program, length);
    let mut second = run(first.length * TIMES)?;
    // A GPU's threads all sleep at the same time.
    while second.kernels < first.kernels + MEASURABLE && second.length <= MOST_STEPS / TIMES {
        second = run(second.length * TIMES)?;
    }
    // Beside other work a run is seen to take longer than it does, never shorter.
    let third = run(second.length)?;
    let added = second.kernels.min(third.kernels).saturating_sub(first.kernels);
    let steps = (second.length - first.length) as f64 * wanted.as_secs_f64() / added.as_secs_f64().max(1e-3);
    let length = (steps as u64).clamp(program.shortest, program.longest.min(MOST_STEPS));
    hurried(device, program, length, wanted)
}

/// Lengthens the run until its kernels can be seen well, then takes the proportion. The first run translates the
/// kernels, which would count as theirs: it never has the last word.
fn calibrate(device: &str, program: &Program, wanted: Duration) -> Result<Baseline> {
    let mut length = program.shortest;
    let first = uninterrupted_on(device, program, length)?;
    match program.pace {
        Pace::Computing => {}
        Pace::KernelsSleep => return in_proportion(device, program, wanted, &first),
        Pace::HostSleeps(milliseconds) => {
            let length = u64::try_from(wanted.as_millis())? / milliseconds;
            return uninterrupted_on(device, program, length.clamp(program.shortest, program.longest));
        }
    }
    for _ in 0..20 {
        let run = uninterrupted_on(device, program, length)?;
        if is_good(run.kernels, wanted) || length == program.longest {
            return Ok(run);
        }
        length = if run.kernels < wanted / 8 {
            length.saturating_mul(8)
        } else {
            // Float to integer conversion saturates, and the bounds are the program's own.
            (length as f64 * (wanted.as_secs_f64() / run.kernels.as_secs_f64())) as u64
        }
        .clamp(program.shortest, program.longest);
        ensure!(
            run.duration < PATIENCE / 2,
            "its kernels take too little of its time to be caught in one"
        );
    }
    bail!(
        "no length was found at which kernels of {} are in flight for {:?}",
        program.name,
        wanted
    )
}
