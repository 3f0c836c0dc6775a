//! The memory of a program that moves, its own and its devices': it goes to the other node as it is dumped, past this
//! node's disk, and may be broken off at any byte.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{MEMORY_HOG, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::node::{Node, Serve};
use super::source::Source;

/// Most that may lie on the source's disk: the files that are carried, CRIU's log and small images.
const MOST_SCRATCH_BYTES: u64 = 24 << 20;
/// For how long the network is away.
const CUT: Duration = Duration::from_millis(500);

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("memory_is_sent_past_the_disk", past_the_disk)];
    for (memory, name) in [(Memory::Own, "the_memory"), (Memory::Devices, "device_memory")] {
        for what in [Break::Criu, Break::Migrate, Break::Serve] {
            let name = format!("{what:?}_killed_amid_{name}").to_lowercase();
            tests.push(Test::new(name, move |_| broken(what, memory)));
        }
    }
    tests
}

const fn holding(arguments: &'static [&'static str]) -> Program {
    Program {
        arguments,
        // Machines with much else to do take this long to ask the target. Whoever waits for its end hurries it.
        lasts: 40,
        ..MEMORY_HOG
    }
}

/// What is sent then: 200 MiB that do not compress.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Own,
    Devices,
}

impl Memory {
    fn program(self) -> Program {
        match self {
            Self::Own => holding(&["--mib", "8", "--host-mib", "200", "--sleeps", "1"]),
            Self::Devices => holding(&["--mib", "200", "--host-mib", "8", "--sleeps", "1"]),
        }
    }

    /// True when some of it has been sent; `source` is on `sandbox`.
    fn is_on_its_way(self, sandbox: &Sandbox, source: &Source) -> bool {
        match self {
            Self::Own => has_image(sandbox, &format!("pagemap-{}.img", source.own_name())),
            Self::Devices => {
                let name = format!("hetgpu-{}.mem", source.own_name());
                let has_open = |pid: &i32| {
                    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
                    let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
                    links.any(|link| link.ends_with(&name))
                };
                // Who reads it, and who writes it.
                sandbox.processes().iter().filter(|pid| has_open(pid)).count() == 2
            }
        }
    }

    /// True when it has been sent.
    fn is_over(self, sandbox: &Sandbox) -> bool {
        match self {
            Self::Own => has_image(sandbox, "inventory.img"),
            Self::Devices => images(sandbox).iter().any(|(path, _)| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.ends_with(".state.zst"))
            }),
        }
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Break {
    Criu,
    Migrate,
    Serve,
}

/// The program, once its memory has been filled and its long kernel runs.
fn filled<'a>(sandbox: &'a Sandbox, program: &Program) -> Result<Source<'a>> {
    let source = Source::start(sandbox, program, "cpu")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let row = hetckpt::ps_row(sandbox, source.pid)?.context("the program has ended")?;
        if row["kernels"].to_string().contains("paced") {
            return Ok(source);
        }
        ensure!(Instant::now() < deadline, "its long kernel does not come to run: {row}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// For measurements: `HETCKPT_MEMORY_MIB` of memory, and `HETCKPT_DEVICE_MEMORY_MIB` of device memory.
fn past_the_disk(context: &mut Context) -> Result<()> {
    let given = |variable: &str, default: &str| std::env::var(variable).unwrap_or(default.to_owned());
    let own = given("HETCKPT_MEMORY_MIB", "200");
    let devices = given("HETCKPT_DEVICE_MEMORY_MIB", "100");
    let arguments = [
        "--mib",
        devices.clone().leak(),
        "--host-mib",
        own.clone().leak(),
        "--sleeps",
        "1",
    ];
    let program = holding(Vec::from(arguments).leak());
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let _serve = node.serve(&["--device", "cpu"])?;
    let source = filled(sandbox, &program)?;
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
        "{own} MiB and {devices} MiB of device memory: stopped for {:.2} s, all sent after {:.2} s of them; {most_bytes} bytes at most on the source's disk",
        seconds("stopped"),
        seconds("stopped") - seconds("confirmation") - seconds("restore")
    ));
    let has = |start: &str| seen.iter().any(|name| name.starts_with(start));
    ensure!(has("pagemap-") && !has("pages-"), "on the source's disk were {seen:?}");
    ensure!(
        most_bytes < MOST_SCRATCH_BYTES,
        "{most_bytes} bytes were on the source's disk"
    );
    let memory_bytes = (own.parse::<u64>()? + devices.parse::<u64>()?) << 20;
    ensure!(report["archive_bytes"].as_u64() > Some(memory_bytes), "{report}");
    Ok(())
}

/// The network is gone as the memory is sent, so that CRIU or a device server stands in the middle of it, when somebody
/// is killed.
fn broken(what: Break, memory: Memory) -> Result<()> {
    const ATTEMPTS: u32 = 3;
    for _ in 0..ATTEMPTS {
        if broken_once(&Sandbox::new()?, what, memory)? {
            return Ok(());
        }
    }
    bail!("the memory was never seen on its way")
}

/// False if all was over before it was seen.
fn broken_once(sandbox: &Sandbox, what: Break, memory: Memory) -> Result<bool> {
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", "cpu"])?;
    let source = filled(sandbox, &memory.program())?;
    let mut migration = Running::start(source.migrate(&node)?)?;
    let deadline = Instant::now() + PATIENCE;
    while !memory.is_on_its_way(sandbox, &source) {
        if migration.has_ended()? {
            let outcome = migration.wait(PATIENCE)?;
            ensure!(outcome.code == 0, "no memory is sent: {}", outcome.text());
            return Ok(false);
        }
        ensure!(Instant::now() < deadline, "no memory is sent: {}", migration.said());
    }
    node.set_link(false)?;
    std::thread::sleep(CUT);
    if memory.is_over(sandbox) {
        return Ok(false);
    }
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
    sandbox.wait_until_empty(PATIENCE)?;
    Ok(true)
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

fn has_image(sandbox: &Sandbox, name: &str) -> bool {
    images(sandbox).iter().any(|(path, _)| path.ends_with(name))
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
