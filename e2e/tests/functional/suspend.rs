//! Programs are taken off their devices, left where they are, and go on: again and again at random moments, on one
//! device and another.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::{GRAPHS, MANAGED, Program, SPIN, TEN};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
use hetckpt_e2e::statistics::Durations;
use serde_json::Value;

use super::opencl_refusals::compile;
use super::preempt::{GRID_BARRIER, check, num_preemptions};

const CLIENT: &str = include_str!("checkpoint_client.c");

/// The tests.
pub fn tests() -> Vec<Test> {
    let programs = TEN.into_iter().chain([GRID_BARRIER, GRAPHS, MANAGED]);
    let random = programs.map(|program| {
        Test::new(format!("suspend_{}", program.name), move |context| {
            let mut tally = Tally::default();
            calibration::until_long_enough(&Installation::from_device(), &program, 1, |baseline| {
                at_random_moments(context, &program, baseline, &mut tally)
            })
        })
        .times(1 + num_preemptions() / 20)
    });
    let others = [
        Test::new("dumps_what_is_suspended", dumped_while_suspended),
        Test::new("keeps_what_cannot_be_resumed", cannot_be_resumed),
        Test::new("suspends_to_a_file", to_a_file),
        Test::new("ends_what_is_suspended", ended_while_suspended),
        Test::new("answers_cudas_checkpoint_functions", by_cudas_functions),
    ];
    random.chain(others).collect()
}

/// What all suspensions of a program came to.
#[derive(Default)]
struct Tally {
    done: u32,
    suspend: Durations,
    resume: Durations,
}

/// Suspensions in a row of runs as long as that of `baseline`; nothing if they keep ending too early.
fn at_random_moments(
    context: &mut Context,
    program: &Program,
    baseline: &Baseline,
    tally: &mut Tally,
) -> Result<Option<()>> {
    let count = num_preemptions();
    let devices = [Installation::to_device(), Installation::from_device()];
    for _ in 0..3 + count {
        let sandbox = Sandbox::new()?;
        let mut job = Job::start(&sandbox, &program.command(baseline.length))?;
        while tally.done < count {
            let moment = context.random.moment(baseline.duration / 2);
            std::thread::sleep(moment);
            let device = &devices[tally.done as usize % devices.len()];
            match suspended_and_resumed(&sandbox, &mut job, device) {
                Ok(Some((suspend, resume))) => {
                    tally.done += 1;
                    tally.suspend.add(suspend);
                    tally.resume.add(resume);
                }
                Ok(None) => break,
                Err(error) => bail!("suspension {}: {error:?}\n{}", tally.done, sandbox.logs()),
            }
        }
        check(program, &baseline.outcome, &job.finish()?)?;
        if tally.done == count {
            context.note(format!(
                "{} suspensions of runs of {:.2} s; suspend {}; resume {}",
                tally.done,
                baseline.duration.as_secs_f64(),
                tally.suspend.summary(),
                tally.resume.summary()
            ));
            return Ok(Some(()));
        }
    }
    Ok(None)
}

/// How long either took; nothing if the program has ended, or has no device server yet.
fn suspended_and_resumed(sandbox: &Sandbox, job: &mut Job<'_>, device: &str) -> Result<Option<(Duration, Duration)>> {
    let mut times = vec![];
    for resumes in [false, true] {
        let outcome = match resumes {
            false => suspend(sandbox, job.pid())?,
            true => resume(sandbox, job.pid(), device)?,
        };
        if outcome.code != 0 {
            if outcome.stderr.contains("has made no CUDA or OpenCL call yet") {
                return Ok(None);
            }
            // Its end may become known in a moment.
            let deadline = Instant::now() + Duration::from_secs(3);
            while !job.has_ended()? {
                ensure!(Instant::now() < deadline, "{}", outcome.text());
                std::thread::sleep(Duration::from_millis(5));
            }
            return Ok(None);
        }
        let report: Value = serde_json::from_str(&outcome.stdout).with_context(|| outcome.text())?;
        let total = report["seconds"]["total"].as_f64();
        times.push(Duration::from_secs_f64(
            total.context("it does not tell how long it took")?,
        ));
    }
    Ok(Some((times[0], times[1])))
}

/// OpenCL drivers may compile a kernel as it is launched, and do not stop meanwhile.
fn suspend(sandbox: &Sandbox, pid: i32) -> Result<Outcome> {
    let pid = pid.to_string();
    hetckpt::run(sandbox, ["suspend", "--json", "--pause-timeout", "60", "--pid", &pid])
}

