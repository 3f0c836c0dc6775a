//! `criu dump` and `criu restore` with the plugin, without our command line.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration::{self, Baseline};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::SPIN;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
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

/// A program started with nothing but the shim on its library path, writing to files.
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts `command` and waits until it has launched its kernel.
    fn start(sandbox: &Sandbox, command: &[OsString]) -> Result<Self> {
        let program = Self::begin(sandbox, command, &[])?;
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(sandbox.path("err"))?.contains("launched") {
            ensure!(Instant::now() < deadline, "the program does not launch its kernel");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(program)
    }

    /// Starts `command` and waits for nothing.
    pub fn begin(sandbox: &Sandbox, command: &[OsString], environment: &[(&str, &Path)]) -> Result<Self> {
        let installation = Installation::get();
        // A session of its own spares CRIU the terminal.
        let mut setsid = Command::new("setsid");
        setsid.args(command);
        sandbox.equip(&mut setsid);
        setsid
            .env("LD_LIBRARY_PATH", installation.shim_folder())
            .env("HETCKPT_DEVICE", Installation::from_device())
            .envs(environment.iter().copied());
        setsid.stdin(Stdio::null());
        setsid
            .stdout(File::create(sandbox.path("out"))?)
            .stderr(File::create(sandbox.path("err"))?);
        let child = setsid.spawn().context("cannot start setsid")?;
        Ok(Self { child })
    }

    /// Starts `command` with a device server that does nothing for `delay`, and waits until that server has begun.
    fn begin_slowly(sandbox: &Sandbox, command: &[OsString], delay: Duration) -> Result<Self> {
        let (slow, begun) = (sandbox.path("slow-server"), sandbox.path("begun"));
        let script = format!(
            "#!/bin/sh\n: >{}\nsleep {}\nexec {} \"$@\"\n",
            begun.display(),
            delay.as_secs_f64(),
            Installation::get().stage.join("bin/hetckpt-server").display()
        );
        fs::write(&slow, script)?;
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o700))?;
        let program = Self::begin(sandbox, command, &[("HETCKPT_SERVER", &slow)])?;
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

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(-1)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Dumped ones are dead; either way their entry must go.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `criu VERB` with the image folder `images` of the sandbox, and `more`.
pub fn criu(sandbox: &Sandbox, verb: &str, with_plugin: bool, more: &[&str]) -> Result<Outcome> {
    let installation = Installation::get();
    let images = sandbox.path("images");
    fs::create_dir_all(&images)?;
    let mut command = Command::new(&installation.criu);
    sandbox.equip(&mut command);
    command
        .args([verb, "-v4", "-o"])
        .arg(format!("{verb}.log"))
        .arg("-D")
        .arg(&images)
        .args(more);
    if with_plugin {
        command.arg("--libdir").arg(installation.plugin_folder());
        command.env("HETCKPT_DEVICE", Installation::to_device());
    } else {
        // A folder without plugins: else CRIU looks for them in the system's.
        command.arg("--libdir").arg(empty_folder(sandbox)?);
    }
    Running::run(command, PATIENCE)
}

fn empty_folder(sandbox: &Sandbox) -> Result<std::path::PathBuf> {
    let folder = sandbox.path("no-plugins");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// [`SPIN`] of the given length, once its kernel runs.
pub fn start_spin(sandbox: &Sandbox, length: u64) -> Result<Program> {
    let mut command = SPIN.command(length);
    command.push("--progress".into());
    Program::start(sandbox, &command)
}

/// Waits until process `pid` has ended.
pub fn wait_until_gone(pid: i32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_gone(pid) {
        ensure!(Instant::now() < deadline, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Makes sure that `file` holds `expected`.
pub fn ensure_same(file: &Path, expected: &str) -> Result<()> {
    let printed = fs::read_to_string(file)?;
    ensure!(
        printed == expected,
        "wanted {expected:?}, the program printed {printed:?}"
    );
    Ok(())
}

fn dumps_and_restores(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&SPIN)?;
    let sandbox = &context.sandbox;
    let program = start_spin(sandbox, baseline.length)?;
    let pid = program.pid();
    criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?.success("criu dump")?;
    ensure_restores(sandbox, program, &baseline)
}

/// Makes sure that `program`, which a dump has ended, runs to the right result when it is restored.
fn ensure_restores(sandbox: &Sandbox, program: Program, baseline: &Baseline) -> Result<()> {
    let pid = program.pid();
    drop(program);
    ensure!(is_gone(pid), "process {pid} still runs after the dump");
    sandbox
        .wait_until_empty(Duration::from_secs(10))
        .context("after the dump")?;
    ensure_same(&sandbox.path("out"), "").context("it ended before the dump")?;
    criu(sandbox, "restore", true, &["--restore-detached"])?.success("criu restore")?;
    wait_until_gone(pid)?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)?;
    sandbox
        .wait_until_empty(Duration::from_secs(10))
        .context("after the program's end")
}

fn leaves_the_program_running(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&SPIN)?;
    let sandbox = &context.sandbox;
    let program = start_spin(sandbox, baseline.length)?;
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
    let baseline = calibration::baseline(&SPIN)?;
    let sandbox = &context.sandbox;
    let program = start_spin(sandbox, baseline.length)?;
    let outcome = criu(sandbox, "dump", false, &["--tree", &program.pid().to_string()])?;
    ensure!(
        outcome.code != 0,
        "a dump without the device's state counts as a success"
    );
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the failed dump")
}

/// What the plugin says in the log of a dump when it makes it fail.
fn complaints(sandbox: &Sandbox) -> Result<Vec<String>> {
    let log = fs::read_to_string(sandbox.path("images/dump.log")).context("the dump's log")?;
    let complaints = log.lines().filter_map(|line| line.split_once("hetgpu: error: "));
    Ok(complaints.map(|(_, complaint)| complaint.to_owned()).collect())
}

/// Makes sure that the dump that ended with `outcome` failed with one message, which names process `pid` and has `part`.
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
    let baseline = calibration::baseline(&SPIN)?;
    let sandbox = &context.sandbox;
    let program = Program::begin_slowly(sandbox, &SPIN.command(baseline.length), Duration::from_secs(1))?;
    criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?.success("criu dump")?;
    ensure_restores(sandbox, program, &baseline)
}

fn refuses_a_slow_start(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&SPIN)?;
    let sandbox = &context.sandbox;
    let program = Program::begin_slowly(sandbox, &SPIN.command(baseline.length), Duration::from_secs(8))?;
    let outcome = criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?;
    ensure_refused(sandbox, &outcome, program.pid(), "is still starting")?;
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the failed dump")
}

fn refuses_a_stopped_start(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&SPIN)?;
    let sandbox = &context.sandbox;
    let program = Program::begin_slowly(sandbox, &SPIN.command(baseline.length), Duration::from_secs(1))?;
    let pid = Pid::from_raw(program.pid());
    kill(pid, Signal::SIGSTOP)?;
    let outcome = criu(sandbox, "dump", true, &["--tree", &program.pid().to_string()])?;
    ensure_refused(sandbox, &outcome, program.pid(), "is stopped")?;
    kill(pid, Signal::SIGCONT)?;
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the failed dump")
}

/// Each dump, from the program's start to a little into its kernel, is to succeed and to restore well, or to fail with one
/// message and a program that runs on to its result.
fn at_any_moment_of_the_start(context: &mut Context) -> Result<()> {
    const MOMENTS: u32 = 16;
    let length = calibration::baseline(&SPIN)?.length / 2;
    let command = SPIN.command(length);
    let expected = calibration::uninterrupted(&SPIN, length)?;
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
