//! Each who takes part in a dump or a restore is killed, or hangs for a while, and disks fill up, at random moments.
//!
//! After a dump there is either a complete archive from which the program goes on, or the program runs on. After a
//! restore either the program runs on, or nothing does and the archive, which is as it was, is restored at once. Never
//! both, never neither, and nothing else is left. Only who has lost its device server, or was itself killed, need not
//! come to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::actors::{self, Actor, Disk, INJECTED, strike};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::{self, MEMORY_HOG, PACED};
use hetckpt_e2e::random::Random;
use hetckpt_e2e::runner::{Context, Test};

/// For how long who hangs does.
const HANG: Duration = Duration::from_millis(1500);
/// A dump takes less, mostly.
const DUMP_TIME: Duration = Duration::from_millis(500);
/// Tries for each repeat: some moments come when nobody is left to break.
pub(super) const ATTEMPTS: u32 = 8;
/// How often the time is halved within which the moment of the next try lies.
pub(super) const MOST_HALVINGS: u32 = 8;
/// Exit code of a test program that has met a CUDA error.
const CUDA_ERROR: i32 = 2;

/// A way to dump, and what.
#[derive(Clone, Copy, Debug)]
struct Way {
    program: program::Program,
    /// Words for the command line.
    words: &'static [&'static str],
    /// The program runs on beside its archive.
    runs_on: bool,
    /// The archive borrows from one that was made just before.
    borrows: bool,
}

const ORDINARY: Way = Way {
    program: PACED,
    words: &[],
    runs_on: false,
    borrows: false,
};

/// With memory that takes a while to write.
const LIVE: Way = Way {
    program: program::Program {
        arguments: &["--mib", "48", "--sleeps", "1"],
        ..MEMORY_HOG
    },
    words: &["--leave-running", "--live"],
    runs_on: true,
    borrows: false,
};

const INCREMENTAL: Way = Way {
    words: &[],
    runs_on: false,
    borrows: true,
    ..LIVE
};

/// What breaks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Killed(&'static [Actor]),
    Hangs(Actor),
    DiskFull,
}

use Actor::{Cli, Criu, Program, Server};
use Fault::{DiskFull, Hangs, Killed};

const OF_DUMP: [(&str, Fault); 9] = [
    ("command_line_killed", Killed(&[Cli])),
    ("criu_killed", Killed(&[Criu])),
    ("command_line_and_criu_killed", Killed(&[Cli, Criu])),
    ("device_server_killed", Killed(&[Server])),
    ("program_killed", Killed(&[Program])),
    ("command_line_hangs", Hangs(Cli)),
    ("criu_hangs", Hangs(Criu)),
    ("device_server_hangs", Hangs(Server)),
    ("disk_fills_up", DiskFull),
];

/// Of one that borrows: who writes, and where to.
const OF_INCREMENTAL_DUMP: [(&str, Fault); 4] = [
    ("command_line_killed", Killed(&[Cli])),
    ("command_line_and_criu_killed", Killed(&[Cli, Criu])),
    ("device_server_killed", Killed(&[Server])),
    ("disk_fills_up", DiskFull),
];

const OF_RESTORE: [(&str, Fault); 9] = [
    ("command_line_killed", Killed(&[Cli])),
    ("criu_killed", Killed(&[Criu])),
    ("command_line_and_criu_killed", Killed(&[Cli, Criu])),
    ("device_server_killed", Killed(&[Server])),
    ("program_killed", Killed(&[Program])),
    ("command_line_hangs", Hangs(Cli)),
    ("criu_hangs", Hangs(Criu)),
    ("device_server_hangs", Hangs(Server)),
    ("disk_fills_up", DiskFull),
];

/// The tests: one for each fault and step.
pub fn tests(repeats: u32) -> Vec<Test> {
    let ordinary = OF_DUMP.map(|(name, fault)| {
        let test = Test::new(format!("dump_{name}"), move |context| {
            of_dump(context, ORDINARY, fault, repeats)
        });
        (fault, test)
    });
    let live = OF_DUMP.map(|(name, fault)| {
        let test = Test::new(format!("live_dump_{name}"), move |context| {
            of_dump(context, LIVE, fault, repeats)
        });
        (fault, test)
    });
    let incremental = OF_INCREMENTAL_DUMP.map(|(name, fault)| {
        let test = Test::new(format!("incremental_dump_{name}"), move |context| {
            of_dump(context, INCREMENTAL, fault, repeats)
        });
        (fault, test)
    });
    let of_restore = OF_RESTORE.map(|(name, fault)| {
        let test = Test::new(format!("restore_{name}"), move |context| {
            of_restore(context, fault, repeats)
        });
        (fault, test)
    });
    let all = ordinary.into_iter().chain(live).chain(incremental).chain(of_restore);
    all.map(|(fault, test)| match fault {
        DiskFull => test.also_needs(Requirement::Mounting),
        _ => test,
    })
    .map(|test| test.times(1 + repeats / 10))
    .collect()
}

