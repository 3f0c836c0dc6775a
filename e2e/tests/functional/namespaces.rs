//! Programs in namespaces of their own. `e2e/as-user.sh` runs the other tests as a user who cannot do without.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::Signal;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("namespaces_let_an_archive_run_twice_at_once", twice_at_once),
        Test::new("clocks_stand_still_between_dump_and_restore", clocks_stand_still),
        Test::new("namespaces_of_a_container_are_not_entered", not_entered).needs(&[Requirement::Root]),
    ]
}

/// The process ids that both restored programs have are free in namespaces of their own.
fn twice_at_once(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let pid_file = sandbox.path("pid");
    let device = Installation::from_device();
    let mut command = hetckpt::command(
        sandbox,
        ["run", "--namespaces", "always", "--device", &device, "--pid-file"],
    );
    command.arg(&pid_file).arg("--").args(PACED.command(baseline.length));
    let supervisor = Running::start(command)?;
    let started = std::time::Instant::now();
    let row = loop {
        let rows = hetckpt::ps(sandbox)?;
        if let Some(row) = rows.into_iter().find(|row| row["running_kernels"].as_u64() > Some(0)) {
            break row;
        }
        ensure!(started.elapsed() < PATIENCE, "no kernel comes to run");
        std::thread::sleep(Duration::from_millis(10));
    };
    while !pid_file.exists() {
        ensure!(started.elapsed() < PATIENCE, "`run` does not tell the process id");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid: i32 = std::fs::read_to_string(&pid_file)?.trim().parse()?;
    ensure!(row["pid"] == pid, "`run` says {pid}, `ps` says {row}");
    let inner = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let names = inner
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .context("no NSpid")?;
    ensure!(names.split_whitespace().count() > 1, "no namespace of its own: {names}");

    let archive = sandbox.path("job.hetsnap");
    let mut dump = hetckpt::command(sandbox, ["dump", "--pid", &pid.to_string(), "--output"]);
    // Who dumps a program may be another than who runs it, with another environment.
    dump.arg(&archive).env("HETCKPT_RUNTIME_DIR", sandbox.path("elsewhere"));
    Running::run(dump, PATIENCE)?.success("dump")?;
    let ended = supervisor.wait(PATIENCE)?;
    ensure!(ended.code == 128 + 9, "{}", ended.text());
    let restore = || {
        let device = Installation::to_device();
        let mut command = hetckpt::command(sandbox, ["restore", "--namespaces", "always", "--device", &device]);
        command.arg(&archive);
        Running::start(command)
    };
    let both = [restore()?, restore()?];
    for restored in both {
        let outcome = restored.wait(PATIENCE)?;
        ensure!(
            outcome.code == 0 && ended.stdout.clone() + &outcome.stdout == baseline.outcome.stdout,
            "{}",
            outcome.text()
        );
    }
    sandbox.wait_until_empty(Duration::from_secs(10))?;
    let jobs = std::fs::read_dir(sandbox.runtime_dir().join("jobs"))?.count();
    ensure!(jobs == 0, "{jobs} folders of jobs are left");
    Ok(())
}

/// Whoever is first in a container may call itself a job's init, and put something else where hetckpt is: that would
/// have all of root's privileges.
fn not_entered(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (entered, other) = (sandbox.path("entered"), sandbox.path("other"));
    executable::write(&other, &format!("#!/bin/sh\ntouch {}\n", entered.display()))?;
    std::fs::write(
        sandbox.path("__init"),
        "mount --bind \"$1\" \"$2\"\necho ready >&2\nwhile sleep 1; do :; done\n",
    )?;
    let mut container = Command::new("unshare");
    sandbox.equip(&mut container);
    container
        .args([
            "--pid",
            "--fork",
            "--mount",
            "--mount-proc",
            "--kill-child",
            "sh",
            "__init",
        ])
        .arg(&other)
        .arg(Installation::get().hetckpt())
        .current_dir(sandbox.path("."));
    let container = Running::start(container)?;
    container.wait_for_stderr("ready", PATIENCE)?;
    let outside = container.pid();
    let first = std::fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"))?;
    let dump = hetckpt::run(
        sandbox,
        ["dump", "--pid", first.trim(), "--output", "in-the-container.hetsnap"],
    )?;
    ensure!(
        dump.code == 1 && dump.stderr.contains("HK0811") && dump.stderr.contains("is in a container"),
        "{}",
        dump.text()
    );
    ensure!(!entered.exists(), "what lies in the container was run");
    container.signal(Signal::SIGKILL)?;
    container.wait(PATIENCE)?;
    Ok(())
}

/// What counts from the machine's start goes on from where it was: by CRIU as root, by ourselves otherwise. Dumped
/// again, it still does.
fn clocks_stand_still(context: &mut Context) -> Result<()> {
    const AWAY: Duration = Duration::from_secs(2);
    let baseline = calibration::lasting(&PACED, 2)?;
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    let mut longest = Duration::ZERO;
    for round in 1..=2 {
        job.wait_for_kernel()?;
        let stopping = std::time::Instant::now();
        let dumped = job.dump()?;
        std::thread::sleep(AWAY);
        job = dumped.restore()?;
        longest += stopping.elapsed();
        let offsets = std::fs::read_to_string(format!("/proc/{}/timens_offsets", job.pid()))?;
        for clock in ["monotonic", "boottime"] {
            let mut lines = offsets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let line = lines.find(|words| words.first() == Some(&clock)).context("no offset")?;
            let behind = -(line[1].parse::<f64>()? + line[2].parse::<f64>()? / 1e9);
            ensure!(
                behind >= (AWAY * round).as_secs_f64() && behind <= longest.as_secs_f64(),
                "the program was away for {} s and more, {} s at most, and its clock {clock} is {behind} s behind",
                (AWAY * round).as_secs_f64(),
                longest.as_secs_f64()
            );
        }
    }
    let outcome = job.finish()?;
    super::preempt::check(&PACED, &baseline.outcome, &outcome)
}
