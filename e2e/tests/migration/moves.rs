//! Programs that move, onto another kind of device.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{PACED, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::user;
use serde_json::Value;

use super::node::Node;
use super::source::Source;

/// The tests: one program in each, all ten if `HETCKPT_E2E_ALL_NODES` is set.
pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = Program::between_nodes()
        .flat_map(|program| Installation::ways_between_nodes().map(|ways| (program, ways)))
        .map(|(program, (from, to))| {
            let name = format!("migrate_{}_from_{from}_to_{to}", program.name);
            let devices = Requirement::of_devices([&from, &to]);
            let test = Test::new(name, move |context| moves(context, &program, &from, &to));
            devices.into_iter().fold(test, Test::also_needs)
        })
        .collect();
    tests.push(Test::new("migrate_several_at_a_time", several));
    tests
}

fn moves(context: &mut Context, program: &Program, from: &str, to: &str) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", to])?;
    let (source, outcome) = calibration::until_long_enough(from, program, 2, |baseline| {
        let source = Source::start_again(sandbox, program, from, baseline.clone())?;
        let mut migrate = source.migrate(&node)?;
        migrate.arg("--json");
        let outcome = Running::run(migrate, PATIENCE)?;
        match outcome.stderr.contains("error[HK0801]") {
            true => Ok(None),
            false => Ok(Some((source, outcome.success("migrate")?))),
        }
    })?;
    let pid = source.pid;
    let expected = source.baseline.outcome.stdout.clone();
    let report: Value = serde_json::from_str(&outcome.stdout)?;
    ensure!(report["pid"] == pid, "{report}");
    // In namespaces of its own it has another id on each node.
    ensure!(user::tested().is_some() || report["target_pid"] == pid, "{report}");
    // Between two kernels there is nothing to wait for.
    ensure!(report["seconds"]["pause"].as_f64() >= Some(0.0), "pause: {report}");
    for step in ["criu", "transfer", "confirmation", "restore", "stopped"] {
        ensure!(report["seconds"][step].as_f64() > Some(0.0), "{step}: {report}");
    }
    ensure!(source.is_gone(), "the program is still here");
    ensure!(
        sandbox.files("hetsnap").is_empty() && !node.reach(Installation::get().hetckpt()).exists(),
        "the nodes are not apart, or there is an archive here"
    );
    let before = source.wait()?;
    ensure!(before.code == 128 + 9, "{}", before.text());
    let records = node.wait_for(&["ended"])?;
    let [(record, printed)] = &records[..] else {
        anyhow::bail!("there are {records:?}");
    };
    ensure!(record["status"] == 0, "{record}: {}", serve.said());
    ensure!(record["root_pid"] == report["target_pid"], "{record}: {report}");
    ensure!(before.stdout + printed == expected, "it printed {printed}");
    ensure!(node.held("hetsnap").is_empty(), "the archive was to be removed");
    serve.wait_for("has ended, with status 0")?;
    sandbox.wait_until_empty(PATIENCE)
}

/// Three programs at the same time, to one `serve`, which keeps their archives.
fn several(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", "cpu", "--keep"])?;
    // Long enough for all of them to run at a time.
    let mut baseline = calibration::baseline_on("cpu", &PACED)?;
    baseline.length *= 2;
    let start = || Source::start_again(sandbox, &PACED, "cpu", baseline.clone());
    let sources = [start()?, start()?, start()?];
    let migrations = sources
        .iter()
        .map(|source| Running::start(source.migrate(&node)?))
        .collect::<Result<Vec<_>>>()?;
    for migration in migrations {
        migration
            .wait(PATIENCE)?
            .success("migrate")
            .with_context(|| serve.said())?;
    }
    let records = node.wait_for(&["ended"])?;
    ensure!(records.len() == 3, "{records:?}");
    for (record, printed) in &records {
        let is_right = printed.ends_with("PASS\n") && *printed == records[0].1;
        ensure!(record["status"] == 0 && is_right, "{record}: {printed}");
    }
    let kept = node.held("hetsnap");
    ensure!(kept.len() == 3, "kept are {kept:?}");
    for path in kept {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path)?.permissions());
        ensure!(mode & 0o777 == 0o600, "an archive has mode {mode:o}");
    }
    Ok(())
}
