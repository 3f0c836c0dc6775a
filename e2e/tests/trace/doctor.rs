//! `hetckpt doctor --pid`: what stands against a dump of a process that runs.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

use super::compile_driver_calls;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("doctor_of_a_process_tells_that_it_runs_elsewhere", outside).needs(&[Requirement::Root]),
        Test::new("doctor_of_a_process_names_calls_without_answer", unanswered).needs(&[Requirement::Tracing]),
        Test::new("doctor_of_a_process_names_the_driver_in_it", opencl_in_it).needs(&[
            Requirement::Tracing,
            Requirement::OpenclDevice,
            Requirement::OpenclPrograms,
        ]),
    ]
}

/// What `doctor --pid` says, and its exit status.
fn examine(sandbox: &Sandbox, pid: i32, more: &[&str]) -> Result<(i32, Value)> {
    let pid = pid.to_string();
    let mut command = hetckpt::command(sandbox, ["doctor", "--json", "--pid", &pid]);
    command.args(more);
    let outcome = Running::run(command, PATIENCE)?;
    let report =
        serde_json::from_str(&outcome.stdout).with_context(|| format!("doctor prints no JSON: {}", outcome.text()))?;
    Ok((outcome.code, report))
}

/// Verdict, code and words of a check.
fn finding(report: &Value, check: &str) -> Result<(String, Value, String)> {
    let checks = report["checks"].as_array().context("no checks")?;
    let found = checks.iter().find(|finding| finding["check"] == check);
    let found = found.with_context(|| format!("no check {check}: {report}"))?;
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    Ok((text("verdict"), found["code"].clone(), text("found")))
}

fn outside(context: &mut Context) -> Result<()> {
    let mut sleeper = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn()?;
    let pid = i32::try_from(sleeper.id())?;
    let found = examine(&context.sandbox, pid, &["--for", "0"]);
    // A tracer, as a debugger is.
    let attached = nix::sys::ptrace::seize(nix::unistd::Pid::from_raw(pid), nix::sys::ptrace::Options::empty());
    let traced = examine(&context.sandbox, pid, &["--for", "0"]);
    sleeper.kill()?;
    sleeper.wait()?;
    let ((code, report), (_, traced)) = (found?, traced?);
    ensure!(code == 1, "{report}");
    let (verdict, hk, _) = finding(&report, "process")?;
    ensure!(verdict == "problem" && hk == "HK0802", "{report}");
    for check in ["driver-libraries", "device-files", "criu-obstacles", "driver-calls"] {
        ensure!(finding(&report, check)?.0 == "ok", "{report}");
    }
    attached?;
    let (verdict, hk, words) = finding(&traced, "criu-obstacles")?;
    ensure!(
        verdict == "problem" && hk == "HK0912" && words.contains("is traced by process"),
        "{traced}"
    );
    Ok(())
}

fn unanswered(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile_driver_calls(sandbox)?;
    let job = Job::start_with(sandbox, &[program.into(), "forever".into()], "cpu", |_| ())?;
    job.wait_for_stderr("ready")?;
    let (code, report) = examine(sandbox, job.pid(), &["--for", "1s"])?;
    ensure!(code == 0, "{report}");
    for check in ["process", "driver-libraries", "device-files", "criu-obstacles"] {
        ensure!(finding(&report, check)?.0 == "ok", "{report}");
    }
    let (verdict, _, words) = finding(&report, "driver-calls")?;
    ensure!(
        verdict == "warning" && words.ends_with("to: cuTexRefCreate"),
        "a function that the shim lacks was to be named: {report}"
    );
    job.kill()
}

fn opencl_in_it(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let mut command = Command::new(Installation::get().programs.join("cl_matmul"));
    sandbox.equip(&mut command);
    command.args(["--iterations", "4294967295"]);
    let mut running = Running::start(command)?;
    let maps = format!("/proc/{}/maps", running.pid());
    let has_driver = |maps: &str| {
        ["libpocl", "libintelocl", "libnvidia"]
            .iter()
            .any(|name| maps.contains(name))
    };
    while !has_driver(&std::fs::read_to_string(&maps).unwrap_or_default()) {
        ensure!(
            !running.has_ended()?,
            "the program has ended: {}",
            running.wait(PATIENCE)?.text()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (code, report) = examine(sandbox, running.pid(), &["--for", "500ms"])?;
    running.signal(nix::sys::signal::Signal::SIGKILL)?;
    ensure!(code == 1 && finding(&report, "process")?.1 == "HK0802", "{report}");
    let (verdict, _, words) = finding(&report, "driver-libraries")?;
    ensure!(verdict != "ok" && words.contains("in the process: /"), "{report}");
    Ok(())
}
