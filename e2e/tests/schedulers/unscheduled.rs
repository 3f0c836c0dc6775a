//! Without a scheduler: whoever starts the job sends the signal, and starts it again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("job_goes_on_and_ends_once", goes_on),
        Test::new("job_is_suspended_resumed_and_stored", suspended),
        Test::new("job_whose_server_is_killed_goes_on", server_killed),
        Test::new("job_that_is_killed_goes_on", job_killed),
        Test::new("job_stores_only_what_has_changed", borrowing),
        Test::new("job_without_time_for_a_dump_keeps_the_last_snapshot", no_time),
        Test::new("job_is_run_once_at_a_time", two_starts),
        Test::new("job_that_cannot_be_started_has_not_ended", not_started),
        Test::new("job_with_a_full_store_runs_on", store_full).also_needs(Requirement::Mounting),
    ]
}

const ITERATIONS: &str = "300000";

/// Starts the job of this test.
fn start(context: &Context, more: &[&str]) -> Result<Running> {
    start_program(context, more, "paced", &["--iterations", ITERATIONS])
}

/// Starts one that runs `program`.
fn start_program(context: &Context, more: &[&str], program: &str, arguments: &[&str]) -> Result<Running> {
    let store = context.sandbox.path("store").display().to_string();
    let mut command = hetckpt::command(
        &context.sandbox,
        [
            "job",
            "--scheduler",
            "none",
            "--name",
            "a",
            "--store",
            &store,
            "--device",
            &Installation::from_device(),
        ],
    );
    command
        .args(more)
        .arg("--")
        .arg(Installation::get().programs.join(program))
        .args(arguments);
    Running::start(command)
}

/// Waits until the program has a kernel in flight; gives its row of `ps`.
fn wait_at_work(context: &Context) -> Result<serde_json::Value> {
    for _ in 0..600 {
        let rows = hetckpt::ps(&context.sandbox)?;
        if let Some(row) = rows.into_iter().find(|row| row["running_kernels"].as_u64() > Some(0)) {
            return Ok(row);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("no kernel comes to work")
}

fn signal(job: &Running, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(job.pid()), signal).context("the job is gone")
}

/// Lets the program come to its end, and waits for that of the job.
fn finish(job: Running) -> Result<Outcome> {
    job.wait_hurrying(PATIENCE)
}

/// Snapshots in the store.
fn snapshots(context: &Context) -> Vec<String> {
    let entries = fs::read_dir(context.sandbox.path("store/a"))
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".hetsnap")).collect()
}

fn wait_for_snapshot(context: &Context) -> Result<()> {
    let records = || {
        let entries = fs::read_dir(context.sandbox.path("store/a"))
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()) && name.ends_with(".json"))
            .count()
    };
    for _ in 0..600 {
        if records() > 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("no snapshot is taken")
}

fn goes_on(context: &mut Context) -> Result<()> {
    for on in [Signal::SIGUSR1, Signal::SIGTERM] {
        let job = start(context, &[])?;
        wait_at_work(context)?;
        std::thread::sleep(context.random.moment(Duration::from_millis(500)));
        signal(&job, on)?;
        let stored = job.wait(PATIENCE)?;
        ensure!(stored.code == 75, "{}", stored.text());
        ensure!(
            snapshots(context).len() == 1 || on == Signal::SIGTERM,
            "{}",
            stored.text()
        );
    }
    let job = start(context, &[])?;
    wait_at_work(context)?;
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    ensure!(
        snapshots(context).is_empty(),
        "snapshots are left: {:?}",
        snapshots(context)
    );
    // Finished work is not done again.
    let again = start(context, &[])?.wait(PATIENCE)?;
    ensure!(again.code == 0 && again.stdout.is_empty(), "{}", again.text());
    ensure!(
        again.stderr.contains("has ended before, with status 0"),
        "{}",
        again.text()
    );
    Ok(())
}

/// Off the device at TSTP, on it at CONT, and stored off it.
fn suspended(context: &mut Context) -> Result<()> {
    let options = ["--suspendable", "--every", "500ms"];
    let job = start(context, &options)?;
    wait_at_work(context)?;
    for (by, state) in [
        (Signal::SIGTSTP, "suspended"),
        (Signal::SIGCONT, "running"),
        (Signal::SIGTSTP, "suspended"),
    ] {
        std::thread::sleep(context.random.moment(Duration::from_millis(500)));
        signal(&job, by)?;
        wait_for_state(context, state)?;
    }
    signal(&job, Signal::SIGUSR1)?;
    let stored = job.wait(PATIENCE)?;
    ensure!(stored.code == 75, "{}", stored.text());
    let job = start(context, &options)?;
    wait_at_work(context).with_context(|| job.said())?;
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    Ok(())
}

