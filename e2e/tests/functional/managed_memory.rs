//! Managed memory that lies on the device while kernels run, and in the program's memory while it is used there. On the
//! CPU device that is the user's wish alone, and the same code as on a GPU.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program;
use hetckpt_e2e::runner::{Context, Test};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("managed_memory_moves_by_page", moves_by_page)
            .also_needs(Requirement::Root)
            .also_needs(Requirement::MovingPages),
        Test::new("managed_memory_used_while_kernels_run", used_while_kernels_run)
            .also_needs(Requirement::Root)
            .also_needs(Requirement::MovingPages),
    ]
}

const BY_PAGE: &str = "managed memory moves by page";

fn run(context: &Context, command: &[OsString]) -> Result<Outcome> {
    let mut run = hetckpt::command(&context.sandbox, ["run", "--device", "cpu", "--"]);
    run.args(command);
    Running::run(run, PATIENCE)
}

fn ensure_by_page(context: &Context) -> Result<()> {
    let logs = context.sandbox.logs();
    ensure!(logs.contains(BY_PAGE), "it did not move: {logs}");
    Ok(())
}

/// Dumped twice, so that what a restored program has moves, too.
fn moves_by_page(context: &mut Context) -> Result<()> {
    const ARGUMENTS: [&str; 6] = ["--n", "1500000", "--turns", "24", "--rounds", "100"];
    let mut command = program::command("managed", &ARGUMENTS);
    let expected = run(context, &command)?;
    context.sandbox.set("HETCKPT_MANAGED_MEMORY", "device");
    context.sandbox.set("HETCKPT_LOG", "info");
    command.push("--progress".into());
    let mut job = Job::start_with(&context.sandbox, &command, "cpu", |_| ())?;
    for turn in [2, 8] {
        job.wait_for_stderr(&format!("turn {turn}\n"))?;
        ensure_by_page(context)?;
        job = job.dump()?.restore_on("cpu")?;
    }
    let outcome = job.finish()?;
    ensure!(
        (outcome.code, &outcome.stdout) == (0, &expected.stdout) && expected.code == 0,
        "{}\n{}",
        outcome.text(),
        expected.text()
    );
    ensure_by_page(context)
}

fn used_while_kernels_run(context: &mut Context) -> Result<()> {
    const ARGUMENTS: [&str; 8] = ["--n", "200000", "--turns", "6", "--rounds", "4000", "--beside", "300"];
    context.sandbox.set("HETCKPT_MANAGED_MEMORY", "device");
    context.sandbox.set("HETCKPT_LOG", "info");
    let outcome = run(context, &program::command("managed", &ARGUMENTS))?;
    ensure!(outcome.code == 0, "{}", outcome.text());
    ensure_by_page(context)
}
