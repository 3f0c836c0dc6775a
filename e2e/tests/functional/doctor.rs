//! `hetckpt doctor` on a machine that can dump and restore, and on ones that cannot.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

/// The tests.
pub fn tests() -> Vec<Test> {
    let needs = [Requirement::Root, Requirement::Criu];
    vec![
        Test::new("doctor_finds_nothing_wrong_here", nothing_wrong).needs(&needs),
        Test::new("doctor_names_what_is_wrong", names_what_is_wrong).needs(&needs),
        Test::new("doctor_misses_parts_of_the_installation", misses_parts).needs(&needs),
    ]
}

fn examine(mut command: Command) -> Result<(Outcome, Value)> {
    command.arg("--json");
    let outcome = Running::run(command, PATIENCE)?;
    let report = serde_json::from_str(&outcome.stdout)
        .with_context(|| format!("doctor --json prints no JSON: {}", outcome.text()))?;
    Ok((outcome, report))
}

/// What came of a check.
fn finding<'a>(report: &'a Value, check: &str) -> Result<&'a Value> {
    let checks = report["checks"].as_array().context("no checks")?;
    let found = checks.iter().find(|finding| finding["check"] == check);
    found.with_context(|| format!("no check {check}: {report}"))
}

/// The checks of which a problem came.
fn problems(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().into_iter().flatten();
    let bad = checks.filter(|finding| finding["verdict"] == "problem");
    bad.filter_map(|finding| finding["check"].as_str()).collect()
}

fn nothing_wrong(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (outcome, report) = examine(hetckpt::command(sandbox, ["doctor"]))?;
    ensure!(outcome.code == 0 && report["problems"] == 0, "{}", outcome.text());
    for check in [
        "criu",
        "privileges",
        "ptrace",
        "server",
        "shim",
        "plugin",
        "devices",
        "runtime-directory",
    ] {
        let finding = finding(&report, check)?;
        // Containers may have it so, and it is said.
        let lacks_resources = finding["found"]
            .as_str()
            .is_some_and(|found| found.contains("without CAP_SYS_RESOURCE: programs of other users"));
        ensure!(finding["verdict"] == "ok" || lacks_resources, "{finding}");
    }
    let printed = hetckpt::run(sandbox, ["doctor"])?.success("doctor")?;
    let lines: Vec<&str> = printed.stdout.lines().collect();
    let count = report["checks"].as_array().map_or(0, Vec::len);
    let (last, lines) = lines.split_last().context("it says nothing")?;
    let expected = if report["warnings"] == 0 {
        "all is well"
    } else {
        "warning"
    };
    ensure!(last.contains(expected), "the last line was to sum up: {last}");
    ensure!(
        lines.len() == count
            && lines
                .iter()
                .all(|line| line.starts_with("ok ") || line.contains(" -- ")),
        "a line for each check, with what to do: {}",
        printed.stdout
    );
    Ok(())
}

fn names_what_is_wrong(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let mut command = hetckpt::command(sandbox, ["doctor"]);
    command.env("HETCKPT_CRIU", "/no/such/criu");
    let (outcome, report) = examine(command)?;
    let criu = finding(&report, "criu")?;
    ensure!(outcome.code == 1 && problems(&report) == ["criu"], "{}", outcome.text());
    ensure!(
        criu["code"] == "HK0901"
            && criu["found"]
                .as_str()
                .is_some_and(|found| found.contains("/no/such/criu"))
            && criu["help"].as_str().is_some_and(|help| help.contains("install CRIU")),
        "{criu}"
    );

    let open = sandbox.path("open-to-all");
    fs::create_dir(&open)?;
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777))?;
    let mut command = hetckpt::command(sandbox, ["doctor"]);
    command
        .env("HETCKPT_RUNTIME_DIR", &open)
        .env("TMPDIR", "/no/such/folder");
    let (outcome, report) = examine(command)?;
    ensure!(
        outcome.code == 1 && problems(&report) == ["runtime-directory", "restore-room"],
        "{}",
        outcome.text()
    );
    Ok(())
}

/// Copies the installation but for what `is_left_out` names.
fn copy_installation(sandbox: &Sandbox, left_out: &[&str]) -> Result<()> {
    let stage = &Installation::get().stage;
    for part in [
        "bin/hetckpt",
        "bin/hetckpt-server",
        "lib/hetckpt/libcuda.so.1",
        "lib/criu/hetgpu_plugin.so",
    ] {
        let place = sandbox.path("copy").join(part);
        fs::create_dir_all(place.parent().context("no folder")?)?;
        if !left_out.contains(&part) {
            executable::copy(&stage.join(part), &place)?;
        }
    }
    Ok(())
}

fn misses_parts(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    copy_installation(sandbox, &["lib/criu/hetgpu_plugin.so"])?;
    fs::write(sandbox.path("copy/lib/hetckpt/libcuda.so.1"), "cut off")?;
    let mut command = Command::new(sandbox.path("copy/bin/hetckpt"));
    sandbox.equip(&mut command);
    command.arg("doctor");
    let (outcome, report) = examine(command)?;
    ensure!(outcome.code == 1, "{}", outcome.text());
    for (check, part) in [("plugin", "hetgpu_plugin.so is missing"), ("shim", "it is cut off")] {
        let finding = finding(&report, check)?;
        ensure!(
            finding["verdict"] == "problem"
                && finding["code"] == "HK0803"
                && finding["found"].as_str().is_some_and(|found| found.contains(part))
                && finding["help"].is_string(),
            "{finding}"
        );
    }
    // GPUs do without it.
    let codegen = finding(&report, "cpu-code-generator")?;
    ensure!(codegen["verdict"] == "warning", "{codegen}");
    ensure!(finding(&report, "server")?["verdict"] == "ok", "{report}");
    Ok(())
}
