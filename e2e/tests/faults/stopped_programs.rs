//! CRIU leaves a program stopped for as long as its archive is being written. Whatever happens then, a program that ran
//! runs on, and one that somebody had stopped stays stopped.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::dump_faults::script;
use super::ensure_failure;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("dump_is_killed_after_criu", dump_is_killed_after_criu),
        Test::new("dump_is_killed_before_criu_is_done", dump_is_killed_before_criu_is_done),
        Test::new("program_stopped_by_its_user", program_stopped_by_its_user),
    ]
}

/// Starts a program and a dump of it with `criu dump` replaced by `dump`, a piece of shell script that kills `hetckpt
/// dump`; the program must run on.
fn killed_dump(context: &Context, dump: &str) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let real = Installation::get().criu.display();
    let pid = job.pid();
    // What the process is called where CRIU runs.
    let find_pid = "for argument; do [ \"$option\" != --tree ] || pid=$argument; option=$argument; done";
    let text = format!("criu='{real}'\n{find_pid}\ncase $1 in dump) shift; {dump};; *) exec \"$criu\" \"$@\";; esac");
    let criu = script(context, "criu", &text)?;
    let archive = context.sandbox.path("x.hetsnap");
    let mut command = hetckpt::command(&context.sandbox, ["dump", "--pid", &pid.to_string(), "-o"]);
    command.arg(&archive).env("HETCKPT_CRIU", criu);
    let outcome = Running::run(command, PATIENCE)?;
    ensure!(outcome.code == 128 + 9, "it was to be killed: {}", outcome.text());
    ensure!(!archive.exists(), "a killed dump left an archive");
    let ended = job.finish().context("after the killed dump")?;
    ensure!(
        ended == baseline.outcome,
        "the program did not run on to the right result: {}",
        ended.text()
    );
    Ok(())
}

fn dump_is_killed_after_criu(context: &mut Context) -> Result<()> {
    let state = context.sandbox.path("state");
    let state_of_program = format!("sed 's/.*) //' /proc/$pid/stat > '{}'", state.display());
    killed_dump(
        context,
        &format!("\"$criu\" dump \"$@\" || exit 1; sleep 0.3; {state_of_program}; kill -9 $PPID"),
    )?;
    let state = fs::read_to_string(state)?;
    ensure!(state.starts_with('T'), "the program was not stopped: {state}");
    Ok(())
}

/// CRIU does not notice, and leaves the program stopped.
fn dump_is_killed_before_criu_is_done(context: &mut Context) -> Result<()> {
    let kill = script(
        context,
        "kill",
        "[ \"$CRTOOLS_SCRIPT_ACTION\" != post-dump ] || kill -9 $DUMP",
    )?;
    let action = format!("--action-script '{}'", kill.display());
    killed_dump(
        context,
        &format!("DUMP=$PPID; export DUMP; exec \"$criu\" dump {action} \"$@\""),
    )
}

fn program_stopped_by_its_user(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let pid = job.pid();
    let ensure_stopped = |when: &str| -> Result<()> {
        std::thread::sleep(Duration::from_millis(100));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        ensure!(stat.contains(") T "), "it does not stay stopped {when}: {stat}");
        Ok(())
    };
    kill(Pid::from_raw(pid), Signal::SIGSTOP)?;
    ensure_stopped("before the dump")?;

    let real = Installation::get().criu.display();
    let text = format!("'{real}' \"$@\"; status=$?; [ $1 != dump ] && exit $status; exit 1");
    for (criu, code) in [
        (script(context, "criu", &text)?, "HK0903"),
        ("/nonexistent".into(), "HK0901"),
    ] {
        let mut command = hetckpt::command(&context.sandbox, ["dump", "--pid", &pid.to_string(), "-o"]);
        command.arg(context.sandbox.path("x.hetsnap")).env("HETCKPT_CRIU", criu);
        ensure_failure(&Running::run(command, PATIENCE)?, code, 1)?;
        ensure_stopped("after a failed dump")?;
    }
    job.dump_and_leave_running()?;
    ensure_stopped("after a dump")?;

    kill(Pid::from_raw(pid), Signal::SIGCONT)?;
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "after it was continued: {}", ended.text());
    Ok(())
}