/// A folder for archives and one for temporary files.
pub(super) struct Place<'a> {
    context: &'a Context,
    pub(super) archives: PathBuf,
    temporary: PathBuf,
}

impl<'a> Place<'a> {
    pub(super) fn new(context: &'a Context) -> Result<Self> {
        let place = Self {
            context,
            archives: context.sandbox.path("archives"),
            temporary: context.sandbox.path("tmp"),
        };
        fs::create_dir_all(&place.archives)?;
        fs::create_dir_all(&place.temporary)?;
        Ok(place)
    }

    fn archive(&self) -> PathBuf {
        self.archives.join("x.hetsnap")
    }

    fn dump(&self, pid: i32, words: &[&str]) -> Result<Running> {
        let mut command = hetckpt::command(
            &self.context.sandbox,
            ["dump", "--force", "--pid", &pid.to_string(), "-o"],
        );
        command.arg(self.archive()).args(words).env("TMPDIR", &self.temporary);
        Running::start(command)
    }

    /// An archive of the program, which runs on, for others to borrow from.
    fn parent(&self, pid: i32) -> Result<PathBuf> {
        let folder = self.context.sandbox.path("parents");
        fs::create_dir_all(&folder)?;
        let parent = folder.join("p.hetsnap");
        let arguments = ["dump", "--force", "--leave-running", "--pid", &pid.to_string(), "-o"];
        let mut command = hetckpt::command(&self.context.sandbox, arguments);
        command.arg(&parent).env("TMPDIR", &self.temporary);
        Running::run(command, PATIENCE)?.success("the first dump")?;
        Ok(parent)
    }

    fn restore(&self) -> Result<Running> {
        let device = Installation::to_device();
        let mut command = hetckpt::command(&self.context.sandbox, ["restore", "--device", &device, "--timings"]);
        command
            .arg(self.timings())
            .arg(self.archive())
            .env("TMPDIR", &self.temporary);
        Running::start(command)
    }

    fn timings(&self) -> PathBuf {
        self.context.sandbox.path("timings")
    }

    /// As [`Place::ensure_clean`]; but what a killed command line has left the next one removes.
    fn ensure_over(&self, fault: Fault) -> Result<()> {
        match fault {
            Killed(actors) if actors.contains(&Cli) => {
                actors::wait_until_only_left_by_criu(&self.context.sandbox, Duration::from_secs(20))
            }
            _ => self.ensure_clean(),
        }
    }

    /// Nothing runs, and nothing lies about but an archive.
    pub(super) fn ensure_clean(&self) -> Result<()> {
        self.context.sandbox.wait_until_empty(Duration::from_secs(20))?;
        for (folder, allowed) in [(&self.archives, "x.hetsnap"), (&self.temporary, "")] {
            let left: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.file_name()).collect();
            ensure!(
                left.iter().all(|name| name == allowed),
                "left in {}: {left:?}",
                folder.display()
            );
        }
        Ok(())
    }
}

/// A moment, and whether there was somebody to break.
type Strike = (Duration, bool);

/// Breaks `fault` at a moment drawn from `span`, counted from when there is somebody to break.
pub(super) fn break_at_random(
    place: &Place<'_>,
    random: &mut Random,
    fault: Fault,
    span: Duration,
    command: &mut Running,
    program: i32,
) -> Result<Strike> {
    let span = match fault {
        // It takes part for less than the whole.
        Killed([Criu]) | Hangs(Criu) => span / 2,
        Killed([Program]) => span / 8,
        _ => span,
    };
    let delay = random.moment(span);
    let sandbox = &place.context.sandbox;
    let (actors, hang): (&[Actor], _) = match &fault {
        Killed(actors) => (actors, None),
        Hangs(actor) => (std::slice::from_ref(actor), Some(HANG)),
        DiskFull => return Ok((delay, true)),
    };
    let pid = command.pid();
    let find = || actors::find(actors, &sandbox.processes(), pid, program);
    let deadline = Instant::now() + PATIENCE;
    while find().is_empty() {
        if command.has_ended()? {
            return Ok((Duration::ZERO, false));
        }
        ensure!(Instant::now() < deadline, "none of {actors:?} turns up");
        std::thread::sleep(Duration::from_micros(500));
    }
    std::thread::sleep(delay);
    Ok((delay, strike(&find(), hang)))
}

