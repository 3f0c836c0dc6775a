//! What may be different when a program goes on: its working folder, its output, its session, its cgroup.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use hetckpt_e2e::user;

use super::goes_on::{Application, dump};
use super::node::{Node, ensure_says};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("other_node_without_the_working_folder", working_folder),
        Test::new("output_that_has_grown_is_cut_back_or_left_alone", grown_output),
        Test::new("output_that_is_missing_can_be_replaced", missing_output),
        Test::new("a_program_of_no_session_of_its_own", no_session_leader).also_needs(Requirement::Root),
        Test::new("a_program_with_a_terminal_gets_that_of_the_restore", terminal).also_needs(Requirement::Root),
        Test::new("a_restored_program_stays_in_the_cgroup_of_the_restore", cgroup).also_needs(Requirement::Root),
        Test::new("a_childs_process_id_in_use_is_named", childs_id_in_use).also_needs(Requirement::Root),
    ]
}

fn working_folder(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let node = Node::new(sandbox)?;
    let folder = sandbox.path("work");
    let job = app.start(sandbox, "cpu", &folder)?;
    let (pid, archive, printed) = dump(sandbox, job, &[])?;
    let archive = node.send(&archive)?;
    let missing = format!("{} is missing", folder.display());
    node.ensure_refused(&archive, &[], "HK0907", &[&missing, "--cwd"])?;
    node.ensure_refused(&archive, &["--cwd", "/tmp/none"], "HK0907", &["/tmp/none is missing"])?;
    node.shell(&format!(
        "mkdir -m 700 /tmp/elsewhere; chown {} /tmp/elsewhere",
        user::owner()
    ))?;
    let restored = node.restore(&archive, "cpu", &["--cwd", "/tmp/elsewhere"])?;
    let cwd = fs::read_link(format!("/proc/{}/cwd", node.restored_pid(pid)?))?;
    ensure!(cwd == Path::new("/tmp/elsewhere"), "{}", cwd.display());
    let outcome = restored.wait(PATIENCE)?;
    ensure!(
        printed + &outcome.stdout == baseline.outcome.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}

/// Starts [`PACED`] with its output in a file, and dumps it.
fn dumped_with_output(sandbox: &Sandbox, length: u64, output: &Path) -> Result<std::path::PathBuf> {
    let program = PACED.command(length);
    let words: Vec<String> = program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = format!("exec {} >{}", words.join(" "), output.display());
    let command: [OsString; 3] = ["sh".into(), "-c".into(), line.into()];
    let mut job = Job::start_with(sandbox, &command, "cpu", |_| ())?;
    job.wait_for_kernel()?;
    Ok(dump(sandbox, job, &[])?.1)
}

fn restore(sandbox: &Sandbox, archive: &Path, options: &[&str]) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, ["restore", "--device", "cpu"]);
    command.args(options).arg(archive);
    Running::run(command, PATIENCE)
}

fn grown_output(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let output = sandbox.path("output.txt");
    let archive = dumped_with_output(sandbox, baseline.length, &output)?;
    ensure!(fs::read(&output)?.is_empty(), "the program prints at its end");
    fs::write(&output, "written since")?;
    let refused = restore(sandbox, &archive, &[])?;
    ensure_says(
        &refused,
        "HK0907",
        &["output.txt has 13 bytes instead of 0", "--rewind-outputs"],
    )?;

    // A restore that fails later puts it back.
    let failed = Running::run(
        {
            let mut command = hetckpt::command(sandbox, ["restore", "--rewind-outputs", "--device", "cpu"]);
            let path = std::env::var("PATH").unwrap_or_default();
            let criu = sandbox.path("criu");
            let version = "case $1 in --version) echo 'Version: 4.2.1';; *) exit 1;; esac";
            executable::write(&criu, &format!("#!/bin/sh\n{version}\n"))?;
            command.arg(&archive).env("HETCKPT_CRIU", &criu).env("PATH", path);
            command
        },
        PATIENCE,
    )?;
    ensure_says(&failed, "HK0904", &[])?;
    ensure!(
        fs::read_to_string(&output)? == "written since",
        "a failed restore cut the output"
    );

    let outcome = restore(sandbox, &archive, &["--own-stdio"])?.success("restore --own-stdio")?;
    ensure!(outcome.stdout == baseline.outcome.stdout, "{}", outcome.text());
    ensure!(
        fs::read_to_string(&output)? == "written since",
        "--own-stdio changed the output"
    );

    let outcome = restore(sandbox, &archive, &["--rewind-outputs"])?.success("restore --rewind-outputs")?;
    ensure!(outcome.stdout.is_empty(), "{}", outcome.text());
    ensure!(
        fs::read_to_string(&output)? == baseline.outcome.stdout,
        "the output is not what it ought to be"
    );
    let copy = fs::read_to_string(sandbox.path("output.txt.after-dump"))?;
    ensure!(copy == "written since", "the copy has {copy}");
    Ok(())
}

