//! `criu dump` and `criu restore` with the plugin, without our command line.

use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu::{
    Program, criu, ensure_dumped, ensure_ends_right, ensure_same, start_paced, wait_until_gone,
};
use hetckpt_e2e::process::Outcome;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("plain_criu_dumps_and_restores_with_the_plugin", dumps_and_restores),
        Test::new("plain_criu_leaves_the_program_running", leaves_the_program_running),
        Test::new(
            "plain_criu_fails_loudly_without_the_plugin",
            fails_loudly_without_the_plugin,
        ),
        Test::new("plain_criu_waits_for_a_starting_server", waits_for_a_starting_server),
        Test::new(
            "plain_criu_refuses_a_server_that_starts_too_slowly",
            refuses_a_slow_start,
        ),
        Test::new(
            "plain_criu_refuses_a_stopped_program_that_starts",
            refuses_a_stopped_start,
        ),
        Test::new("plain_criu_at_any_moment_of_the_start", at_any_moment_of_the_start).times(2),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

fn dumps_and_restores(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = start_paced(sandbox, baseline.length)?;
    let pid = program.pid();
    criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?.success("criu dump")?;
    ensure_restores(sandbox, program, &baseline)
}

/// Makes sure that `program`, which a dump has ended, runs to the right result when it is restored.
fn ensure_restores(sandbox: &Sandbox, program: Program, baseline: &Baseline) -> Result<()> {
    let pid = program.pid();
    ensure_dumped(sandbox, program)?;
    criu(sandbox, "restore", true, &["--restore-detached"])?.success("criu restore")?;
    ensure_ends_right(sandbox, pid, baseline)
}

fn leaves_the_program_running(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = start_paced(sandbox, baseline.length)?;
    criu(
        sandbox,
        "dump",
        true,
        &["--leave-running", "--tree", &program.pid().to_string()],
    )?
    .success("criu dump")?;
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
}

fn fails_loudly_without_the_plugin(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = start_paced(sandbox, baseline.length)?;
    let outcome = criu(sandbox, "dump", false, &["--tree", &program.pid().to_string()])?;
    ensure!(
        outcome.code != 0,
        "a dump without the device's state counts as a success"
    );
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the failed dump")
}

/// Starts `command` with a device server that does nothing for `delay`, and waits until that server has begun.
fn begin_slowly(sandbox: &Sandbox, command: &[OsString], delay: Duration) -> Result<Program> {
    let (slow, begun) = (sandbox.path("slow-server"), sandbox.path("begun"));
    let script = format!(
        "#!/bin/sh\n: >{}\nsleep {}\nexec {} \"$@\"\n",
        begun.display(),
        delay.as_secs_f64(),
        Installation::get().stage.join("bin/hetckpt-server").display()
    );
    executable::write(&slow, &script)?;
    let program = Program::begin(sandbox, command, &[("HETCKPT_SERVER", &slow)])?;
    let deadline = Instant::now() + PATIENCE;
    while !begun.exists() {
        ensure!(
            Instant::now() < deadline,
            "the program does not start its device server"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(program)
}

/// What the plugin says in the log of a dump when it makes it fail.
fn complaints(sandbox: &Sandbox) -> Result<Vec<String>> {
    let log = fs::read_to_string(sandbox.path("images/dump.log")).context("the dump's log")?;
    let complaints = log.lines().filter_map(|line| line.split_once("hetgpu: error: "));
    Ok(complaints.map(|(_, complaint)| complaint.to_owned()).collect())
}

/// Makes sure that the dump that ended with `outcome` failed with one message, which names process `pid` and has
/// `part`.
fn ensure_refused(sandbox: &Sandbox, outcome: &Outcome, pid: i32, part: &str) -> Result<()> {
    let complaints = complaints(sandbox)?;
    ensure!(outcome.code != 0, "the dump was to fail: {}", outcome.text());
    let [complaint] = &complaints[..] else {
        anyhow::bail!("one message was to say what failed: {complaints:?}; {}", outcome.text());
    };
    ensure!(
        complaint.contains(&format!("process {pid}")) && complaint.contains(part),
        "the message was to say that process {pid} {part}: {complaint}"
    );
    Ok(())
}

fn waits_for_a_starting_server(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = begin_slowly(sandbox, &PACED.command(baseline.length), Duration::from_secs(1))?;
    criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?.success("criu dump")?;
    ensure_restores(sandbox, program, &baseline)
}

fn refuses_a_slow_start(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = begin_slowly(sandbox, &PACED.command(baseline.length), Duration::from_secs(8))?;
    let outcome = criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?;
    ensure_refused(sandbox, &outcome, program.pid(), "is still starting")?;
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the failed dump")
}

fn refuses_a_stopped_start(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = begin_slowly(sandbox, &PACED.command(baseline.length), Duration::from_secs(1))?;
    let pid = Pid::from_raw(program.pid());
    kill(pid, Signal::SIGSTOP)?;
    let outcome = criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?;
    ensure_refused(sandbox, &outcome, program.pid(), "is stopped")?;
    kill(pid, Signal::SIGCONT)?;
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the failed dump")
}

/// Each dump, from the program's start to a little into its kernel, is to succeed and to restore well, or to fail with
/// one message and a program that runs on to its result.
fn at_any_moment_of_the_start(context: &mut Context) -> Result<()> {
    const MOMENTS: u32 = 16;
    let length = calibration::baseline(&PACED)?.length / 2;
    let command = PACED.command(length);
    let expected = calibration::uninterrupted(&PACED, length)?;
    let start = expected.duration.saturating_sub(expected.kernels) + expected.kernels / 4;
    let (mut restored, mut refused) = (0, 0);
    for moment in 0..MOMENTS {
        let sandbox = Sandbox::new()?;
        let outcome = dump_after(&sandbox, &command, start * moment / MOMENTS, &expected);
        if outcome.with_context(|| format!("moment {moment} of {MOMENTS} in {start:?}\n{}", sandbox.logs()))? {
            restored += 1;
        } else {
            refused += 1;
        }
    }
    context.note(format!(
        "in the first {start:?}: {restored} restored, {refused} refused"
    ));
    Ok(())
}

/// Dumps `command` when it has run for `delay`. True if that worked and so did the restore; false if it ran on.
fn dump_after(sandbox: &Sandbox, command: &[OsString], delay: Duration, expected: &Baseline) -> Result<bool> {
    let program = Program::begin(sandbox, command, &[])?;
    std::thread::sleep(delay);
    let outcome = criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?;
    if outcome.code == 0 {
        return ensure_restores(sandbox, program, expected).map(|()| true);
    }
    let log = fs::read_to_string(sandbox.path("images/dump.log")).context("the dump's log")?;
    // The very first moments belong to `setsid`.
    if !log.contains("is not a session leader") {
        ensure_refused(sandbox, &outcome, program.pid(), "dump it again in a moment")?;
    }
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &expected.outcome.stdout).context("after the failed dump")?;
    Ok(false)
}
