//! Each who takes part in a migration, on either node, is killed, or hangs for a while, the network goes, and disks
//! fill up, at random moments.
//!
//! Afterwards the program has ended right at the source, or on the target, or `hetckpt restore` of the archive there
//! brings it to its right end. Never two of them, never none, and nothing else is left. Only who has lost its device
//! server, or was itself killed, need not come to its end; then the target has nothing of it.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::actors::{Actor, Disk, INJECTED, strike};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::{PACED, Program as TestProgram};
use hetckpt_e2e::runner::{Context, Test};

use super::breaks::SERVE;
use super::ends::{End, ends_once};
use super::node::{DEPOT, Node, Serve};
use super::source::Source;

/// For how long who hangs does.
const HANG: Duration = Duration::from_millis(1500);
/// For how long the network, or a killed `serve`, is away.
const AWAY: Duration = Duration::from_millis(700);
/// Tries for each repeat: some moments come when nobody is left to break.
const ATTEMPTS: u32 = 12;
/// How often the time is halved within which the moment of the next try lies.
const MOST_HALVINGS: u32 = 8;
/// How often the program is made longer after it was over before it could be stopped.
const MOST_DOUBLINGS: u32 = 5;
/// At work long enough to be found so, and no longer.
const SHORT: TestProgram = TestProgram { lasts: 5, ..PACED };
/// Exit code of a test program that has met a CUDA error.
const CUDA_ERROR: i32 = 2;
/// And of one whose standard output did not take its result.
const UNTOLD: i32 = 3;

/// Who.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// One at the source; its command line is `hetckpt migrate`.
    Here(Actor),
    /// One at the target; its command line is the `hetckpt restore` that `serve` starts.
    There(Actor),
    /// `hetckpt serve`. Where it is killed it is started again.
    Serve,
}

/// What breaks.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed(&'static [Part]),
    Hangs(Part),
    NetworkCut,
    /// The target's folder.
    DepotFull,
    /// The source's folder of images.
    ScratchFull,
}

use Actor::{Cli, Criu, Program, Server};
use Fault::{DepotFull, Hangs, Killed, NetworkCut, ScratchFull};
use Part::{Here, There};

/// Faults, and within how much of a migration's time, in percent, from when there is somebody to break.
const FAULTS: [(&str, Fault, u32); 20] = [
    ("migrate_killed", Killed(&[Here(Cli)]), 100),
    ("serve_killed", Killed(&[Part::Serve]), 100),
    ("migrate_and_serve_killed", Killed(&[Here(Cli), Part::Serve]), 100),
    ("source_criu_killed", Killed(&[Here(Criu)]), 6),
    ("migrate_and_source_criu_killed", Killed(&[Here(Cli), Here(Criu)]), 40),
    ("source_server_killed", Killed(&[Here(Server)]), 70),
    ("program_killed", Killed(&[Here(Program)]), 70),
    ("restore_killed", Killed(&[There(Cli)]), 30),
    ("target_criu_killed", Killed(&[There(Criu)]), 12),
    ("target_server_killed", Killed(&[There(Server)]), 4),
    ("migrate_hangs", Hangs(Here(Cli)), 100),
    ("serve_hangs", Hangs(Part::Serve), 100),
    ("source_criu_hangs", Hangs(Here(Criu)), 6),
    ("source_server_hangs", Hangs(Here(Server)), 70),
    ("restore_hangs", Hangs(There(Cli)), 30),
    ("target_criu_hangs", Hangs(There(Criu)), 12),
    ("target_server_hangs", Hangs(There(Server)), 4),
    ("network_is_cut", NetworkCut, 100),
    ("target_disk_fills_up", DepotFull, 100),
    ("source_disk_fills_up", ScratchFull, 40),
];

/// The tests: one for each fault, with as many repeats as `HETCKPT_PREEMPTIONS` says.
pub fn tests() -> Vec<Test> {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    let repeats: u32 = given.and_then(|text| text.parse().ok()).unwrap_or(1);
    let all = FAULTS.into_iter().map(|(name, fault, percent)| {
        Test::new(format!("migration_{name}"), move |context| {
            broken(context, fault, percent, repeats)
        })
    });
    all.map(|test| test.times(1 + repeats / 10)).collect()
}

impl Fault {
    fn kills(self, part: Part) -> bool {
        matches!(self, Killed(parts) if parts.contains(&part))
    }

