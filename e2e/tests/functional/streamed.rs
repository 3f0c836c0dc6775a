//! Archives on standard output: whole ones, those whose reader leaves, and those that nobody reads.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("archive_on_standard_output", whole),
        Test::new("reader_of_an_archive_leaves", reader_leaves),
        Test::new("reader_of_an_archive_does_not_read", |context| {
            reader_does_not_read(context, "none")
        }),
        Test::new("reader_does_not_read_carried_files", |context| {
            reader_does_not_read(context, "all")
        }),
        Test::new("standard_output_and_what_does_not_go_with_it", refused).needs(&[]),
    ]
}

/// A dump to standard output, and a shell's words behind it, which read that. Its process id goes into the file `dump`.
fn dump_into(sandbox: &Sandbox, pid: i32, bundle: &str, reader: &str) -> Result<Running> {
    let dump = Installation::get().hetckpt();
    let script = format!(
        "set -o pipefail\n(echo $BASHPID >'{}'; exec '{}' dump --pid {pid} --bundle {bundle} --end-unverified -o -) | {reader}",
        sandbox.path("dump").display(),
        dump.display(),
    );
    let mut command = Command::new("bash");
    sandbox.equip(&mut command);
    command.args(["-c", &script]);
    Running::start(command)
}

fn whole(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    calibration::until_long_enough(&Installation::from_device(), &PACED, 1, |baseline| {
        let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
        job.wait_for_kernel()?;
        let archive = sandbox.path("piped.hetsnap");
        let reader = format!("cat >'{}'", archive.display());
        let dumped = dump_into(sandbox, job.pid(), "all", &reader)?.wait(PATIENCE)?;
        let ended = job.finish()?;
        if dumped.code != 0 && ended == baseline.outcome {
            return Ok(None);
        }
        ensure!(
            dumped.code == 0 && dumped.stdout.is_empty() && dumped.stderr.contains("the program has been ended"),
            "{}",
            dumped.text()
        );
        ensure!(ended.code == 128 + 9, "the program was to be ended: {}", ended.text());
        hetckpt::inspect(sandbox, &archive)?;
        let restored = hetckpt::restore(sandbox, &archive, &Installation::to_device())?.wait(PATIENCE)?;
        ensure!(
            restored.code == 0 && ended.stdout + &restored.stdout == baseline.outcome.stdout,
            "{}",
            restored.text()
        );
        Ok(Some(()))
    })
}

fn reader_leaves(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let dumped = dump_into(sandbox, job.pid(), "all", "head -c 5000 >/dev/null")?.wait(PATIENCE)?;
    ensure!(
        dumped.code == 1 && dumped.stderr.contains("standard output") && dumped.stderr.contains("runs on"),
        "{}",
        dumped.text()
    );
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "the program was to run on: {}", ended.text());
    Ok(())
}

/// What is carried is on its way before the program is stopped: a reader who does not take it stops nothing.
fn reader_does_not_read(context: &mut Context, bundle: &str) -> Result<()> {
    let sandbox = &context.sandbox;
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let done = sandbox.path("done");
    let reader = format!("while ! [ -e '{}' ]; do sleep 0.05; done", done.display());
    let dump = dump_into(sandbox, job.pid(), bundle, &reader)?;
    let deadline = Instant::now() + PATIENCE;
    // Once the program stands still it is not long until the pipe is full.
    while bundle == "none" && !is_stopped(job.pid()) {
        ensure!(Instant::now() < deadline, "the program is not stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(500));
    ensure!(
        is_stopped(job.pid()) == (bundle == "none"),
        "{bundle}: stopped too soon, or no more"
    );
    let pid: i32 = fs::read_to_string(sandbox.path("dump"))?.trim().parse()?;
    while !attends_to_sigterm(pid) {
        ensure!(Instant::now() < deadline, "the dump does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Unlike SIGINT, not ignored by what a shell has put into the background.
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    dump.wait_for_stderr("HK0807", PATIENCE)?;
    fs::write(&done, "")?;
    let dumped = dump.wait(PATIENCE)?;
    ensure!(
        dumped.code == 1 && dumped.stderr.contains("runs on"),
        "{}",
        dumped.text()
    );
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "the program was to run on: {}", ended.text());
    Ok(())
}

/// True if a process is stopped, by a signal or a tracer.
fn is_stopped(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:\tT") || line.starts_with("State:\tt"))
}

/// True once SIGTERM does not simply end a process.
fn attends_to_sigterm(pid: i32) -> bool {
    let status = Process::new(pid).and_then(|process| process.status());
    status.is_ok_and(|status| (status.sigcgt | status.sigblk) >> (Signal::SIGTERM as u32 - 1) & 1 == 1)
}

fn refused(context: &mut Context) -> Result<()> {
    for (more, reason) in [
        (&["-o", "-"][..], "--end-unverified"),
        (&["-o", "-", "--leave-running", "--json"], "--json"),
        (&["-o", "-", "--leave-running", "--verify"], "--verify"),
        (&["-o", "x.hetsnap", "--end-unverified"], "--end-unverified"),
    ] {
        let arguments = ["dump", "--pid", "1"].iter().chain(more);
        let outcome = hetckpt::run(&context.sandbox, arguments)?;
        ensure!(
            outcome.code == 2 && outcome.stdout.is_empty() && outcome.stderr.contains(reason),
            "{more:?}: {}",
            outcome.text()
        );
    }
    Ok(())
}
