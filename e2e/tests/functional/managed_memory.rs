//! Managed memory that lies on the device while kernels run, and in the program's memory while it is used there. On the
//! CPU device that is the user's wish alone, and the same code as on a GPU.

use std::ffi::OsString;

use anyhow::{Result, bail, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::{Attempt, Job, POLL_INTERVAL};
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
/// Areas of managed memory that the program has.
const AREAS: usize = 2;

/// How often an area has come to move.
fn num_by_page(context: &Context) -> usize {
    context.sandbox.logs().matches(BY_PAGE).count()
}

fn run(context: &Context, command: &[OsString]) -> Result<Outcome> {
    let mut run = hetckpt::command(&context.sandbox, ["run", "--device", "cpu", "--"]);
    run.args(command);
    Running::run(run, PATIENCE)
}

fn ensure_by_page(context: &Context) -> Result<()> {
    ensure!(
        num_by_page(context) >= AREAS,
        "it did not move: {}",
        context.sandbox.logs()
    );
    Ok(())
}

/// Dumped twice, so that what a restored program has moves, too. Beside other work it may end before.
fn moves_by_page(context: &mut Context) -> Result<()> {
    for turns in ["24", "96", "384"] {
        if is_dumped_twice(context, turns)? {
            return Ok(());
        }
    }
    bail!("it keeps ending too early, or does not move again")
}

fn is_dumped_twice(context: &mut Context, turns: &str) -> Result<bool> {
    let mut command = program::command("managed", &["--n", "1500000", "--turns", turns, "--rounds", "100"]);
    context.sandbox.set("HETCKPT_MANAGED_MEMORY", "host");
    let expected = run(context, &command)?;
    context.sandbox.set("HETCKPT_MANAGED_MEMORY", "device");
    context.sandbox.set("HETCKPT_LOG", "info");
    command.push("--progress".into());
    let mut job = Job::start_with(&context.sandbox, &command, "cpu", |_| ())?;
    let before = num_by_page(context);
    for times in 1..=2 {
        // Once more since it was restored.
        while num_by_page(context) < before + times * AREAS && !job.has_ended()? {
            std::thread::sleep(POLL_INTERVAL);
        }
        job = match job.try_dump()? {
            Attempt::Dumped(dumped) => dumped.restore_on("cpu")?,
            Attempt::Ended(outcome) => {
                ensure_same(&outcome, &expected)?;
                ensure_by_page(context)?;
                return Ok(false);
            }
        };
    }
    ensure_same(&job.finish()?, &expected)?;
    Ok(true)
}

fn ensure_same(outcome: &Outcome, expected: &Outcome) -> Result<()> {
    ensure!(
        (outcome.code, &outcome.stdout) == (0, &expected.stdout) && expected.code == 0,
        "{}\n{}",
        outcome.text(),
        expected.text()
    );
    Ok(())
}

fn used_while_kernels_run(context: &mut Context) -> Result<()> {
    const ARGUMENTS: [&str; 8] = ["--n", "200000", "--turns", "6", "--rounds", "4000", "--beside", "300"];
    context.sandbox.set("HETCKPT_MANAGED_MEMORY", "device");
    context.sandbox.set("HETCKPT_LOG", "info");
    let outcome = run(context, &program::command("managed", &ARGUMENTS))?;
    ensure!(outcome.code == 0, "{}", outcome.text());
    ensure_by_page(context)
}
