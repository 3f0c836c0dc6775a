//! Dumps that let the program run on while device memory is written.

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{MEMORY_HOG, Program};
use hetckpt_e2e::runner::{Context, Test};

/// With so much memory that writing it takes a while.
const HOLDER: Program = Program {
    arguments: &["--mib", "256", "--sleeps", "1"],
    ..MEMORY_HOG
};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("live_dumps_keep_memory_as_it_was", |context| {
            as_it_was(context, &HOLDER)
        }),
        Test::new("live_dumps_of_memory_that_is_written_again_and_again", |context| {
            as_it_was(context, &Program::of_the_ten("scan")?)
        }),
        Test::new("live_dumps_of_a_kernel_that_stays", |context| {
            as_it_was(context, &Program::of_the_ten("persistent")?)
        }),
        Test::new("live_dumps_of_what_is_suspended", suspended),
        Test::new("live_dumps_are_refused_where_nothing_runs_on", refused),
    ]
}

/// Dumps the program twice while it runs, the second time what has changed, and restores both after its end.
fn as_it_was(context: &mut Context, program: &Program) -> Result<()> {
    let sandbox = &context.sandbox;
    calibration::until_long_enough(&Installation::from_device(), program, 1, |baseline| {
        let [whole, changed] = ["whole.hetsnap", "changed.hetsnap"].map(|name| sandbox.path(name));
        let mut job = Job::start(sandbox, &program.command(baseline.length))?;
        job.wait_for_kernel()?;
        for (archive, parent) in [(&whole, None), (&changed, Some(&whole))] {
            let mut command = hetckpt::command(sandbox, ["dump", "--leave-running", "--live", "--json", "--force"]);
            command.args(["--pid", &job.pid().to_string(), "-o"]).arg(archive);
            if let Some(parent) = parent {
                command.arg("--parent").arg(parent);
            }
            let dumped = Running::run(command, PATIENCE)?;
            if dumped.code != 0 && dumped.stdout.contains("HK0801") {
                // It had come to its end.
                return Ok(None);
            }
            let said: serde_json::Value = serde_json::from_str(&dumped.success("dump --live")?.stdout)?;
            ensure!(said["seconds"]["stopped"].as_f64() > Some(0.0), "{said}");
        }
        let ended = job.finish()?;
        ensure!(ended == baseline.outcome, "it was to run on: {}", ended.text());
        for archive in [&whole, &changed] {
            hetckpt::inspect(sandbox, archive)?;
            let restored = hetckpt::restore(sandbox, archive, &Installation::to_device())?.wait(PATIENCE)?;
            ensure!(
                restored.code == 0 && baseline.outcome.stdout.ends_with(&restored.stdout),
                "{}: {}",
                archive.display(),
                restored.text()
            );
            ensure!(
                !restored.stdout.is_empty(),
                "{} had nothing left to do",
                archive.display()
            );
        }
        Ok(Some(()))
    })
}

fn suspended(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let baseline = calibration::baseline(&HOLDER)?;
    let archive = sandbox.path("x.hetsnap");
    let mut job = Job::start(sandbox, &HOLDER.command(baseline.length))?;
    job.wait_for_kernel()?;
    let pid = job.pid().to_string();
    hetckpt::run(sandbox, ["suspend", "--pid", &pid])?.success("suspend")?;
    let mut command = hetckpt::command(sandbox, ["dump", "--leave-running", "--live", "--pid", &pid, "-o"]);
    command.arg(&archive);
    Running::run(command, PATIENCE)?.success("dump --live")?;
    hetckpt::run(sandbox, ["resume", "--pid", &pid])?.success("resume")?;
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "it was to go on: {}", ended.text());
    hetckpt::inspect(sandbox, &archive)?;
    let restored = hetckpt::restore(sandbox, &archive, &Installation::to_device())?.wait(PATIENCE)?;
    let is_right = restored.code == 0 && restored.stdout == baseline.outcome.stdout;
    ensure!(is_right, "{}", restored.text());
    Ok(())
}

fn refused(context: &mut Context) -> Result<()> {
    for more in [
        &["-o", "x.hetsnap"][..],
        &["-o", "-", "--leave-running"],
        &["-o", "file:///x/1.hetsnap", "--leave-running"],
    ] {
        let arguments = ["dump", "--pid", "1", "--live"].iter().chain(more);
        let outcome = hetckpt::run(&context.sandbox, arguments)?;
        ensure!(
            outcome.code == 2 && outcome.stderr.contains("--l"),
            "{more:?}: {}",
            outcome.text()
        );
    }
    Ok(())
}
