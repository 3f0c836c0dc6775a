//! Connections to processes outside of the tree: TCP, and datagram unix sockets.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::outside::{self, Peer, Ticks};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("tcp_connections_go_on_for_root_and_are_refused_to_users", tcp_goes_on),
        // In namespaces of its own a program has no socket of ours.
        Test::new(
            "connections_to_unix_sockets_outside_are_made_again",
            unix_is_connected_again,
        )
        .also_needs(Requirement::Root),
    ]
}

fn dump(sandbox: &Sandbox, pid: i32, options: &[&str]) -> Result<(PathBuf, Outcome)> {
    let archive = sandbox.path("job.hetsnap");
    let mut command = hetckpt::command(sandbox, ["dump", "--force", "--pid", &pid.to_string(), "--output"]);
    command.arg(&archive).args(options);
    Ok((archive, Running::run(command, PATIENCE)?))
}

fn restore(sandbox: &Sandbox, archive: &Path, options: &[&str]) -> Result<Running> {
    let device = Installation::to_device();
    let mut command = hetckpt::command(sandbox, ["restore", "--device", &device]);
    command.args(options).arg(archive);
    Running::start(command)
}

/// What `hetckpt check` finds of `name`: its verdict, and all of it.
fn check(sandbox: &Sandbox, archive: &Path, options: &[&str], name: &str) -> Result<(String, String)> {
    let mut arguments: Vec<OsString> = vec!["check".into(), "--json".into(), archive.into()];
    arguments.extend(options.iter().map(OsString::from));
    let outcome = hetckpt::run(sandbox, arguments)?;
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).with_context(|| outcome.text())?;
    let findings = report["checks"].as_array().context("no checks")?;
    let found = findings.iter().find(|finding| finding["check"] == name);
    let found = found.with_context(|| format!("nothing is said of {name}: {report}"))?;
    Ok((
        found["verdict"].as_str().unwrap_or_default().to_owned(),
        found.to_string(),
    ))
}

fn ensure_refused(outcome: &Outcome, code: &str, option: &str) -> Result<()> {
    ensure!(
        outcome.code != 0 && outcome.stderr.contains(code) && outcome.stderr.contains(option),
        "no refusal with {code} that names {option}: {}",
        outcome.text()
    );
    Ok(())
}

/// Refused without the option, by dump and restore; with it nothing is lost, and a dump that leaves the program
/// running, or is killed, leaves the connection as it was.
fn tcp_goes_on(context: &mut Context) -> Result<()> {
    const OPTION: &str = "--tcp-established";
    let sandbox = &context.sandbox;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let (job, pid) = outside::start(sandbox, &outside::answering(&format!("127.0.0.1/{port}")), None)?;
    let mut peer = Peer::accept(&listener)?;
    peer.say("one")?;
    peer.hear("one")?;

    if !geteuid().is_root() {
        ensure_refused(&dump(sandbox, pid, &[OPTION])?.1, "HK0910", "as root")?;
        peer.say("two")?;
        peer.hear("two")?;
        sandbox.kill_all();
        return Ok(());
    }
    let (_, outcome) = dump(sandbox, pid, &[])?;
    ensure_refused(&outcome, "HK0903", OPTION)?;
    peer.say("two")?;
    peer.hear("two")?;

    // Stopped and let go again, by the dump, and by the guardian of one that is killed.
    dump(sandbox, pid, &[OPTION, "--leave-running"])?
        .1
        .success("dump --leave-running")?;
    peer.say("three")?;
    peer.hear("three")?;
    let mut command = hetckpt::command(sandbox, ["dump", OPTION, "--leave-running", "--output"]);
    command
        .arg(sandbox.path("killed.hetsnap"))
        .args(["--pid", &pid.to_string()]);
    let mut killed = Running::start(command)?;
    while !killed.has_ended()? && !is_stopped(pid)? {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(killed.pid()), Signal::SIGKILL)?;
    peer.say("four")?;
    peer.hear("four")?;

    let (archive, outcome) = dump(sandbox, pid, &[OPTION])?;
    outcome.success("dump")?;
    job.wait(PATIENCE)?;
    // Said to nobody: it is sent again until the program is there.
    peer.say("five")?;
    let (verdict, found) = check(sandbox, &archive, &[], "tcp-connections")?;
    ensure!(verdict == "problem" && found.contains(OPTION), "{found}");
    let (verdict, found) = check(sandbox, &archive, &[OPTION], "tcp-connections")?;
    ensure!(
        verdict == "ok" && found.contains(&format!("127.0.0.1:{port}")),
        "{found}"
    );
    let refused = restore(sandbox, &archive, &[])?.wait(PATIENCE)?;
    ensure_refused(&refused, "HK0910", OPTION)?;

    let restored = restore(sandbox, &archive, &[OPTION])?;
    peer.hear("five")?;
    peer.say("six")?;
    peer.hear("six")?;
    drop(peer);
    let outcome = restored.wait(PATIENCE)?.success("the restored program")?;
    ensure!(outcome.stdout == "end\n", "{}", outcome.text());
    Ok(())
}

fn is_stopped(pid: i32) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with(['T', 't'])))
}

/// The program's stdout is a socket; after the restore it is connected to whoever has the path then.
fn unix_is_connected_again(context: &mut Context) -> Result<()> {
    const OPTION: &str = "--ext-unix-sk";
    let sandbox = &context.sandbox;
    let path = sandbox.path("socket");
    let outside = Ticks::listen(&path)?;
    let stdout = Ticks::connect(&path)?;
    let (job, pid) = outside::start(sandbox, outside::TICKING, Some(stdout))?;
    outside.hear()?;

    let (_, outcome) = dump(sandbox, pid, &[])?;
    ensure_refused(&outcome, "HK0903", OPTION)?;
    outside.hear()?;
    let (archive, outcome) = dump(sandbox, pid, &[OPTION])?;
    outcome.success("dump")?;
    job.wait(PATIENCE)?;
    drop(outside);
    fs::remove_file(&path)?;
    let name = path.display().to_string();
    let (verdict, found) = check(sandbox, &archive, &[], "unix-sockets")?;
    ensure!(verdict == "problem" && found.contains(OPTION), "{found}");
    let (verdict, found) = check(sandbox, &archive, &[OPTION], "unix-sockets")?;
    ensure!(verdict == "problem" && found.contains(&name), "{found}");
    let refused = restore(sandbox, &archive, &[OPTION])?.wait(PATIENCE)?;
    ensure_refused(&refused, "HK0911", &name)?;

    let outside = Ticks::listen(&path)?;
    let (verdict, found) = check(sandbox, &archive, &[OPTION], "unix-sockets")?;
    ensure!(verdict == "ok", "{found}");
    let _restored = restore(sandbox, &archive, &[OPTION])?;
    outside.hear()?;
    outside.hear()?;
    sandbox.kill_all();
    Ok(())
}
