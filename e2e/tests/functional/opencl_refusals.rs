//! What an OpenCL device cannot do: a program gets CUDA's error and lives on, and the log says why.
//!
//! Devices with faults are the machine's own behind a library that adds the fault (`opencl_refusals/faulty_opencl.c`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::plain_criu;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

const DEVICE: &str = "opencl";
const CALLS: &str = include_str!("opencl_refusals/calls.c");
const FAULTY_OPENCL: &str = include_str!("opencl_refusals/faulty_opencl.c");

/// Errors as CUDA numbers them.
const OUT_OF_MEMORY: i32 = 2;
const INVALID_PTX: i32 = 218;
const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
const LAUNCH_FAILED: i32 = 719;

/// Within this a program must learn that its device is lost.
const SOON: Duration = Duration::from_secs(30);

/// A kernel of integers; `REPEATS` is how often it goes round.
const INTEGERS: &str = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred %p<2>;
.reg .b64 %rd<2>;
.reg .b32 %r<3>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, 0;
mov.u32 %r2, 1;
ROUND:
mad.lo.u32 %r2, %r2, 1664525, 1013904223;
add.u32 %r1, %r1, 1;
setp.ne.u32 %p1, %r1, REPEATS;
@%p1 bra ROUND;
st.global.u32 [%rd1], %r2;
ret;
}
";
const DOUBLES: &str = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 out)
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

/// The tests.
pub fn tests() -> Vec<Test> {
    let test =
        |name: &str, body: fn(&mut Context) -> Result<()>| Test::new(name, body).needs(&[Requirement::OpenclDevice]);
    vec![
        test("opencl_device_has_less_memory_than_is_wanted", has_less_memory),
        test(
            "opencl_device_tells_late_that_memory_is_short",
            tells_late_that_memory_is_short,
        ),
        test("opencl_platform_does_not_tell_its_devices", does_not_tell_its_devices),
        test("opencl_device_cannot_be_opened", cannot_be_opened),
        test("opencl_device_has_no_double_precision", has_no_double_precision),
        test(
            "opencl_device_has_smaller_blocks_than_a_stopped_kernel",
            has_smaller_blocks,
        ),
        test("opencl_device_hangs_as_it_is_opened_for_a_restore", hangs).also_needs(Requirement::Criu),
        test("opencl_compiler_refuses_a_kernel", compiler_refuses),
        test("opencl_device_is_lost_under_a_kernel", is_lost_under_a_kernel),
        test("opencl_device_is_lost_between_kernels", is_lost_between_kernels),
    ]
}

/// Compiles one of the C files here, which may include `library_calls.h`.
pub fn compile(sandbox: &Sandbox, name: &str, source: &str, options: &[&str]) -> Result<PathBuf> {
    let (file, program) = (sandbox.path(&format!("{name}.c")), sandbox.path(name));
    fs::write(&file, source)?;
    fs::write(sandbox.path("library_calls.h"), include_str!("library_calls.h"))?;
    let mut command = Command::new("gcc");
    command.args(["-Wall", "-Werror", "-O1", "-o"]).arg(&program).arg(&file);
    let output = command.args(options).output().context("gcc cannot be run")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "gcc refuses {name}.c: {words}");
    Ok(program)
}

/// The program that makes CUDA calls.
pub fn compile_calls(sandbox: &Sandbox) -> Result<PathBuf> {
    compile(sandbox, "calls", CALLS, &["-ldl"])
}

/// The library that stands before the machine's own OpenCL.
pub fn compile_faulty_opencl(sandbox: &Sandbox) -> Result<PathBuf> {
    let linked = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"];
    compile(sandbox, "libfaulty_opencl.so", FAULTY_OPENCL, &linked)
}

/// Writes a kernel to a file for the program.
fn kernel(sandbox: &Sandbox, name: &str, ptx: &str) -> Result<String> {
    let file = sandbox.path(name);
    fs::write(&file, ptx)?;
    file.into_os_string()
        .into_string()
        .ok()
        .context("a path that is no text")
}

/// Starts the program with these calls; `environment` is the device server's too.
fn start<'a>(sandbox: &'a Sandbox, calls: &[&str], environment: &[(&str, &Path)]) -> Result<Job<'a>> {
    let mut command = vec![compile_calls(sandbox)?.into_os_string()];
    command.extend(calls.iter().map(OsString::from));
    let faulty = match environment {
        [] => None,
        _ => Some(compile_faulty_opencl(sandbox)?),
    };
    Job::start_with(sandbox, &command, DEVICE, |command| {
        command.envs(environment.iter().copied());
        if let Some(faulty) = faulty {
            command.env("OPENCL_DYLIB_PATH", faulty);
            // What has been built for the same device without the fault is not to be found.
            command.env("HETCKPT_CACHE_DIR", "off");
        }
    })
}

