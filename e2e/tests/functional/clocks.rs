//! Kernels that look at clocks, on each kind of device and from one to the other.

use anyhow::{Result, bail, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Dumped, Job};
use hetckpt_e2e::program::CLOCKS;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::opencl_refusals::compile_faulty_opencl;

/// Milliseconds of each of the program's two waits.
const WAIT: u64 = 2500;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("kernels_see_time_pass", |context| {
            dump_and_restore(context, &Installation::from_device(), &Installation::to_device())
        }),
        Test::new("kernels_see_time_pass_on_an_opencl_device", |context| {
            dump_and_restore(context, "cpu", "opencl")?;
            dump_and_restore(context, "opencl", "cpu")
        })
        .also_needs(Requirement::OpenclDevice),
        Test::new("kernels_see_time_pass_where_a_status_is_told_late", |context| {
            status_is_told_late(&context.sandbox)
        })
        .also_needs(Requirement::OpenclDevice),
    ]
}

/// Dumps a kernel that waits for a time, which comes when it has been restored.
fn dump_and_restore(context: &Context, from: &str, to: &str) -> Result<()> {
    let expected = calibration::uninterrupted(&CLOCKS, CLOCKS.shortest)?.outcome;
    for launch in ["launched 0", "launched 1"] {
        let dumped = caught_in_mid_kernel(|wait| {
            let mut command = CLOCKS.command(wait);
            command.push("--progress".into());
            let job = Job::start_with(&context.sandbox, &command, from, |_| ())?;
            job.wait_for_stderr(launch)?;
            Ok(job)
        })?;
        let outcome = dumped.restore_on(to)?.finish()?;
        super::preempt::check(&CLOCKS, &expected, &outcome)?;
    }
    Ok(())
}

/// Dumps the program that `start` starts with kernels that wait for so many milliseconds, which is longer each time
/// that they are over before the dump.
fn caught_in_mid_kernel<'a>(start: impl Fn(u64) -> Result<Job<'a>>) -> Result<Dumped<'a>> {
    for doublings in 0..4 {
        if let Some(dumped) = start(WAIT << doublings)?.try_dump_in_mid_kernel()? {
            return Ok(dumped);
        }
    }
    bail!("no kernel was caught in {} ms", WAIT << 3)
}

/// As with rusticl, the driver keeps who asks how a launch fares waiting until that has ended. Kernels see the host's
/// writes all the same.
fn status_is_told_late(sandbox: &Sandbox) -> Result<()> {
    let expected = calibration::uninterrupted(&CLOCKS, CLOCKS.shortest)?.outcome;
    let driver = compile_faulty_opencl(sandbox)?;
    let start = |wait| {
        Job::start_with(sandbox, &CLOCKS.command(wait), "opencl", |command| {
            command
                .env("OPENCL_DYLIB_PATH", &driver)
                .env("OPENCL_FAULT", "status_waits")
                .env("HETCKPT_LOG", "hetckpt_devices=info");
        })
    };
    let whole = start(WAIT)?.finish()?;
    super::preempt::check(&CLOCKS, &expected, &whole)?;
    let moved = caught_in_mid_kernel(start)?.restore_on("cpu")?.finish()?;
    super::preempt::check(&CLOCKS, &expected, &moved)?;
    let logs = sandbox.logs();
    ensure!(!logs.contains("bounded length"), "its launches are cut: {logs}");
    Ok(())
}
