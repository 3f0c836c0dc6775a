//! `hetckpt check` beside what a restore then does.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use serde_json::Value;

/// Long enough to be there after a restore.
const ITERATIONS: &str = "1000000000000";

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![Test::new(
        "check_says_what_a_restore_would_stumble_over",
        says_what_is_missing,
    )]
}

/// Names of the checks of which a problem came, and all that was found.
fn problems(context: &Context, archive: &Path, device: &str) -> Result<(Vec<String>, Value)> {
    let arguments: [OsString; 5] = [
        "check".into(),
        archive.into(),
        "--json".into(),
        "--device".into(),
        device.into(),
    ];
    let outcome = hetckpt::run(&context.sandbox, arguments)?;
    let report: Value = serde_json::from_str(&outcome.stdout)
        .with_context(|| format!("check --json prints no JSON: {}", outcome.text()))?;
    let checks = report["checks"].as_array().context("no checks")?;
    let bad = checks.iter().filter(|finding| finding["verdict"] == "problem");
    let bad: Vec<String> = bad
        .filter_map(|finding| Some(finding["check"].as_str()?.to_owned()))
        .collect();
    ensure!(outcome.code == i32::from(!bad.is_empty()), "{}", outcome.text());
    Ok((bad, report))
}

fn says_what_is_missing(context: &mut Context) -> Result<()> {
    let program = context.sandbox.path("paced");
    executable::copy(&Installation::get().programs.join(PACED.name), &program)?;
    let command: [OsString; 3] = [program.clone().into(), "--iterations".into(), ITERATIONS.into()];
    let mut job = Job::start(&context.sandbox, &command)?;
    job.wait_for_kernel()?;
    let without_files = context.sandbox.path("without-files.hetsnap");
    let mut command = hetckpt::command(&context.sandbox, ["dump", "--leave-running", "--bundle", "none", "-o"]);
    command.arg(&without_files).args(["--pid", &job.pid().to_string()]);
    Running::run(command, PATIENCE)?.success("dump --bundle none")?;
    let dumped = job.dump()?;
    let archive = dumped.archive.clone();
    let device = Installation::to_device();

    let (bad, report) = problems(context, &archive, &device)?;
    ensure!(bad.is_empty(), "{report}");
    let (bad, report) = problems(context, &archive, "cuda:77")?;
    ensure!(bad == ["device"], "{report}");

    // Another build of the program, at the same path; then one as long, of which only the build id is another; then
    // none.
    let content = fs::read(&program)?;
    let mut other_id = content.clone();
    // The note's type, 3, and name.
    let note = content.windows(8).position(|bytes| bytes == b"\x03\0\0\0GNU\0");
    let id = note.context("no build id")? + 8;
    other_id[id] ^= 1;
    for (other, what) in [
        (Some([&*content, b"more"].concat()), "paced has"),
        (Some(other_id), "paced is another build"),
        (None, "paced is missing"),
    ] {
        match other {
            Some(other) => fs::write(&program, other)?,
            None => fs::remove_file(&program)?,
        }
        let (bad, report) = problems(context, &without_files, &device)?;
        ensure!(bad == ["files"] && report.to_string().contains(what), "{report}");
        let (bad, report) = problems(context, &archive, &device)?;
        ensure!(
            bad.is_empty() && report.to_string().contains("come out of the snapshot"),
            "{report}"
        );
    }
    fs::write(&program, content)?;
    fs::set_permissions(
        &program,
        fs::metadata(Installation::get().programs.join(PACED.name))?.permissions(),
    )?;

    let damaged = context.sandbox.path("damaged.hetsnap");
    let mut bytes = fs::read(&archive)?;
    // Behind the header, in the pages.
    let at = bytes.len() * 3 / 4;
    bytes[at] ^= 1;
    fs::write(&damaged, bytes)?;
    let outcome = hetckpt::run(&context.sandbox, [OsString::from("check"), damaged.into()])?;
    ensure!(outcome.code == 1, "{}", outcome.text());

    let job = dumped.restore()?;
    let (bad, report) = problems(context, &archive, &device)?;
    // In namespaces of its own, which it gets where this is not root, all ids are free.
    let expected: &[&str] = match nix::unistd::geteuid().is_root() {
        true => &["process-ids"],
        false => &[],
    };
    ensure!(bad == expected, "{report}");
    job.kill()?;
    let (bad, report) = problems(context, &archive, &device)?;
    ensure!(bad.is_empty(), "{report}");
    Ok(())
}