pub(super) fn is_right(outcome: &Outcome) -> bool {
    outcome.code == 0 && outcome.stdout.ends_with("PASS\n")
}

/// True if a program that has met `fault` may end so.
pub(super) fn may_end_so(fault: Fault, outcome: &Outcome) -> bool {
    match fault {
        Killed([Server]) => outcome.code == CUDA_ERROR,
        Killed([Program]) => outcome.code == 128 + 9,
        // Killed while the program runs code of CRIU's, it leaves the program there.
        Killed(actors) if actors.contains(&Criu) => INJECTED.contains(&outcome.code),
        _ => false,
    }
}

/// What became of a program that was broken in the middle of something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    RanOn,
    /// It went on from the archive, at once or once more.
    FromArchive,
    /// What was broken ended it.
    ByFault,
}

/// How many ran on, went on from the archive, and were ended.
pub(super) fn counted(ends: &[End]) -> [usize; 3] {
    [End::RanOn, End::FromArchive, End::ByFault].map(|end| ends.iter().filter(|&&found| found == end).count())
}

fn of_dump(context: &mut Context, way: Way, fault: Fault, repeats: u32) -> Result<()> {
    let length = calibration::baseline(&way.program)?.length;
    let mut ends = vec![];
    let mut misses = 0;
    let mut random = context.random.clone();
    for round in 0..repeats * ATTEMPTS {
        if ends.len() == repeats as usize {
            break;
        }
        let (mut delay, mut has_hit) = (Duration::ZERO, false);
        let mut one = || -> Result<End> {
            let place = Place::new(context)?;
            let disk = matches!(fault, DiskFull)
                .then(|| Disk::mount(&place.archives))
                .transpose()?;
            let mut job = Job::start(&context.sandbox, &way.program.command(length))?;
            job.wait_for_kernel()?;
            let parent = way.borrows.then(|| place.parent(job.pid())).transpose()?;
            let parent = parent.as_ref().and_then(|path| path.to_str());
            let borrowing = parent.map_or_else(Vec::new, |path| vec!["--parent", path]);
            let mut dump = place.dump(job.pid(), &[way.words, &borrowing].concat())?;
            (delay, has_hit) = break_at_random(
                &place,
                &mut random,
                fault,
                DUMP_TIME / (1 << misses),
                &mut dump,
                job.pid(),
            )?;
            if let Some(disk) = &disk {
                disk.fill_after(delay)?;
            }
            let dumped = dump.wait(PATIENCE)?;
            let outcome = job.finish().with_context(|| format!("the dump: {}", dumped.text()))?;
            if let Some(disk) = &disk {
                disk.empty()?;
            }
            place
                .ensure_over(fault)
                .with_context(|| format!("the dump: {}", dumped.text()))?;
            if place.archive().exists() {
                let has_ended_so = match way.runs_on {
                    true => is_right(&outcome) || may_end_so(fault, &outcome),
                    false => outcome.code == 128 + 9,
                };
                ensure!(has_ended_so, "there is an archive, and the program: {}", outcome.text());
                let inspected = hetckpt::inspect(&context.sandbox, &place.archive())?;
                let count = inspected["processes"].as_array().map_or(0, Vec::len);
                ensure!(count == 1, "the archive has the device state of {count} processes");
                let restored = place.restore()?.wait(PATIENCE)?;
                ensure!(is_right(&restored), "restored: {}", restored.text());
                fs::remove_file(place.archive())?;
                return Ok(End::FromArchive);
            }
            if is_right(&outcome) {
                return Ok(End::RanOn);
            }
            let whole = || format!("the program: {}\nthe dump: {}", outcome.text(), dumped.text());
            ensure!(may_end_so(fault, &outcome), "{}", whole());
            Ok(End::ByFault)
        };
        let end = one().with_context(|| format!("round {round}, after {delay:?}"))?;
        // Each time that nobody is left to break, the next moment comes earlier.
        misses = if has_hit { 0 } else { (misses + 1).min(MOST_HALVINGS) };
        ends.extend(has_hit.then_some(end));
    }
    ensure_all_hit(&ends, repeats)?;
    // What dumps that were killed have left is gone with the next.
    let place = Place::new(context)?;
    dumped(&place)?;
    unbroken(&place)?;
    let [ran_on, from_archive, ended] = counted(&ends);
    context.note(format!(
        "{} hits of {fault:?} in dumps: {ran_on} programs ran on, {from_archive} went on from the archive, {ended} were ended by it",
        ends.len()
    ));
    Ok(())
}

