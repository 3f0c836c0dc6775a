//! Programs without device state under CRIU with the plugin: all is as it is without.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::plain_criu::{Program, criu, ensure_same, start_paced, wait_until_gone};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::is_gone;

/// Says twice that it lives, with a few seconds between, and has no children.
const COUNTING: [&str; 2] = [
    "awk",
    "BEGIN { print \"begins\"; fflush(); while (n < 6e7) n++; print \"ends\" }",
];

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("ordinary_program_is_dumped_and_restored", dumped_and_restored),
        Test::new("ordinary_program_is_pre_dumped_as_without_the_plugin", pre_dumped),
        Test::new("pre_dump_refuses_device_state", refuses_device_state),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

fn start(context: &Context) -> Result<Program> {
    let program = Program::begin(&context.sandbox, &COUNTING.map(OsString::from), &[])?;
    let deadline = Instant::now() + PATIENCE;
    while fs::read_to_string(context.sandbox.path("out"))? != "begins\n" {
        ensure!(Instant::now() < deadline, "the program says nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(program)
}

fn dumped_and_restored(context: &mut Context) -> Result<()> {
    let program = start(context)?;
    let pid = program.pid();
    let sandbox = &context.sandbox;
    criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?.success("criu dump")?;
    drop(program);
    ensure!(is_gone(pid), "process {pid} still runs after the dump");
    criu(sandbox, "restore", true, &["--restore-detached"])?.success("criu restore")?;
    wait_until_gone(pid)?;
    ensure_same(&sandbox.path("out"), "begins\nends\n")
}

/// Where the kernel does not tell what is written CRIU refuses it, and does so with the plugin as without.
fn pre_dumped(context: &mut Context) -> Result<()> {
    let program = start(context)?;
    let sandbox = &context.sandbox;
    let mut codes = vec![];
    for with_plugin in [false, true] {
        let outcome = criu(
            sandbox,
            "pre-dump",
            with_plugin,
            &["--tree", &program.pid().to_string()],
        )?;
        ensure!(complaint(&sandbox.path("images"))?.is_none(), "{}", outcome.text());
        codes.push(outcome.code);
    }
    ensure!(codes[0] == codes[1], "CRIU ended with {codes:?}");
    context.note(format!("criu pre-dump ended with {codes:?}"));
    wait_until_gone(program.pid())?;
    ensure_same(&context.sandbox.path("out"), "begins\nends\n")
}

fn refuses_device_state(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = start_paced(sandbox, baseline.length)?;
    let outcome = criu(sandbox, "pre-dump", true, &["--tree", &program.pid().to_string()])?;
    let complaint = complaint(&sandbox.path("images"))?.unwrap_or_default();
    ensure!(
        outcome.code != 0
            && complaint.contains(&format!("process {}", program.pid()))
            && complaint.contains("pre-dump is not supported"),
        "{}: {complaint}",
        outcome.text()
    );
    wait_until_gone(program.pid())?;
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout).context("after the refused pre-dump")
}

/// What the plugin has against a pre-dump.
fn complaint(images: &Path) -> Result<Option<String>> {
    let log = fs::read_to_string(images.join("pre-dump.log")).context("the log of the pre-dump")?;
    let mut complaints = log.lines().filter_map(|line| line.split_once("hetgpu: error: "));
    Ok(complaints.next().map(|(_, complaint)| complaint.to_owned()))
}
