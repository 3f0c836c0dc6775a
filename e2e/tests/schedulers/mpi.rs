//! Ranks of MPI on one node: `mpirun` and all that it starts are one job.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

const ITERATIONS: &str = "20000";

const RANKS: usize = 2;

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = [
        Test::new("job_of_two_mpi_ranks_goes_on", |context| goes_on(context, "self,tcp")),
        Test::new("job_of_two_mpi_ranks_with_shared_memory_goes_on", |context| {
            goes_on(context, "self,vader")
        }),
    ];
    // Two `mpirun` that start at the same moment disturb each other at times.
    let on_mpi = |test: Test| test.also_needs(Requirement::Root).also_needs(Requirement::Mpi).alone();
    tests.into_iter().map(on_mpi).collect()
}

/// Starts `hetckpt VERB … -- mpirun …`, whose ranks speak by `transports`.
fn start(context: &Context, verb: &[&str], transports: &str) -> Result<Running> {
    let mut command = hetckpt::command(&context.sandbox, verb);
    // Open MPI names its files by the process id, which is the same in each job's namespaces.
    let folder = context.sandbox.path("mpi");
    std::fs::create_dir_all(&folder)?;
    command.env("TMPDIR", &folder);
    command.arg("--").arg("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    command.arg("--mca").arg("orte_tmpdir_base").arg(&folder);
    command.arg("--mca").arg("btl_vader_backing_directory").arg(&folder);
    command.args(["--mca", "btl", transports]);
    command
        .args(["-n", &RANKS.to_string()])
        .arg(Installation::get().programs.join("mpi_ring"))
        .args(["--iterations", ITERATIONS]);
    Running::start(command)
}

/// Waits until each rank has a kernel in flight.
fn wait_at_work(context: &Context, running: &Running) -> Result<()> {
    for _ in 0..600 {
        let rows = hetckpt::ps(&context.sandbox)?;
        let at_work = rows.iter().filter(|row| row["running_kernels"].as_u64() > Some(0));
        if at_work.count() == RANKS {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("the ranks do not come to work: {}", running.said())
}

/// The line that the program prints at its end.
fn digest(stdout: &str) -> Option<&str> {
    stdout.lines().find(|line| line.contains("digest"))
}

fn goes_on(context: &mut Context, transports: &str) -> Result<()> {
    let undisturbed = start(context, &["run", "--device", "cpu"], transports)?;
    wait_at_work(context, &undisturbed)?;
    let undisturbed = undisturbed.wait_hurrying(PATIENCE)?.success("mpirun")?;
    let store = context.sandbox.path("store").display().to_string();
    let job = ["job", "--scheduler", "none", "--name", "a", "--store", &store];
    for _ in 0..2 {
        let running = start(context, &job, transports)?;
        wait_at_work(context, &running)?;
        std::thread::sleep(context.random.moment(Duration::from_millis(500)));
        kill(Pid::from_raw(running.pid()), Signal::SIGTERM)?;
        let stored = running.wait(PATIENCE)?;
        ensure!(
            stored.code == 75 && stored.stderr.contains("snapshot a/"),
            "{}",
            stored.text()
        );
        ensure!(!stored.stderr.contains("drops the packets"), "{}", stored.text());
    }
    let running = start(context, &job, transports)?;
    wait_at_work(context, &running)?;
    let ended = running.wait_hurrying(PATIENCE)?;
    ensure!(
        ended.code == 0 && ended.stderr.contains("goes on from the snapshot"),
        "{}",
        ended.text()
    );
    let (expected, got) = (digest(&undisturbed.stdout), digest(&ended.stdout));
    ensure!(
        expected.is_some() && expected == got,
        "{expected:?} became {got:?}: {}",
        ended.text()
    );
    Ok(())
}
