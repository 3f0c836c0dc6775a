//! `criu dump` and `criu restore` with the plugin, without our command line.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::SPIN;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("plain_criu_dumps_and_restores_with_the_plugin", dumps_and_restores),
        Test::new("plain_criu_leaves_the_program_running", leaves_the_program_running),
        Test::new(
            "plain_criu_fails_loudly_without_the_plugin",
            fails_loudly_without_the_plugin,
        ),
    ]
}

/// A program started with nothing but the shim on its library path, writing to files.
struct Program {
    child: Child,
}

impl Program {
    fn start(sandbox: &Sandbox, command: &[OsString]) -> Result<Self> {
        let installation = Installation::get();
        // A session of its own spares CRIU the terminal.
        let mut setsid = Command::new("setsid");
        setsid.args(command);
        sandbox.equip(&mut setsid);
        setsid
            .env("LD_LIBRARY_PATH", installation.shim_folder())
            .env("HETCKPT_DEVICE", Installation::from_device());
        setsid.stdin(Stdio::null());
        setsid
            .stdout(File::create(sandbox.path("out"))?)
            .stderr(File::create(sandbox.path("err"))?);
        let child = setsid.spawn().context("cannot start setsid")?;
        let program = Self { child };
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(sandbox.path("err"))?.contains("launched") {
            ensure!(Instant::now() < deadline, "the program does not launch its kernel");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(program)
    }

    fn pid(&self) -> i32 {
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
fn criu(sandbox: &Sandbox, verb: &str, with_plugin: bool, more: &[&str]) -> Result<Outcome> {
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

fn start_spin(sandbox: &Sandbox, length: u64) -> Result<Program> {
    let mut command = SPIN.command(length);
    command.push("--progress".into());
    Program::start(sandbox, &command)
}

fn wait_until_gone(pid: i32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_gone(pid) {
        ensure!(Instant::now() < deadline, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn ensure_same(file: &Path, expected: &str) -> Result<()> {
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
