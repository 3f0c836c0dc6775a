//! Devices that are not there, and programs that a device cannot run or stop.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{NO_PTX, PACED};
use hetckpt_e2e::runner::{Context, Test};

use super::ensure_failure;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("run_on_a_device_that_is_not_there", run_on_a_device_that_is_not_there)
            .needs(&[Requirement::Programs]),
        Test::new(
            "restore_on_a_device_that_is_not_there",
            restore_on_a_device_that_is_not_there,
        ),
        Test::new(
            "kernel_without_ptx_is_refused_by_the_cpu",
            kernel_without_ptx_is_refused_by_the_cpu,
        )
        .needs(&[Requirement::Programs]),
        Test::new("kernel_without_ptx_is_in_flight", kernel_without_ptx_is_in_flight).also_needs(Requirement::Gpu),
        Test::new("kernel_without_ptx_is_waited_for", kernel_without_ptx_is_waited_for).also_needs(Requirement::Gpu),
    ]
}

fn run_on_a_device_that_is_not_there(context: &mut Context) -> Result<()> {
    let mut run = hetckpt::command(&context.sandbox, ["run", "--device", "cuda:9", "--"]);
    run.args(PACED.command(1));
    ensure_failure(&Running::run(run, hetckpt::PATIENCE)?, "HK0501", 125)
}

fn restore_on_a_device_that_is_not_there(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let dumped = job.dump()?;
    for (detach, exit) in [(false, 125), (true, 3)] {
        let mut command = hetckpt::command(&context.sandbox, ["restore", "--device", "cuda:9"]);
        command.args(detach.then_some("--detach")).arg(&dumped.archive);
        ensure_failure(&Running::run(command, PATIENCE)?, "HK0501", exit)?;
    }
    let outcome = dumped.restore()?.finish()?;
    ensure!(
        outcome.stdout == baseline.outcome.stdout,
        "after the refusal: {}",
        outcome.text()
    );
    Ok(())
}

fn kernel_without_ptx_is_refused_by_the_cpu(context: &mut Context) -> Result<()> {
    let outcome = Job::start_with(&context.sandbox, &NO_PTX.command(1000), "cpu", |_| ())?.finish()?;
    ensure!(
        outcome.code == 2,
        "the program was to meet a CUDA error: {}",
        outcome.text()
    );
    ensure!(
        outcome.stderr.contains("no kernel image"),
        "the error was to say why: {}",
        outcome.text()
    );
    Ok(())
}

/// It can be stopped only at its end: the dump gives up when its time is over, and the program runs on.
fn kernel_without_ptx_is_in_flight(context: &mut Context) -> Result<()> {
    let second = calibration::baseline(&NO_PTX)?;
    let length = second.length.saturating_mul(12);
    let mut job = Job::start(&context.sandbox, &NO_PTX.command(length))?;
    job.wait_for_kernel()?;
    let archive = context.sandbox.path("x.hetsnap");
    let pid = job.pid().to_string();
    let mut command = hetckpt::command(&context.sandbox, ["dump", "--pause-timeout", "2", "--pid", &pid, "-o"]);
    command.arg(&archive);
    let started = Instant::now();
    let outcome = Running::run(command, PATIENCE)?;
    ensure_failure(&outcome, "HK0602", 1)?;
    ensure!(
        outcome.stderr.contains("PTX"),
        "it was to say why the kernel does not stop: {}",
        outcome.text()
    );
    ensure!(
        started.elapsed() < Duration::from_secs(8),
        "it was to give up after 2 s, took {:?}",
        started.elapsed()
    );
    ensure!(!archive.exists(), "a failed dump left an archive");
    let ended = job.finish()?;
    ensure!(
        ended.code == 0 && ended.stdout.ends_with("PASS\n"),
        "after the failed dump: {}",
        ended.text()
    );
    Ok(())
}

/// Longer than the device server would wait by itself.
fn kernel_without_ptx_is_waited_for(context: &mut Context) -> Result<()> {
    let second = calibration::baseline(&NO_PTX)?;
    let length = second.length.saturating_mul(7);
    let mut job = Job::start(&context.sandbox, &NO_PTX.command(length))?;
    job.wait_for_kernel()?;
    let pid = job.pid().to_string();
    let words = ["dump", "--leave-running", "--pause-timeout", "20", "--pid", &pid, "-o"];
    let mut command = hetckpt::command(&context.sandbox, words);
    command.arg(context.sandbox.path("x.hetsnap"));
    let started = Instant::now();
    Running::run(command, PATIENCE)?.success("dump")?;
    ensure!(
        started.elapsed() > Duration::from_secs(5),
        "the kernel was over after {:?}: too soon to tell",
        started.elapsed()
    );
    let ended = job.finish()?;
    ensure!(
        ended.code == 0 && ended.stdout.ends_with("PASS\n"),
        "after the dump: {}",
        ended.text()
    );
    Ok(())
}
