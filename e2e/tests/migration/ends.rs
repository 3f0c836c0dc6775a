//! Where a program that was to move has come to its end: on exactly one of the two nodes, and what neither may keep of
//! it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::process::{Outcome, Running};
use serde_json::Value;

use super::node::{DEPOT, Node};
use super::source::Source;

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Right, at the source.
    Here,
    /// Right, on the target.
    There,
    /// Right, after `hetckpt restore` of the archive on the target, where it had not started.
    ByHand,
    /// By a fault that ends programs, and without a trace of it on the target.
    ByFault,
    /// By such a fault, on the target.
    ByFaultThere,
}

/// Waits until the program has ended, and makes sure that it did so right, and once; `may_end_so` tells of an end that
/// it did not come to by itself whether the fault accounts for it.
pub fn ends_once(node: &Node<'_>, source: Source<'_>, may_end_so: impl Fn(i32) -> bool) -> Result<End> {
    let expected = source.baseline.outcome.clone();
    let here = source.wait()?;
    // A guardian may still have something to tell the target.
    node.wait_until_empty_here()?;
    if here == expected {
        // What the target holds is withdrawn; until then it is not started.
        node.ensure_has_nothing().context("the program has ended here")?;
        node.wait_until_empty()?;
        return Ok(End::Here);
    }
    ensure!(here.code == 128 + 9 || may_end_so(here.code), "here: {}", here.text());
    let records = wait_for_one(node, || may_end_so(here.code))?;
    let [(record, printed)] = &records[..] else {
        ensure!(records.is_empty(), "the program is there twice: {records:?}");
        node.ensure_has_nothing()?;
        node.wait_until_empty()?;
        return Ok(End::ByFault);
    };
    node.wait_until_empty().with_context(|| format!("there: {record}"))?;
    ensure!(here.code == 128 + 9, "there: {record}; here: {}", here.text());
    if record["state"] == "failed" {
        ensure!(
            printed.is_empty(),
            "it is said to have failed, and ran: {record}: {printed}"
        );
        restored_by_hand(node, &here, &expected).with_context(|| format!("there: {record}: {printed}"))?;
        return Ok(End::ByHand);
    }
    if node.held("hetsnap").is_empty() && record["status"].as_i64().is_some_and(|code| may_end_so(code as i32)) {
        return Ok(End::ByFaultThere);
    }
    ensure!(
        (record["status"] == 0 || record["status"].is_null()) && here.stdout + printed == expected.stdout,
        "there: {record}: {printed}"
    );
    Ok(End::There)
}

/// Waits until a program has come and ended, or until it is sure that none comes, where that `may_be`.
fn wait_for_one(node: &Node<'_>, may_be: impl Fn() -> bool) -> Result<Vec<(Value, String)>> {
    let deadline = Instant::now() + PATIENCE;
    while node.records().is_empty() {
        // Nobody is left who would release it.
        if may_be() && node.held("hetsnap").is_empty() && node.held("part").is_empty() {
            return Ok(vec![]);
        }
        ensure!(Instant::now() < deadline, "no program comes");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.wait_for(&["ended", "failed"])
}

/// The archive that the target has kept is whole: what is restored from it comes to the right end.
fn restored_by_hand(node: &Node<'_>, here: &Outcome, expected: &Outcome) -> Result<()> {
    let held = node.held("hetsnap");
    let [archive] = &held[..] else {
        bail!("the other node has {held:?}");
    };
    let name = archive.file_name().context("no archive")?;
    let mut restore = node.hetckpt(["restore", "--device", "cpu"]);
    restore.arg(Path::new(DEPOT).join(name));
    let there = Running::run(restore, PATIENCE)?.success("restore by hand")?;
    ensure!(
        here.stdout.clone() + &there.stdout == expected.stdout,
        "{}",
        there.text()
    );
    fs::remove_file(archive)?;
    node.wait_until_empty()
}
