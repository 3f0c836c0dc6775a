//! The script that moves a program over ssh, with a remote shell that runs its commands here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::is_gone;

/// The tests.
pub fn tests() -> Vec<Test> {
    use Requirement::{Criu, Privileges, Programs};
    let needs = [Privileges, Criu, Programs];
    vec![
        Test::new("migrate_script_moves_a_program", moves_a_program).needs(&needs),
        Test::new(
            "migrate_script_knows_not_how_a_broken_restore_ended",
            breaks_in_the_restore,
        )
        .needs(&needs),
        Test::new("migrate_script_leaves_what_it_cannot_move", leaves_what_it_cannot_move).needs(&needs),
        Test::new("migrate_script_names_the_archive_of_a_killed_dump", names_the_archive).needs(&needs),
    ]
}

/// Runs the commands as ssh does, and notes who may enter the folders that archives are put in.
const PLAIN: &str = "shift\ncase $1 in *'cat >'*) stat -c %a copies/hetckpt-* >>modes ;; esac\nexec sh -c \"$1\"\n";
/// Breaks once the restore is through, before it can say so.
const BREAKING: &str =
    "shift\ncase $1 in *' restore '*) sh -c \"$1\" >/dev/null; exit 255 ;; esac\nexec sh -c \"$1\"\n";

/// The script for `pid`, with a remote shell of its own.
fn migrate(context: &Context, pid: i32, shell: &str, remote_hetckpt: &Path) -> Result<Outcome> {
    Running::run(script(context, pid, shell, remote_hetckpt)?, hetckpt::PATIENCE)
}

fn program(context: &Context, name: &str, text: &str) -> Result<PathBuf> {
    let path = context.sandbox.path(name);
    executable::write(&path, &format!("#!/bin/sh\n{text}"))?;
    Ok(path)
}

fn script(context: &Context, pid: i32, shell: &str, remote_hetckpt: &Path) -> Result<Command> {
    let remote = program(context, "remote-shell", shell)?;
    let copies = context.sandbox.path("copies");
    fs::create_dir_all(&copies)?;
    context.sandbox.give(&copies)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrate-scripts/ssh/migrate.sh");
    let mut command = Command::new(script);
    context.sandbox.equip(&mut command);
    command.env("HETCKPT", Installation::get().hetckpt());
    command.args(["--device", &Installation::to_device()]);
    command.arg("--remote-shell").arg(remote);
    command.arg("--remote-hetckpt").arg(remote_hetckpt);
    command.arg("--folder").arg(copies);
    command.args([&pid.to_string(), "node"]);
    Ok(command)
}

/// A program in the middle of its work that would run for minutes.
fn start(context: &Context) -> Result<Job<'_>> {
    let length = calibration::baseline(&PACED)?.length.saturating_mul(500);
    let mut job = Job::start(&context.sandbox, &PACED.command(length))?;
    job.wait_for_kernel()?;
    Ok(job)
}

/// The archives in the folders of both nodes.
fn archives(context: &Context) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(context.sandbox.path("copies"))? {
        let archive = folder?.path().join("job.hetsnap");
        found.extend(archive.is_file().then_some(archive));
    }
    Ok(found)
}

/// Twice, as from node to node: what a move leaves for the program does not hold up the next.
fn moves_a_program(context: &mut Context) -> Result<()> {
    let job = start(context)?;
    let mut pid = job.pid();
    for _ in 0..2 {
        let outcome = migrate(context, pid, PLAIN, &Installation::get().hetckpt())?.success("migrate.sh")?;
        pid = outcome.stdout.trim().parse().context("it prints no process id")?;
        ensure!(!is_gone(pid), "the program does not run");
        let rows = hetckpt::ps(&context.sandbox)?;
        ensure!(rows.len() == 1, "one program was to run: {rows:?}");
        let left = archives(context)?;
        ensure!(left.is_empty(), "archives are left: {left:?}");
    }
    let modes = fs::read_to_string(context.sandbox.path("modes"))?;
    ensure!(
        modes.lines().all(|mode| mode == "700"),
        "others may enter the folders: {modes}"
    );
    Ok(())
}

/// The program runs on at the other node, which the script cannot know: it starts nothing, and says how to look.
fn breaks_in_the_restore(context: &mut Context) -> Result<()> {
    let job = start(context)?;
    let outcome = migrate(context, job.pid(), BREAKING, &Installation::get().hetckpt())?;
    ensure!(
        outcome.code == 5 && outcome.stdout.is_empty() && outcome.stderr.contains("it is not known whether"),
        "{}",
        outcome.text()
    );
    ensure!(!outcome.stderr.contains("could not restore"), "{}", outcome.text());
    let rows = hetckpt::ps(&context.sandbox)?;
    ensure!(rows.len() == 1, "one program was to run: {rows:?}");
    let left = archives(context)?;
    ensure!(left.len() == 2, "both nodes were to keep the archive: {left:?}");
    Ok(())
}

/// A node without hetckpt is found before the program is stopped, one whose restore fails when it has been.
fn leaves_what_it_cannot_move(context: &mut Context) -> Result<()> {
    let mut job = start(context)?;
    let outcome = migrate(context, job.pid(), PLAIN, &context.sandbox.path("no-hetckpt"))?;
    ensure!(outcome.code == 1 && !job.has_ended()?, "{}", outcome.text());
    fs::remove_dir(context.sandbox.path("copies")).context("something is left in the folder")?;

    let refusing = program(
        context,
        "refusing",
        "[ \"$1\" = --version ] || { echo refused >&2; exit 125; }\n",
    )?;
    let outcome = migrate(context, job.pid(), PLAIN, &refusing)?;
    let said = |part| outcome.stderr.contains(part);
    ensure!(
        outcome.code == 4 && said("refused\n") && said("could not restore") && archives(context)?.len() == 2,
        "{}",
        outcome.text()
    );
    Ok(())
}

/// Killed when the archive had its name: the program has been ended then.
fn names_the_archive(context: &mut Context) -> Result<()> {
    let job = start(context)?;
    let hetckpt = Installation::get().hetckpt();
    let killed = program(
        context,
        "killed",
        &format!("{} \"$@\" && kill -KILL $$\n", hetckpt.display()),
    )?;
    let mut command = script(context, job.pid(), PLAIN, &hetckpt)?;
    command.env("HETCKPT", killed);
    let outcome = Running::run(command, hetckpt::PATIENCE)?;
    let left = archives(context)?;
    ensure!(
        outcome.code == 4 && left.len() == 1 && outcome.stderr.contains(&*left[0].to_string_lossy()),
        "{left:?}: {}",
        outcome.text()
    );
    Ok(())
}
