//! Each who takes part in suspending or resuming a program is killed, or hangs for a while, or the disk that takes
//! device memory fills up, at random moments.
//!
//! Afterwards the program runs on or is suspended, and a resume takes it to its right end. Only who has lost its device
//! server, or was itself killed, need not come there. No file stays behind.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::actors::Disk;
use hetckpt_e2e::calibration;
use hetckpt_e2e::early_end;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::random::Random;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::matrix::{
    ATTEMPTS, End, Fault, MOST_HALVINGS, Place, break_at_random, counted, ensure_all_hit, is_right, may_end_so,
};

use hetckpt_e2e::actors::Actor::{Cli, Program, Server};

/// A suspension or a resumption takes less, mostly.
const TIME: Duration = Duration::from_millis(40);
/// How often a program that perhaps is suspended is told to go on.
const NEXT_RESUME: Duration = Duration::from_millis(100);

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Suspend,
    Resume,
}

const FAULTS: [(&str, Fault); 6] = [
    ("command_line_killed", Fault::Killed(&[Cli])),
    ("device_server_killed", Fault::Killed(&[Server])),
    ("program_killed", Fault::Killed(&[Program])),
    ("command_line_hangs", Fault::Hangs(Cli)),
    ("device_server_hangs", Fault::Hangs(Server)),
    ("disk_fills_up", Fault::DiskFull),
];

/// The tests: one for each fault and step. Resuming needs no disk.
pub fn tests(repeats: u32) -> Vec<Test> {
    let of = |step: Step, word: &'static str| {
        let faults = FAULTS
            .into_iter()
            .filter(move |(_, fault)| step == Step::Suspend || !matches!(fault, Fault::DiskFull));
        faults.map(move |(name, fault)| {
            let test = Test::new(format!("{word}_{name}"), move |context| {
                broken(context, step, fault, repeats)
            });
            let test = test.times(1 + repeats / 10);
            match fault {
                Fault::DiskFull => test.also_needs(Requirement::Mounting),
                _ => test,
            }
        })
    };
    of(Step::Suspend, "suspend").chain(of(Step::Resume, "resume")).collect()
}

fn broken(context: &mut Context, step: Step, fault: Fault, repeats: u32) -> Result<()> {
    let length = calibration::baseline(&PACED)?.length;
    let mut random = context.random.clone();
    let (mut ends, mut misses) = (vec![], 0);
    for round in 0..repeats * ATTEMPTS {
        if ends.len() == repeats as usize {
            break;
        }
        let hit = once(context, step, fault, length, &mut random, TIME / (1 << misses));
        let hit = hit.with_context(|| format!("round {round}"))?;
        // Each time that nobody is left to break, the next moment comes earlier.
        misses = if hit.is_some() {
            0
        } else {
            (misses + 1).min(MOST_HALVINGS)
        };
        ends.extend(hit);
    }
    ensure_all_hit(&ends, repeats)?;
    let [ran_on, _, ended] = counted(&ends);
    context.note(format!(
        "{} hits of {fault:?} in {step:?}: {ran_on} programs ran on, {ended} were ended by it",
        ends.len()
    ));
    Ok(())
}

/// Nothing if nobody was left to break.
fn once(
    context: &Context,
    step: Step,
    fault: Fault,
    length: u64,
    random: &mut Random,
    span: Duration,
) -> Result<Option<End>> {
    let place = Place::new(context)?;
    let disk = matches!(fault, Fault::DiskFull)
        .then(|| Disk::mount(&place.archives))
        .transpose()?;
    let memory = place.archives.join("memory");
    let mut job = Job::start(&context.sandbox, &PACED.command(length))?;
    job.wait_for_kernel()?;
    let pid = job.pid().to_string();
    let start = |verb: &str| {
        let mut command = hetckpt::command(&context.sandbox, [verb, "--pid", &pid]);
        if disk.is_some() && verb == "suspend" {
            command.arg("--to").arg(&memory);
        }
        Running::start(command)
    };
    let mut command = match step {
        Step::Suspend => start("suspend")?,
        Step::Resume => {
            start("suspend")?.wait(PATIENCE)?.success("suspend")?;
            start("resume")?
        }
    };
    let (delay, has_hit) = break_at_random(&place, random, fault, span, &mut command, job.pid())?;
    if let Some(disk) = &disk {
        disk.fill_after(delay)?;
    }
    let told = command.wait(PATIENCE)?;
    if let Some(disk) = &disk {
        disk.empty()?;
    }
    let words = |outcome: &Outcome| format!("after {delay:?}; the program: {}\n{}", outcome.text(), told.text());
    let outcome = brought_to_its_end(&context.sandbox, job, &pid)?;
    place.ensure_clean().with_context(|| words(&outcome))?;
    ensure!(
        fs::read_dir(&place.archives)?.next().is_none(),
        "a file is left behind: {}",
        words(&outcome)
    );
    if is_right(&outcome) {
        return Ok(has_hit.then_some(End::RanOn));
    }
    ensure!(may_end_so(fault, &outcome), "{}", words(&outcome));
    Ok(has_hit.then_some(End::ByFault))
}

/// Tells the program to go on until it has ended: whoever was broken may have left it suspended, or do so in a moment.
fn brought_to_its_end(sandbox: &Sandbox, mut job: Job<'_>, pid: &str) -> Result<Outcome> {
    let deadline = Instant::now() + PATIENCE;
    while !job.has_ended()? {
        ensure!(Instant::now() < deadline, "it does not come to an end");
        let device = Installation::from_device();
        early_end::process(job.pid());
        // What this says depends on where the program is.
        hetckpt::run(sandbox, ["resume", "--pid", pid, "--device", &device])?;
        std::thread::sleep(NEXT_RESUME);
    }
    job.finish()
}
