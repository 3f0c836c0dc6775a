//! One process of a tree cannot be paused, captured or restored: then none is, and what ran runs on.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::tree::{WORKERS, script, wait_for_kernels};

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("one_process_cannot_be_captured", one_cannot_be_captured),
        Test::new("one_server_does_not_answer", one_server_does_not_answer),
        Test::new("one_process_is_killed_during_the_dump", one_is_killed),
        Test::new("one_server_cannot_restore", one_server_cannot_restore),
        Test::new("one_server_dies_before_its_process_resumes", one_server_dies_at_the_end),
    ];
    // They name processes as CRIU does, which without root has other names for them.
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

/// The tree with all its kernels in flight, and the rows of `hetckpt ps`.
fn start<'a>(sandbox: &'a Sandbox) -> Result<(Job<'a>, Vec<Value>, hetckpt_e2e::process::Outcome)> {
    // For several dumps, one after the other.
    let baseline = WORKERS.longer_baseline(4)?;
    let job = WORKERS.start(sandbox, baseline.length)?;
    let rows = wait_for_kernels(sandbox, WORKERS.num_servers)?;
    Ok((job, rows, baseline.outcome))
}

fn number(row: &Value, key: &str) -> Result<i32> {
    let number = row[key].as_i64().and_then(|number| i32::try_from(number).ok());
    number.with_context(|| format!("no {key} in {row}"))
}

