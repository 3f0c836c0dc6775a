//! Machine code on a CUDA device, where there is none: a stand-in takes the driver's place. It has memory and does
//! copies, and places variables elsewhere each time, but runs no kernels.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "variables_of_machine_code_are_restored_where_they_are_moved_to",
            |context| moved_variables(context, &[]),
        )
        .also_needs(Requirement::Programs),
        Test::new("machine_code_is_dumped_while_it_runs", |context| {
            moved_variables(context, &["--leave-running", "--live"])
        })
        .also_needs(Requirement::Programs),
        Test::new("graphs_of_machine_code_are_launched_as_such_and_restored", graphs).also_needs(Requirement::Programs),
        Test::new("kernels_of_machine_code_print_across_a_dump", printing).also_needs(Requirement::Programs),
        Test::new("the_driver_tells_of_clusters", clusters).also_needs(Requirement::Programs),
        Test::new("kernels_that_bind_a_snapshot_to_gpus_are_named", bound_kernels).also_needs(Requirement::Programs),
    ]
}

/// The library, which cargo builds beside this program.
fn driver() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folders = own.ancestors().skip(1).take(2);
    let mut candidates = folders.map(|folder| folder.join("libstand_in_driver.so"));
    let found = candidates.find(|path| path.exists());
    found.context("libstand_in_driver.so is not beside the tests: `cargo build -p hetckpt-stand-in-driver`")
}

fn command(sandbox: &Sandbox, words: &[&str]) -> Result<Command> {
    let mut command = hetckpt::command(sandbox, words);
    command.env("HETCKPT_CUDA_DRIVER", driver()?);
    Ok(command)
}

/// Runs `program`, and dumps it after a while, as `more` says. It is ended.
fn dump(sandbox: &Sandbox, program: &[OsString], more: &[&str]) -> Result<PathBuf> {
    let (pid_file, archive) = (sandbox.path("pid"), sandbox.path("x.hetsnap"));
    let mut run = command(sandbox, &["run", "--device", "cuda", "--pid-file"])?;
    run.arg(&pid_file).arg("--").args(program);
    let supervisor = Running::start(run)?;
    let pid = wait_for_line(&pid_file)?;
    std::thread::sleep(Duration::from_millis(700));
    let mut dump = command(sandbox, &["dump", "--pid", &pid, "-o"])?;
    dump.arg(&archive).args(more);
    Running::run(dump, PATIENCE)?.success("dump")?;
    if more.contains(&"--leave-running") {
        kill(Pid::from_raw(pid.parse()?), Signal::SIGKILL)?;
    }
    supervisor.wait(PATIENCE)?;
    Ok(archive)
}

/// Restores a program on the stand-in.
fn restore(sandbox: &Sandbox, archive: &Path) -> Result<Outcome> {
    let mut restore = command(sandbox, &["restore", "--own-stdio", "--device", "cuda"])?;
    restore.arg(archive);
    Running::run(restore, PATIENCE)
}

fn wait_for_line(file: &Path) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(line) = text.strip_suffix('\n') {
            return Ok(line.to_owned());
        }
        ensure!(Instant::now() < deadline, "the program does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn moved_variables(context: &mut Context, more: &[&str]) -> Result<()> {
    let program = Installation::get().programs.join("machine_code");
    let archive = dump(&context.sandbox, &[program.into()], more)?;
    let outcome = restore(&context.sandbox, &archive)?;
    ensure!(
        outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
        "the restored program: {}",
        outcome.text()
    );
    Ok(())
}

fn graphs(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = Installation::get().programs.join("native_graph");
    let words = ["--steps", "60", "--rounds"];
    let with = |rounds: &str| {
        let words = words.iter().chain([&rounds]).map(OsString::from);
        std::iter::once(program.clone().into())
            .chain(words)
            .collect::<Vec<OsString>>()
    };
    let mut run = command(sandbox, &["run", "--device", "cuda", "--"])?;
    run.args(with("40")).env("HETCKPT_LOG", "hetckpt_server=trace");
    Running::run(run, PATIENCE)?.success("run")?;
    let logs = sandbox.logs();
    ensure!(logs.contains("launched as a graph"), "no graph was launched: {logs}");
    let archive = dump(sandbox, &with("300"), &[])?;
    let outcome = restore(sandbox, &archive)?;
    ensure!(
        outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
        "the restored program: {}",
        outcome.text()
    );
    Ok(())
}

/// Each line comes out once, behind what the program had printed before: also what the driver had not yet printed when
/// the program was dumped.
fn printing(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = |rounds: &str, pause: &str| -> Vec<OsString> {
        let program = Installation::get().programs.join("printing");
        let words = ["--rounds", rounds, "--pause", pause].map(OsString::from);
        std::iter::once(program.into()).chain(words).collect()
    };
    let expected = |rounds: usize| -> String {
        let round = |round: usize| format!("round {round}\nsays_its_name\n");
        (0..rounds).map(round).collect()
    };
    let mut run = command(sandbox, &["run", "--device", "cuda", "--"])?;
    run.args(program("20", "0"));
    let stdout = Running::run(run, PATIENCE)?.success("run")?.stdout;
    ensure!(stdout.starts_with(&expected(20)), "not what was printed: {stdout}");
    // Rounds are mostly pauses, so the dump comes between a launch and the wait for it.
    let archive = dump(sandbox, &program("60", "40000"), &[])?;
    let outcome = restore(sandbox, &archive)?.success("the restored program")?;
    let (printed, end) = outcome
        .stdout
        .rsplit_once('\n')
        .map_or(("", ""), |(before, _)| before.rsplit_once('\n').unwrap_or_default());
    ensure!(
        !printed.is_empty() && expected(60).trim_end().ends_with(printed) && end.ends_with("PASS"),
        "not what was printed: {}",
        outcome.stdout
    );
    Ok(())
}

fn clusters(context: &mut Context) -> Result<()> {
    let mut run = command(&context.sandbox, &["run", "--device", "cuda", "--"])?;
    run.arg(Installation::get().programs.join("machine_code"));
    run.args(["--rounds", "1", "--clusters", "1"]);
    let told = Running::run(run, PATIENCE)?.success("run")?.stdout;
    // The stand-in has parts of 18 and of 16 multiprocessors: not as many clusters as all of them together would hold.
    for line in [
        "clusters of 2: 66\n",
        "clusters of 7: 16\n",
        "clusters of 18: 2\n",
        "largest: 16\n",
    ] {
        ensure!(told.contains(line), "no {line:?} in {told}");
    }
    Ok(())
}

fn bound_kernels(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = Installation::get().programs.join("machine_code");
    let archive = dump(sandbox, &[program.into()], &[])?;
    let ask = |words: &[&str]| -> Result<Outcome> {
        let mut command = command(sandbox, words)?;
        command.arg(&archive);
        Running::run(command, PATIENCE)
    };
    let inspected = ask(&["inspect"])?.success("inspect")?.stdout;
    let is_bound = |line: &str| line.contains("native code   sm_") && line.contains("keep");
    ensure!(inspected.lines().any(is_bound), "inspect: {inspected}");
    let elsewhere = ask(&["check", "--device", "cpu"])?;
    ensure!(
        elsewhere.code == 1 && elsewhere.text().contains("kernels only for some GPUs (sm_"),
        "check: {}",
        elsewhere.text()
    );
    Ok(())
}
