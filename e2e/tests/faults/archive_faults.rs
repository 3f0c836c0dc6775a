//! Archives that cannot be used: nothing is started, and the archive stays as it was.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{self, PACED};
use hetckpt_e2e::runner::{Context, Test};

use super::ensure_failure;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("archive_is_missing", archive_is_missing).needs(&[]),
        Test::new("archive_is_something_else", archive_is_something_else).needs(&[]),
        Test::new("archive_is_truncated", archive_is_truncated),
        Test::new("archive_has_a_flipped_bit", archive_has_a_flipped_bit),
        Test::new("archive_is_of_a_newer_version", archive_is_of_a_newer_version),
        // In namespaces of its own, which a user who is not root needs, no id is in use.
        Test::new("process_id_is_in_use", process_id_is_in_use).also_needs(Requirement::Root),
    ]
}

/// An archive of a program in mid-kernel.
fn good_archive(context: &Context) -> Result<PathBuf> {
    let length = calibration::baseline(&PACED)?.length;
    let mut job = Job::start(&context.sandbox, &PACED.command(length))?;
    job.wait_for_kernel()?;
    Ok(job.dump()?.archive)
}

/// Tries to restore `archive`, attached and detached, and expects `code`.
fn ensure_refused(context: &Context, archive: &Path, code: &str, detached_exit: i32) -> Result<()> {
    let before = fs::read(archive).unwrap_or_default();
    for (detach, exit) in [(false, 125), (true, detached_exit)] {
        let mut command = hetckpt::command(&context.sandbox, ["restore", "--device", "cpu"]);
        command.args(detach.then_some("--detach")).arg(archive);
        let outcome = Running::run(command, PATIENCE)?;
        ensure_failure(&outcome, code, exit)?;
    }
    ensure!(
        fs::read(archive).unwrap_or_default() == before,
        "the failed restore changed the archive"
    );
    context
        .sandbox
        .wait_until_empty(std::time::Duration::from_secs(5))
        .context("after a refused restore")
}

fn archive_is_missing(context: &mut Context) -> Result<()> {
    ensure_refused(context, &context.sandbox.path("missing.hetsnap"), "HK0701", 1)
}

fn archive_is_something_else(context: &mut Context) -> Result<()> {
    let path = context.sandbox.path("text.hetsnap");
    for content in ["", "just some text\n"] {
        fs::write(&path, content.repeat(100))?;
        ensure_refused(context, &path, "HK0701", 1)?;
    }
    Ok(())
}

fn archive_is_truncated(context: &mut Context) -> Result<()> {
    let bytes = fs::read(good_archive(context)?)?;
    let path = context.sandbox.path("truncated.hetsnap");
    for length in [600, bytes.len() / 2, bytes.len() - 2000] {
        fs::write(&path, &bytes[..length])?;
        ensure_refused(context, &path, "HK0702", 1).with_context(|| format!("cut to {length} of {}", bytes.len()))?;
    }
    Ok(())
}

fn archive_has_a_flipped_bit(context: &mut Context) -> Result<()> {
    let archive = good_archive(context)?;
    let inspected = hetckpt::inspect(&context.sandbox, &archive)?;
    let bytes = fs::read(&archive)?;
    let path = context.sandbox.path("flipped.hetsnap");
    let members = inspected["members"].as_array().cloned().unwrap_or_default();
    ensure!(members.len() > 5, "a program is more than {} files", members.len());
    // In the middle of each third member; a member starts after the 512-byte header with its name.
    for member in members.iter().step_by(3) {
        let name = member["name"].as_str().unwrap_or_default();
        let mut header = name.as_bytes().to_vec();
        header.push(0);
        let stored = usize::try_from(member["stored_bytes"].as_u64().unwrap_or(0))?;
        let start = (0..bytes.len())
            .step_by(512)
            .rfind(|&at| bytes[at..].starts_with(&header));
        let at = start.with_context(|| format!("member {name} is not in the archive"))? + 512 + stored / 2;
        if stored == 0 {
            continue;
        }
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << context.random.below(8);
        fs::write(&path, &flipped)?;
        let in_restore = match name.starts_with("files/") {
            // This machine has the file: it is not taken from the archive.
            true => hetckpt::restore(&context.sandbox, &path, "cpu")?
                .wait(PATIENCE)
                .and_then(|outcome| {
                    let is_right = outcome.code == 0 && outcome.stdout.ends_with("PASS\n");
                    ensure!(is_right, "{}", outcome.text());
                    Ok(())
                }),
            false => ensure_refused(context, &path, "HK0702", 1),
        };
        in_restore.with_context(|| format!("bit flipped in {name}"))?;
        let mut verify = hetckpt::command(&context.sandbox, ["inspect", "--verify"]);
        verify.arg(&path);
        ensure_failure(&Running::run(verify, PATIENCE)?, "HK0702", 1)?;
    }
    Ok(())
}

fn archive_is_of_a_newer_version(context: &mut Context) -> Result<()> {
    let archive = good_archive(context)?;
    let mut bytes = fs::read(&archive)?;
    let key = b"\"format_version\":";
    let at = bytes
        .windows(key.len())
        .position(|window| window == key)
        .context("no version in the header")?;
    let digit = bytes[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .context("no version in the header")?;
    // The tar's header sums cover only the headers, so the header may change as long as its length does not.
    bytes[at + digit] = b'9';
    fs::write(&archive, &bytes)?;
    ensure_refused(context, &archive, "HK0703", 3)?;
    let mut inspect = hetckpt::command(&context.sandbox, ["inspect"]);
    inspect.arg(&archive);
    ensure_failure(&Running::run(inspect, PATIENCE)?, "HK0703", 3)
}

fn process_id_is_in_use(context: &mut Context) -> Result<()> {
    let job = Job::start(
        &context.sandbox,
        &program::command("late_cuda", &["--wait-ms", "60000", "--progress"]),
    )?;
    let mut job = job;
    job.wait_for_stderr("waiting")?;
    let archive = job.dump_and_leave_running()?;
    // Not `ensure_refused`: the program that holds the id is to live.
    let mut command = hetckpt::command(&context.sandbox, ["restore", "--device", "cpu"]);
    command.arg(&archive);
    ensure_failure(&Running::run(command, PATIENCE)?, "HK0905", 125)?;
    ensure!(
        !hetckpt_e2e::sandbox::is_gone(job.pid()),
        "the refused restore ended the running program"
    );
    job.kill()
}