/// A dump with `change` made to the command, which fails with `code` and leaves no archive.
fn failed_dump(sandbox: &Sandbox, job: &Job<'_>, code: &str, change: impl FnOnce(&mut Command)) -> Result<Outcome> {
    let archive = sandbox.path("failed.hetsnap");
    let mut command = hetckpt::command(sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
    command.arg(&archive);
    change(&mut command);
    let outcome = Running::run(command, PATIENCE)?;
    ensure!(
        outcome.code == 1 && outcome.stderr.contains(&format!("error[{code}]")) && outcome.stderr.contains("runs on"),
        "the dump was to fail with {code}: {}",
        outcome.text()
    );
    ensure!(!archive.exists(), "a failed dump left an archive");
    Ok(outcome)
}

fn ensure_right(job: Job<'_>, expected: &Outcome) -> Result<()> {
    let ended = job.finish()?;
    ensure!(
        &ended == expected,
        "the tree did not run on to the right result: {}",
        ended.text()
    );
    Ok(())
}

/// CRIU, with `before` run first by the shell; `$D` is the image folder, and `more` is added to its arguments.
fn criu(sandbox: &Sandbox, verb: &str, before: &str, more: &str) -> Result<PathBuf> {
    let real = Installation::get().criu.display().to_string();
    let text = format!(
        "[ \"$1\" = {verb} ] || exec '{real}' \"$@\"\n\
         D=; last=; for word; do [ \"$last\" = -D ] && D=$word; last=$word; done\n{before}\nexec '{real}' \"$@\" {more}"
    );
    script(sandbox, "criu", &text)
}

/// Each in turn: the first that is captured, one in the middle, the last.
fn one_cannot_be_captured(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (job, rows, expected) = start(sandbox)?;
    for row in &rows {
        // Something is in the way of a file that its server is to write.
        let before = format!("mkdir \"$D/hetgpu-{}.state.zst\"", number(row, "pid")?);
        let criu = criu(sandbox, "dump", &before, "")?;
        let outcome = failed_dump(sandbox, &job, "HK0903", |command| {
            command.env("HETCKPT_CRIU", criu);
        })?;
        ensure!(
            outcome.stderr.contains(&format!("process {}: hetgpu-", row["pid"])),
            "the message was to say which process cannot be captured, and why: {}",
            outcome.text()
        );
    }
    ensure_right(job, &expected)
}

/// Its process runs all the while: only the device's answer is missing.
fn one_server_does_not_answer(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (job, rows, expected) = start(sandbox)?;
    let last = rows.last().context("no process has a server")?;
    let server = Pid::from_raw(number(last, "server_pid")?);
    // Before CRIU asks whether it may begin.
    let criu = criu(sandbox, "dump", &format!("kill -STOP {server}"), "")?;
    let dumped = failed_dump(sandbox, &job, "HK0602", |command| {
        command.env("HETCKPT_CRIU", criu).args(["--pause-timeout", "1"]);
    });
    kill(server, Signal::SIGCONT)?;
    let said = dumped?.stderr;
    ensure!(
        said.contains(&format!("process {}", last["pid"])),
        "it was to name the process: {said}"
    );
    ensure_right(job, &expected)
}

/// At random moments of the dump: it takes the others, or fails; the parent reports the loss either way.
fn one_is_killed(context: &mut Context) -> Result<()> {
    const ROUNDS: u32 = 6;
    let (mut archived, mut failed) = (0, 0);
    for round in 0..ROUNDS {
        let delay = context.random.moment(Duration::from_millis(250));
        let sandbox = Sandbox::new()?;
        let result = killed_once(&sandbox, delay);
        match result.with_context(|| format!("round {round}: killed after {delay:?}\n{}", sandbox.logs()))? {
            true => archived += 1,
            false => failed += 1,
        }
    }
    context.note(format!(
        "{archived} dumps succeeded, {failed} failed and left the rest running"
    ));
    Ok(())
}

fn killed_once(sandbox: &Sandbox, delay: Duration) -> Result<bool> {
    let (job, rows, _) = start(sandbox)?;
    let victim = rows
        .iter()
        .map(|row| number(row, "pid"))
        .find(|pid| !matches!(pid, Ok(pid) if *pid == job.pid()));
    let victim = victim.context("no child has a server")??;
    let archive = sandbox.path("killed.hetsnap");
    let mut command = hetckpt::command(sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
    command.arg(&archive);
    let dump = Running::start(command)?;
    std::thread::sleep(delay);
    // The dump may have ended it.
    let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
    let dump = dump.wait(PATIENCE)?;
    let mut ended = job.finish()?;
    ensure!(archive.exists() == (dump.code == 0), "{}", dump.text());
    if dump.code == 0 {
        ensure!(ended.code == 128 + 9, "dumped, and yet it ran on: {}", ended.text());
        ended = hetckpt::restore(sandbox, &archive, &Installation::to_device())?.wait(PATIENCE)?;
    }
    // A child that was killed after it had been captured is restored whole.
    let is_whole = dump.code == 0 && ended.code == 0 && ended.stdout.ends_with("PASS\n");
    let is_without_the_victim = ended.code == 1
        && ended.stdout.ends_with("FAIL\n")
        && ended.stderr.matches("a worker failed").count() == 1
        && ended.stderr.contains("status 0x9");
    ensure!(
        is_whole || is_without_the_victim,
        "the others were to end well: {}\nthe dump: {}",
        ended.text(),
        dump.text()
    );
    Ok(dump.code == 0)
}

/// The servers of the others, which could, leave at once.
fn one_server_cannot_restore(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (job, rows, expected) = start(sandbox)?;
    let dumped = job.dump()?;
    for row in &rows {
        let before = format!("rm \"$D/hetgpu-{}.mem\"", number(row, "pid")?);
        let outcome = failed_restore(sandbox, &dumped.archive, criu(sandbox, "restore", &before, "")?)?;
        ensure!(
            outcome.stderr.contains(&format!("process {}", row["pid"])),
            "the message was to name the process: {}",
            outcome.text()
        );
        ensure_nothing_left(sandbox, &rows)?;
    }
    let ended = dumped.restore()?.finish()?;
    ensure!(ended.code == 0 && ended.stdout == expected.stdout, "{}", ended.text());
    Ok(())
}

/// CRIU cannot be told by then; the plugin ends the whole tree, or half of it would run on.
fn one_server_dies_at_the_end(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (job, rows, expected) = start(sandbox)?;
    let dumped = job.dump()?;
    for row in &rows {
        let pid = number(row, "pid")?;
        let kill_server = format!(
            "[ \"$CRTOOLS_SCRIPT_ACTION\" = post-restore ] || exit 0\n\
             for proc in /proc/[0-9]*; do\n\
             case $(tr '\\0' ' ' <$proc/cmdline 2>/dev/null) in *'--restore-here'*'--pid {pid} '*) kill -9 ${{proc#/proc/}};; esac\n\
             done\nexit 0"
        );
        let action = script(sandbox, &format!("kill-{pid}"), &kill_server)?;
        let criu = criu(
            sandbox,
            "restore",
            "",
            &format!("--action-script '{}'", action.display()),
        )?;
        failed_restore(sandbox, &dumped.archive, criu)?;
        ensure_nothing_left(sandbox, &rows)?;
    }
    let ended = dumped.restore()?.finish()?;
    ensure!(ended.code == 0 && ended.stdout == expected.stdout, "{}", ended.text());
    Ok(())
}

fn failed_restore(sandbox: &Sandbox, archive: &std::path::Path, criu: PathBuf) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, ["restore", "--device", &Installation::to_device()]);
    command.arg(archive).env("HETCKPT_CRIU", criu);
    let outcome = Running::run(command, PATIENCE)?;
    ensure!(
        outcome.code == 125 && outcome.stderr.contains("error[HK0904]") && outcome.stdout.is_empty(),
        "the restore was to fail: {}",
        outcome.text()
    );
    Ok(outcome)
}

/// Servers leave when their connection ends, long before they would miss a program.
fn ensure_nothing_left(sandbox: &Sandbox, rows: &[Value]) -> Result<()> {
    sandbox
        .wait_until_empty(Duration::from_secs(10))
        .context("after the failed restore")?;
    for row in rows {
        ensure!(
            is_gone(number(row, "pid")?),
            "process {} of the failed restore runs",
            row["pid"]
        );
    }
    let sockets = fs::read_dir(sandbox.runtime_dir())?.flatten();
    let sockets: Vec<_> = sockets.map(|entry| entry.file_name()).collect();
    ensure!(
        !sockets.iter().any(|name| name.to_string_lossy().ends_with(".lock")),
        "left in the runtime directory: {sockets:?}"
    );
    Ok(())
}
