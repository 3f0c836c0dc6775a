//! What can go wrong: each failure has one clear message with a code and the right exit code, and a program that is
//! alive runs on to the right result.

mod dump_faults;
mod stopped_programs;
mod matrix;
mod suspension;
mod kill_loop;
mod random_kills;
mod plain_criu_kills;
mod archive_faults;
mod device_faults;
mod death;

use anyhow::{Result, ensure};
use hetckpt_e2e::process::Outcome;
use hetckpt_e2e::runner::Test;
use serde_json::Value;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = dump_faults::tests();
    tests.extend(stopped_programs::tests());
    let repeats = repeats();
    tests.extend(matrix::tests(repeats));
    tests.extend(suspension::tests(repeats));
    tests.extend(kill_loop::tests());
    tests.extend(random_kills::tests());
    tests.extend(plain_criu_kills::tests());
    tests.extend(archive_faults::tests());
    tests.extend(device_faults::tests());
    tests.extend(death::tests());
    tests
}

/// How often each fault is to hit somebody: as often as `HETCKPT_PREEMPTIONS` says.
fn repeats() -> u32 {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Makes sure that `outcome` is the failure `code`, said once, with the exit code `exit`.
fn ensure_failure(outcome: &Outcome, code: &str, exit: i32) -> Result<()> {
    let messages: Vec<&str> = outcome
        .stderr
        .lines()
        .filter(|line| line.starts_with("error"))
        .collect();
    ensure!(
        messages.len() == 1,
        "one message was to say what failed: {}",
        outcome.text()
    );
    let has_code = messages
        .iter()
        .all(|line| line.starts_with(&format!("error[{code}]: ")));
    ensure!(has_code, "the failure was to be {code}: {}", outcome.text());
    ensure!(
        outcome.code == exit,
        "the exit code was to be {exit}: {}",
        outcome.text()
    );
    // With --json it is told there too.
    let told: Option<Value> = serde_json::from_str(&outcome.stdout).ok();
    ensure!(
        outcome.stdout.is_empty() || told.is_some_and(|told| told["error"]["code"] == code),
        "a failure prints no result: {}",
        outcome.text()
    );
    Ok(())
}
