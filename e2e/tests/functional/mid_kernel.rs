//! Dumps that provably hit a kernel in the middle.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::{Job, kernels_in_flight};
use hetckpt_e2e::program::{MEMORY_HOG, Program, SPIN};
use hetckpt_e2e::runner::{Context, Test};
use serde_json::Value;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "catches_a_kernel_with_unfinished_blocks",
            catches_a_kernel_with_unfinished_blocks,
        ),
        Test::new(
            "stops_a_kernel_with_barriers_part_way",
            stops_a_kernel_with_barriers_part_way,
        ),
        Test::new(
            "keeps_device_memory_beside_a_running_kernel",
            keeps_device_memory_beside_a_running_kernel,
        ),
    ]
}

fn count(kernel: &Value, key: &str) -> u64 {
    kernel[key].as_u64().unwrap_or(0)
}

/// Dumps `program` while its kernel runs, restores it, compares; gives the kernel as `inspect` has it.
fn dump_within_kernel(context: &mut Context, program: &Program) -> Result<Value> {
    calibration::until_long_enough(&Installation::from_device(), program, 1, |baseline| {
        let mut command: Vec<OsString> = program.command(baseline.length);
        command.push("--progress".into());
        let job = Job::start(&context.sandbox, &command)?;
        job.wait_for_stderr("launched")?;
        let Some(dumped) = job.try_dump_in_mid_kernel()? else {
            return Ok(None);
        };
        let kernels = kernels_in_flight(&dumped.inspect()?);
        ensure!(
            kernels.len() == 1,
            "one kernel was to be in flight, `inspect` has {kernels:?}"
        );
        let kernel = kernels[0].clone();
        let grid = kernel["grid"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .product::<u64>();
        let blocks = ["blocks_finished", "blocks_paused", "blocks_not_started"].map(|key| count(&kernel, key));
        ensure!(
            blocks.iter().sum::<u64>() == grid,
            "the blocks {blocks:?} are not those of the grid of {grid}"
        );
        context.note(format!(
            "blocks finished, paused, not started: {blocks:?}; pause {:?}",
            dumped.seconds("pause")
        ));
        let outcome = dumped.restore()?.finish()?;
        super::preempt::check(program, &baseline.outcome, &outcome)?;
        Ok(Some(kernel))
    })
}

fn catches_a_kernel_with_unfinished_blocks(context: &mut Context) -> Result<()> {
    let kernel = dump_within_kernel(context, &SPIN)?;
    ensure!(
        count(&kernel, "blocks_paused") > 0,
        "no block stopped inside the loop: {kernel}"
    );
    let points = kernel["resume_points"].as_object().map_or(0, |points| points.len());
    ensure!(points > 0, "paused blocks are at some resume point: {kernel}");
    Ok(())
}

fn stops_a_kernel_with_barriers_part_way(context: &mut Context) -> Result<()> {
    let kernel = dump_within_kernel(context, &Program::of_the_ten("persistent")?)?;
    ensure!(count(&kernel, "blocks_paused") > 0, "no block stopped inside: {kernel}");
    Ok(())
}

fn keeps_device_memory_beside_a_running_kernel(context: &mut Context) -> Result<()> {
    dump_within_kernel(context, &MEMORY_HOG).map(drop)
}
