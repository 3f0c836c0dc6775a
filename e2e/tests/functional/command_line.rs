//! `run` and `restore` behave like the program that they stand in for.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::{Job, POLL_INTERVAL};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{self, PACED};
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The tests.
pub fn tests() -> Vec<Test> {
    use hetckpt_e2e::installation::Requirement::Programs;
    vec![
        Test::new("run_passes_on_the_exit_code", run_passes_on_the_exit_code).needs(&[Programs]),
        Test::new("virtual_gpu_is_what_is_asked_for", virtual_gpu).needs(&[Programs]),
        Test::new("frameworks_are_asked_for_ptx", asks_for_ptx).needs(&[]),
        Test::new("file_that_cannot_be_written", file_that_cannot_be_written),
        Test::new("run_passes_on_signals", run_passes_on_signals).needs(&[Programs]),
        Test::new("restore_passes_on_signals", restore_passes_on_signals),
        Test::new("ps_lists_the_program", ps_lists_the_program).needs(&[Programs]),
        Test::new(
            "ps_lists_programs_beside_a_server_that_is_stopped",
            ps_beside_a_stopped_server,
        )
        .needs(&[Programs]),
        Test::new("stats_tell_what_a_server_does", stats).needs(&[Programs]),
        Test::new("failures_are_told_as_json_too", failures_as_json).needs(&[]),
        Test::new("asynchronous_calls_return_at_once", asynchronous_calls_return_at_once).needs(&[Programs]),
    ]
}

/// Of a multiprocessor of compute capability 9.0 a block of 1024 threads takes half, of one of 12.1 two thirds.
fn virtual_gpu(context: &mut Context) -> Result<()> {
    let run = |gpu: &str| {
        let mut arguments = ["run", "--device", "cpu", "--virtual-gpu", gpu, "--"]
            .map(OsString::from)
            .to_vec();
        arguments.extend(program::command("full_blocks", &[]));
        hetckpt::run(&context.sandbox, arguments)
    };
    for (gpu, resident) in [
        ("9.0", "2 blocks a multiprocessor"),
        ("12.1", "1 blocks a multiprocessor"),
    ] {
        let outcome = run(gpu)?;
        ensure!(
            outcome.code == 0 && outcome.stderr.contains(resident),
            "{gpu}: {}",
            outcome.text()
        );
    }
    let outcome = run("9.1")?;
    ensure!(
        outcome.code == 2 && outcome.stderr.contains("12.0, 12.1"),
        "{}",
        outcome.text()
    );
    Ok(())
}

fn asks_for_ptx(context: &mut Context) -> Result<()> {
    let assembler = Installation::get().shim_folder().join("ptxas");
    let assembler = assembler.to_str().context("a folder's name")?;
    for (name, ours) in [("CUPY_COMPILE_WITH_PTX", "1"), ("TRITON_PTXAS_PATH", assembler)] {
        for (given, expected) in [(None, ours), (Some("0"), "0")] {
            let mut command = hetckpt::command(&context.sandbox, ["run", "--device", "cpu", "--"]);
            command.args(["sh", "-c", &format!("echo ${name}")]);
            command.env_remove(name);
            command.envs(given.map(|value| (name, value)));
            let outcome = Running::run(command, hetckpt::PATIENCE)?;
            ensure!(outcome.stdout.trim_end() == expected, "{}", outcome.text());
        }
    }
    Ok(())
}

fn run_passes_on_the_exit_code(context: &mut Context) -> Result<()> {
    let outcome = Job::start(
        &context.sandbox,
        &program::command("paced", &["--no-such-argument", "1"]),
    )?
    .finish()?;
    ensure!(
        outcome.code == 2,
        "the program's exit code for wrong arguments is 2: {}",
        outcome.text()
    );
    ensure!(
        outcome.stderr.contains("unknown argument"),
        "its words are missing: {}",
        outcome.text()
    );
    // As `env` has it.
    let folder = context.sandbox.path("");
    for (program, code) in [(folder.join("no-such-program"), 127), (folder, 126)] {
        let mut cannot_run = hetckpt::command(&context.sandbox, ["run", "--device", "cpu"]);
        cannot_run.arg(program);
        let outcome = Running::run(cannot_run, hetckpt::PATIENCE)?;
        ensure!(
            outcome.code == code && outcome.stderr.contains("HK0804"),
            "the exit code was to be {code}: {}",
            outcome.text()
        );
    }
    let mut elsewhere = hetckpt::command(&context.sandbox, ["run", "--device", "gpu", "touch"]);
    elsewhere.arg(context.sandbox.path("touched"));
    let outcome = Running::run(elsewhere, hetckpt::PATIENCE)?;
    ensure!(
        outcome.code == 125 && outcome.stderr.contains("HK0501") && outcome.stderr.contains("there are: "),
        "a device that is not there was to be refused with what there is: {}",
        outcome.text()
    );
    ensure!(
        !context.sandbox.path("touched").exists(),
        "the program was started on a device that is not there"
    );
    Ok(())
}

