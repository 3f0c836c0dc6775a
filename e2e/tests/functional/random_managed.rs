//! Random kernels (`hetckpt_conformance::random_ptx`) on managed memory, which the host uses between and beside their
//! launches. Dumped at random moments and restored, they leave what they leave in memory of the device without a dump.
//! `HETCKPT_RANDOM_KERNEL=N` tries that kernel each time.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_conformance::random_memory::{BLOCKS, COMPARED_BYTES, OPERANDS_BYTES, OUTPUT_BYTES, THREADS};
use hetckpt_conformance::random_ptx::{features, has_steps, module};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Attempt, Job, is_mid_flight, kernels_in_flight};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::random::Random;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::opencl_refusals::compile;
use super::preempt::num_preemptions;

const PROGRAM: &str = include_str!("random_managed.c");
/// Launches of a kernel.
const LAUNCHES: u32 = 10;
/// For how long a kernel's launches are to run, in sum, and how often it does at most what it does.
const WANTED: Duration = Duration::from_secs(1);
const MOST_ROUNDS: u64 = 1 << 20;
/// Of so many kernels some must be dumped in mid-kernel.
const MANY: u32 = 5;
/// Dumps of a run.
const DUMPS: u32 = 2;

/// The tests.
pub fn tests() -> Vec<Test> {
    let count = num_preemptions();
    vec![
        Test::new("preempt_random_kernels_on_managed_memory", preempt)
            .times(1 + count / 4)
            .also_needs(Requirement::Root)
            .also_needs(Requirement::MovingPages)
            // Their compilers take minutes for some kernels.
            .also_needs(Requirement::NoOpenclDevice),
    ]
}

/// Which kernel, and how long it takes.
struct Case {
    seed: u64,
    rounds: u64,
}

impl Case {
    /// The program's command line.
    fn command(&self, sandbox: &Sandbox, memory: &str) -> Vec<OsString> {
        let is_cooperative = u32::from(features(self.seed).grid_barriers);
        let sizes = [
            BLOCKS,
            THREADS,
            is_cooperative,
            OPERANDS_BYTES,
            OUTPUT_BYTES,
            COMPARED_BYTES,
        ];
        let numbers = sizes.map(u64::from).into_iter();
        let numbers = numbers.chain([self.seed, self.rounds, u64::from(LAUNCHES)]);
        let mut command: Vec<OsString> = vec![sandbox.path("random_managed").into(), memory.into()];
        command.push(sandbox.path("k.ptx").into());
        command.extend(numbers.map(|number| number.to_string().into()));
        command
    }

    /// What it prints with memory of the device, undisturbed.
    fn expected(&self, sandbox: &Sandbox) -> Result<Outcome> {
        let mut run = hetckpt::command(sandbox, ["run", "--device", &Installation::from_device(), "--"]);
        run.args(self.command(sandbox, "device"));
        Running::run(run, PATIENCE)?.success("run")
    }
}

/// Milliseconds that the program says that its kernels took.
fn milliseconds(outcome: &Outcome) -> Result<u64> {
    let said = outcome.stderr.lines().find_map(|line| line.strip_prefix("kernels: "));
    let number = said.and_then(|said| said.strip_suffix(" ms")?.parse().ok());
    number.with_context(|| format!("no time is said: {}", outcome.text()))
}

/// What dumps have come to.
#[derive(Default)]
struct Tally {
    dumps: u32,
    mid_kernel: u32,
}

fn preempt(context: &mut Context) -> Result<()> {
    let mut tally = Tally::default();
    let is_on_cpu = Requirement::CpuOnly.missing().is_none();
    let given = std::env::var("HETCKPT_RANDOM_KERNEL").ok();
    let given: Option<u64> = given.map(|number| number.parse()).transpose()?;
    let mut num_kernels = 0;
    while num_kernels < num_preemptions() {
        let seed = given.unwrap_or_else(|| context.random.below(1 << 40));
        // Images are described in memory, which the program does not do. GPUs do not promise what the others want.
        let differs = has_steps(seed) || module(seed).contains("activemask");
        if features(seed).images || (!is_on_cpu && differs) {
            continue;
        }
        num_kernels += 1;
        try_one(&mut context.random, seed, &mut tally).with_context(|| format!("HETCKPT_RANDOM_KERNEL={seed}"))?;
    }
    context.note(format!(
        "{num_kernels} kernels, {} dumps, {} in mid-kernel",
        tally.dumps, tally.mid_kernel
    ));
    ensure!(
        tally.mid_kernel > 0 || num_kernels < MANY,
        "none of {} dumps was in mid-kernel",
        tally.dumps
    );
    Ok(())
}

fn try_one(random: &mut Random, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut sandbox = Sandbox::new()?;
    compile(&sandbox, "random_managed", PROGRAM, &["-ldl"])?;
    fs::write(sandbox.path("k.ptx"), module(seed))?;
    let mut case = Case { seed, rounds: 20 };
    let (expected, took) = loop {
        let expected = case.expected(&sandbox)?;
        let took = Duration::from_millis(milliseconds(&expected)?);
        if took >= WANTED || case.rounds >= MOST_ROUNDS {
            break (expected, took);
        }
        let longer = WANTED.as_millis() / took.as_millis().max(1) + 1;
        case.rounds *= u64::try_from(longer)?.clamp(2, 64);
    };
    let place = ["device", "device", "host"][random.below(3) as usize];
    sandbox.set("HETCKPT_MANAGED_MEMORY", place);
    let job = Job::start(&sandbox, &case.command(&sandbox, "managed"))?;
    let outcome = preempted(job, random, took, tally)?;
    ensure!(
        outcome.code == 0 && outcome.stdout == expected.stdout,
        "in memory of the device it leaves\n{}\nbut managed, in the {place}'s: {}\n{}",
        expected.stdout,
        outcome.text(),
        sandbox.logs()
    );
    Ok(())
}

/// What comes of a run that is dumped and restored at random moments, unless it ends before.
fn preempted(mut job: Job<'_>, random: &mut Random, took: Duration, tally: &mut Tally) -> Result<Outcome> {
    for _ in 0..DUMPS {
        std::thread::sleep(random.moment(took / DUMPS));
        let dumped = match job.try_dump()? {
            Attempt::Ended(outcome) => return Ok(outcome),
            Attempt::Dumped(dumped) => dumped,
        };
        tally.dumps += 1;
        tally.mid_kernel += u32::from(kernels_in_flight(&dumped.inspect()?).iter().any(is_mid_flight));
        job = dumped.restore()?;
    }
    job.finish()
}
