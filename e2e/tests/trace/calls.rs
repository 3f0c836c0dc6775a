//! Calls of the CUDA driver API under our driver library, whose numbers are known.

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::Signal;

use super::{compile_driver_calls, list, named, trace_command, traced};

/// The tests.
pub fn tests() -> Vec<Test> {
    let needs = [Requirement::Tracing];
    vec![
        Test::new("trace_counts_cuda_calls_bytes_and_kernels", known_numbers).needs(&needs),
        Test::new("trace_of_a_running_program_ends_at_a_signal", running_program).needs(&needs),
        Test::new("trace_counts_calls_of_children", children).needs(&needs),
    ]
}

fn known_numbers(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile_driver_calls(sandbox)?;
    let mut words = vec![Installation::get().hetckpt().into_os_string()];
    words.extend(["run", "--device", "cpu", "--"].map(Into::into));
    words.push(program.into_os_string());
    let (outcome, measured) = traced(trace_command(sandbox, words))?;
    ensure!(outcome.code == 0, "{}", outcome.text());
    for (name, calls, failures, bytes) in [
        ("cuInit", 1, 0, None),
        ("cuModuleGetFunction", 1, 0, None),
        ("cuMemAlloc_v2", 3, 0, Some(3u64 << 20)),
        ("cuMemcpyHtoD_v2", 4, 0, Some(4 * 4096)),
        ("cuLaunchKernel", 12, 0, None),
        ("cuStreamSynchronize", 1, 0, None),
        ("cuCtxSynchronize", 2, 0, None),
        ("cuMemFree_v2", 2, 0, None),
        ("cuTexRefCreate", 5, 5, None),
        ("cuGetProcAddress_v2", 2, 0, None),
    ] {
        let row = named(&measured, "functions", name)?;
        ensure!(
            row["calls"] == calls && row["failures"] == failures && row["bytes"].as_u64() == bytes,
            "{row}"
        );
    }
    ensure!(named(&measured, "kernels", "touch")?["launches"] == 12, "{measured}");
    ensure!(named(&measured, "asked", "cuMemAlloc")?["refused"] == 0, "{measured}");
    ensure!(
        named(&measured, "asked", "cuNoSuchThing")?["refused"] == 1,
        "{measured}"
    );
    let process = &list(&measured, "processes")?[0];
    ensure!(
        process["peak_bytes"] == 3 << 20 && process["live_bytes"] == 1 << 20 && process["launches"] == 12,
        "{process}"
    );
    // It sleeps for 0.3 s and 0.2 s after it has waited for all.
    let idle = process["idle_ns"].as_u64().context("no idle time")?;
    let all = measured["seconds"].as_f64().context("no time")? * 1e9;
    ensure!(
        idle >= 500_000_000 && (idle as f64) < all,
        "idle for {idle} of {all} ns"
    );
    context.note(format!("idle for {:.3} s at least", idle as f64 / 1e9));
    Ok(())
}

fn running_program(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile_driver_calls(sandbox)?;
    let job = Job::start_with(sandbox, &[program.into(), "forever".into()], "cpu", |_| ())?;
    job.wait_for_stderr("ready")?;
    let pid = job.pid().to_string();
    let timed = hetckpt::run(sandbox, ["trace", "--json", "--pid", &pid, "--for", "1s"])?.success("trace")?;
    let measured: serde_json::Value = serde_json::from_str(&timed.stdout)?;
    // The kernel was loaded before: it is known by its handle. Calls count when they begin, launches when they have
    // succeeded: one may be under way at either end of the second.
    let kernels = list(&measured, "kernels")?;
    let is_handle = kernels.len() == 1
        && kernels[0]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("handle 0x"));
    let calls = named(&measured, "functions", "cuLaunchKernel")?["calls"].as_u64();
    let launches = kernels.first().and_then(|kernel| kernel["launches"].as_u64());
    let differ = calls.zip(launches).map(|(calls, launches)| calls.abs_diff(launches));
    ensure!(is_handle && calls > Some(0) && differ <= Some(1), "{measured}");
    let running = Running::start(hetckpt::command(sandbox, ["-v", "trace", "--pid", &pid]))?;
    running.wait_for_stderr("probes are in place", PATIENCE)?;
    // It makes calls every 10 ms, on a machine that may be busy.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // Probes would be in the archive.
    let refused = hetckpt::run(sandbox, ["dump", "--pid", &pid, "-o", "never.hetsnap"])?;
    ensure!(
        refused.code != 0 && refused.stderr.contains("traced by probes in its code"),
        "{}",
        refused.text()
    );
    running.signal(Signal::SIGTERM)?;
    let outcome = running.wait(PATIENCE)?.success("trace")?;
    ensure!(outcome.stdout.contains("cuLaunchKernel"), "{}", outcome.text());
    // When they have gone, it can be dumped, and goes on.
    let job = job.dump()?.restore()?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    job.kill()
}

fn children(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile_driver_calls(sandbox)?;
    let hetckpt = Installation::get().hetckpt();
    let run = format!("{} run --device cpu -- {}", hetckpt.display(), program.display());
    let script = format!("{run} & {run} & wait; exit 9");
    let (outcome, measured) = traced(trace_command(sandbox, ["sh", "-c", &script]))?;
    ensure!(outcome.code == 9, "its status was to be passed on: {}", outcome.text());
    let processes = list(&measured, "processes")?;
    let launches: Vec<Option<u64>> = processes.iter().map(|process| process["launches"].as_u64()).collect();
    ensure!(launches == [Some(12), Some(12)], "{measured}");
    ensure!(
        named(&measured, "functions", "cuLaunchKernel")?["calls"] == 24,
        "{measured}"
    );
    Ok(())
}
