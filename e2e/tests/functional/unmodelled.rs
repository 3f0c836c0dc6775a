//! Kernels that hetckpt does not model: NVIDIA GPUs run them as they came, and their programs are preempted between
//! them; elsewhere each is refused by name when it is launched, and the program lives on. Some of them other devices
//! run and stop.

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::program::{
    FILTERING, MEMORY_BARRIERS, NAMED_BARRIERS, PRODUCERS, Program, SAMPLING, TENSOR_CORES, TEXTURES, unmodelled,
};
use hetckpt_e2e::runner::{Context, Test};

use super::preempt::{num_preemptions, preempt};

/// A kernel of `unmodelled`.
struct Unmodelled {
    name: &'static str,
    /// What chooses it.
    arguments: &'static [&'static str],
    /// What its refusal names.
    refused_for: &'static str,
    /// What the refusal of a dump names, once it has run.
    hides: Option<&'static str>,
    /// The CPU device has code for it.
    runs_on_cpus: bool,
}

const fn kernel(name: &'static str, arguments: &'static [&'static str], refused_for: &'static str) -> Unmodelled {
    Unmodelled {
        name,
        arguments,
        refused_for,
        hides: None,
        runs_on_cpus: false,
    }
}

const fn hiding(what: &'static str, kernel: Unmodelled) -> Unmodelled {
    Unmodelled {
        hides: Some(what),
        ..kernel
    }
}

const fn runs_on_cpus(kernel: Unmodelled) -> Unmodelled {
    Unmodelled {
        runs_on_cpus: true,
        ..kernel
    }
}

const KERNELS: [Unmodelled; 7] = [
    runs_on_cpus(kernel("tensor_core", &["--kernel", "0"], "wmma.mma.sync")),
    runs_on_cpus(kernel("texture", &["--kernel", "1"], "cuTexObjectCreate")),
    hiding(
        "has a heap of its own",
        kernel("device_malloc", &["--kernel", "2"], "calls of `malloc`"),
    ),
    hiding(
        "has calls of functions by their addresses",
        runs_on_cpus(kernel("virtual_call", &["--kernel", "3"], "indirect calls")),
    ),
    kernel("cluster", &["--kernel", "4"], "barrier.cluster.arrive"),
    runs_on_cpus(kernel("bulk_copy", &["--kernel", "5"], "cp.async.bulk")),
    runs_on_cpus(kernel("named_barrier", &["--kernel", "6"], "barrier 0")),
];

/// The tests.
pub fn tests() -> Vec<Test> {
    let count = num_preemptions();
    let native = |name: &str, program: Program| {
        let body = move |context: &mut Context| preempt(context, &program, count);
        Test::new(format!("native_{name}"), body).also_needs(Requirement::Gpu)
    };
    let kernels = KERNELS.iter().map(|kernel| match kernel.hides {
        None => native(kernel.name, unmodelled(kernel.arguments)),
        Some(what) => {
            let body = move |context: &mut Context| not_dumped(context, kernel, what);
            Test::new(format!("native_{}_is_not_dumped", kernel.name), body).also_needs(Requirement::Gpu)
        }
    });
    let mut tests: Vec<Test> = kernels.collect();
    tests.push(native("arrays", TEXTURES));
    tests.push(native("sampling", SAMPLING));
    // GPUs stop such kernels at their end only.
    let images = move |context: &mut Context| preempt(context, &TEXTURES, count);
    tests.push(Test::new("preempt_textures", images).also_needs(Requirement::CpuOnly));
    let sampling = move |context: &mut Context| preempt(context, &SAMPLING, count);
    let sampling = Test::new("preempt_sampling", sampling).also_needs(Requirement::CpuOnly);
    // Those build it for ten seconds and more.
    tests.push(sampling.also_needs(Requirement::NoOpenclDevice));
    let filtering = |_: &mut Context| calibration::uninterrupted(&FILTERING, 0).map(drop);
    tests.push(Test::new("linear_filters_are_an_h200s", filtering).also_needs(Requirement::NoOpenclDevice));
    let refused = Test::new("what_is_not_modelled_is_refused_by_name", refused);
    tests.push(refused.also_needs(Requirement::CpuOnly));
    let others = Test::new("what_gpus_run_as_it_came_is_right_on_cpus", right_on_cpus);
    tests.push(others.also_needs(Requirement::CpuOnly));
    let matrices = move |context: &mut Context| preempt(context, &TENSOR_CORES, count);
    // GPUs stop them at their end only; OpenCL devices build them for minutes.
    let matrices = Test::new("preempt_tensor_cores", matrices).also_needs(Requirement::CpuOnly);
    tests.push(matrices.also_needs(Requirement::NoOpenclDevice));
    tests.push(native("tensor_cores", TENSOR_CORES));
    for program in [NAMED_BARRIERS, PRODUCERS, MEMORY_BARRIERS] {
        let barriers = move |context: &mut Context| preempt(context, &program, count);
        let barriers = Test::new(format!("preempt_{}", program.name), barriers).also_needs(Requirement::CpuOnly);
        // OpenCL devices have none of these.
        tests.push(barriers.also_needs(Requirement::NoOpenclDevice));
    }
    tests
}

fn right_on_cpus(context: &mut Context) -> Result<()> {
    for kernel in KERNELS.iter().filter(|kernel| kernel.runs_on_cpus) {
        let mut arguments = vec!["run".into(), "--device".into(), "cpu".into(), "--".into()];
        arguments.extend(unmodelled(kernel.arguments).command(1));
        let outcome = hetckpt::run(&context.sandbox, arguments)?;
        ensure!(outcome.code == 0, "{}: {}", kernel.name, outcome.text());
    }
    Ok(())
}

fn refused(context: &mut Context) -> Result<()> {
    for kernel in KERNELS.iter().filter(|kernel| !kernel.runs_on_cpus) {
        let mut arguments = vec!["run".into(), "--device".into(), "cpu".into(), "--".into()];
        arguments.extend(unmodelled(kernel.arguments).command(1));
        let outcome = hetckpt::run(&context.sandbox, arguments)?;
        // The program's own exit code after an error.
        ensure!(
            outcome.code == 2
                && outcome.stderr.contains(kernel.refused_for)
                && outcome.stderr.contains("operation not supported"),
            "{}: {}",
            kernel.name,
            outcome.text()
        );
    }
    Ok(())
}

/// The program runs on to its right end.
fn not_dumped(context: &mut Context, kernel: &Unmodelled, what: &str) -> Result<()> {
    let sandbox = &context.sandbox;
    let mut command = unmodelled(kernel.arguments).command(300);
    command.push("--progress".into());
    let job = Job::start(sandbox, &command)?;
    job.wait_for_stderr("round 3")?;
    let dump = hetckpt::dump(sandbox, job.pid(), &sandbox.path("never.hetsnap"), false)?;
    ensure!(dump.code != 0 && dump.stderr.contains(what), "{}", dump.text());
    let ended = job.finish()?;
    ensure!(ended.code == 0 && ended.stdout.ends_with("PASS\n"), "{}", ended.text());
    Ok(())
}
