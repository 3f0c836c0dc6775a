//! Dumps that cannot be: the program runs on as if nobody had tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{MEMORY_HOG, PACED};
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::Signal;

use super::ensure_failure;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("no_such_process", no_such_process).needs(&[]),
        Test::new("process_without_the_shim", process_without_the_shim).needs(&[]),
        Test::new("criu_is_missing", criu_is_missing),
        Test::new("criu_is_too_old", criu_is_too_old),
        Test::new("criu_is_something_else", criu_is_something_else),
        Test::new("target_cannot_be_written", target_cannot_be_written),
        Test::new("disk_is_full", disk_is_full).also_needs(Requirement::Mounting),
        Test::new("criu_fails_in_the_middle", criu_fails_in_the_middle),
        Test::new(
            "criu_is_killed_with_a_helper_stopped",
            criu_is_killed_with_a_helper_stopped,
        ),
        Test::new(
            "command_line_and_criu_are_killed_with_a_helper_stopped",
            both_are_killed_with_a_helper_stopped,
        ),
        Test::new("dump_is_interrupted", dump_is_interrupted),
        Test::new("dump_is_interrupted_at_its_archive", archive_is_interrupted),
        Test::new("archives_name_is_taken_meanwhile", archives_name_is_taken),
    ]
}

fn no_such_process(context: &mut Context) -> Result<()> {
    // No Linux system has ids above 2^22.
    let outcome = hetckpt::dump(&context.sandbox, 4_194_400, &context.sandbox.path("x.hetsnap"), false)?;
    ensure_failure(&outcome, "HK0801", 1)
}

fn process_without_the_shim(context: &mut Context) -> Result<()> {
    let mut sleep = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn()?;
    let pid = i32::try_from(sleep.id())?;
    let outcome = hetckpt::dump(&context.sandbox, pid, &context.sandbox.path("x.hetsnap"), false);
    let is_alive = sleep.try_wait()?.is_none();
    sleep.kill()?;
    sleep.wait()?;
    ensure!(is_alive, "the process did not survive the refusal");
    ensure_failure(&outcome?, "HK0802", 1)
}

/// Starts a program, tries a dump with `change` made to the command, expects it to fail with `code`, and sees the
/// program through to the right end.
fn failed_dump(context: &Context, archive: &Path, code: &str, change: impl FnOnce(&mut Command)) -> Result<()> {
    failed_dump_with_one_of(context, archive, &[code], change)
}

/// As [`failed_dump`], where it is not to be decided here which of `codes` it is.
fn failed_dump_with_one_of(
    context: &Context,
    archive: &Path,
    codes: &[&str],
    change: impl FnOnce(&mut Command),
) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let mut command = hetckpt::command(&context.sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
    command.arg(archive);
    change(&mut command);
    let outcome = Running::run(command, PATIENCE)?;
    let given = codes
        .iter()
        .find(|code| outcome.stderr.contains(&format!("error[{code}]")));
    let given = given.with_context(|| format!("the failure was to be one of {codes:?}: {}", outcome.text()))?;
    ensure_failure(&outcome, given, 1)?;
    ensure!(
        outcome.stderr.contains("runs on"),
        "it was to say what became of the program: {}",
        outcome.text()
    );
    ensure!(!archive.is_file(), "a failed dump left an archive");
    let ended = job.finish().context("after the failed dump")?;
    ensure!(
        ended == baseline.outcome,
        "the program did not run on to the right result: {}",
        ended.text()
    );
    Ok(())
}

fn criu_is_missing(context: &mut Context) -> Result<()> {
    failed_dump(context, &context.sandbox.path("x.hetsnap"), "HK0901", |command| {
        command.env("HETCKPT_CRIU", "/nonexistent/criu");
    })
}

/// A shell script.
pub fn script(context: &Context, name: &str, text: &str) -> Result<PathBuf> {
    let path = context.sandbox.path(name);
    executable::write(&path, &format!("#!/bin/sh\n{text}\n"))?;
    Ok(path)
}

