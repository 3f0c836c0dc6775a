//! Dumps and restores that follow one another, or come at the same time, and what they leave: no process, descriptor,
//! shared memory, socket, file, mount or memory beyond what the first left.
//!
//! `HETCKPT_SOAK_CYCLES` is how often one program is dumped and restored (2).

mod resources;
mod program;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::program::MEMORY_HOG;
use hetckpt_e2e::runner::{Context, Test};

use self::program::{Attempt, Ran, Soaked};
use self::resources::{Resources, ensure_nothing_in};

/// Programs at once.
const AT_ONCE: u64 = 8;
/// Dumps and restores of each of those.
const CYCLES_AT_ONCE: u64 = 2;
/// How many times as long as elsewhere the programs take, so that they do not end before their time; then they are
/// ended.
const TIMES: u64 = 1000;
/// For how long something may be more than it was.
const SETTLING: Duration = Duration::from_secs(3);

/// The tests.
pub fn tests() -> Vec<Test> {
    let cycles = num_cycles();
    vec![
        Test::new("one_program_again_and_again_leaves_nothing", move |context| {
            again_and_again(context, cycles)
        })
        .times(1 + u32::try_from(cycles / 20).unwrap_or(u32::MAX))
        .alone(),
        Test::new("eight_programs_at_once_leave_nothing", at_once).alone(),
    ]
}

/// `HETCKPT_SOAK_CYCLES`.
fn num_cycles() -> u64 {
    let given = std::env::var("HETCKPT_SOAK_CYCLES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(2).max(2)
}

/// What a program holds in each cycle is what it held after its first restore, and so is what lies in its folders.
fn again_and_again(context: &mut Context, cycles: u64) -> Result<()> {
    let sandbox = &context.sandbox;
    let started = Instant::now();
    let steps = calibration::baseline(&MEMORY_HOG)?.length * TIMES;
    let mut program = Soaked::start(sandbox, "a", steps)?;
    let mut seen: Vec<Resources> = vec![];
    let mut num_programs = 1;
    for cycle in 1..=cycles {
        let dumped = loop {
            let ran = match program.try_dump().with_context(|| format!("dump {cycle}"))? {
                Attempt::Stored(dumped) => break dumped,
                Attempt::Ended(ran) => ran,
            };
            // It has done all that it had to do.
            ensure_left_clean(context, &ran)?;
            num_programs += 1;
            program = Soaked::start(sandbox, "a", steps)?;
        };
        sandbox.wait_until_empty(program::PATIENCE)?;
        ensure_nothing_in(&sandbox.runtime_dir(), &[])?;
        dumped.ensure_nothing_but_the_archive()?;
        program = match dumped.restore().with_context(|| format!("restore {cycle}"))? {
            Some(program) => program,
            None => {
                num_programs += 1;
                program = Soaked::start(sandbox, "a", steps)?;
                // What holds for a restored one need not for one that was just started.
                continue;
            }
        };
        let now = settled(&program, seen.first()).with_context(|| format!("after restore {cycle}"))?;
        seen.push(now);
    }
    Resources::ensure_no_growth(&seen)?;
    let ran = program.kill()?;
    ensure_left_clean(context, &ran)?;
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else {
        return Ok(());
    };
    context.note(format!(
        "{cycles} dumps and restores of {num_programs} programs, one after the other, in {:.0} s; {}; {}",
        started.elapsed().as_secs_f64(),
        first.counts(),
        first.memory_until(last)
    ));
    Ok(())
}

/// What the program holds, once it is no more than `first`: what `hetckpt ps` has asked takes a moment to be forgotten.
fn settled(program: &Soaked<'_>, first: Option<&Resources>) -> Result<Resources> {
    let deadline = Instant::now() + SETTLING;
    loop {
        std::thread::sleep(SETTLING / 20);
        let now = program.resources()?;
        match first.map(|first| now.ensure_like(first)) {
            Some(Err(error)) if Instant::now() > deadline => return Err(error.context("compared with the first")),
            Some(Err(_)) => {}
            Some(Ok(())) | None => return Ok(now),
        }
    }
}

/// Dumped at the same moment, restored at the same moment, and again.
fn at_once(context: &mut Context) -> Result<()> {
    let started = Instant::now();
    let sandbox = &context.sandbox;
    let steps = calibration::baseline(&MEMORY_HOG)?.length * TIMES;
    let together = Barrier::new(usize::try_from(AT_ONCE)?);
    let one = |name: String| -> Result<Ran> {
        // Whoever fails must still come to the barriers, or the others wait for ever.
        let mut program = Soaked::start(sandbox, &name, steps).map(Some);
        for _ in 0..CYCLES_AT_ONCE {
            together.wait();
            let dumped = program.and_then(|program| program.map(Soaked::dump).transpose());
            together.wait();
            program = dumped.and_then(|dumped| {
                let dumped = dumped.context("nothing was dumped")?;
                dumped.ensure_nothing_but_the_archive()?;
                dumped.restore()
            });
        }
        program?.context("nothing was restored")?.kill()
    };
    let all: Vec<Result<Ran>> = std::thread::scope(|scope| {
        let names = (0..AT_ONCE).map(|number| format!("p{number}"));
        let threads: Vec<_> = names.map(|name| scope.spawn(|| one(name))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Ran>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the test panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    for (number, ran) in all.into_iter().enumerate() {
        let ran = ran.with_context(|| format!("program {number}"))?;
        ensure_left_clean(context, &ran)?;
    }
    context.note(format!(
        "{AT_ONCE} programs at once, each dumped and restored {CYCLES_AT_ONCE} times, in {:.0} s",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// After the end of all programs there is nothing left of them but their archives.
fn ensure_left_clean(context: &Context, ran: &Ran) -> Result<()> {
    let sandbox = &context.sandbox;
    ensure!(
        ran.is_right(),
        "the program came to a wrong result: {}",
        ran.outcome.text()
    );
    sandbox.wait_until_empty(program::PATIENCE)?;
    ensure_nothing_in(&sandbox.runtime_dir(), &[])?;
    ran.ensure_nothing_but_the_archive()?;
    resources::ensure_no_mounts_in(&sandbox.path(""))
}
