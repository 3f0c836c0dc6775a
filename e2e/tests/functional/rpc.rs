//! Dumps and restores by `criu swrk`, as container runtimes do them, with the plugin found by CRIU's environment.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::criu_rpc::{Kind, Options, Response, swrk};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu::{ensure_dumped, ensure_ends_right, ensure_same, no_plugins, start_paced};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("rpc_dumps_and_restores_with_the_plugin", dumps_and_restores),
        Test::new("rpc_leaves_the_program_running", leaves_the_program_running),
        Test::new("rpc_without_the_plugin_refuses_the_dump", |context: &mut Context| {
            let folder = no_plugins(&context.sandbox)?;
            is_refused(context, folder, None)
        }),
        Test::new("rpc_dump_that_its_caller_refuses", |context: &mut Context| {
            is_refused(context, Installation::get().plugin_folder(), Some("post-dump"))
        }),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

fn log(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path("images").join(name)).unwrap_or_default()
}

fn ensure_success(response: &Response, scripts: &[&str]) -> Result<()> {
    ensure!(
        response.success && response.criu.code == 0,
        "{}; {}",
        response.message,
        response.criu.text()
    );
    for script in scripts {
        ensure!(
            response.notified.iter().any(|name| name == script),
            "CRIU was to ask for {script}: {:?}",
            response.notified
        );
    }
    Ok(())
}

fn dumps_and_restores(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let (sandbox, folder) = (&context.sandbox, Installation::get().plugin_folder());
    let program = start_paced(sandbox, baseline.length)?;
    let pid = program.pid();
    let options = Options {
        pid: Some(pid),
        ..Options::default()
    };
    let dump = swrk(sandbox, Kind::Dump, options, &folder, None)?;
    ensure_success(&dump, &["pre-dump", "post-dump"])?;
    ensure_dumped(sandbox, program)?;

    let restore = swrk(sandbox, Kind::Restore, Options::default(), &folder, None)?;
    ensure_success(&restore, &["pre-restore", "post-restore", "pre-resume", "post-resume"])?;
    ensure!(restore.restored == Some(pid), "{:?} was restored", restore.restored);
    // It is a child of this process.
    let status = end_of(pid)?;
    ensure!(status == WaitStatus::Exited(Pid::from_raw(pid), 0), "{status:?}");
    ensure_ends_right(sandbox, pid, &baseline)
}

/// Waits for the end of `pid`.
fn end_of(pid: i32) -> Result<WaitStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)).context("the restored process")? {
            WaitStatus::StillAlive => ensure!(Instant::now() < deadline, "process {pid} does not end"),
            status => return Ok(status),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn leaves_the_program_running(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let (sandbox, folder) = (&context.sandbox, Installation::get().plugin_folder());
    let program = start_paced(sandbox, baseline.length)?;
    let options = Options {
        pid: Some(program.pid()),
        leave_running: true,
        ..Options::default()
    };
    ensure_success(&swrk(sandbox, Kind::Dump, options, &folder, None)?, &["post-dump"])?;
    let code = program.finish()?;
    ensure!(code == 0, "the program ended with {code}");
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
}

/// Whoever refuses the dump, the answer says so and the program runs on.
fn is_refused(context: &mut Context, folder: PathBuf, veto: Option<&str>) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = start_paced(sandbox, baseline.length)?;
    let options = Options {
        pid: Some(program.pid()),
        ..Options::default()
    };
    let dump = swrk(sandbox, Kind::Dump, options, &folder, veto)?;
    ensure!(!dump.success, "the dump was to fail: {}", log(sandbox, "dump.log"));
    let code = program.finish()?;
    ensure!(code == 0, "the program ended with {code}");
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)?;
    sandbox.wait_until_empty(Duration::from_secs(10))
}