/// A [`PACED`] that runs for minutes if nobody ends it.
fn endless_spin<'a>(context: &'a Context) -> Result<Job<'a>> {
    let length = calibration::baseline(&PACED)?.length.saturating_mul(500);
    let mut job = Job::start(&context.sandbox, &PACED.command(length))?;
    job.wait_for_kernel()?;
    Ok(job)
}

/// Known before anything has been started: `run` prints nothing of the program's, and the archive can be restored
/// after.
fn file_that_cannot_be_written(context: &mut Context) -> Result<()> {
    let file = context.sandbox.path("no-such-folder").join("file");
    let baseline = calibration::baseline(&PACED)?;
    let mut run = hetckpt::command(&context.sandbox, ["run", "--device", "cpu", "--pid-file"]);
    run.arg(&file).arg("--").args(PACED.command(baseline.length));
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let dumped = job.dump()?;
    let mut restore = hetckpt::command(&context.sandbox, ["restore", "--timings"]);
    restore.arg(&file).arg(&dumped.archive);
    for (command, code) in [(run, "HK0804"), (restore, "HK0704")] {
        let outcome = Running::run(command, hetckpt::PATIENCE)?;
        ensure!(
            outcome.code == 125 && outcome.stderr.contains(code) && outcome.stdout.is_empty(),
            "it was to fail with {code} before it started anything: {}",
            outcome.text()
        );
    }
    let outcome = dumped.restore()?.finish()?;
    ensure!(outcome == baseline.outcome, "after the refusal: {}", outcome.text());
    Ok(())
}

fn run_passes_on_signals(context: &mut Context) -> Result<()> {
    let job = endless_spin(context)?;
    job.supervisor().signal(Signal::SIGTERM)?;
    let outcome = job.finish()?;
    ensure!(outcome.code == 128 + 15, "it was to end by SIGTERM: {}", outcome.text());
    Ok(())
}

fn restore_passes_on_signals(context: &mut Context) -> Result<()> {
    let mut job = endless_spin(context)?.dump()?.restore()?;
    job.wait_for_kernel()?;
    job.supervisor().signal(Signal::SIGUSR2)?;
    let outcome = job.finish()?;
    ensure!(outcome.code == 128 + 12, "it was to end by SIGUSR2: {}", outcome.text());
    Ok(())
}

fn ps_lists_the_program(context: &mut Context) -> Result<()> {
    let mut job = endless_spin(context)?;
    let row = job.wait_for_row("a running kernel", |row| row["running_kernels"] == 1)?;
    ensure!(row["state"] == "running", "{row}");
    ensure!(
        row["command"].as_str().is_some_and(|command| command.contains("paced")),
        "{row}"
    );
    ensure!(row["allocated_bytes"].as_u64() >= Some(64 * 2 * 4), "{row}");
    job.kill()?;
    let rows = hetckpt::run(&context.sandbox, ["ps", "--json"])?.success("ps")?;
    ensure!(
        rows.stdout.trim() == "[]",
        "a program that is gone is still listed: {}",
        rows.stdout
    );
    Ok(())
}