/// The program has gone on to its end, and its calls gave these results.
fn ensure_results(outcome: &Outcome, expected: &[i32]) -> Result<()> {
    let results = outcome.stdout.lines().map(|line| line.rsplit(' ').next()?.parse().ok());
    let results: Option<Vec<i32>> = results.collect();
    ensure!(
        outcome.code == 0 && results.as_deref() == Some(expected),
        "its calls were to give {expected:?}: {}",
        outcome.text()
    );
    Ok(())
}

fn ensure_log_says(sandbox: &Sandbox, words: &str) -> Result<()> {
    let logs = sandbox.logs();
    ensure!(logs.contains(words), "the log was to say `{words}`: {logs}");
    Ok(())
}

fn has_less_memory(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let short = kernel(sandbox, "short.ptx", &INTEGERS.replace("REPEATS", "100"))?;
    let calls = [
        "allocate_more_than_there_is",
        "allocate",
        "fill",
        "launch",
        &short,
        "wait",
        "fill",
    ];
    let outcome = start(sandbox, &calls, &[])?.finish()?;
    ensure_results(&outcome, &[OUT_OF_MEMORY, 0, 0, 0, 0, 0])
}

/// Its driver grants what there is not, and the first command that uses it fails: less is taken, and what lies beyond
/// is an error of the allocation.
fn tells_late_that_memory_is_short(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let short = kernel(sandbox, "short.ptx", &INTEGERS.replace("REPEATS", "100"))?;
    let calls = [
        "allocate_more_than_there_is",
        "allocate",
        "fill",
        "launch",
        &short,
        "wait",
        "fill",
    ];
    let outcome = start(sandbox, &calls, &[("OPENCL_FAULT", Path::new("little_memory"))])?.finish()?;
    ensure_results(&outcome, &[OUT_OF_MEMORY, 0, 0, 0, 0, 0])
}

/// The devices of the others are there, with the numbers that they have when it works.
fn does_not_tell_its_devices(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let faulty = compile_faulty_opencl(sandbox)?;
    let mut command = hetckpt::command(sandbox, ["devices"]);
    command
        .env("OPENCL_DYLIB_PATH", &faulty)
        .env("OPENCL_FAULT", "broken_platform");
    let listed = Running::run(command, PATIENCE)?.success("devices")?.stdout;
    let is_device = |line: &str, id: &str| line.split_whitespace().next() == Some(id);
    ensure!(
        listed.lines().any(|line| is_device(line, "opencl:1:0"))
            && listed
                .lines()
                .any(|line| is_device(line, "opencl:0") && line.contains("The broken platform"))
            && listed.contains("cannot be used: clGetDeviceIDs: CL_OUT_OF_HOST_MEMORY"),
        "{listed}"
    );
    Ok(())
}

/// It is listed, with the reason, which `doctor` warns of; and a program that asks for it gets no device, and lives on.
fn cannot_be_opened(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let faulty = compile_faulty_opencl(sandbox)?;
    let said = |arguments: &[&str]| -> Result<Outcome> {
        let mut command = hetckpt::command(sandbox, arguments);
        command
            .env("OPENCL_DYLIB_PATH", &faulty)
            .env("OPENCL_FAULT", "no_context");
        Running::run(command, PATIENCE)
    };
    let listed = said(&["devices"])?.success("devices")?.stdout;
    ensure!(
        listed.contains("cannot be used: clCreateContext failed: CL_DEVICE_NOT_AVAILABLE"),
        "{listed}"
    );
    let report: Value = serde_json::from_str(&said(&["doctor", "--json"])?.stdout)?;
    let found = report["checks"].as_array().into_iter().flatten();
    let found = found.clone().find(|finding| finding["check"] == "devices");
    let found = found.context("doctor says nothing of devices")?;
    let text = found["found"].as_str().unwrap_or_default();
    ensure!(
        found["verdict"] == "warning" && text.contains("opencl:0:0 cannot be used") && text.contains("cpu ("),
        "{found}"
    );
    let outcome = start(sandbox, &["allocate"], &[("OPENCL_FAULT", Path::new("no_context"))])?.finish()?;
    ensure!(
        outcome.code == 2 && outcome.stderr.contains("cuInit gives 100"),
        "{}",
        outcome.text()
    );
    ensure_log_says(sandbox, "clCreateContext failed: CL_DEVICE_NOT_AVAILABLE")
}

/// Kernels that need none run there; the one that does is an error when it is launched, which CUDA's calls give from
/// then on.
fn has_no_double_precision(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let short = kernel(sandbox, "short.ptx", &INTEGERS.replace("REPEATS", "100"))?;
    let doubles = kernel(sandbox, "doubles.ptx", DOUBLES)?;
    let calls = ["launch", &short, "wait", "fill", "launch", &doubles, "wait", "fill"];
    let outcome = start(sandbox, &calls, &[("OPENCL_FAULT", Path::new("no_fp64"))])?.finish()?;
    ensure_results(&outcome, &[0, 0, 0, 0, INVALID_PTX, INVALID_PTX])?;
    ensure_log_says(sandbox, "the device lacks cl_khr_fp64")
}

