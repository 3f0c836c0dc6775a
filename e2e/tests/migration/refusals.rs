//! Targets that cannot take a program: it is told why before it is stopped, where that can be known, and runs on here.

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::user;

use super::node::{DEPOT, Node};
use super::source::{Source, ensure_fails};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("migrate_to_a_node_without_room", no_room),
        Test::new("migrate_to_a_node_that_lacks_something", lacks_something),
        Test::new("migrate_to_a_node_whose_restore_fails", restore_fails),
        Test::new("migrate_interrupted_by_a_signal", interrupted),
    ]
}

fn no_room(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    node.shell(&format!(
        "mkdir {DEPOT} /tmp/small; mount -t tmpfs -o size=2m depot {DEPOT}; mount -t tmpfs -o size=1m small /tmp/small
        chown {0} {DEPOT} /tmp/small",
        user::owner()
    ))?;
    let start = || Source::start(sandbox, &PACED, "cpu");
    let source = start()?;
    let serve = node.serve(&["--device", "cpu"])?;
    ensure_fails(source.migrate(&node)?, "HK1009", &["larger than"])?;
    source.ensure_runs_on()?;
    serve.kill()?;
    node.shell(&format!("umount {DEPOT}; chown {} {DEPOT}", user::owner()))?;
    let source = start()?;
    let serve = node.serve(&["--device", "cpu", "--max-size", "100000"])?;
    ensure_fails(source.migrate(&node)?, "HK1009", &["larger than the 100000 bytes"])?;
    source.ensure_runs_on()?;
    serve.kill()?;
    // Known before the program is stopped.
    let source = start()?;
    let files = node.authority.sign(&node.address())?;
    let serve = node.serve_as(&files, &["--device", "cpu"], |command| {
        command.env("TMPDIR", "/tmp/small");
    })?;
    ensure_fails(source.migrate(&node)?, "HK0704", &["free in /tmp/small"])?;
    ensure!(!serve.said().contains("prepared"), "{}", serve.said());
    node.ensure_has_nothing()?;
    source.ensure_runs_on()
}

fn lacks_something(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    // Many attempts: each is to find it at work.
    let source = Source::start_again(sandbox, &PACED, "cpu", calibration::lasting_on("cpu", &PACED, 3)?)?;
    ensure_fails(source.migrate(&node)?, "HK1003", &["cannot be reached"])?;
    let serve = node.serve(&["--device", "cuda:7"])?;
    ensure_fails(source.migrate(&node)?, "HK0501", &["no device `cuda:7`"])?;
    serve.kill()?;
    let serve = node.serve(&["--device", "cpu"])?;
    // A process there has the id; programs of users who are not root have namespaces of their own.
    if user::tested().is_none() {
        let line = format!("echo {} >/proc/sys/kernel/ns_last_pid; sleep 1000", source.pid - 1);
        let mut command = node.command("sh");
        // The shell's child is the next process of that node.
        command.args(["-c", &line]);
        let squatter = Running::start(command)?;
        std::thread::sleep(std::time::Duration::from_millis(200));
        ensure_fails(source.migrate(&node)?, "HK0905", &["are in use"])?;
        drop(squatter);
        node.shell(&format!("kill {}", source.pid))?;
    }
    // Known only from the images: the program had been stopped, and runs on.
    let mut migrate = source.migrate(&node)?;
    migrate.args(["--bundle", "none"]);
    ensure_fails(migrate, "HK0907", &["paced is missing"])?;
    node.ensure_has_nothing()?;
    drop(serve);
    source.ensure_runs_on()
}

/// Too late for the source: the target has the archive, and says where.
fn restore_fails(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let criu = node.reach("/tmp/in/criu");
    let real = Installation::get().criu.display();
    executable::write(
        &criu,
        &format!("#!/bin/sh\n[ \"$1\" != restore ] || exit 1\nexec {real} \"$@\"\n"),
    )?;
    let files = node.authority.sign(&node.address())?;
    let serve = node.serve_as(&files, &["--device", "cpu"], |command| {
        command.env("HETCKPT_CRIU", "/tmp/in/criu");
    })?;
    let source = Source::start(sandbox, &PACED, "cpu")?;
    let outcome = Running::run(source.migrate(&node)?, PATIENCE)?;
    let held = node.held("hetsnap");
    let [archive] = &held[..] else {
        anyhow::bail!("the other node has {held:?}: {}", outcome.text());
    };
    let name = archive.file_name().context("no name")?.to_string_lossy().into_owned();
    for part in ["error[HK1008]", "does not run", "[HK0904]", &format!("{DEPOT}/{name}")] {
        ensure!(
            outcome.stderr.contains(part),
            "`{part}` was to be said: {}",
            outcome.text()
        );
    }
    ensure!(serve.said().contains("not restored"), "{}", serve.said());
    let expected = source.baseline.outcome.stdout.clone();
    let before = source.wait()?;
    ensure!(before.code == 128 + 9, "{}", before.text());
    // It is whole.
    let mut restore = node.hetckpt(["restore", "--device", "cpu"]);
    restore.arg(format!("{DEPOT}/{name}"));
    let outcome = Running::run(restore, PATIENCE)?.success("restore")?;
    ensure!(before.stdout + &outcome.stdout == expected, "{}", outcome.text());
    Ok(())
}

fn interrupted(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    let serve = node.serve(&["--device", "cpu"])?;
    let source = Source::start(sandbox, &PACED, "cpu")?;
    let migration = Running::start(source.migrate(&node)?)?;
    // Its first sign.
    serve.wait_for("offered by")?;
    migration.signal(nix::sys::signal::Signal::SIGTERM)?;
    let outcome = migration.wait(PATIENCE)?;
    ensure!(
        outcome.code == 1 && outcome.stderr.contains("error[HK0807]") && outcome.stderr.contains("runs on here"),
        "{}",
        outcome.text()
    );
    node.ensure_has_nothing()?;
    source.ensure_runs_on()
}