fn missing_output(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let output = sandbox.path("output.txt");
    let archive = dumped_with_output(sandbox, baseline.length, &output)?;
    fs::remove_file(&output)?;
    let refused = restore(sandbox, &archive, &["--rewind-outputs"])?;
    ensure_says(&refused, "HK0907", &["output.txt is missing", "--own-stdio"])?;
    // The reader of the new output goes away, as that of a pipe may have done.
    let outcome = restore(sandbox, &archive, &["--own-stdio"])?.success("restore --own-stdio")?;
    ensure!(outcome.stdout == baseline.outcome.stdout, "{}", outcome.text());
    ensure!(!output.exists(), "--own-stdio made the file");
    Ok(())
}

/// Started by hand with the shim, in our session, as a script would start it.
fn no_session_leader(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let installation = Installation::get();
    let program = PACED.command(baseline.length);
    let pid_file = sandbox.path("pid");
    // The session of whoever runs the tests may be that of another pid namespace, which CRIU refuses: so one of a
    // shell.
    let mut command = Command::new("setsid");
    sandbox.equip(&mut command);
    command
        .args([
            "--wait",
            "sh",
            "-c",
            r#"pid_file=$1; shift; "$@" & echo $! >"$pid_file"; wait $!"#,
            "sh",
        ])
        .arg(&pid_file)
        .args(&program)
        .env("LD_LIBRARY_PATH", installation.shim_folder());
    command.env("HETCKPT_DEVICE", "cpu");
    let running = Running::start(command)?;
    let started = std::time::Instant::now();
    let pid = loop {
        let text = fs::read_to_string(&pid_file).unwrap_or_default();
        let pid: Option<i32> = text.strip_suffix('\n').and_then(|digits| digits.parse().ok());
        if let Some(pid) = pid {
            let row = hetckpt::ps_row(sandbox, pid)?;
            if row.is_some_and(|row| row["running_kernels"].as_u64().is_some_and(|n| n > 0)) {
                break pid;
            }
        }
        ensure!(started.elapsed() < PATIENCE, "no kernel comes to run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let archive = sandbox.path("job.hetsnap");
    hetckpt::dump(sandbox, pid, &archive, false)?.success("dump")?;
    let before = running.wait(PATIENCE)?;
    let outcome = restore(sandbox, &archive, &[])?.success("restore")?;
    ensure!(
        before.stdout + &outcome.stdout == baseline.outcome.stdout,
        "it printed {}",
        outcome.stdout
    );
    Ok(())
}

/// `script` is what gives terminals here.
fn terminal(context: &mut Context) -> Result<()> {
    if Command::new("script").arg("--version").output().is_err() {
        context.note("skipped: there is no `script`");
        return Ok(());
    }
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let words: Vec<String> = PACED
        .command(baseline.length)
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let in_terminal = |line: &str| {
        let mut command = Command::new("script");
        sandbox.equip(&mut command);
        command.args(["-qec", line, "/dev/null"]);
        command
    };
    let shim = Installation::get().shim_folder();
    let mut command = in_terminal(&format!(
        "exec env LD_LIBRARY_PATH={} HETCKPT_DEVICE=cpu {}",
        shim.display(),
        words.join(" ")
    ));
    command.env_remove("SHELL");
    let running = Running::start(command)?;
    let started = std::time::Instant::now();
    let pid = loop {
        let rows: Vec<serde_json::Value> =
            serde_json::from_str(&hetckpt::run(sandbox, ["ps", "--json"])?.success("ps")?.stdout)?;
        if let Some(row) = rows.iter().find(|row| row["running_kernels"].as_u64() > Some(0)) {
            break i32::try_from(row["pid"].as_i64().unwrap_or(-1))?;
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "no kernel comes to run: {}",
            running.said()
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let archive = sandbox.path("job.hetsnap");
    hetckpt::dump(sandbox, pid, &archive, false)?.success("dump")?;
    // It would not take notice by itself.
    drop(running);
    let refused = restore(sandbox, &archive, &[])?;
    ensure_says(&refused, "HK0908", &["script -qc"])?;
    let line = format!(
        "{} restore --device cpu {}",
        Installation::get().hetckpt().display(),
        archive.display()
    );
    let outcome = Running::run(in_terminal(&line), PATIENCE)?;
    // A terminal's lines end otherwise.
    let printed = outcome.stdout.replace("\r\n", "\n");
    ensure!(
        outcome.code == 0 && printed.ends_with(&baseline.outcome.stdout),
        "{}",
        outcome.text()
    );
    Ok(())
}

/// Where cgroups of version 2 are mounted here, if they can be made.
fn make_cgroups(names: &[String]) -> Option<Vec<std::path::PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    let root = Path::new(line.split(' ').nth(1)?);
    let folders: Vec<_> = names.iter().map(|name| root.join(name)).collect();
    folders.iter().try_for_each(fs::create_dir).ok()?;
    Some(folders)
}

fn cgroup(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let names = ["dump", "restore"].map(|name| format!("hetckpt-e2e-{}-{name}", std::process::id()));
    let Some(folders) = make_cgroups(&names) else {
        context.note("skipped: no cgroups (version 2) can be made here");
        return Ok(());
    };
    let result = (|| {
        let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
        job.wait_for_kernel()?;
        fs::write(folders[0].join("cgroup.procs"), job.pid().to_string())?;
        let (pid, archive, printed) = dump(sandbox, job, &[])?;
        // It is gone on the other node.
        fs::remove_dir(&folders[0])?;
        let line = format!(
            "echo $$ >{}/cgroup.procs; exec {} restore --device cpu --timings {} {}",
            folders[1].display(),
            Installation::get().hetckpt().display(),
            sandbox.path("timings").display(),
            archive.display()
        );
        let mut command = Command::new("sh");
        sandbox.equip(&mut command);
        command.args(["-euc", &line]);
        let mut restored = Running::start(command)?;
        while !sandbox.path("timings").exists() && !restored.has_ended()? {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let found = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let outcome = restored.wait(PATIENCE)?;
        ensure!(found.contains(&names[1]), "it is in {found}, {}", outcome.text());
        ensure!(!folders[0].exists(), "the cgroup of the dump was made again");
        ensure!(
            printed + &outcome.stdout == baseline.outcome.stdout,
            "{}",
            outcome.text()
        );
        Ok(())
    })();
    for folder in &folders {
        // Those that are gone need not go.
        let _ = fs::remove_dir(folder);
    }
    result
}

/// Not the root's id is taken, but that of its child: by a program that was left running and of which only that is
/// left.
fn childs_id_in_use(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let command: [OsString; 3] = ["sh".into(), "-c".into(), {
        let program = PACED.command(baseline.length);
        let words: Vec<String> = program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        format!("{}; true", words.join(" ")).into()
    }];
    let job = Job::start_with(sandbox, &command, "cpu", |_| ())?;
    // The shell's child makes the CUDA calls.
    let started = std::time::Instant::now();
    let rows = || -> Result<Vec<serde_json::Value>> {
        Ok(serde_json::from_str(
            &hetckpt::run(sandbox, ["ps", "--json"])?.success("ps")?.stdout,
        )?)
    };
    let child = loop {
        let rows = rows()?;
        if let Some(row) = rows.iter().find(|row| row["running_kernels"].as_u64() > Some(0)) {
            break row["pid"].as_i64().unwrap_or_default();
        }
        ensure!(started.elapsed() < PATIENCE, "no kernel comes to run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let pid = job.pid();
    let archive = sandbox.path("job.hetsnap");
    hetckpt::dump(sandbox, pid, &archive, true)?.success("dump --leave-running")?;
    // The shell goes, its child stays.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
    let refused = restore(sandbox, &archive, &[])?;
    ensure_says(
        &refused,
        "HK0905",
        &[&format!("{child} (paced)"), "--namespaces always"],
    )?;
    sandbox.kill_all();
    drop(job);
    Ok(())
}
