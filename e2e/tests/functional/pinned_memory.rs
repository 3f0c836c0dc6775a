//! Programs with more pinned memory than one message to their server can carry.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

use super::opencl_refusals::compile;

const PROGRAM: &str = include_str!("pinned_memory.c");

/// The test.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("restores_three_hundred_pinned_buffers", many_buffers),
        Test::new("pinned_memory_needs_no_right_to_trace", without_right_to_trace).also_needs(Requirement::Root),
    ]
}

/// Root in a container has few privileges, which its programs and their servers have alike.
fn without_right_to_trace(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile(sandbox, "pinned_memory", PROGRAM, &["-ldl"])?;
    let go = sandbox.path("go");
    fs::write(&go, "")?;
    let run = hetckpt::command(sandbox, ["run", "--device", "cpu", "--"]);
    let mut contained = Command::new("setpriv");
    sandbox.equip(&mut contained);
    contained.args(["--bounding-set", "-sys_ptrace"]).arg(run.get_program());
    contained.args(run.get_args()).args([program, go]);
    let outcome = Running::run(contained, PATIENCE)?;
    ensure!(
        outcome.code == 0 && outcome.stdout == "all is kept\n",
        "{}\n{}",
        outcome.text(),
        sandbox.logs()
    );
    Ok(())
}

/// Modes of the memfds that process `pid` shares with its server.
fn modes(pid: i32) -> Result<Vec<u32>> {
    let mut modes = vec![];
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:hetckpt-")) {
            modes.push(fs::metadata(&path)?.permissions().mode() & 0o777);
        }
    }
    Ok(modes)
}

fn many_buffers(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = compile(sandbox, "pinned_memory", PROGRAM, &["-ldl"])?;
    let go = sandbox.path("go");
    let job = Job::start_with(sandbox, &[program.into(), go.clone().into()], "cpu", |_| ())?;
    job.wait_for_stderr("all is there")?;
    let restored = job.dump()?.restore_on("cpu")?;
    let modes = modes(restored.pid())?;
    ensure!(
        modes.len() > 300 && modes.iter().all(|&mode| mode == 0o600),
        "{} memfds, of modes {modes:?}",
        modes.len()
    );
    fs::write(&go, "")?;
    let outcome = restored.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout == "all is kept\n",
        "{}",
        outcome.text()
    );
    Ok(())
}