    /// True if a program that has met it may end with `code`.
    fn may_end_with(self, code: i32) -> bool {
        match code {
            CUDA_ERROR => self.kills(Here(Server)) || self.kills(There(Server)),
            // What a program prints there lies on the same disk.
            UNTOLD => matches!(self, DepotFull),
            // Killed while the program runs code of CRIU's, it leaves the program there.
            _ if INJECTED.contains(&code) => self.kills(Here(Criu)),
            _ => code == 128 + 9 && self.kills(Here(Program)),
        }
    }
}

/// A program that moves, and what it moves between.
struct Migration<'a> {
    node: Node<'a>,
    serve: Option<Serve>,
    source: Source<'a>,
    migrate: Running,
    /// The disk that is to fill up.
    disk: Option<Disk>,
}

impl<'a> Migration<'a> {
    fn start(context: &'a Context, baseline: &Baseline, fault: Fault) -> Result<Self> {
        let sandbox = &context.sandbox;
        let _ = fs::remove_dir_all(sandbox.path("node"));
        let node = Node::new(sandbox)?;
        let scratch = sandbox.path("scratch");
        let disk = match fault {
            DepotFull => Some(node.mount_depot()?),
            ScratchFull => {
                fs::create_dir_all(&scratch)?;
                Some(Disk::mount(&scratch)?)
            }
            _ => None,
        };
        let serve = node.serve(&SERVE)?;
        let source = Source::start_again(sandbox, &SHORT, "cpu", baseline.clone())?;
        let migrate = Running::start(source.migrate(&node)?)?;
        Ok(Self {
            node,
            serve: Some(serve),
            source,
            migrate,
            disk,
        })
    }

    fn find(&self, parts: &[Part]) -> Vec<i32> {
        let one = |part: &Part| match *part {
            Here(actor) => actor.find(&self.node.processes_here(), self.migrate.pid(), self.source.pid),
            There(Cli) => self.node.restore(),
            // Before it, a device server only tells what devices there are.
            There(actor) => self
                .node
                .restore()
                .and_then(|_| actor.find(&self.node.processes(), 0, 0)),
            Part::Serve => self.serve.as_ref().map(|serve| serve.pid),
        };
        parts.iter().filter_map(one).collect()
    }

    /// Waits until one of `parts` is there, and then for `delay`; false if the migration ends first.
    fn wait_for(&mut self, parts: &[Part], delay: Duration) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        while !parts.is_empty() && self.find(parts).is_empty() {
            if self.migrate.has_ended()? {
                return Ok(false);
            }
            ensure!(Instant::now() < deadline, "none of {parts:?} turns up");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        Ok(!self.migrate.has_ended()?)
    }

    /// Breaks `fault`, and mends what is not to stay broken. False if there was nothing to break any more.
    fn break_after(&mut self, fault: Fault, delay: Duration) -> Result<bool> {
        let (parts, hang): (&[Part], _) = match &fault {
            Killed(parts) => (parts, None),
            Hangs(part) => (std::slice::from_ref(part), Some(HANG)),
            NetworkCut | DepotFull | ScratchFull => (&[], None),
        };
        if !self.wait_for(parts, delay)? {
            return Ok(false);
        }
        if let Some(disk) = &self.disk {
            disk.fill_after(Duration::ZERO)?;
            std::thread::sleep(AWAY);
            disk.empty()?;
            return Ok(true);
        }
        if matches!(fault, NetworkCut) {
            self.node.set_link(false)?;
            std::thread::sleep(AWAY);
            self.node.set_link(true)?;
            return Ok(true);
        }
        let has_hit = strike(&self.find(parts), hang);
        if fault.kills(Part::Serve)
            && let Some(serve) = self.serve.take()
        {
            // It may be gone by now.
            let _ = serve.kill();
            std::thread::sleep(AWAY);
            self.serve = Some(self.node.serve(&SERVE)?);
        }
        Ok(has_hit)
    }