fn criu_is_too_old(context: &mut Context) -> Result<()> {
    let criu = script(context, "criu", "echo 'Version: 3.17'")?;
    failed_dump(context, &context.sandbox.path("x.hetsnap"), "HK0902", |command| {
        command.env("HETCKPT_CRIU", criu);
    })
}

fn criu_is_something_else(context: &mut Context) -> Result<()> {
    let criu = script(context, "criu", "echo hello")?;
    failed_dump(context, &context.sandbox.path("x.hetsnap"), "HK0901", |command| {
        command.env("HETCKPT_CRIU", criu);
    })
}

/// CRIU comes to nothing after the plugin has captured the device and all images are written.
fn criu_fails_in_the_middle(context: &mut Context) -> Result<()> {
    let veto = script(context, "veto", "[ \"$CRTOOLS_SCRIPT_ACTION\" != post-dump ]")?;
    let real = Installation::get().criu.display();
    let arguments = format!("dump --action-script '{}'", veto.display());
    let wrapper = format!("case $1 in dump) shift; exec '{real}' {arguments} \"$@\";; *) exec '{real}' \"$@\";; esac");
    let criu = script(context, "criu", &wrapper)?;
    failed_dump(context, &context.sandbox.path("x.hetsnap"), "HK0903", |command| {
        command.env("HETCKPT_CRIU", criu);
    })
}

/// CRIU finds out about Linux by a helper that stops itself. It stays, with CRIU's descriptors, if CRIU is killed then,
/// as this one is, together with `others`.
fn criu_with_a_stopped_helper(context: &Context, others: &str) -> Result<PathBuf> {
    let real = Installation::get().criu.display();
    let helper = "(sh -c 'kill -STOP $PPID'; sleep 1000)";
    let text = format!("case $1 in dump) {helper} & sleep 0.2; kill -9 {others} $$;; *) exec '{real}' \"$@\";; esac");
    script(context, "criu", &text)
}

/// Nobody but the guardian is left to end the helper, which holds the guardian's pipe.
fn both_are_killed_with_a_helper_stopped(context: &mut Context) -> Result<()> {
    let criu = criu_with_a_stopped_helper(context, "$PPID")?;
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let folder = sandbox.path("archives");
    fs::create_dir(&folder)?;
    let mut dump = hetckpt::command(sandbox, ["dump", "--pid", &job.pid().to_string(), "--output"]);
    dump.arg(folder.join("x.hetsnap")).env("HETCKPT_CRIU", criu);
    let outcome = Running::run(dump, PATIENCE)?;
    ensure!(outcome.code == 128 + 9, "{}", outcome.text());
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "{}", ended.text());
    sandbox.wait_until_empty(PATIENCE)?;
    let left: Vec<_> = fs::read_dir(&folder)?.flatten().collect();
    ensure!(left.is_empty(), "the dump left {left:?}");
    Ok(())
}

fn criu_is_killed_with_a_helper_stopped(context: &mut Context) -> Result<()> {
    let criu = criu_with_a_stopped_helper(context, "")?;
    failed_dump(context, &context.sandbox.path("x.hetsnap"), "HK0903", |command| {
        command.env("HETCKPT_CRIU", criu);
    })
}

fn target_cannot_be_written(context: &mut Context) -> Result<()> {
    let folder = context.sandbox.path("no-such-folder").join("x.hetsnap");
    for archive in [
        folder.as_path(),
        Path::new("/proc/x.hetsnap"),
        &context.sandbox.runtime_dir(),
    ] {
        failed_dump(context, archive, "HK0704", |_| ()).with_context(|| format!("{}", archive.display()))?;
    }
    Ok(())
}

fn disk_is_full(context: &mut Context) -> Result<()> {
    let folder = context.sandbox.path("small");
    fs::create_dir(&folder)?;
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "hetckpt-e2e"])
        .arg(&folder)
        .output()?;
    ensure!(
        mount.status.success(),
        "cannot mount: {}",
        String::from_utf8_lossy(&mount.stderr).trim()
    );
    let archive = folder.join("x.hetsnap");
    // Whether CRIU with the device server, or the archive's writer meets the full disk first is not to be decided here.
    let result = failed_dump_with_one_of(context, &archive, &["HK0903", "HK0704"], |_| ());
    let left: Vec<_> = fs::read_dir(&folder)?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    Command::new("umount").arg(&folder).status()?;
    result?;
    ensure!(left.is_empty(), "the failed dump left {left:?} behind");
    Ok(())
}

