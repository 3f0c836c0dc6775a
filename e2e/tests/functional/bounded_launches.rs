//! OpenCL devices whose running kernels do not see what the host writes: launches of bounded length. Here the device
//! server is told to take the device for one.

use anyhow::{Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::{Attempt, Job, is_mid_flight, kernels_in_flight};
use hetckpt_e2e::program::Program;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::preempt::check;

const DEVICE: &str = "opencl";

/// The tests: barriers in one long launch, barriers in many blocks, many short launches.
pub fn tests() -> Vec<Test> {
    let test = |name: &'static str| {
        Test::new(format!("bounded_launches/{name}"), move |context| {
            is_cut_and_restored(context, &Program::of_the_ten(name)?)
        })
        .also_needs(Requirement::OpenclDevice)
    };
    // Blocks that wait for one another get little done in each launch where others keep the processors.
    let mut tests = vec![test("persistent").alone()];
    tests.extend(["matmul", "stencil"].map(test));
    tests
}

fn is_cut_and_restored(context: &mut Context, program: &Program) -> Result<()> {
    let note = calibration::until_long_enough(DEVICE, program, 2, |baseline| cut_and_restore(program, baseline))?;
    context.note(note);
    Ok(())
}

/// Runs `program` with bounded launches to its end, and again with a dump and a restore on the way; says where the dump
/// found it. Nothing if it had ended by then.
fn cut_and_restore(program: &Program, baseline: &Baseline) -> Result<Option<String>> {
    let mut sandbox = Sandbox::new()?;
    sandbox.set("HETCKPT_OPENCL_BOUNDED", "1");
    sandbox.set("HETCKPT_LOG", "hetckpt_devices=info");
    let whole = Job::start_with(&sandbox, &program.command(baseline.length), DEVICE, |_| ())?.finish()?;
    check(program, &baseline.outcome, &whole)?;

    let logs = sandbox.logs();
    ensure!(
        logs.contains("launches are of bounded length"),
        "the server takes the device for an ordinary one:\n{logs}"
    );

    let job = Job::start_with(&sandbox, &program.command(baseline.length), DEVICE, |_| ())?;
    let dumped = match job.try_dump_at_kernel()? {
        Attempt::Dumped(dumped) => dumped,
        Attempt::Ended(outcome) => {
            check(program, &baseline.outcome, &outcome)?;
            return Ok(None);
        }
    };
    let mid_kernel = kernels_in_flight(&dumped.inspect()?).iter().any(is_mid_flight);
    let note = format!(
        "dumped {} a kernel; pause {:?}",
        if mid_kernel { "within" } else { "beside" },
        dumped.seconds("pause")
    );
    check(program, &baseline.outcome, &dumped.restore_on(DEVICE)?.finish()?)?;
    Ok(Some(note))
}
