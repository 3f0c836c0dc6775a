//! Every process of a tree ends with the right result, whenever the tree is dumped.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::{Attempt, is_mid_flight, kernels_in_flight};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::num_dumps;
use super::tree::{self, ALL, Baseline, Tree};

/// The tests.
pub fn tests() -> Vec<Test> {
    let count = num_dumps();
    let mut tests = vec![];
    for tree in ALL {
        if tree.num_servers > 0 {
            tests.push(Test::new(format!("{}_in_mid_kernel", tree.name), move |context| {
                in_mid_kernel(context, tree)
            }));
        }
        let body = move |context: &mut Context| at_random_moments(context, tree, count);
        tests.push(Test::new(format!("{}_at_random_moments", tree.name), body).times(1 + count / 10));
    }
    tests
}

/// Tries for a dump in mid-kernel, since one may come between two kernels or after the end. Each tree is twice as long
/// as the one before: on a busy machine dumps take longer than kernels do.
const ATTEMPTS: u32 = 5;

/// All processes that use the device are in a kernel: the archive has each of them, and each goes on.
fn in_mid_kernel(context: &mut Context, tree: Tree) -> Result<()> {
    let mut baseline = tree.baseline()?;
    for attempt in 1..=ATTEMPTS {
        if is_dumped_in_mid_kernel(context, tree, &baseline)? {
            return Ok(());
        }
        baseline = tree.longer_baseline(1 << attempt)?;
    }
    anyhow::bail!("no dump of {ATTEMPTS} found a kernel half-way")
}

/// Dumps a tree twice; true if the second time a kernel was half-way.
fn is_dumped_in_mid_kernel(context: &mut Context, tree: Tree, baseline: &Baseline) -> Result<bool> {
    let sandbox = &context.sandbox;
    let job = tree.start(sandbox, baseline.length)?;
    let rows = tree::wait_for_kernels(sandbox, tree.num_servers)?;
    ensure!(
        rows.len() == tree.num_servers,
        "{} processes use the device; `hetckpt ps` has {rows:?}",
        tree.num_servers
    );
    let left = sandbox.path("left.hetsnap");
    let dumped = hetckpt::dump(sandbox, job.pid(), &left, true)?;
    if dumped.stderr.contains("error[HK0801]") {
        let ended = job.finish()?;
        ensure!(ended == baseline.outcome, "{}\n{}", dumped.text(), ended.text());
        return Ok(false);
    }
    dumped.success("dump --leave-running")?;
    let left = hetckpt::inspect(sandbox, &left)?;
    ensure_has_processes(&left, tree.num_servers)?;
    let Attempt::Dumped(dumped) = job.try_dump()? else {
        return Ok(false);
    };
    let inspected = dumped.inspect()?;
    let is_half_way = kernels_in_flight(&inspected).iter().any(is_mid_flight);
    let outcome = dumped.restore()?.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout == baseline.outcome.stdout,
        "after the restore: {}",
        outcome.text()
    );
    Ok(is_half_way)
}

/// Each with members of its own.
fn ensure_has_processes(inspected: &serde_json::Value, count: usize) -> Result<()> {
    let processes = inspected["processes"].as_array().map_or(0, Vec::len);
    ensure!(
        processes == count,
        "the archive was to have {count} processes: {inspected}"
    );
    Ok(())
}

/// What became of the dumps of a test.
#[derive(Default)]
struct Tally {
    restored: u32,
    left_running: u32,
    ended: u32,
    tried_again: u32,
}

/// Half of the dumps leave the tree running; what that yields is restored when the tree has ended.
fn at_random_moments(context: &mut Context, tree: Tree, count: u32) -> Result<()> {
    let baseline = tree.baseline()?;
    let mut tally = Tally::default();
    for round in 0..count {
        let delay = context.random.moment(baseline.duration);
        let leave_running = round % 2 == 1;
        let sandbox = Sandbox::new()?;
        let result = dump_after(&sandbox, tree, &baseline, delay, leave_running, &mut tally);
        result.with_context(|| {
            format!(
                "round {round}: dumped after {delay:?}, leave running: {leave_running}\n{}",
                sandbox.logs()
            )
        })?;
    }
    context.note(format!(
        "{count} dumps in {:?}: {} restored, {} left running and restored later, {} had ended; {} times again",
        baseline.duration, tally.restored, tally.left_running, tally.ended, tally.tried_again
    ));
    Ok(())
}

fn dump_after(
    sandbox: &Sandbox,
    tree: Tree,
    baseline: &Baseline,
    delay: Duration,
    leave_running: bool,
    tally: &mut Tally,
) -> Result<()> {
    let mut job = tree.start(sandbox, baseline.length)?;
    std::thread::sleep(delay);
    let archive = sandbox.path("tree.hetsnap");
    let mut dumped = hetckpt::dump(sandbox, job.pid(), &archive, leave_running)?;
    // What comes or goes just while CRIU freezes the tree is said to be tried again.
    while dumped.code != 0 && dumped.stderr.contains("again in a moment") && tally.tried_again < 100 {
        tally.tried_again += 1;
        dumped = hetckpt::dump(sandbox, job.pid(), &archive, leave_running)?;
    }
    if dumped.code != 0 {
        std::thread::sleep(Duration::from_millis(100));
        let has_ended = job.has_ended()?;
        let ended = job
            .finish()
            .with_context(|| format!("the dump failed: {}", dumped.text()))?;
        ensure!(
            has_ended && ended == baseline.outcome,
            "the dump failed: {}\n{}",
            dumped.text(),
            ended.text()
        );
        tally.ended += 1;
        return Ok(());
    }
    let first = job.finish().context("the dumped tree")?;
    let mut printed = String::new();
    if leave_running {
        ensure!(first == baseline.outcome, "left running, it ended so: {}", first.text());
        tally.left_running += 1;
    } else {
        ensure!(
            first.code == 128 + 9,
            "a dumped tree counts as killed, but: {}",
            first.text()
        );
        printed = first.stdout;
        tally.restored += 1;
    }
    let restored = hetckpt::restore(sandbox, &archive, &Installation::to_device())?.wait(hetckpt::PATIENCE)?;
    sandbox
        .wait_until_empty(Duration::from_secs(10))
        .context("after the restored tree's end")?;
    // What a tree that is left running prints after the dump, its restored twin prints again.
    let is_right = match leave_running {
        true => baseline.outcome.stdout.ends_with(&restored.stdout) && restored.stdout.ends_with("PASS\n"),
        false => printed.clone() + &restored.stdout == baseline.outcome.stdout,
    };
    ensure!(
        restored.code == 0 && is_right,
        "after {printed:?} the restored tree ended so: {}",
        restored.text()
    );
    Ok(())
}