/// Waits until the program is listed so.
fn wait_for_state(context: &Context, state: &str) -> Result<()> {
    let mut last = None;
    for _ in 0..600 {
        last = hetckpt::ps(&context.sandbox)?.pop();
        // A periodic snapshot pauses it.
        if last.as_ref().is_some_and(|row| row["state"] == state) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("it does not come to be {state}: {last:?}")
}

fn server_killed(context: &mut Context) -> Result<()> {
    let job = start(context, &["--every", "500ms"])?;
    let row = wait_at_work(context)?;
    wait_for_snapshot(context)?;
    let server = row["server_pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok())
        .context("no server")?;
    kill(Pid::from_raw(server), Signal::SIGKILL)?;
    job.wait_for_stderr("retry 1 of 3", PATIENCE)?;
    job.wait_for_stderr("goes on from the snapshot", PATIENCE)?;
    wait_at_work(context)?;
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    Ok(())
}

/// Periodic snapshots borrow from those before, which stay as long as they are needed, and the job goes on from one.
fn borrowing(context: &mut Context) -> Result<()> {
    // Memory that does not compress, and outweighs all else.
    let memory = ["--mib", "64", "--sleeps", "1", "--iterations", ITERATIONS];
    let options = ["--every", "500ms", "--keep", "2"];
    let job = start_program(context, &options, "memory_hog", &memory)?;
    let row = wait_at_work(context)?;
    let store = context.sandbox.path("store").display().to_string();
    let list = || {
        let listed =
            hetckpt::run(&context.sandbox, ["store", "ls", "--json", "--store", &store])?.success("store ls")?;
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout)?;
        Ok::<_, anyhow::Error>(listed["snapshots"].as_array().cloned().unwrap_or_default())
    };
    let mut newest = serde_json::Value::Null;
    let mut whole = serde_json::Value::Null;
    for _ in 0..600 {
        let records = list()?;
        // The whole one stays beside the two that are kept.
        if let [first, second, .., last] = &records[..]
            && first["needs"].is_array()
            && second["needs"].is_array()
        {
            (newest, whole) = (first.clone(), last.clone());
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let size = |record: &serde_json::Value| record["stored_bytes"].as_u64().unwrap_or(0);
    ensure!(
        size(&newest) > 0 && size(&newest) < size(&whole) / 16,
        "{newest} beside {whole}"
    );
    let name = format!("a/{}", whole["id"].as_str().context("a record without its name")?);
    let refused = hetckpt::run(&context.sandbox, ["store", "rm", "--store", &store, &name])?;
    ensure!(
        refused.code != 0 && refused.stderr.contains("is needed by"),
        "{}",
        refused.text()
    );

    let server = row["server_pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    kill(Pid::from_raw(server.context("no server")?), Signal::SIGKILL)?;
    job.wait_for_stderr("goes on from the snapshot", PATIENCE)?;
    wait_at_work(context)?;
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    Ok(())
}

fn job_killed(context: &mut Context) -> Result<()> {
    let job = start(context, &["--every", "500ms"])?;
    wait_at_work(context)?;
    wait_for_snapshot(context)?;
    std::thread::sleep(context.random.moment(Duration::from_secs(1)));
    // All of it, as a node does that fails.
    context.sandbox.kill_all();
    let killed = job.wait(PATIENCE)?;
    ensure!(killed.code == 137, "{}", killed.text());
    // Nobody has said that the run before is over.
    for entry in fs::read_dir(context.sandbox.path("store/a"))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"claim.") {
            fs::remove_file(entry.path())?;
        }
    }
    let job = start(context, &[])?;
    job.wait_for_stderr("goes on from the snapshot", PATIENCE)?;
    wait_at_work(context)?;
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    Ok(())
}

fn no_time(context: &mut Context) -> Result<()> {
    let job = start(context, &["--every", "1s", "--grace", "1s"])?;
    wait_at_work(context)?;
    wait_for_snapshot(context)?;
    signal(&job, Signal::SIGTERM)?;
    // A second is what is kept back for the rest, so there is none for the dump: it may be quicker than that is seen.
    if job.wait_for_stderr("the program runs on", PATIENCE).is_err() {
        let stored = job.wait(PATIENCE)?;
        ensure!(stored.code == 75, "{}", stored.text());
        return Ok(());
    }
    let ended = finish(job)?;
    let has_said = ended.stderr.contains("the grace time is over");
    ensure!(ended.code == 0 && has_said, "{}", ended.text());
    Ok(())
}

fn two_starts(context: &mut Context) -> Result<()> {
    let job = start(context, &[])?;
    wait_at_work(context)?;
    let second = start(context, &[])?.wait(PATIENCE)?;
    ensure!(
        second.code == 125 && second.stderr.contains("HK0710"),
        "{}",
        second.text()
    );
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    Ok(())
}

fn not_started(context: &mut Context) -> Result<()> {
    for _ in 0..2 {
        let store = context.sandbox.path("store").display().to_string();
        let words = [
            "job",
            "--scheduler",
            "none",
            "--name",
            "a",
            "--store",
            &store,
            "/no/such/program",
        ];
        let outcome = hetckpt::run(&context.sandbox, words)?;
        ensure!(
            outcome.code == 127 && outcome.stderr.contains("HK0804"),
            "{}",
            outcome.text()
        );
    }
    Ok(())
}

fn store_full(context: &mut Context) -> Result<()> {
    let store = context.sandbox.path("store/a");
    fs::create_dir_all(&store)?;
    let mounted = mount_small(&store)?;
    let job = start(context, &["--every", "1s"])?;
    wait_at_work(context)?;
    job.wait_for_stderr("no snapshot this time: ", PATIENCE)?;
    let ended = finish(job)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    drop(mounted);
    Ok(())
}

/// A file system of 256 KiB, as long as this lives.
struct Mounted<'a>(&'a Path);

fn mount_small(at: &Path) -> Result<Mounted<'_>> {
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some("size=256k"))?;
    Ok(Mounted(at))
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // It goes with the sandbox's folder otherwise.
        let _ = nix::mount::umount2(self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}
