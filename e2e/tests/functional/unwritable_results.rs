//! Verbs whose result nobody can read: what they do, and their exit statuses, are the same.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

/// The test.
pub fn tests() -> Vec<Test> {
    vec![Test::new(
        "results_that_cannot_be_written_change_nothing_else",
        unwritable,
    )]
}

/// Runs hetckpt with `arguments` and a full disk as its stdout.
fn to_full_disk(sandbox: &Sandbox, arguments: &[OsString]) -> Result<Outcome> {
    let hetckpt = hetckpt::command(sandbox, arguments);
    let mut shell = Command::new("sh");
    sandbox.equip(&mut shell);
    shell.args(["-c", "exec \"$@\" >/dev/full", "sh"]);
    shell.arg(hetckpt.get_program()).args(hetckpt.get_args());
    Running::run(shell, PATIENCE)
}

fn unwritable(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let length = calibration::baseline(&PACED)?.length.saturating_mul(500);
    let mut job = Job::start(sandbox, &PACED.command(length))?;
    job.wait_for_kernel()?;
    let pid = job.pid().to_string();
    let missing = sandbox.path("no-such-folder/job.hetsnap").into_os_string();
    let refused = to_full_disk(
        sandbox,
        &[words(&["dump", "--json", "--pid", &pid, "--output"]), vec![missing]].concat(),
    )?;
    ensure!(refused.code == 1 && !job.has_ended()?, "{}", refused.text());

    let folder = sandbox.path("archives");
    fs::create_dir(&folder)?;
    sandbox.give(&folder)?;
    let archive = folder.join("job.hetsnap");
    let dumped = to_full_disk(
        sandbox,
        &[
            words(&["dump", "--json", "--pid", &pid, "--output"]),
            vec![archive.clone().into()],
        ]
        .concat(),
    )?;
    let said = dumped.stderr.contains("the result cannot be written");
    ensure!(dumped.code == 0 && said, "{}", dumped.text());
    let left: Vec<_> = fs::read_dir(&folder)?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    ensure!(left == ["job.hetsnap"], "beside the archive lies more: {left:?}");

    // What only tells something has failed.
    for verb in ["inspect", "check"] {
        let told = to_full_disk(sandbox, &[words(&[verb]), vec![archive.clone().into()]].concat())?;
        ensure!(told.code == 1, "{verb}: {}", told.text());
    }
    let listed = to_full_disk(sandbox, &words(&["devices"]))?;
    ensure!(listed.code == 1, "{}", listed.text());
    Ok(())
}