/// A fault that found nobody to break has tried nothing.
pub(super) fn ensure_all_hit(ends: &[End], repeats: u32) -> Result<()> {
    let (hits, tries) = (ends.len(), repeats * ATTEMPTS);
    ensure!(
        hits == repeats as usize,
        "{hits} of {tries} tries hit somebody; {repeats} were to"
    );
    Ok(())
}

fn of_restore(context: &mut Context, fault: Fault, repeats: u32) -> Result<()> {
    let mut random = context.random.clone();
    let place = Place::new(context)?;
    let pid = dumped(&place)?;
    let archive = fs::read(place.archive())?;
    let whole = unbroken(&place)?;

    let mut ends = vec![];
    let mut misses = 0;
    for round in 0..repeats * ATTEMPTS {
        if ends.len() == repeats as usize {
            break;
        }
        let (mut delay, mut has_hit) = (Duration::ZERO, false);
        let mut one = || -> Result<End> {
            let disk = matches!(fault, DiskFull)
                .then(|| Disk::mount(&place.temporary))
                .transpose()?;
            let mut restore = place.restore()?;
            (delay, has_hit) = break_at_random(&place, &mut random, fault, whole / (1 << misses), &mut restore, pid)?;
            if let Some(disk) = &disk {
                disk.fill_after(delay)?;
            }
            let outcome = restore.wait(PATIENCE)?;
            if let Some(disk) = &disk {
                disk.empty()?;
            }
            let words = || format!("the restore: {}", outcome.text());
            place.ensure_over(fault).with_context(words)?;
            ensure!(
                fs::read(place.archive())? == archive,
                "the restore has changed the archive"
            );
            // Where the command line was killed, its code says nothing of the program.
            if outcome.stdout.ends_with("PASS\n") {
                return Ok(End::RanOn);
            }
            ensure!(
                outcome.stdout.is_empty(),
                "the program came to another end: {}",
                words()
            );
            unbroken(&place).with_context(words)?;
            Ok(match may_end_so(fault, &outcome) {
                true => End::ByFault,
                false => End::FromArchive,
            })
        };
        let end = one().with_context(|| format!("round {round}, after {delay:?}"))?;
        // Each time that nobody is left to break, the next moment comes earlier.
        misses = if has_hit { 0 } else { (misses + 1).min(MOST_HALVINGS) };
        ends.extend(has_hit.then_some(end));
    }
    ensure_all_hit(&ends, repeats)?;
    unbroken(&place)?;
    let [ran_on, again, ended] = counted(&ends);
    context.note(format!(
        "{} hits of {fault:?} in restores: {ran_on} programs ran on, {again} did not start and were restored again, {ended} were ended by it \
         and restored again",
        ends.len()
    ));
    Ok(())
}

/// Dumps a program in mid-kernel; gives its process id.
fn dumped(place: &Place<'_>) -> Result<i32> {
    let sandbox = &place.context.sandbox;
    let length = calibration::baseline(&PACED)?.length;
    // On a machine that has much else to do the program may be over too soon.
    for times in 1..=ATTEMPTS {
        let mut job = Job::start(sandbox, &PACED.command(length * u64::from(times)))?;
        job.wait_for_kernel()?;
        let pid = job.pid();
        let dump = place.dump(pid, &[])?.wait(PATIENCE)?;
        let ended = job.finish()?;
        place.ensure_clean()?;
        match is_right(&ended) {
            true => {}
            false => return dump.success("dump").map(|_| pid),
        }
    }
    bail!("the program ends before it is dumped, however long it is")
}

/// Restores it and sees it through to its right end. Gives how long the restore took.
fn unbroken(place: &Place<'_>) -> Result<Duration> {
    // Left by a restore before.
    let _ = fs::remove_file(place.timings());
    let restore = place.restore()?;
    let started = Instant::now();
    let took = wait_for(&place.timings(), started);
    let outcome = restore.wait(PATIENCE)?;
    ensure!(is_right(&outcome), "restored: {}", outcome.text());
    place.ensure_clean()?;
    took
}

fn wait_for(file: &Path, started: Instant) -> Result<Duration> {
    while !file.exists() {
        if started.elapsed() > PATIENCE {
            bail!("the restore does not come to its end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(started.elapsed())
}