/// An archive of a kernel that would run for long.
fn dumped_in_mid_kernel(sandbox: &Sandbox) -> Result<PathBuf> {
    let long = kernel(sandbox, "long.ptx", &INTEGERS.replace("REPEATS", "0xffffffff"))?;
    let mut job = start(sandbox, &["launch", &long, "wait"], &[])?;
    job.wait_for_kernel()?;
    Ok(job.dump()?.archive)
}

fn restore_on_faulty(sandbox: &Sandbox, archive: &Path, fault: &str) -> Result<Outcome> {
    let mut restore = hetckpt::command(sandbox, ["restore", "--device", DEVICE]);
    restore
        .arg(archive)
        .env("OPENCL_DYLIB_PATH", compile_faulty_opencl(sandbox)?)
        .env("OPENCL_FAULT", fault)
        .env("HETCKPT_CACHE_DIR", "off")
        .env("HETCKPT_SILENCE_LIMIT", "2");
    Running::run(restore, PATIENCE)
}

/// The restore is refused: the program, were it there, could no longer be told. Both say so, what looks at the
/// snapshot, and the device server where that is not asked.
fn has_smaller_blocks(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let archive = dumped_in_mid_kernel(sandbox)?;
    let refused = restore_on_faulty(sandbox, &archive, "small_blocks")?;
    for part in ["HK0504", "blocks of 32 threads", "16", "nothing was started"] {
        ensure!(refused.stderr.contains(part), "`{part}` is missing: {}", refused.text());
    }
    // Plain CRIU wants root.
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let images = sandbox.path("images");
    let mut unpack = hetckpt::command(sandbox, ["unpack"]);
    unpack.arg(&archive).arg(&images);
    Running::run(unpack, PATIENCE)?.success("unpack")?;
    let mut restore = plain_criu::criu_command(sandbox, "restore", &Installation::get().plugin_folder())?;
    restore
        .env("HETCKPT_DEVICE", DEVICE)
        .env("OPENCL_DYLIB_PATH", compile_faulty_opencl(sandbox)?)
        .env("OPENCL_FAULT", "small_blocks")
        .env("HETCKPT_CACHE_DIR", "off");
    let refused = Running::run(restore, PATIENCE)?;
    ensure!(refused.code != 0, "{}", refused.text());
    let said = refused.stderr.clone() + &fs::read_to_string(images.join("restore.log")).unwrap_or_default();
    for part in ["`k`", "32", "16"] {
        ensure!(said.contains(part), "`{part}` is missing: {said}");
    }
    Ok(())
}

/// A driver that does nothing any more ends the restore, not what waits for it.
fn hangs(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let archive = dumped_in_mid_kernel(sandbox)?;
    let refused = restore_on_faulty(sandbox, &archive, "hangs")?;
    for part in ["has done nothing for 2 s", "nothing was started"] {
        ensure!(refused.stderr.contains(part), "`{part}` is missing: {}", refused.text());
    }
    sandbox.wait_until_empty(SOON)
}

fn compiler_refuses(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let short = kernel(sandbox, "short.ptx", &INTEGERS.replace("REPEATS", "100"))?;
    let calls = ["fill", "launch", &short, "wait"];
    let outcome = start(sandbox, &calls, &[("OPENCL_FAULT", Path::new("broken_text"))])?.finish()?;
    ensure_results(&outcome, &[0, 0, INVALID_PTX])?;
    ensure_log_says(sandbox, "the words of the compiler")
}

/// The program waits for a kernel that will not end.
fn is_lost_under_a_kernel(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let long = kernel(sandbox, "long.ptx", &INTEGERS.replace("REPEATS", "0xffffffff"))?;
    let calls = ["launch", &long, "wait", "fill", "allocate", "launch", &long];
    let lost = sandbox.path("lost");
    let mut job = start(sandbox, &calls, &[("OPENCL_LOST", &lost)])?;
    job.wait_for_kernel()?;
    let since = Instant::now();
    fs::write(&lost, "")?;
    let outcome = job.finish()?;
    ensure!(since.elapsed() < SOON, "it learnt of it after {:?}", since.elapsed());
    ensure_results(
        &outcome,
        &[0, LAUNCH_FAILED, LAUNCH_FAILED, LAUNCH_FAILED, LAUNCH_FAILED],
    )
}

/// The device refuses the second launch.
fn is_lost_between_kernels(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let short = kernel(sandbox, "short.ptx", &INTEGERS.replace("REPEATS", "100"))?;
    let lost = sandbox.path("lost");
    let calls = ["launch", &short, "wait", "lose", "launch", &short, "wait", "fill"];
    let job = start(sandbox, &calls, &[("OPENCL_LOST", &lost)])?;
    let outcome = job.finish()?;
    ensure_results(
        &outcome,
        &[0, 0, 0, 0, LAUNCH_OUT_OF_RESOURCES, LAUNCH_OUT_OF_RESOURCES],
    )
}
