//! OpenCL programs under our ICD: run, dumped in mid-kernel, restored, each on every kind of device there is here.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Dumped, Job, kernels_in_flight};
use hetckpt_e2e::program::{OPENCL, Program};
use hetckpt_e2e::runner::{Context, Test};

/// The tests.
pub fn tests() -> Vec<Test> {
    let test = |what: &str, program: Program, body: fn(&mut Context, &Program) -> Result<()>| {
        Test::new(format!("opencl_program_{what}/{}", program.name), move |context| {
            body(context, &program)
        })
    };
    let mut tests = vec![];
    for program in OPENCL {
        let needs = [Requirement::OpenclPrograms];
        tests.push(test("runs_and_verifies", program, runs).needs(&needs));
        let needs = [Requirement::Privileges, Requirement::Criu, Requirement::OpenclPrograms];
        tests.push(test("is_restored_in_mid_kernel", program, is_restored).needs(&needs));
        tests.push(test("is_dumped_twice", program, is_dumped_twice).needs(&needs));
        let test = test("is_restored_on_an_opencl_device", program, is_restored_on_opencl).needs(&needs);
        tests.push(test.also_needs(Requirement::OpenclDevice));
    }
    tests.push(
        Test::new("opencl_program_sees_our_platform_only", sees_our_platform_only)
            .needs(&[Requirement::OpenclPrograms]),
    );
    let needs = [Requirement::OpenclPrograms];
    tests.push(Test::new("opencl_program_is_told_that_there_is_no_compiler", has_no_compiler).needs(&needs));
    tests
}

/// A short run: the program's own check, and that it says the same twice.
fn runs(_: &mut Context, program: &Program) -> Result<()> {
    let first = calibration::uninterrupted(program, program.shortest)?;
    let second = calibration::uninterrupted(program, program.shortest)?;
    ensure!(
        first.outcome.stdout == second.outcome.stdout,
        "two runs differ: {} and {}",
        first.outcome.text(),
        second.outcome.text()
    );
    Ok(())
}

/// Dumps `job` and shows that a kernel was in the middle of its work; gives nothing if the program ended before.
fn dump_in_mid_kernel<'a>(context: &Context, job: Job<'a>) -> Result<Option<Dumped<'a>>> {
    let Some(dumped) = job.try_dump_in_mid_kernel()? else {
        return Ok(None);
    };
    let kernels = kernels_in_flight(&dumped.inspect()?);
    let names: Vec<String> = kernels.iter().map(|kernel| kernel["name"].to_string()).collect();
    context.note(format!(
        "in flight: {}; pause {:?}",
        names.join(", "),
        dumped.seconds("pause")
    ));
    Ok(Some(dumped))
}

/// Dumps a run of `program` in mid-kernel and restores it on `device`.
fn dump_and_restore(context: &Context, program: &Program, device: &str) -> Result<()> {
    calibration::until_long_enough(&Installation::from_device(), program, 1, |baseline| {
        let mut command: Vec<OsString> = program.command(baseline.length);
        command.push("--progress".into());
        let job = Job::start(&context.sandbox, &command)?;
        job.wait_for_stderr("launched")?;
        let Some(dumped) = dump_in_mid_kernel(context, job)? else {
            return Ok(None);
        };
        let outcome = dumped.restore_on(device)?.finish()?;
        let kind = |device: &str| device.split(':').next().map(str::to_owned);
        if program.is_float && kind(device) != kind(&Installation::from_device()) {
            ensure!(
                outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
                "it does not pass its own check: {}",
                outcome.text()
            );
            return Ok(Some(()));
        }
        super::preempt::check(program, &baseline.outcome, &outcome).map(Some)
    })
}

fn is_restored(context: &mut Context, program: &Program) -> Result<()> {
    dump_and_restore(context, program, &Installation::to_device())
}

fn is_restored_on_opencl(context: &mut Context, program: &Program) -> Result<()> {
    dump_and_restore(context, program, "opencl")
}

/// What was restored is dumped again before it ends: it is long enough for both.
fn is_dumped_twice(context: &mut Context, program: &Program) -> Result<()> {
    calibration::until_long_enough(&Installation::from_device(), program, 1, |baseline| {
        let job = Job::start(&context.sandbox, &program.command(baseline.length))?;
        let Some(dumped) = dump_in_mid_kernel(context, job)? else {
            return Ok(None);
        };
        let Some(dumped) = dump_in_mid_kernel(context, dumped.restore()?)? else {
            return Ok(None);
        };
        let outcome = dumped.restore()?.finish()?;
        super::preempt::check(program, &baseline.outcome, &outcome).map(Some)
    })
}

/// Without libclc a program can run up to its build, which then says what is missing.
fn has_no_compiler(context: &mut Context) -> Result<()> {
    const NOT_AVAILABLE: &str = "OpenCL error -3";
    let program = OPENCL[0];
    let command = program.command(program.shortest);
    let missing = context.sandbox.path("libclc.bc");
    let job = Job::start_with(&context.sandbox, &command, &Installation::from_device(), |command| {
        command.env("HETCKPT_LIBCLC", &missing);
    })?;
    let outcome = job.finish()?;
    ensure!(
        outcome.code == 2 && outcome.stderr.contains(NOT_AVAILABLE) && outcome.stderr.contains("libclc.bc"),
        "{}",
        outcome.text()
    );
    Ok(())
}

/// A folder of ICDs that the user has set is the device server's, not the program's.
fn sees_our_platform_only(context: &mut Context) -> Result<()> {
    let program = OPENCL[0];
    let none = context.sandbox.path("no-vendors");
    std::fs::create_dir(&none)?;
    let device = Installation::from_device();
    let job = Job::start_with(
        &context.sandbox,
        &program.command(program.shortest),
        &device,
        |command| {
            command.env("OCL_ICD_VENDORS", &none);
        },
    )?;
    let outcome = job.finish()?;
    ensure!(outcome.code == 0, "{}", outcome.text());
    Ok(())
}
