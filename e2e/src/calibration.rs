//! How long each program must be told to work so that an uninterrupted run takes a second or two on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::installation::Installation;
use crate::job::Job;
use crate::process::Outcome;
use crate::program::Program;
use crate::sandbox::Sandbox;

/// What the work of an uninterrupted run is to take: `HETCKPT_E2E_MILLISECONDS`, else one and a half seconds. Less makes
/// sense where a GPU's program goes on on a CPU.
#[must_use]
pub fn wanted() -> Duration {
    let given = std::env::var("HETCKPT_E2E_MILLISECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_millis(given.unwrap_or(1500))
}

/// True if a run of this length, start-up and all, is as good as one of exactly [`wanted`].
fn is_good(duration: Duration) -> bool {
    let wanted = wanted();
    (wanted / 2..wanted * 3 + Duration::from_millis(500)).contains(&duration)
}

/// An uninterrupted run: what all others are compared with.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The length that was used.
    pub length: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, from start to end.
    pub duration: Duration,
}

/// Runs `program` uninterrupted at a length that takes a second or two, found now or known from an earlier run.
///
/// # Errors
/// If the program does not pass its own check.
pub fn baseline(program: &Program) -> Result<Baseline> {
    let device = Installation::from_device();
    let key = format!("{} {device} {} ms", program.name, wanted().as_millis());
    if let Some(length) = known().get(&key).copied() {
        let run = uninterrupted(program, length)?;
        if is_good(run.duration) {
            return Ok(run);
        }
    }
    let run = calibrate(program)?;
    remember(&key, run.length)?;
    Ok(run)
}

/// Runs `program` uninterrupted at `length`.
///
/// # Errors
/// If it does not pass its own check.
pub fn uninterrupted(program: &Program, length: u64) -> Result<Baseline> {
    let sandbox = Sandbox::new()?;
    let started = Instant::now();
    let run = (|| -> Result<Baseline> {
        let outcome = Job::start(&sandbox, &program.command(length))?.finish()?;
        ensure!(
            outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
            "{}",
            outcome.text()
        );
        Ok(Baseline {
            length,
            outcome,
            duration: started.elapsed(),
        })
    })();
    run.with_context(|| {
        format!(
            "an uninterrupted run of {} --{} {length}\n{}",
            program.name,
            program.length,
            sandbox.logs()
        )
    })
}

/// Lengthens the run until its length can be told from its start-up, then takes the proportion.
fn calibrate(program: &Program) -> Result<Baseline> {
    // Twice: the first run also translates the program's kernels.
    uninterrupted(program, program.shortest)?;
    let start_up = uninterrupted(program, program.shortest)?.duration;
    let mut length = program.shortest;
    loop {
        length = length.saturating_mul(8).min(program.longest);
        let run = uninterrupted(program, length)?;
        let work = run.duration.saturating_sub(start_up);
        if is_good(run.duration) || length == program.longest {
            return Ok(run);
        }
        if work > wanted() / 8 {
            let scaled = length as f64 * (wanted().as_secs_f64() / work.as_secs_f64());
            // Float to integer conversion saturates, and the bounds are the program's own.
            length = (scaled as u64).clamp(program.shortest, program.longest);
            return uninterrupted(program, length);
        }
    }
}

/// Lengths found by earlier runs.
fn known() -> BTreeMap<String, u64> {
    let text = fs::read(file()).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn file() -> std::path::PathBuf {
    Installation::get().state.join("calibration.json")
}

fn remember(key: &str, length: u64) -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let mut all = known();
    all.insert(key.to_owned(), length);
    fs::create_dir_all(&Installation::get().state)?;
    fs::write(file(), serde_json::to_vec_pretty(&all)?).context("cannot keep the calibration")
}
