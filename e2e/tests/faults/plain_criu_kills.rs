//! Plain `criu dump` and `criu restore`, killed at random moments, with nobody there to put anything right but the
//! device servers.
//!
//! After a dump the program runs on to the right result, or the images are complete and do. After a restore it does, or
//! nothing of ours runs and the images are as good as before.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::actors;
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu::{
    Program, criu, criu_command, ensure_dumped, ensure_ends_right, ensure_same, start_paced, wait_until_gone,
    wait_until_reaped,
};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long processes without a device server are looked at before they count as what a killed CRIU has left
/// half-built.
const LOOK: Duration = Duration::from_secs(2);

/// The tests.
pub fn tests() -> Vec<Test> {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    let count: u32 = given.and_then(|text| text.parse().ok()).unwrap_or(4);
    vec![
        Test::new("plain_criu_dumps_killed_lose_nothing", move |context| {
            killed_dumps(context, count)
        })
        .times(1 + count / 20)
        .also_needs(Requirement::Root),
        Test::new("plain_criu_restores_killed_leave_the_images", move |context| {
            killed_restores(context, count)
        })
        .times(1 + count / 20)
        .also_needs(Requirement::Root),
    ]
}

/// What became of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    RanOn,
    /// It is in the images.
    Stored,
    /// It was running code of CRIU's, and ended with that.
    EndedInCriusCode,
    /// CRIU's half of a process that nobody will finish.
    LeftHalfBuilt,
}

/// How many of `fates` are `fate`.
fn count(fates: &[Fate], fate: Fate) -> usize {
    fates.iter().filter(|&&other| other == fate).count()
}