    /// Sees the program through to its end, wherever that is. Nothing if it came before there was anything to move.
    fn conclude(self, context: &Context, fault: Fault) -> Result<Option<End>> {
        let migrated = self.migrate.wait(PATIENCE)?;
        let said = || {
            format!(
                "migrate: {}\nserve: {}",
                migrated.text(),
                self.serve.as_ref().map_or(String::new(), Serve::said)
            )
        };
        let end = ends_once(&self.node, self.source, |code| fault.may_end_with(code)).with_context(said)?;
        if !fault.kills(Here(Cli)) {
            ensure_truth(&migrated, end).with_context(said)?;
        }
        // `serve` notes the end first, and removes then what it does not need any more.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = left_over(context, &self.node, fault);
            if left.is_empty() {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the program has ended as {end:?}, and left are {left:?}\n{}",
                said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        // One that was over before it could be stopped tells nothing.
        let was_too_late = end == End::Here && migrated.stderr.contains("error[HK0801]");
        Ok((!was_too_late).then_some(end))
    }
}

/// Makes sure that `migrate` has told what became of the program.
fn ensure_truth(migrated: &Outcome, end: End) -> Result<()> {
    let is_said = |part: &str| migrated.stderr.contains(part);
    let is_true = match end {
        End::Here => migrated.code != 0 && !is_said("HK1007") && !is_said("HK1008"),
        End::There => migrated.code == 0,
        End::ByHand => is_said("HK1008"),
        End::ByFault => migrated.code != 0,
        End::ByFaultThere => true,
    };
    ensure!(is_true, "`migrate` tells otherwise, and the end was {end:?}");
    Ok(())
}

/// Files that nobody needs any more, but those that the next command of their kind removes.
fn left_over(context: &Context, node: &Node<'_>, fault: Fault) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let is_known = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_known = path
            .extension()
            .is_some_and(|kind| ["json", "stdout", "stderr"].iter().any(|&known| kind == known));
        is_known
            || name == "serve.lock"
            || fault.kills(There(Cli)) && name.starts_with("hetckpt-restore-")
            || fault.kills(Part::Serve) && name.starts_with("hetckpt-check-")
    };
    let depot = entries(node.reach(DEPOT)).chain(entries(node.reach("/tmp")).filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains("hetckpt-"))
    }));
    let here = entries(context.sandbox.path("scratch")).filter(|_| !fault.kills(Here(Cli)));
    here.chain(depot.filter(|path| !is_known(path))).collect()
}

/// How long a migration takes that nothing breaks: found once.
fn whole(context: &Context) -> Result<Duration> {
    static FOUND: OnceLock<Duration> = OnceLock::new();
    if let Some(&found) = FOUND.get() {
        return Ok(found);
    }
    let took = calibration::until_long_enough("cpu", &SHORT, 1, |baseline| {
        let mut migration = Migration::start(context, baseline, NetworkCut)?;
        let started = Instant::now();
        while !migration.migrate.has_ended()? {
            ensure!(started.elapsed() < PATIENCE, "a migration does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = started.elapsed();
        Ok(migration.conclude(context, NetworkCut)?.map(|_| took))
    })?;
    Ok(*FOUND.get_or_init(|| took))
}

fn broken(context: &mut Context, fault: Fault, percent: u32, repeats: u32) -> Result<()> {
    let mut baseline = calibration::baseline_on("cpu", &SHORT)?;
    let span = whole(context)? * percent / 100;
    let mut random = context.random.clone();
    let mut ends = vec![];
    let (mut misses, mut doublings) = (0, 0);
    for round in 0..repeats * ATTEMPTS {
        if ends.len() >= repeats as usize {
            break;
        }
        let delay = random.moment(span / (1 << misses));
        let one = || -> Result<(bool, Option<End>)> {
            let mut migration = Migration::start(context, &baseline, fault)?;
            let has_hit = migration.break_after(fault, delay)?;
            Ok((has_hit, migration.conclude(context, fault)?))
        };
        match one().with_context(|| format!("round {round}, after {delay:?}"))? {
            (true, Some(end)) => {
                ends.push(end);
                misses = 0;
            }
            // Each time that nobody is left to break, the next moment comes earlier.
            (false, Some(_)) => misses = (misses + 1).min(MOST_HALVINGS),
            (_, None) if doublings < MOST_DOUBLINGS => {
                doublings += 1;
                baseline = calibration::lasting_on("cpu", &SHORT, 1 << doublings)?;
            }
            (_, None) => {}
        }
    }
    let (hits, tries) = (ends.len(), repeats * ATTEMPTS);
    ensure!(
        hits == repeats as usize,
        "{hits} of {tries} tries hit somebody; {repeats} were to"
    );
    // What a migration that was killed has left is gone with the next.
    if fault.kills(Here(Cli)) && fs::read_dir(context.sandbox.path("scratch"))?.count() > 0 {
        let migration = Migration::start(context, &baseline, NetworkCut)?;
        migration.conclude(context, NetworkCut)?;
    }
    let count = |end: End| ends.iter().filter(|&&found| found == end).count();
    context.note(format!(
        "{} hits of {fault:?} in migrations: {} programs ended here, {} there, {} were restored by hand, {} were ended by it here, {} there",
        ends.len(),
        count(End::Here),
        count(End::There),
        count(End::ByHand),
        count(End::ByFault),
        count(End::ByFaultThere)
    ));
    Ok(())
}
