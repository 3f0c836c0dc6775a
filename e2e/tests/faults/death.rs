//! One side dies: the other notices.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::actors;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{PACED, Program, TEN};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::is_gone;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::dump_faults::script;
use super::ensure_failure;

/// The tests.
pub fn tests() -> Vec<Test> {
    let needs = [Requirement::Programs];
    vec![
        Test::new("server_dies_while_a_kernel_runs", server_dies_while_a_kernel_runs).needs(&needs),
        Test::new("server_dies_amid_many_launches", server_dies_amid_many_launches).needs(&needs),
        Test::new("program_is_killed", program_is_killed).needs(&needs),
        Test::new("restored_program_is_killed", restored_program_is_killed),
        Test::new("criu_is_killed_while_servers_start", criu_is_killed_while_servers_start),
    ]
}

/// Starts a program that would run for minutes; gives it and its device server's process id.
fn start_endless<'a>(context: &'a Context, program: &Program) -> Result<(Job<'a>, i32)> {
    let length = calibration::baseline(program)?
        .length
        .saturating_mul(500)
        .min(program.longest);
    let mut job = Job::start(&context.sandbox, &program.command(length))?;
    job.wait_for_kernel()?;
    let server = server_of(&mut job)?;
    Ok((job, server))
}

fn server_of(job: &mut Job<'_>) -> Result<i32> {
    let row = job.wait_for_row("a device server", |_| true)?;
    let pid = row["server_pid"].as_i64().context("`ps` names no device server")?;
    Ok(i32::try_from(pid)?)
}

/// Kills the device server and expects the program to end by itself, with a CUDA error.
fn kill_server(context: &Context, program: &Program) -> Result<()> {
    let (job, server) = start_endless(context, program)?;
    kill(Pid::from_raw(server), Signal::SIGKILL)?;
    let killed = Instant::now();
    let outcome = job.finish()?;
    ensure!(
        killed.elapsed() < Duration::from_secs(5),
        "the program noticed only after {:?}",
        killed.elapsed()
    );
    ensure!(
        outcome.code == 2,
        "the program was to get a CUDA error and give up: {}",
        outcome.text()
    );
    ensure!(
        outcome.stderr.contains(".cu:") || outcome.stderr.contains(".h:"),
        "{}",
        outcome.text()
    );
    Ok(())
}

fn server_dies_while_a_kernel_runs(context: &mut Context) -> Result<()> {
    kill_server(context, &PACED)
}

fn server_dies_amid_many_launches(context: &mut Context) -> Result<()> {
    let stencil = TEN.iter().find(|program| program.name == "stencil").copied();
    kill_server(context, &stencil.context("no stencil among the programs")?)
}

fn ensure_server_leaves(context: &Context, job: Job<'_>, server: i32) -> Result<()> {
    let pid = job.pid();
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    let outcome = job.finish().context("nothing was to be left")?;
    ensure!(outcome.code == 128 + 9, "{}", outcome.text());
    // A process that has given its memory back may still be on its way out.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_gone(server) {
        ensure!(
            Instant::now() < deadline,
            "the device server {server} outlives its program"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let socket = context.sandbox.runtime_dir().join(format!("app-{pid}.sock"));
    ensure!(!socket.exists(), "{} is left behind", socket.display());
    Ok(())
}

fn program_is_killed(context: &mut Context) -> Result<()> {
    let (job, server) = start_endless(context, &PACED)?;
    ensure_server_leaves(context, job, server)
}

fn restored_program_is_killed(context: &mut Context) -> Result<()> {
    let (job, _) = start_endless(context, &PACED)?;
    let mut job = job.dump()?.restore()?;
    job.wait_for_kernel()?;
    let server = server_of(&mut job)?;
    ensure_server_leaves(context, job, server)
}

/// Of a restore: a device server is not told of it, and may not have begun, or may be ready for nobody.
fn criu_is_killed_while_servers_start(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let dumped = job.dump()?;
    let server = Installation::get().stage.join("bin/hetckpt-server");
    let server = format!("'{}' \"$@\"", server.display());
    let real = &Installation::get().criu;
    let begun = sandbox.path("begun");
    let note = format!(": >'{}'", begun.display());
    for slow_server in [
        format!("{note}; sleep 0.5; {server}"),
        format!("{server} || exit; {note}; sleep 0.5"),
    ] {
        let _ = fs::remove_file(&begun);
        let slow_server = script(context, "slow-server", &slow_server)?;
        let criu = format!(
            "export HETCKPT_SERVER='{}'; exec '{}' \"$@\"",
            slow_server.display(),
            real.display()
        );
        let mut command = hetckpt::command(sandbox, ["restore", "--device", &Installation::to_device()]);
        command
            .env("HETCKPT_CRIU", script(context, "criu", &criu)?)
            .arg(&dumped.archive);
        let restore = Running::start(command)?;
        let deadline = Instant::now() + PATIENCE;
        while !begun.exists() {
            ensure!(Instant::now() < deadline, "no device server: {}", restore.said());
            std::thread::sleep(Duration::from_millis(2));
        }
        let criu = actors::working_criu(&sandbox.processes()).context("CRIU is not there")?;
        kill(Pid::from_raw(criu), Signal::SIGKILL)?;
        let outcome = restore.wait(PATIENCE)?;
        ensure_failure(&outcome, "HK0904", 125)?;
        sandbox.wait_until_empty(Duration::from_secs(10))?;
    }
    let ended = dumped.restore()?.finish()?;
    ensure!(ended == baseline.outcome, "restored after that: {}", ended.text());
    Ok(())
}
