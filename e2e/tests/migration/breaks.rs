//! Either end is killed, or the network between them goes, at moments drawn at random and at those that matter. Whatever breaks, the
//! program ends right on exactly one of the two.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::calibration::{self, Baseline};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::SPIN;
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::Signal;

use crate::node::{DEPOT, Node};
use crate::source::Source;

/// A migration takes less, mostly.
const LONGEST_WAIT_US: u64 = 2_500_000;
/// For how long the network is away.
const CUT: Duration = Duration::from_millis(700);

/// The tests.
pub fn tests() -> Vec<Test> {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    let count = given.and_then(|text| text.parse().ok()).unwrap_or(4);
    vec![
        Test::new("migrations_broken_at_random_moments_lose_nothing", move |context| {
            at_random(context, count)
        })
        .times(1 + count / 10),
        Test::new("migrate_killed_behind_its_decision", behind_decision),
        Test::new("migrate_killed_before_its_decision", before_decision),
        Test::new("serve_killed_while_it_restores", serve_killed),
        Test::new("serve_away_when_the_program_is_released", serve_away),
    ]
}

/// What breaks.
#[derive(Clone, Copy, Debug)]
enum Break {
    Migrate,
    Serve,
    Both,
    Network,
}

/// Where programs ended.
#[derive(Debug, Default)]
struct Tally {
    here: u32,
    there: u32,
}

const SERVE: [&str; 2] = ["--device", "cpu"];

fn at_random(context: &mut Context, count: u32) -> Result<()> {
    let baseline = calibration::baseline(&SPIN)?;
    let mut tally = Tally::default();
    for round in 0..count {
        let what = [Break::Migrate, Break::Serve, Break::Network, Break::Both][round as usize % 4];
        let delay = Duration::from_micros(context.random.below(LONGEST_WAIT_US));
        broken_once(context, &baseline, what, delay, &mut tally)
            .with_context(|| format!("round {round}: {what:?} broken {delay:?} after the start"))?;
    }
    context.note(format!(
        "{count} migrations broken: {} programs ended here, {} on the other node",
        tally.here, tally.there
    ));
    Ok(())
}

fn broken_once(context: &Context, baseline: &Baseline, what: Break, delay: Duration, tally: &mut Tally) -> Result<()> {
    let sandbox = &context.sandbox;
    let _ = fs::remove_dir_all(sandbox.path("node"));
    let node = Node::new(sandbox)?;
    let mut serve = node.serve(&SERVE)?;
    let source = Source::start_again(sandbox, &SPIN, "cpu", baseline.clone())?;
    let migration = Running::start(source.migrate(&node)?)?;
    std::thread::sleep(delay);
    if matches!(what, Break::Migrate | Break::Both) {
        // It may be done.
        let _ = migration.signal(Signal::SIGKILL);
    }
    if matches!(what, Break::Serve | Break::Both) {
        serve.kill()?;
        std::thread::sleep(CUT);
        serve = node.serve(&SERVE)?;
    }
    if matches!(what, Break::Network) {
        node.set_link(false)?;
        std::thread::sleep(CUT);
        node.set_link(true)?;
    }
    let migrated = migration.wait(PATIENCE)?;
    ends_once(&node, source, tally).with_context(|| format!("migrate: {}\nserve: {}", migrated.text(), serve.said()))
}

/// Waits until the program has ended, and makes sure that it did so right, and once.
fn ends_once(node: &Node<'_>, source: Source<'_>, tally: &mut Tally) -> Result<()> {
    let expected = source.baseline.outcome.clone();
    let here = source.wait()?;
    if here == expected {
        tally.here += 1;
        // What the target holds is withdrawn; until then it is not started.
        return node.ensure_has_nothing().context("the program has ended here");
    }
    ensure!(here.code == 128 + 9, "here: {}", here.text());
    let records = wait_for_one(node)?;
    let [(record, printed)] = &records[..] else {
        bail!("the program is nowhere, or twice: {records:?}");
    };
    let is_right = record["status"] == 0 || record["status"].is_null();
    ensure!(
        is_right && here.stdout + printed == expected.stdout,
        "there: {record}: {printed}"
    );
    tally.there += 1;
    Ok(())
}

/// Waits until a program has come and ended.
fn wait_for_one(node: &Node<'_>) -> Result<Vec<(serde_json::Value, String)>> {
    let deadline = Instant::now() + PATIENCE;
    while node.records().is_empty() {
        ensure!(Instant::now() < deadline, "no program comes");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.wait_for(&["ended", "failed"])
}

/// Waits until the migration has made a file of this name in its scratch folder; false if it never does.
fn wait_for_scratch(context: &Context, name: &str, migration: &mut Running) -> Result<Option<PathBuf>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let folders = fs::read_dir(context.sandbox.path(""))?
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
    let source = Source::start(&context.sandbox, &SPIN, "cpu")?;
    let mut migration = Running::start(source.migrate(&node)?)?;
    let decision = wait_for_scratch(context, "released", &mut migration)?;
    ensure!(decision.is_some(), "{}", migration.said());
    migration.signal(Signal::SIGKILL)?;
    let mut tally = Tally::default();
    ends_once(&node, source, &mut tally)?;
    ensure!(tally.there == 1, "what was released ran on here");
    context.sandbox.wait_until_empty(PATIENCE)
}

/// The guardian lets the program run on, and the target forgets it.
fn before_decision(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &SPIN, "cpu")?;
    let mut migration = Running::start(source.migrate(&node)?)?;
    let images = wait_for_scratch(context, "images/inventory.img", &mut migration)?;
    ensure!(images.is_some(), "{}", migration.said());
    migration.signal(Signal::SIGKILL)?;
    let mut tally = Tally::default();
    ends_once(&node, source, &mut tally).with_context(|| serve.said())?;
    ensure!(tally.here == 1, "what was not released ran there");
    context.sandbox.wait_until_empty(PATIENCE)
}

/// The restore goes on without it; the one that is started after it sees to the program's end.
fn serve_killed(context: &mut Context) -> Result<()> {
    let node = Node::new(&context.sandbox)?;
    let serve = node.serve(&SERVE)?;
    let source = Source::start(&context.sandbox, &SPIN, "cpu")?;
    let migration = Running::start(source.migrate(&node)?)?;
    serve.wait_for(": released")?;
    serve.kill()?;
    let _serve = node.serve(&SERVE)?;
    let outcome = migration
        .wait(PATIENCE)?
        .success("migrate, with a serve that is killed")?;
    let mut tally = Tally::default();
    ends_once(&node, source, &mut tally).with_context(|| outcome.text())?;
    ensure!(tally.there == 1, "what was released ran on here");
    Ok(())
}

/// The target is killed as the program is released: it learns of that from the source, or, once it is given up on, from a person.
fn serve_away(context: &mut Context) -> Result<()> {
    for patience in ["60", "0"] {
        let _ = fs::remove_dir_all(context.sandbox.path("node"));
        let node = Node::new(&context.sandbox)?;
        let serve = node.serve(&SERVE)?;
        let source = Source::start(&context.sandbox, &SPIN, "cpu")?;
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
        let mut tally = Tally::default();
        ends_once(&node, source, &mut tally).with_context(|| outcome.text())?;
        ensure!(tally.there == 1, "what was released ran on here");
        drop(returned);
    }
    Ok(())
}
