//! Stopped kernels, and others, beside an OpenCL device that lacks what they need: said by `check`, refused by
//! `restore`.
//!
//! The device is the machine's own behind the library that `opencl_refusals` has for it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

use super::opencl_refusals::{compile_calls, compile_faulty_opencl};

/// Two kernels, of which the first is launched, and goes round `STEP` for ever; the other needs double precision.
const KERNELS: &str = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred %p<2>;
.reg .b64 %rd<3>;
.reg .b32 %r<2>;
.reg .f64 %fd<2>;
ld.param.u64 %rd1, [out];
mov.u64 %rd2, 0;
mov.u32 %r1, 1;
mov.f64 %fd1, 0d3FF0000000000000;
ROUND:
STEP
add.u64 %rd2, %rd2, 1;
setp.ne.u64 %p1, %rd2, 0xfffffffffffffff;
@%p1 bra ROUND;
st.global.f64 [%rd1], %fd1;
st.global.u32 [%rd1+8], %r1;
ret;
}
.visible .entry other(.param .u64 out)
{
.reg .b64 %rd<2>;
.reg .f64 %fd<2>;
ld.param.u64 %rd1, [out];
ld.global.f64 %fd1, [%rd1];
add.rn.f64 %fd1, %fd1, 0d3FF0000000000000;
st.global.f64 [%rd1], %fd1;
ret;
}
";

/// The test.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("check_names_kernels_that_an_opencl_device_cannot_run", names_kernels)
            .also_needs(Requirement::OpenclDevice),
    ]
}

/// An archive of a program that was stopped in kernel `k`, on the CPU.
fn dumped(sandbox: &Sandbox, calls: &Path, step: &str) -> Result<PathBuf> {
    let ptx = sandbox.path("kernels.ptx");
    fs::write(&ptx, KERNELS.replace("STEP", step))?;
    let command: [OsString; 4] = [calls.into(), "launch".into(), ptx.into(), "wait".into()];
    let mut job = Job::start_with(sandbox, &command, "cpu", |_| ())?;
    job.wait_for_kernel()?;
    Ok(job.dump()?.archive)
}

fn beside_faulty(sandbox: &Sandbox, faulty: &Path, arguments: &[&str], archive: &Path) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, arguments);
    command
        .arg(archive)
        .env("OPENCL_DYLIB_PATH", faulty)
        .env("OPENCL_FAULT", "no_fp64");
    Running::run(command, PATIENCE)
}

/// What is found of the device's kernels, if something is.
fn of_kernels(outcome: &Outcome) -> Result<Option<Value>> {
    let report: Value = serde_json::from_str(&outcome.stdout).with_context(|| outcome.text())?;
    let checks = report["checks"].as_array().context("no checks")?;
    Ok(checks
        .iter()
        .find(|finding| finding["check"] == "device-kernels")
        .cloned())
}

fn names_kernels(context: &mut Context) -> Result<()> {
    const CHECK: [&str; 4] = ["check", "--json", "--device", "opencl"];
    let sandbox = &context.sandbox;
    let calls = compile_calls(sandbox)?;
    let faulty = compile_faulty_opencl(sandbox)?;

    // The kernel that is stopped needs it.
    let archive = dumped(sandbox, &calls, "add.rn.f64 %fd1, %fd1, %fd1;")?;
    let outcome = beside_faulty(sandbox, &faulty, &CHECK, &archive)?;
    let found = of_kernels(&outcome)?.with_context(|| outcome.text())?;
    let text = found["found"].as_str().unwrap_or_default();
    ensure!(
        outcome.code == 1 && found["verdict"] == "problem" && found["code"] == "HK0504",
        "{found}"
    );
    ensure!(
        text.contains("k (it lacks cl_khr_fp64)") && !text.contains("other"),
        "{found}"
    );
    let refused = beside_faulty(sandbox, &faulty, &["restore", "--device", "opencl"], &archive)?;
    ensure!(
        refused.stderr.contains("error[HK0504]") && refused.stderr.contains("k (it lacks cl_khr_fp64)"),
        "{}",
        refused.text()
    );
    ensure!(refused.stderr.contains("nothing was started"), "{}", refused.text());
    let mut whole = hetckpt::command(sandbox, CHECK);
    whole.arg(&archive);
    let outcome = Running::run(whole, PATIENCE)?;
    ensure!(
        of_kernels(&outcome)?.is_none_or(|found| found["verdict"] != "problem"),
        "{}",
        outcome.text()
    );

    // Only the one that is not needs it.
    let archive = dumped(sandbox, &calls, "mad.lo.u32 %r1, %r1, 1664525, 1013904223;")?;
    let outcome = beside_faulty(sandbox, &faulty, &CHECK, &archive)?;
    let found = of_kernels(&outcome)?.with_context(|| outcome.text())?;
    let text = found["found"].as_str().unwrap_or_default();
    ensure!(
        outcome.code == 0 && found["verdict"] == "warning" && text.contains("other (it lacks cl_khr_fp64)"),
        "{}",
        outcome.text()
    );
    Ok(())
}