/// While the archive is being written, a dump can be called off, and somebody else can take its name: in both cases the
/// program runs on.
fn archive_is_given_up(context: &mut Context, code: &str, act: impl Fn(&Running, &Path) -> Result<()>) -> Result<()> {
    let baseline = calibration::baseline(&MEMORY_HOG)?;
    let mut command = MEMORY_HOG.command(baseline.length);
    // As much as takes a moment to write.
    command.extend(["--mib".into(), "192".into()]);
    let mut job = Job::start(&context.sandbox, &command)?;
    job.wait_for_kernel()?;
    let folder = context.sandbox.path("given-up");
    fs::create_dir(&folder)?;
    let archive = folder.join("x.hetsnap");
    let mut dump = hetckpt::command(&context.sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
    dump.arg(&archive);
    let dump = Running::start(dump)?;
    let is_being_written = || {
        let folders = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files = folders.flat_map(|images| fs::read_dir(images.path()).into_iter().flatten().flatten());
        files.any(|file| file.file_name().to_string_lossy().starts_with(".hetsnap-"))
    };
    let deadline = Instant::now() + PATIENCE;
    while !is_being_written() {
        ensure!(Instant::now() < deadline, "no archive was begun");
        std::thread::sleep(Duration::from_millis(1));
    }
    act(&dump, &archive)?;
    ensure_failure(&dump.wait(PATIENCE)?, code, 1)?;
    let ended = job.finish()?;
    ensure!(ended.code == 0, "{}", ended.text());
    let left: Vec<_> = fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
    ensure!(left.iter().all(|path| *path == archive), "left behind: {left:?}");
    Ok(())
}

fn archive_is_interrupted(context: &mut Context) -> Result<()> {
    archive_is_given_up(context, "HK0807", |dump, _| dump.signal(Signal::SIGTERM))
}

fn archives_name_is_taken(context: &mut Context) -> Result<()> {
    archive_is_given_up(context, "HK0704", |_, archive| {
        Ok(fs::write(archive, "somebody else's")?)
    })?;
    let found = fs::read_to_string(context.sandbox.path("given-up/x.hetsnap"))?;
    ensure!(found == "somebody else's", "it was overwritten");
    Ok(())
}

/// A signal that comes too late finds the dump done; one that comes in time undoes it.
fn dump_is_interrupted(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut undone = 0;
    for wait_ms in [5, 15, 30, 45, 60, 100] {
        let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
        job.wait_for_kernel()?;
        let archive = context.sandbox.path(&format!("{wait_ms}.hetsnap"));
        let mut command = hetckpt::command(&context.sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
        command.arg(&archive);
        let dump = Running::start(command)?;
        std::thread::sleep(Duration::from_millis(wait_ms));
        dump.signal(Signal::SIGTERM)?;
        let dump = dump.wait(PATIENCE)?;
        let ended = job.finish();
        let ended = ended.with_context(|| format!("interrupted after {wait_ms} ms: {}", dump.text()))?;
        if archive.exists() {
            hetckpt::inspect(&context.sandbox, &archive)?;
            ensure!(
                dump.code == 0 && ended.code == 128 + 9,
                "{}\n{}",
                dump.text(),
                ended.text()
            );
            continue;
        }
        // Before it has stopped anything, the signal may simply end it.
        if dump.code != 128 + 15 {
            ensure_failure(&dump, "HK0807", 1)?;
        }
        ensure!(
            ended == baseline.outcome,
            "interrupted after {wait_ms} ms: {}",
            ended.text()
        );
        undone += 1;
    }
    ensure!(undone > 0, "no signal came in time to interrupt a dump");
    let left: Vec<_> = fs::read_dir(context.sandbox.path(""))?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    ensure!(
        !left.iter().any(|name| name.to_string_lossy().starts_with(".hetckpt")),
        "left behind: {left:?}"
    );
    Ok(())
}
