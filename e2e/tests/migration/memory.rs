//! The memory of a program that moves: it goes to the other node as CRIU dumps it, past this node's disk, and may be broken off at any byte.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{MEMORY_HOG, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::node::{Node, Serve};
use crate::source::Source;

/// A program with 200 MiB of memory of its own, which does not compress.
const PROGRAM: Program = holding(&["--mib", "8", "--host-mib", "200"]);
/// Most that may lie on the source's disk: device memory, the files that are carried, CRIU's log and small images.
const MOST_SCRATCH_BYTES: u64 = 60 << 20;
/// For how long the network is away.
const CUT: Duration = Duration::from_millis(500);

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("memory_is_sent_past_the_disk", past_the_disk)];
    for what in [Break::Criu, Break::Migrate, Break::Serve] {
        let name = format!("{what:?}_killed_amid_the_memory").to_lowercase();
        tests.push(Test::new(name, move |context| broken(context, what)));
    }
    tests
}

const fn holding(arguments: &'static [&'static str]) -> Program {
    Program {
        arguments,
        lasts: 2,
        ..MEMORY_HOG
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Break {
    Criu,
    Migrate,
    Serve,
}

/// `HETCKPT_MEMORY_MIB` of memory, for measurements.
fn past_the_disk(context: &mut Context) -> Result<()> {
    let given = std::env::var("HETCKPT_MEMORY_MIB").unwrap_or("200".to_owned());
    let arguments = ["--mib", "8", "--host-mib", given.clone().leak()];
    let program = holding(Vec::from(arguments).leak());
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let _serve = node.serve(&["--device", "cpu"])?;
    let source = Source::start_again(sandbox, &program, "cpu", calibration::baseline(&program)?)?;
    let expected = source.baseline.outcome.stdout.clone();
    let mut migrate = source.migrate(&node)?;
    migrate.arg("--json");
    let mut migration = Running::start(migrate)?;
    let (mut most_bytes, mut seen) = (0, BTreeSet::new());
    while !migration.has_ended()? {
        let images = images(sandbox);
        most_bytes = most_bytes.max(images.iter().map(|(_, size)| size).sum());
        let names = images.iter().filter_map(|(path, _)| path.file_name()?.to_str());
        seen.extend(names.map(str::to_owned));
        std::thread::sleep(Duration::from_millis(1));
    }
    let outcome = migration.wait(PATIENCE)?.success("migrate")?;
    let report: Value = serde_json::from_str(&outcome.stdout)?;
    let before = source.wait()?;
    let records = node.wait_for(&["ended"])?;
    let [(record, printed)] = &records[..] else {
        bail!("there are {records:?}");
    };
    ensure!(
        record["status"] == 0 && before.stdout + printed == expected,
        "{record}: {printed}"
    );
    let seconds = |step: &str| report["seconds"][step].as_f64().unwrap_or_default();
    context.note(format!(
        "{given} MiB: stopped for {:.2} s, all sent after {:.2} s of them; {most_bytes} bytes at most on the source's disk",
        seconds("stopped"),
        seconds("stopped") - seconds("confirmation") - seconds("restore")
    ));
    let has = |start: &str| seen.iter().any(|name| name.starts_with(start));
    ensure!(has("pagemap-") && !has("pages-"), "on the source's disk were {seen:?}");
    ensure!(
        most_bytes < MOST_SCRATCH_BYTES,
        "{most_bytes} bytes were on the source's disk"
    );
    let memory_bytes = given.parse::<u64>()? << 20;
    ensure!(report["archive_bytes"].as_u64() > Some(memory_bytes), "{report}");
    Ok(())
}

/// The network is gone as the memory is sent, so that CRIU stands in the middle of it, when somebody is killed.
fn broken(context: &mut Context, what: Break) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", "cpu"])?;
    let source = Source::start_again(sandbox, &PROGRAM, "cpu", calibration::baseline(&PROGRAM)?)?;
    let mut migration = Running::start(source.migrate(&node)?)?;
    let has = |name: &str| {
        let images = images(sandbox);
        images.iter().any(|(path, _)| path.ends_with(name))
    };
    let list = format!("pagemap-{}.img", source.pid);
    let deadline = Instant::now() + PATIENCE;
    while !has(&list) {
        ensure!(
            !migration.has_ended()? && Instant::now() < deadline,
            "no memory is sent: {}",
            migration.said()
        );
    }
    node.set_link(false)?;
    std::thread::sleep(CUT);
    ensure!(!has("inventory.img"), "the dump was over before the network went");
    let killed = killed(what, sandbox, &migration, serve)?;
    std::thread::sleep(CUT);
    node.set_link(true)?;
    let outcome = migration.wait(PATIENCE)?;
    let is_told = outcome.stderr.contains("runs on here") || matches!(what, Break::Migrate);
    ensure!(outcome.code != 0 && is_told, "{}", outcome.text());
    if let Some(serve) = killed {
        node.ensure_has_nothing().with_context(|| serve.said())?;
    }
    source.ensure_runs_on().with_context(|| outcome.text())?;
    sandbox.wait_until_empty(PATIENCE)
}

/// Kills it. Gives `serve`, if it is still there.
fn killed(what: Break, sandbox: &Sandbox, migration: &Running, serve: Serve) -> Result<Option<Serve>> {
    match what {
        Break::Serve => serve.kill().map(|()| None),
        Break::Migrate => migration.signal(Signal::SIGKILL).map(|()| Some(serve)),
        Break::Criu => {
            let is_criu = |&pid: &i32| {
                let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words.split(|&byte| byte == 0).any(|word| word == b"--ps-socket")
            };
            let criu = sandbox.processes().into_iter().find(is_criu);
            kill(Pid::from_raw(criu.context("CRIU is not there")?), Signal::SIGKILL)?;
            Ok(Some(serve))
        }
    }
}

/// What migrations have on this node's disk, with its size.
fn images(sandbox: &Sandbox) -> Vec<(PathBuf, u64)> {
    let list = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let is_scratch = |name: &str| name.starts_with("hetckpt-migrate-");
    list(sandbox.path("scratch"))
        .filter(|entry| entry.file_name().to_str().is_some_and(is_scratch))
        .flat_map(|folder| list(folder.path().join("images")))
        .filter_map(|file| Some((file.path(), file.metadata().ok()?.len())))
        .collect()
}
