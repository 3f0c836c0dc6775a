//! Archives that borrow from earlier ones of the program.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::{MEMORY_HOG, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

/// With so much memory, of the device and its own, that it outweighs all else in an archive. It does not compress.
const HOLDER: Program = Program {
    arguments: &["--mib", "64", "--host-mib", "64", "--sleeps", "1"],
    ..MEMORY_HOG
};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("chain_of_archives_is_restored_and_merged", chain),
        Test::new("archive_that_is_borrowed_from_is_not_replaced", not_replaced),
    ]
}

fn dump(sandbox: &Sandbox, pid: i32, archive: &Path, parent: Option<&Path>, more: &[&str]) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, ["dump", "--pid", &pid.to_string(), "-o"]);
    command.arg(archive).args(more);
    if let Some(parent) = parent {
        command.arg("--parent").arg(parent);
    }
    Running::run(command, PATIENCE)
}

fn restore(sandbox: &Sandbox, archive: &Path) -> Result<Outcome> {
    hetckpt::restore(sandbox, archive, &Installation::to_device())?.wait(PATIENCE)
}

/// A folder that the tested user may write to.
fn folder(sandbox: &Sandbox) -> Result<PathBuf> {
    let folder = sandbox.path("archives");
    fs::create_dir(&folder)?;
    sandbox.give(&folder)?;
    Ok(folder)
}

fn chain(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let folder = folder(sandbox)?;
    let [first, second, third, merged] = ["first", "second", "third", "merged"].map(|name| folder.join(name));
    let baseline = calibration::baseline(&HOLDER)?;
    let mut job = Job::start(sandbox, &HOLDER.command(baseline.length))?;
    job.wait_for_kernel()?;
    let pid = job.pid();
    dump(sandbox, pid, &first, None, &["--leave-running"])?.success("dump")?;
    dump(sandbox, pid, &second, Some(&first), &["--leave-running"])?.success("dump --parent")?;
    dump(sandbox, pid, &third, Some(&second), &["--verify"])?.success("dump --parent of a chain")?;
    let printed = job.finish()?.stdout;
    let ensure_right = |outcome: &Outcome| {
        let is_right = outcome.code == 0 && printed.clone() + &outcome.stdout == baseline.outcome.stdout;
        ensure!(is_right, "{}", outcome.text());
        Ok(())
    };
    for archive in [&second, &third] {
        let (size, whole) = (fs::metadata(archive)?.len(), fs::metadata(&first)?.len());
        ensure!(
            size < whole / 16,
            "{} has {size} bytes, the whole one {whole}",
            archive.display()
        );
        let inspected = hetckpt::inspect(sandbox, archive)?;
        let parents = inspected["parents"].as_array().context("no parents")?;
        ensure!(parents.iter().any(|parent| parent["file"] == "first"), "{parents:?}");
    }
    ensure_right(&restore(sandbox, &third)?)?;

    let away = folder.join("away");
    fs::rename(&first, &away)?;
    for verb in ["check", "restore", "merge"] {
        let mut command = hetckpt::command(sandbox, [verb]);
        match verb {
            "merge" => command.arg("-o").arg(&merged),
            _ => command.args(["--device", "cpu"]),
        };
        command.arg(&third);
        let refused = Running::run(command, PATIENCE)?;
        let text = refused.text();
        ensure!(
            refused.code != 0 && text.contains("HK0712") && text.contains("first"),
            "{verb}: {text}"
        );
    }
    ensure!(!merged.exists(), "a merge that failed left an archive");
    fs::rename(&away, &first)?;

    let mut command = hetckpt::command(sandbox, ["merge", "--verify", "--json", "-o"]);
    command.arg(&merged).arg(&third);
    Running::run(command, PATIENCE)?.success("merge")?;
    for archive in [&first, &second, &third] {
        fs::remove_file(archive)?;
    }
    hetckpt::inspect(sandbox, &merged)?;
    ensure_right(&restore(sandbox, &merged)?)
}

fn not_replaced(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let archive = folder(sandbox)?.join("job.hetsnap");
    let baseline = calibration::baseline(&HOLDER)?;
    let mut job = Job::start(sandbox, &HOLDER.command(baseline.length))?;
    job.wait_for_kernel()?;
    let pid = job.pid();
    dump(sandbox, pid, &archive, None, &["--leave-running"])?.success("dump")?;
    let before = fs::read(&archive)?;
    let refused = dump(sandbox, pid, &archive, Some(&archive), &["--force"])?;
    ensure!(
        refused.code == 1 && refused.stderr.contains("the new archive borrows from it"),
        "{}",
        refused.text()
    );
    let streamed = dump(sandbox, pid, Path::new("-"), Some(&archive), &["--end-unverified"])?;
    ensure!(
        streamed.code == 2 && streamed.stderr.contains("'--parent'"),
        "{}",
        streamed.text()
    );
    ensure!(fs::read(&archive)? == before, "the archive has changed");
    let ended = job.finish()?;
    ensure!(
        ended == baseline.outcome,
        "the program did not run on: {}",
        ended.text()
    );
    Ok(())
}
