//! What kernels print, and assertions that fail in them.

use anyhow::{Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::program::DEVICE_PRINTF;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::preempt::check;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("kernels_print_across_a_dump", kernels_print_across_a_dump),
        Test::new("a_failed_assertion_is_told", a_failed_assertion_is_told),
    ]
}

/// What a launch has printed before the dump comes out after the restore, once.
fn kernels_print_across_a_dump(context: &mut Context) -> Result<()> {
    calibration::until_long_enough(&Installation::from_device(), &DEVICE_PRINTF, 1, |baseline| {
        print_across_dumps(&context.sandbox, baseline)
    })
}

/// Nothing if a launch comes to its end before it can be caught.
fn print_across_dumps(sandbox: &Sandbox, baseline: &Baseline) -> Result<Option<()>> {
    let expected = &baseline.outcome.stdout;
    for text in [
        "launch 0, at first: ",
        "launch 0, half-way: ",
        "launch 1, at first: ",
        " steps, 0.",
    ] {
        let num = expected.matches(text).count();
        let wanted = if text.starts_with("launch") { 1 } else { 4 };
        ensure!(num == wanted, "`{text}` stands there {num} times: {expected}");
    }
    ensure!(
        expected.matches("done\n").count() == 2,
        "not each launch has told its end: {expected}"
    );
    for launch in ["launched 0", "launched 1"] {
        let mut command = DEVICE_PRINTF.command(baseline.length);
        command.push("--progress".into());
        let job = Job::start(sandbox, &command)?;
        job.wait_for_stderr(launch)?;
        let Some(dumped) = job.try_dump_in_mid_kernel()? else {
            return Ok(None);
        };
        check(&DEVICE_PRINTF, &baseline.outcome, &dumped.restore()?.finish()?)?;
    }
    Ok(Some(()))
}

/// The error and the message are CUDA's.
fn a_failed_assertion_is_told(context: &mut Context) -> Result<()> {
    let mut command = DEVICE_PRINTF.command(10);
    command.extend(["--fails", "70"].map(Into::into));
    let outcome = Job::start(&context.sandbox, &command)?.finish()?;
    ensure!(
        outcome.code == 2,
        "the program did not see an error: {}",
        outcome.text()
    );
    let error = "device-side assert triggered";
    ensure!(outcome.stderr.contains(error), "not `{error}`: {}", outcome.text());
    let message = "block: [1,0,0], thread: [6,0,0] Assertion `thread != bad` failed.";
    let num = outcome.stderr.matches(message).count();
    ensure!(num == 1, "the message stands there {num} times: {}", outcome.text());
    ensure!(
        outcome.stderr.contains("device_printf.cu:26: void report("),
        "no place: {}",
        outcome.text()
    );
    Ok(())
}
