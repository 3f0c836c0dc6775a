//! Either end is killed at the moments that matter. The program ends right on exactly one of the two all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::actors::strike;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{PACED, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::user;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::ends::{End, ends_once};
use super::node::{DEPOT, Node};
use super::source::Source;

/// It outlasts what comes before it is stopped on slow machines too.
const LASTING: Program = Program { lasts: 16, ..PACED };

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("migrate_killed_behind_its_decision", behind_decision),
        Test::new("migrate_killed_before_its_decision", before_decision),
        Test::new("serve_killed_while_it_restores", serve_killed),
        Test::new("restore_killed_while_the_program_runs", restore_killed),
        Test::new("target_disk_full_as_the_program_starts", disk_full),
        Test::new("serve_away_when_the_program_is_released", serve_away),
    ]
}

/// What `serve` is told.
pub const SERVE: [&str; 2] = ["--device", "cpu"];

/// Waits until the migration has made a file of this name in its scratch folder; false if it never does.
fn wait_for_scratch(context: &Context, name: &str, migration: &mut Running) -> Result<Option<PathBuf>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let folders = fs::read_dir(context.sandbox.path("scratch"))?
            .flatten()
            .map(|entry| entry.path());
        if let Some(file) = folders.map(|folder| folder.join(name)).find(|file| file.exists()) {
            return Ok(Some(file));
        }
        if migration.has_ended()? || Instant::now() > deadline {
            return Ok(None);
        }
    }
}

/// The guardian ends the program, and tells the target.
fn behind_decision(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let _serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &LASTING, "cpu")?;
    let mut migration = Running::start(source.migrate(&node)?)?;
    let decision = wait_for_scratch(context, "released", &mut migration)?;
    ensure!(decision.is_some(), "{}", migration.said());
    migration.signal(Signal::SIGKILL)?;
    let end = ends_once(&node, source, |_| false)?;
    ensure!(end == End::There, "what was released ran on here");
    context.sandbox.wait_until_empty(PATIENCE)
}

/// The guardian lets the program run on, and the target forgets it.
fn before_decision(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &LASTING, "cpu")?;
    let mut migration = Running::start(source.migrate(&node)?)?;
    let images = wait_for_scratch(context, "images/inventory.img", &mut migration)?;
    ensure!(images.is_some(), "{}", migration.said());
    migration.signal(Signal::SIGKILL)?;
    let end = ends_once(&node, source, |_| false).with_context(|| serve.said())?;
    ensure!(end == End::Here, "what was not released ran there");
    context.sandbox.wait_until_empty(PATIENCE)
}

/// The restore goes on without it; the one that is started after it sees to the program's end.
fn serve_killed(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &LASTING, "cpu")?;
    let migration = Running::start(source.migrate(&node)?)?;
    serve.wait_for(": released")?;
    // Before it has noted which process the restore is, nobody could tell later whether that began.
    let deadline = Instant::now() + PATIENCE;
    while !node.records().iter().any(|(record, _)| record["restore"].is_object()) {
        ensure!(Instant::now() < deadline, "no restore is noted: {}", serve.said());
    }
    serve.kill()?;
    let _serve = node.serve(&SERVE)?;
    let outcome = migration
        .wait(PATIENCE)?
        .success("migrate, with a serve that is killed")?;
    let end = ends_once(&node, source, |_| false).with_context(|| outcome.text())?;
    ensure!(end == End::There, "what was released ran on here");
    Ok(())
}

/// The program goes on without it, and `serve` waits for the program's own end.
fn restore_killed(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &LASTING, "cpu")?;
    Running::run(source.migrate(&node)?, PATIENCE)?.success("migrate")?;
    let restore = node.restore().context("there is no restore")?;
    ensure!(strike(&[restore], None), "it has ended already");
    if user::tested().is_some() {
        // Namespaces end with the command that has made them.
        source.wait()?;
        node.wait_until_empty()?;
        let records = node.wait_for(&["ended"])?;
        return ensure_is_unknown(&records).and_then(|()| serve.wait_for("has ended, nobody knows how"));
    }
    let end = ends_once(&node, source, |_| false)?;
    ensure!(end == End::There, "{}", serve.said());
    serve.wait_for("has ended, nobody knows how")
}

fn ensure_is_unknown(records: &[(Value, String)]) -> Result<()> {
    ensure!(
        matches!(records, [(record, _)] if record["status"].is_null()),
        "the other node has {records:?}"
    );
    Ok(())
}

/// What becomes of the program is written as soon as there is room, and is right.
fn disk_full(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let disk = node.mount_depot()?;
    let serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &LASTING, "cpu")?;
    let migration = Running::start(source.migrate(&node)?)?;
    serve.wait_for(": released")?;
    // From when on the restore has all the room that it needs there.
    let deadline = Instant::now() + PATIENCE;
    while !node
        .held("started")
        .iter()
        .any(|path| path.metadata().is_ok_and(|found| found.len() > 0))
    {
        ensure!(Instant::now() < deadline, "no restore begins: {}", serve.said());
    }
    disk.fill_after(Duration::ZERO)?;
    serve.wait_for("this is tried again")?;
    disk.empty()?;
    migration.wait(PATIENCE)?.success("migrate")?;
    let end = ends_once(&node, source, |_| false)?;
    ensure!(end == End::There, "{}", serve.said());
    Ok(())
}

/// The target is killed as the program is released: it learns of that from the source, or, once it is given up on, from
/// a person.
fn serve_away(context: &mut Context) -> Result<()> {
    for patience in ["60", "0"] {
        let _ = fs::remove_dir_all(context.sandbox.path("node"));
        let node = Node::new(&context.sandbox)?;
        let serve = node.serve(&SERVE)?;
        let source = Source::start(&context.sandbox, &LASTING, "cpu")?;
        let mut migrate = source.migrate(&node)?;
        migrate.args(["--patience", patience]);
        let mut migration = Running::start(migrate)?;
        let decision = wait_for_scratch(context, "released", &mut migration)?;
        ensure!(decision.is_some(), "{}", migration.said());
        serve.kill()?;
        let mut returned = None;
        let outcome = if patience == "60" {
            returned = Some(node.serve(&SERVE)?);
            let outcome = migration.wait(PATIENCE)?;
            outcome.success("migrate, with a serve that comes back")?
        } else {
            migration.wait(PATIENCE)?
        };
        if patience == "0" {
            for part in ["error[HK1007]", "has ended here", "hetckpt restore"] {
                ensure!(
                    outcome.stderr.contains(part),
                    "`{part}` was to be said: {}",
                    outcome.text()
                );
            }
            let expected = source.baseline.outcome.stdout.clone();
            if node.records().iter().any(|(record, _)| record["state"] == "prepared") {
                let here = source.wait()?;
                let held = node.held("hetsnap");
                let archive = held.first().and_then(|path| path.file_name()).context("no archive")?;
                let mut restore = node.hetckpt(["restore", "--device", "cpu"]);
                restore.arg(Path::new(DEPOT).join(archive));
                let there = Running::run(restore, PATIENCE)?.success("restore by hand")?;
                ensure!(here.stdout + &there.stdout == expected, "{}", there.text());
                continue;
            }
        }
        // It was told before it was killed, or is told now.
        if returned.is_none() {
            returned = Some(node.serve(&SERVE)?);
        }
        let end = ends_once(&node, source, |_| false).with_context(|| outcome.text())?;
        ensure!(end == End::There, "what was released ran on here");
        drop(returned);
    }
    Ok(())
}