/// `criu VERB` with `more`, killed after `delay`; true if it had not ended by then.
fn killed(sandbox: &Sandbox, verb: &str, more: &[&str], delay: Duration) -> Result<bool> {
    let mut command = criu_command(sandbox, verb, &Installation::get().plugin_folder())?;
    command.args(more);
    let mut criu = Running::start(command)?;
    std::thread::sleep(delay);
    let is_hit = !criu.has_ended()?;
    if is_hit {
        criu.signal(Signal::SIGKILL)?;
    }
    let limit = Instant::now() + PATIENCE;
    while !criu.has_ended()? {
        ensure!(Instant::now() < limit, "CRIU does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(is_hit)
}

/// Makes sure that nothing runs any more but what a killed CRIU may have left of itself, which is ended.
fn ensure_empty(sandbox: &Sandbox) -> Result<()> {
    kill_all(sandbox, |name| name == "criu");
    sandbox.wait_until_empty(Duration::from_secs(10))
}

/// Kills the processes of the sandbox with names that `is_meant`.
fn kill_all(sandbox: &Sandbox, is_meant: impl Fn(&str) -> bool) {
    for (process, _) in actors::names(&sandbox.processes())
        .iter()
        .filter(|(_, name)| is_meant(name))
    {
        // It may have ended meanwhile.
        let _ = kill(Pid::from_raw(*process), Signal::SIGKILL);
    }
}

/// A moment of a command that takes `span`, or a little behind it: what it does first, looking at the machine, is of
/// less interest.
fn moment(context: &mut Context, span: Duration) -> Duration {
    span.mul_f64(0.3) + context.random.moment(span)
}

/// A program of half the usual length, so that many can be tried.
fn baseline() -> Result<Baseline> {
    calibration::uninterrupted(&PACED, calibration::baseline(&PACED)?.length / 2)
}

/// How long `criu VERB` takes that is let be.
fn timed(sandbox: &Sandbox, verb: &str, more: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    criu(sandbox, verb, true, more)?.success(verb)?;
    Ok(started.elapsed())
}

fn killed_dumps(context: &mut Context, rounds: u32) -> Result<()> {
    let baseline = baseline()?;
    let mut fates = vec![];
    let mut span = Duration::ZERO;
    for round in 0..=rounds {
        let sandbox = Sandbox::new()?;
        let program = start_paced(&sandbox, baseline.length)?;
        let tree = program.pid().to_string();
        let arguments = ["--tree", tree.as_str()];
        if round == 0 {
            span = timed(&sandbox, "dump", &arguments)?;
            continue;
        }
        let delay = moment(context, span);
        let fate = dump_killed(&sandbox, program, &arguments, delay, &baseline);
        fates.push(fate.with_context(|| format!("killed {delay:?} after its start\n{}", sandbox.logs()))?);
    }
    context.note(format!(
        "of {rounds} programs whose dump was killed, or had just ended, at a moment of {span:?}, {} ran on, {} went on from the images, {} ended in CRIU's code",
        count(&fates, Fate::RanOn),
        count(&fates, Fate::Stored),
        count(&fates, Fate::EndedInCriusCode),
    ));
    Ok(())
}

fn dump_killed(
    sandbox: &Sandbox,
    program: Program,
    arguments: &[&str],
    delay: Duration,
    baseline: &Baseline,
) -> Result<Fate> {
    let pid = program.pid();
    let is_hit = killed(sandbox, "dump", arguments, delay)?;
    let code = program.finish()?;
    ensure_empty(sandbox).context("after the killed dump")?;
    match code {
        0 => ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).map(|()| Fate::RanOn),
        // CRIU's last deed.
        137 => {
            ensure_same(&sandbox.path("out"), "")?;
            criu(sandbox, "restore", true, &["--restore-detached"])?.success("criu restore")?;
            ensure_ends_right(sandbox, pid, baseline).map(|()| Fate::Stored)
        }
        code if is_hit && actors::INJECTED.contains(&code) => Ok(Fate::EndedInCriusCode),
        code => bail!("the program ended with {code}"),
    }
}

fn killed_restores(context: &mut Context, rounds: u32) -> Result<()> {
    let baseline = baseline()?;
    let sandbox = Sandbox::new()?;
    let sandbox = &sandbox;
    let program = start_paced(sandbox, baseline.length)?;
    let pid = program.pid();
    criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?.success("criu dump")?;
    let sizes = Sizes::of(sandbox)?;
    ensure_dumped(sandbox, program)?;
    let span = timed(sandbox, "restore", &["--restore-detached"])?;
    ensure_ends_right(sandbox, pid, &baseline)?;
    wait_until_reaped(pid)?;

    let mut fates = vec![];
    for _ in 0..rounds {
        sizes.cut_back(sandbox)?;
        let delay = moment(context, span);
        killed(sandbox, "restore", &["--restore-detached"], delay)?;
        let fate = fate_of_restored(sandbox, pid, &baseline);
        fates.push(fate.with_context(|| format!("killed {delay:?} after its start\n{}", sandbox.logs()))?);
    }
    sizes.cut_back(sandbox)?;
    criu(sandbox, "restore", true, &["--restore-detached"])?.success("criu restore")?;
    ensure_ends_right(sandbox, pid, &baseline)?;
    context.note(format!(
        "of {rounds} restores killed, or just ended, at a moment of {span:?}, {} ran on, {} did not begin, {} were left half-built, {} ended in CRIU's \
         code; then the images were restored",
        count(&fates, Fate::RanOn),
        count(&fates, Fate::Stored),
        count(&fates, Fate::LeftHalfBuilt),
        count(&fates, Fate::EndedInCriusCode),
    ));
    Ok(())
}

/// Waits for the end of what a killed restore has begun, and sees that nothing is left of it.
fn fate_of_restored(sandbox: &Sandbox, pid: i32, baseline: &Baseline) -> Result<Fate> {
    // CRIU's first act is to have a process with the id.
    let has_begun = Path::new(&format!("/proc/{pid}")).exists();
    let mut served = Instant::now();
    let deadline = served + PATIENCE;
    let mut is_half_built = false;
    while !is_gone(pid) {
        ensure!(Instant::now() < deadline, "process {pid} does not end");
        let there = actors::names(&sandbox.processes());
        if there.iter().any(|(_, name)| name == "hetckpt-server") {
            served = Instant::now();
        }
        if served.elapsed() > LOOK {
            is_half_built = true;
            // What a user has to do after any CRIU that was killed.
            kill_all(sandbox, |_| true);
            wait_until_gone(pid)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until_reaped(pid)?;
    ensure_empty(sandbox).context("after the killed restore")?;
    let printed = fs::read_to_string(sandbox.path("out"))?;
    match (printed.is_empty(), has_begun) {
        (false, _) if is_half_built => bail!("it was to be half-built, and printed {printed:?}"),
        (false, _) => ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).map(|()| Fate::RanOn),
        (true, _) if is_half_built => Ok(Fate::LeftHalfBuilt),
        (true, true) => Ok(Fate::EndedInCriusCode),
        (true, false) => Ok(Fate::Stored),
    }
}

/// How long the program's files were at the dump: CRIU wants them so at each restore.
struct Sizes(Vec<(&'static str, u64)>);

impl Sizes {
    fn of(sandbox: &Sandbox) -> Result<Self> {
        let size = |name: &'static str| Ok((name, fs::metadata(sandbox.path(name))?.len()));
        ["out", "err"].map(size).into_iter().collect::<Result<_>>().map(Self)
    }

    fn cut_back(&self, sandbox: &Sandbox) -> Result<()> {
        for (name, size) in &self.0 {
            OpenOptions::new()
                .write(true)
                .open(sandbox.path(name))?
                .set_len(*size)?;
        }
        Ok(())
    }
}
