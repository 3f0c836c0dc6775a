//! `hetckpt dump` and CRIU are killed at random moments. Afterwards either the program runs on to the right result, or
//! there is a complete archive that does: never both, never neither. Only a program that CRIU had just made run code of
//! its own ends.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::actors;
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A dump takes less, mostly.
const LONGEST_WAIT_US: u64 = 400_000;

/// The tests.
pub fn tests() -> Vec<Test> {
    let count = num_kills();
    vec![
        Test::new("dumps_killed_at_random_moments_lose_nothing", move |context| {
            killed_at_random(context, count)
        })
        .times(1 + count / 20),
        Test::new(
            "a_dump_killed_behind_its_archive_ends_the_program",
            killed_behind_the_archive,
        ),
    ]
}

/// `HETCKPT_PREEMPTIONS`, as for random preemptions.
fn num_kills() -> u32 {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Dump,
    Criu,
    Both,
}

/// How many ended how.
#[derive(Default)]
struct Tally {
    criu: u32,
    ran_on: u32,
    archived: u32,
    /// Ended in code that CRIU had injected.
    injected: u32,
}

fn killed_at_random(context: &mut Context, count: u32) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut tally = Tally::default();
    for round in 0..count {
        let victim = [Victim::Dump, Victim::Criu, Victim::Both][round as usize % 3];
        let delay = Duration::from_micros(context.random.below(LONGEST_WAIT_US));
        killed_once(context, &baseline, victim, delay, &mut tally)
            .with_context(|| format!("round {round}: {victim:?} killed {delay:?} after the start of the dump"))?;
    }
    context.note(format!(
        "{count} dumps killed, CRIU {} times in its work: {} programs ran on, {} went on from the archive, {} ended in CRIU's code",
        tally.criu, tally.ran_on, tally.archived, tally.injected
    ));
    Ok(())
}

fn killed_once(
    context: &Context,
    baseline: &Baseline,
    victim: Victim,
    delay: Duration,
    tally: &mut Tally,
) -> Result<()> {
    let archive = context.sandbox.path("killed.hetsnap");
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let mut command = hetckpt::command(&context.sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
    command.arg(&archive);
    let dump = Running::start(command)?;
    std::thread::sleep(delay);
    let mut has_hit_criu = false;
    let criu = actors::working_criu(&context.sandbox.processes());
    if !matches!(victim, Victim::Criu) {
        // It may be done.
        let _ = dump.signal(Signal::SIGKILL);
    }
    if let (Some(criu), Victim::Criu | Victim::Both) = (criu, victim) {
        has_hit_criu = kill(Pid::from_raw(criu), Signal::SIGKILL).is_ok();
        tally.criu += u32::from(has_hit_criu);
    }
    let dumped = dump.wait(PATIENCE)?;
    let ended = job.finish().context("after the killed dump")?;
    if !archive.exists() && has_hit_criu && actors::INJECTED.contains(&ended.code) {
        tally.injected += 1;
        return Ok(());
    }
    if !archive.exists() {
        ensure!(
            ended == baseline.outcome,
            "the program did not run on to the right result: {}\nthe dump: {}",
            ended.text(),
            dumped.text()
        );
        tally.ran_on += 1;
        return Ok(());
    }
    ensure!(
        ended.code == 128 + 9,
        "there is an archive, and yet the program ran on: {}\nthe dump: {}",
        ended.text(),
        dumped.text()
    );
    let verify: [OsString; 3] = ["inspect".into(), archive.clone().into(), "--verify".into()];
    hetckpt::run(&context.sandbox, verify)?.success("inspect --verify")?;
    let restored = hetckpt::restore(&context.sandbox, &archive, &Installation::to_device())?.wait(PATIENCE)?;
    ensure!(
        restored.code == 0 && ended.stdout + &restored.stdout == baseline.outcome.stdout,
        "{}",
        restored.text()
    );
    fs::remove_file(&archive)?;
    tally.archived += 1;
    Ok(())
}

/// What a dump leaves when it is killed between the archive's appearance and the program's end, which no random moment
/// hits.
fn killed_behind_the_archive(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let archive = context.sandbox.path("x.hetsnap");
    fs::write(&archive, "as if it were one")?;
    let found = fs::metadata(&archive)?;
    for is_new in [false, true] {
        let job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
        let images = context.sandbox.path(".hetckpt-dump-x");
        fs::create_dir(&images)?;
        kill(Pid::from_raw(job.pid()), Signal::SIGSTOP)?;
        // Which file it is that the dump has written: one that has its name, or one that somebody else's has taken the
        // name from.
        let inode = found.ino() + u64::from(!is_new);
        fs::write(images.join("hetckpt-archive-id"), format!("{} {inode}", found.dev()))?;
        let mut guardian = hetckpt::command(&context.sandbox, ["__guard", &job.pid().to_string()]);
        guardian.args(["--parent", &std::process::id().to_string(), "--images"]);
        guardian.arg(&images).arg("--archive").arg(&archive);
        guardian.stdin(Stdio::null());
        Running::run(guardian, PATIENCE)?.success("the guardian")?;
        ensure!(!images.exists(), "what the dump had begun is left");
        let ended = job.finish()?;
        let expected = if is_new { 128 + 9 } else { baseline.outcome.code };
        ensure!(ended.code == expected, "archive is new: {is_new}; {}", ended.text());
    }
    Ok(())
}
