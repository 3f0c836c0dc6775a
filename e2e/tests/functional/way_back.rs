//! A program is ended only if it can come back: what a restore would refuse is found by the dump.

use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::is_gone;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![Test::new(
        "files_of_its_own_processes_come_back_or_the_program_is_not_ended",
        process_files,
    )]
}

/// A shell on the CPU device; it has done `begin`, and when the file `go` is there it does `end`.
fn start<'a>(context: &'a Context, begin: &str, end: &str) -> Result<Job<'a>> {
    let (go, ready) = (context.sandbox.path("go"), context.sandbox.path("ready"));
    let _ = (fs::remove_file(&go), fs::remove_file(&ready));
    let script = format!(
        "{begin}\n: >{}\nwhile [ ! -e {} ]; do read -rt 0.05 <> <(:); done\n{end}",
        ready.display(),
        go.display()
    );
    let job = Job::start_with(
        &context.sandbox,
        &["bash", "-c", &script].map(OsString::from),
        "cpu",
        |_| (),
    )?;
    let deadline = Instant::now() + PATIENCE;
    while !ready.exists() {
        ensure!(Instant::now() < deadline, "the shell does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(job)
}

fn let_go(context: &Context) -> Result<()> {
    Ok(fs::write(context.sandbox.path("go"), "")?)
}

/// `maps` is there again when its process is; of another descriptor nobody can tell.
fn process_files(context: &mut Context) -> Result<()> {
    let job = start(context, "exec 3</proc/self/fdinfo/0", ":")?;
    let archive = context.sandbox.path("lost.hetsnap");
    let outcome = hetckpt::dump(&context.sandbox, job.pid(), &archive, false)?;
    ensure!(
        outcome.code == 1
            && outcome.stderr.contains("HK0907")
            && outcome.stderr.contains("fdinfo/0 cannot come back")
            && outcome.stderr.contains("runs on"),
        "{}",
        outcome.text()
    );
    ensure!(!is_gone(job.pid()) && !archive.exists());
    let_go(context)?;
    job.finish()?.success("the program that was not dumped")?;

    let job = start(
        context,
        "exec 3</proc/self/maps 4</proc/self/task/$BASHPID/stat",
        "read -r map <&3; read -r pid rest <&4; [ $pid = $BASHPID ] && echo ${map:+mapped}",
    )?;
    let restored = job.dump()?.restore_on("cpu")?;
    let_go(context)?;
    let outcome = restored.finish()?.success("the restored program")?;
    ensure!(outcome.stdout == "mapped\n", "{}", outcome.text());
    Ok(())
}