fn stats(context: &mut Context) -> Result<()> {
    let mut job = Job::start(
        &context.sandbox,
        &program::command("stencil", &["--steps", "100000000"]),
    )?;
    job.wait_for_row("a server", |_| true)?;
    let pid = job.pid().to_string();
    // Kernels are built first, which takes its time on a busy machine.
    let deadline = Instant::now() + hetckpt::PATIENCE;
    loop {
        let all = hetckpt::run(&context.sandbox, ["stats", "--json", "--pid", &pid])?.success("stats")?;
        let servers: Value = serde_json::from_str(&all.stdout)?;
        ensure!(
            servers[0]["device"] == "cpu" && servers.as_array().map(Vec::len) == Some(1),
            "{servers}"
        );
        let done = servers[0]["done"].as_array().cloned().unwrap_or_default();
        for done in &done {
            let histogram = done["histogram"].as_array().cloned().unwrap_or_default();
            let sum: u64 = histogram.iter().filter_map(Value::as_u64).sum();
            ensure!(done["count"] == sum, "{done}");
        }
        let count = |what: &str| done.iter().find(|done| done["what"] == what)?["count"].as_u64();
        let missing = ["launch", "copy_out", "allocate", "build"]
            .into_iter()
            .find(|what| count(what).is_none_or(|count| count == 0));
        match missing {
            None => break,
            Some(what) => ensure!(Instant::now() < deadline, "no {what}: {servers}"),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let watching = Running::start(hetckpt::command(
        &context.sandbox,
        ["stats", "--watch", "200ms", "--pid", &pid],
    ))?;
    while watching.said().matches("process ").count() < 2 {
        ensure!(Instant::now() < deadline, "{}", watching.said());
        std::thread::sleep(POLL_INTERVAL);
    }
    job.kill()?;
    // It ends with the program.
    let outcome = watching.wait(hetckpt::PATIENCE)?.success("stats --watch")?;
    ensure!(outcome.stdout.contains("process "), "{}", outcome.text());
    let gone = hetckpt::run(&context.sandbox, ["stats", "--pid", &pid])?;
    ensure!(
        gone.code != 0 && gone.stderr.contains("there is no process"),
        "{}",
        gone.text()
    );
    Ok(())
}

fn ps_beside_a_stopped_server(context: &mut Context) -> Result<()> {
    let mut stopped = endless_spin(context)?;
    let mut other = endless_spin(context)?;
    let row = stopped.wait_for_row("a server", |_| true)?;
    other.wait_for_row("a server", |_| true)?;
    let server = Pid::from_raw(i32::try_from(row["server_pid"].as_i64().unwrap_or_default())?);
    kill(server, Signal::SIGSTOP)?;
    let listed = hetckpt::run(&context.sandbox, ["ps", "--json"]);
    kill(server, Signal::SIGCONT)?;
    let listed = listed?.success("ps")?;
    let rows: Vec<Value> = serde_json::from_str(&listed.stdout)?;
    ensure!(rows.len() == 1 && rows[0]["pid"] == other.pid(), "{}", listed.text());
    let told = format!("the device server of process {} does not answer", stopped.pid());
    ensure!(listed.stderr.contains(&told), "{}", listed.text());
    kill(Pid::from_raw(stopped.pid()), Signal::SIGKILL)?;
    other.kill()
}

fn failures_as_json(context: &mut Context) -> Result<()> {
    let archive = context.sandbox.path("missing.hetsnap");
    let mut inspect = hetckpt::command(&context.sandbox, ["inspect", "--json"]);
    inspect.arg(&archive);
    let outcome = Running::run(inspect, hetckpt::PATIENCE)?;
    let told: Value = serde_json::from_str(&outcome.stdout)?;
    ensure!(
        outcome.code == 1 && told["error"]["code"] == "HK0701" && outcome.stderr.contains("error[HK0701]"),
        "{}",
        outcome.text()
    );
    Ok(())
}

/// A launch returns while its kernel runs, and waiting for it costs no processor time in the program.
fn asynchronous_calls_return_at_once(context: &mut Context) -> Result<()> {
    let length = calibration::baseline(&PACED)?.length.saturating_mul(500);
    let mut command = PACED.command(length);
    command.push("--progress".into());
    let mut job = Job::start(&context.sandbox, &command)?;
    job.wait_for_stderr("launched")?;
    job.wait_for_kernel()?;
    let ticks = || -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", job.pid()))?;
        let fields = stat
            .rsplit_once(") ")
            .map_or("", |(_, rest)| rest)
            .split(' ')
            .skip(11)
            .take(2);
        Ok(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
    };
    let before = ticks()?;
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks()? - before;
    ensure!(used <= 10, "the waiting program used {used} of 100 clock ticks");
    job.kill()
}