fn resume(sandbox: &Sandbox, pid: i32, device: &str) -> Result<Outcome> {
    let pid = pid.to_string();
    hetckpt::run(sandbox, ["resume", "--json", "--pid", &pid, "--device", device])
}

/// A program with a kernel in flight, suspended; and what an uninterrupted run comes to.
fn in_mid_kernel<'a>(sandbox: &'a Sandbox, to: Option<&Path>) -> Result<(Job<'a>, Baseline)> {
    let baseline = calibration::lasting(&SPIN, 1)?;
    let mut job = Job::start(sandbox, &SPIN.command(baseline.length))?;
    job.wait_for_kernel()?;
    let mut command = hetckpt::command(sandbox, ["suspend", "--pid", &job.pid().to_string()]);
    if let Some(path) = to {
        command.arg("--to").arg(path);
    }
    Running::run(command, PATIENCE)?.success("suspend")?;
    let row = hetckpt::ps_row(sandbox, job.pid())?.context("it is not listed")?;
    ensure!(
        row["state"] == "suspended" && row["running_kernels"] == 1,
        "it is listed as {row}"
    );
    Ok((job, baseline))
}

/// The archive is that of any other dump; where the program is left running, it stays suspended.
fn dumped_while_suspended(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (mut job, baseline) = in_mid_kernel(sandbox, None)?;
    job.dump_and_leave_running()?;
    let row = hetckpt::ps_row(sandbox, job.pid())?.context("it is not listed")?;
    ensure!(row["state"] == "suspended", "after a dump it is listed as {row}");
    let restored = job.dump()?.restore()?;
    check(&SPIN, &baseline.outcome, &restored.finish()?)
}

fn cannot_be_resumed(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (job, baseline) = in_mid_kernel(sandbox, None)?;
    for _ in 0..2 {
        let refused = resume(sandbox, job.pid(), "cuda:99")?;
        ensure!(
            refused.code != 0 && refused.stdout.contains("HK0501") && refused.stdout.contains("stays suspended"),
            "{}",
            refused.text()
        );
        let again = suspend(sandbox, job.pid())?.success("suspend")?;
        ensure!(again.stderr.contains("is suspended already"), "{}", again.text());
    }
    resume(sandbox, job.pid(), &Installation::to_device())?.success("resume")?;
    let again = resume(sandbox, job.pid(), &Installation::to_device())?.success("resume")?;
    ensure!(again.stderr.contains("is not suspended"), "{}", again.text());
    check(&SPIN, &baseline.outcome, &job.finish()?)
}

fn to_a_file(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let file = sandbox.path("memory");
    let (job, baseline) = in_mid_kernel(sandbox, Some(&file))?;
    ensure!(file.exists(), "there is no file");
    resume(sandbox, job.pid(), &Installation::to_device())?.success("resume")?;
    ensure!(!file.exists(), "the file is left behind");
    // What is there already is not touched.
    fs::write(&file, "precious")?;
    let mut command = hetckpt::command(sandbox, ["suspend", "--pid", &job.pid().to_string(), "--to"]);
    command.arg(&file);
    let refused = Running::run(command, PATIENCE)?;
    ensure!(
        refused.code == 1 && refused.stderr.contains("runs on"),
        "{}",
        refused.text()
    );
    ensure!(fs::read_to_string(&file)? == "precious", "the file was overwritten");
    check(&SPIN, &baseline.outcome, &job.finish()?)
}

fn ended_while_suspended(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let file = sandbox.path("memory");
    let (job, _) = in_mid_kernel(sandbox, Some(&file))?;
    let pid = job.pid();
    job.kill()?;
    ensure!(is_gone(pid), "the program is still there");
    ensure!(!file.exists(), "the file is left behind");
    Ok(())
}

/// A program that loads our driver library controls another, and needs no device for it.
fn by_cudas_functions(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let client = compile(sandbox, "checkpoint_client", CLIENT, &["-ldl"])?;
    let baseline = calibration::lasting(&SPIN, 2)?;
    let mut job = Job::start(sandbox, &SPIN.command(baseline.length))?;
    job.wait_for_kernel()?;
    let mut command = Command::new(client);
    sandbox.equip(&mut command);
    command
        .arg(Installation::get().shim_folder().join("libcuda.so.1"))
        .arg(job.pid().to_string());
    Running::run(command, PATIENCE)?.success("the client")?;
    ensure!(
        hetckpt::ps(sandbox)?.len() == 1,
        "the client had a device server of its own"
    );
    check(&SPIN, &baseline.outcome, &job.finish()?)
}
