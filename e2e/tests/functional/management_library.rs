//! NVIDIA's management library describes the device that the program sees, also after a restore; `nvidia-smi` sees the
//! node.

use std::fs;

use anyhow::{Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

use super::opencl_refusals::compile;

const PROGRAM: &str = include_str!("management_library.c");
/// One GPU, with a UUID and compute capability 9.0, that is the same however it is asked for; sizes of memory that can
/// be true; two refusals, for too little room (7) and for what only the hardware knows (3); no processes.
const ANSWER: &str = "1 uuid 9.0 same 1 7 3 0\n";

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("the_management_library_describes_the_virtual_device", describes),
        Test::new("nvidia_smi_gets_the_nodes_management_library", steps_aside),
    ]
}

fn describes(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile(sandbox, "management_library", PROGRAM, &["-ldl"])?;
    let go = sandbox.path("go");
    let job = Job::start_with(sandbox, &[program.into(), go.clone().into()], "cpu", |_| ())?;
    job.wait_for_stderr("told")?;
    let restored = job.dump()?.restore_on("cpu")?;
    fs::write(&go, "")?;
    let outcome = restored.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout == ANSWER.repeat(2),
        "{}\n{}",
        outcome.text(),
        sandbox.logs()
    );
    Ok(())
}

fn steps_aside(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile(sandbox, "nvidia-smi", PROGRAM, &["-ldl"])?;
    let mut run = hetckpt::command(sandbox, ["run", "--device", "cpu", "--"]);
    run.arg(program).arg("/dev/null");
    let outcome = Running::run(run, PATIENCE)?;
    // On a node without NVIDIA's driver.
    let is_nodes = outcome.stdout == "there is none\n" || !outcome.stdout.starts_with(ANSWER);
    ensure!(is_nodes, "{}", outcome.text());
    Ok(())
}
