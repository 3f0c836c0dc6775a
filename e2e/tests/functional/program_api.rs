//! Programs that ask for checkpoints of themselves (`hetckpt.h`, `hetckpt.py`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use serde_json::Value;

use super::opencl_refusals::compile;

const PROGRAM: &str = include_str!("program_api.c");
const PYTHON_PROGRAM: &str = include_str!("program_api.py");

/// Steps of a kernel that runs for the better part of a second, or more, on a CPU.
const STEPS: u32 = 12_000_000;

/// The tests.
pub fn tests() -> Vec<Test> {
    let needs = [Requirement::Privileges, Requirement::Criu];
    let test = |name: &str, body: fn(&mut Context) -> Result<()>| Test::new(name, body).needs(&needs);
    vec![
        test("program_that_asks_for_checkpoints_runs_natively", natively),
        test("program_checkpoints_itself_and_is_restored", |context| {
            restored_again_and_again(context, "auto")
        }),
        test("program_checkpoints_itself_in_namespaces", |context| {
            restored_again_and_again(context, "always")
        }),
        test("program_whose_checkpoint_fails_learns_why", told_why),
        test("program_that_nobody_stands_in_for_gets_no_checkpoint", unattended),
        test("processes_that_ask_together_are_restored_together", together),
        test("suspended_program_waits_for_its_checkpoint", suspended),
        test("job_makes_snapshots_for_its_program", in_a_job),
        test("python_program_checkpoints_itself", in_python).also_needs(Requirement::Python),
    ]
}

/// Fails unless strict compilers take the header.
fn ensure_header_compiles() -> Result<()> {
    let header = Installation::get().stage.join("include/hetckpt.h");
    for (language, standard) in [("c", "-std=c99"), ("c++", "-std=c++11")] {
        let mut gcc = Command::new("gcc");
        gcc.args([
            "-x",
            language,
            standard,
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
        ]);
        let output = gcc.arg(&header).output().context("gcc cannot be run")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// What has the program launch a kernel of so many steps.
fn launch(steps: u32) -> String {
    format!("launch={steps}")
}

/// Compiles the program; gives its command line for `actions`.
fn program(sandbox: &Sandbox, actions: &[&str]) -> Result<Vec<OsString>> {
    let include = format!("-I{}", Installation::get().stage.join("include").display());
    let options = [&include, "-std=gnu99", "-Wextra", "-pthread", "-ldl"];
    let program = compile(sandbox, "program_api", PROGRAM, &options)?;
    let actions = actions.iter().map(OsString::from);
    Ok([program.into_os_string()].into_iter().chain(actions).collect())
}

/// Runs it under `hetckpt run` to its end.
fn run(sandbox: &Sandbox, more: &[&str], program: &[OsString]) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, ["run", "--device", "cpu"]);
    command.args(more).arg("--").args(program);
    Running::run(command, PATIENCE)
}

fn restore(sandbox: &Sandbox, archive: &Path) -> Result<Outcome> {
    restore_in(sandbox, archive, "auto")
}

fn restore_in(sandbox: &Sandbox, archive: &Path, namespaces: &str) -> Result<Outcome> {
    let device = Installation::to_device();
    let mut command = hetckpt::command(sandbox, ["restore", "--namespaces", namespaces, "--device", &device]);
    command.arg(archive);
    Running::run(command, PATIENCE)
}

/// Fails unless the program has ended well and has said that.
fn ensure_said(sandbox: &Sandbox, outcome: &Outcome, lines: &[&str]) -> Result<()> {
    let said: Vec<&str> = outcome.stdout.lines().collect();
    ensure!(
        outcome.code == 0 && said == lines,
        "expected {lines:?}: {}\n{}",
        outcome.text(),
        sandbox.logs()
    );
    Ok(())
}

fn natively(context: &mut Context) -> Result<()> {
    ensure_header_compiles()?;
    let sandbox = &context.sandbox;
    let program = program(sandbox, &["label=a", "checkpoint", "checkpoint=a.hetsnap", "restored"])?;
    let mut command = Command::new(&program[0]);
    sandbox.equip(&mut command);
    command.args(&program[1..]);
    let outcome = Running::run(command, PATIENCE)?;
    let not_running = |call: &str| format!("{call} -1: the program does not run under hetckpt");
    let [label, checkpoint] = ["label", "checkpoint"].map(not_running);
    ensure_said(sandbox, &outcome, &[&label, &checkpoint, &checkpoint, "restored 0"])
}

/// Two checkpoints in the middle of a kernel. From the first a program goes on that makes the second anew.
fn restored_again_and_again(context: &mut Context, namespaces: &str) -> Result<()> {
    let sandbox = &context.sandbox;
    let [first, second] = ["a.hetsnap", "b.hetsnap"].map(|name| sandbox.path(name));
    let process = |archive: &Path| -> Result<Value> { Ok(hetckpt::inspect(sandbox, archive)?["processes"][0].clone()) };
    let mut stopped = Value::Null;
    // Beside other work a checkpoint may come too late for a kernel.
    for longer in [1, 4, 16] {
        let launch = launch(STEPS * longer);
        let actions = ["init", &launch, "label=first", "checkpoint=a.hetsnap", "restored"];
        let more = [
            "label=second \u{3b1}",
            "checkpoint=b.hetsnap",
            "restored",
            "synchronize",
        ];
        let program = program(sandbox, &[&actions[..], &more].concat())?;
        let ran = run(sandbox, &["--namespaces", namespaces], &program)?;
        let from_label = ["label 0", "checkpoint 0", "restored 0", "PASS"];
        let all = [&["label 0", "checkpoint 0", "restored 0"][..], &from_label].concat();
        ensure_said(sandbox, &ran, &all)?;
        stopped = process(&first)?;
        if stopped["kernels_in_flight"][0].is_object() {
            break;
        }
    }
    ensure!(
        stopped["label"] == "first" && stopped["kernels_in_flight"][0]["name"] == "walk",
        "{stopped}"
    );
    // Outside, other processes may have the ids that the program has in its namespaces.
    let restored = restore_in(sandbox, &first, namespaces)?;
    let once = [
        "checkpoint 1",
        "restored 1",
        "label 0",
        "checkpoint 0",
        "restored 1",
        "PASS",
    ];
    ensure_said(sandbox, &restored, &once)?;
    let stopped = process(&second)?;
    ensure!(stopped["label"] == "second \u{3b1}", "{stopped}");
    ensure_said(
        sandbox,
        &restore_in(sandbox, &second, namespaces)?,
        &["checkpoint 1", "restored 2", "PASS"],
    )
}

fn told_why(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (long_label, long_path) = (
        format!("label={}", "l".repeat(257)),
        format!("checkpoint=/{}", "p/".repeat(1100)),
    );
    let actions = [
        "checkpoint=a",
        "init",
        &launch(STEPS),
        "checkpoint=/nowhere/at/all",
        "checkpoint=.",
        "checkpoint",
        "checkpoint=",
        &long_path,
        &long_label,
        "label=a\nb",
        "label",
        "label=",
        "fork=a",
        "threads=threads.hetsnap",
        "checkpoint= \u{1b}\n.hetsnap",
        "synchronize",
    ];
    let outcome = run(sandbox, &[], &program(sandbox, &actions)?)?;
    let no_label = "label -3: a label is a line of UTF-8 without control characters, of at most 256 bytes";
    ensure_said(
        sandbox,
        &outcome,
        &[
            "checkpoint -2: the program has made no CUDA call yet",
            "checkpoint -7: [HK0704] cannot write /nowhere/at/all; /nowhere/at: No such file or directory (os error 2)",
            &format!(
                "checkpoint -7: [HK0704] cannot write {}; it is a folder",
                outcome_folder(sandbox).display()
            ),
            "checkpoint -4: no file is named, and only `hetckpt job` has a store",
            "checkpoint -3: the file's path is empty",
            "checkpoint -3: the file's path has more than 2048 bytes",
            no_label,
            no_label,
            no_label,
            "label 0",
            "child -2: this process was forked after the first CUDA call, and has no device",
            "child's restored 0",
            "threads ok",
            "checkpoint 0",
            "PASS",
        ],
    )?;
    hetckpt::inspect(sandbox, &sandbox.path(" \u{1b}\n.hetsnap"))?;
    // Device servers end a moment after their programs.
    sandbox.wait_until_empty(PATIENCE)?;
    let left: Vec<PathBuf> = fs::read_dir(sandbox.runtime_dir())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .collect();
    ensure!(left.is_empty(), "{left:?} are left");
    Ok(())
}

/// What the program calls `.`.
fn outcome_folder(sandbox: &Sandbox) -> PathBuf {
    sandbox.path(".").components().collect()
}

/// With our driver library, but without `hetckpt run`.
fn unattended(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = program(sandbox, &["init", "label=a", "checkpoint=a.hetsnap", "restored"])?;
    let mut command = Command::new(&program[0]);
    sandbox.equip(&mut command);
    command.args(&program[1..]).env("HETCKPT_DEVICE", "cpu");
    command.env("LD_LIBRARY_PATH", Installation::get().shim_folder());
    let outcome = Running::run(command, PATIENCE)?;
    let nobody = "checkpoint -5: nobody stands in for the program, as `hetckpt run`, `hetckpt job` and `hetckpt restore` \
                  without --detach do";
    ensure_said(sandbox, &outcome, &["label 0", nobody, "restored 0"])
}

/// Both processes get what they ask for. Those of them that waited for it go on from it.
fn together(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = program(sandbox, &["together=a.hetsnap"])?;
    let each = ["one of them 0", "restored 0"];
    let ran = run(sandbox, &[], &program)?;
    let mut said: Vec<&str> = ran.stdout.lines().collect();
    said.sort_unstable();
    ensure!(
        ran.code == 0 && said == [each[0], each[0], each[1], each[1]],
        "{}\n{}",
        ran.text(),
        sandbox.logs()
    );
    let restored = restore(sandbox, &sandbox.path("a.hetsnap"))?;
    ensure!(
        restored.code == 0 && restored.stdout.contains("one of them 1\nrestored 1\n"),
        "{}\n{}",
        restored.text(),
        sandbox.logs()
    );
    Ok(())
}

/// Nobody answers it before it is resumed, but one that is dumped meanwhile is restored with an answer.
fn suspended(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (go, archive) = (sandbox.path("go"), sandbox.path("suspended.hetsnap"));
    let wait = format!("wait={}", go.display());
    let actions = [
        "init",
        &launch(STEPS),
        &wait,
        "checkpoint=a.hetsnap",
        "restored",
        "synchronize",
    ];
    let mut job = Job::start_with(sandbox, &program(sandbox, &actions)?, "cpu", |_| ())?;
    job.wait_for_kernel()?;
    let pid = job.pid().to_string();
    hetckpt::run(sandbox, ["suspend", "--pid", &pid])?.success("suspend")?;
    fs::write(&go, "")?;
    std::thread::sleep(Duration::from_millis(500));
    hetckpt::dump(sandbox, job.pid(), &archive, true)?.success("dump")?;
    ensure!(!sandbox.path("a.hetsnap").exists(), "it did not wait");
    hetckpt::run(sandbox, ["resume", "--pid", &pid])?.success("resume")?;
    ensure_said(sandbox, &job.finish()?, &["checkpoint 0", "restored 0", "PASS"])?;
    for archive in [archive, sandbox.path("a.hetsnap")] {
        let restored = restore(sandbox, &archive)?;
        ensure_said(sandbox, &restored, &["checkpoint 1", "restored 1", "PASS"])?;
    }
    Ok(())
}

/// The program asks for a snapshot, is killed, goes on from it, and asks for an archive of its own.
fn in_a_job(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (store, go) = (sandbox.path("store"), sandbox.path("go"));
    let wait = format!("wait={}", go.display());
    let actions = ["init", &launch(STEPS), "label=kept", "checkpoint", "die-once", &wait];
    let more = ["checkpoint=own.hetsnap", "restored", "synchronize"];
    let mut command = hetckpt::command(
        sandbox,
        ["job", "--scheduler", "none", "--name", "a", "--device", "cpu"],
    );
    command.arg("--store").arg(&store).arg("--");
    command.args(program(sandbox, &[&actions[..], &more].concat())?);
    let job = Running::start(command)?;
    job.wait_for_stderr("goes on from the snapshot", PATIENCE)?;
    let mut list = hetckpt::command(sandbox, ["store", "ls", "--json", "--store"]);
    list.arg(&store);
    let listed = Running::run(list, PATIENCE)?.success("store ls")?;
    let listed: Value = serde_json::from_str(&listed.stdout).context("store ls --json prints no JSON")?;
    let snapshot = &listed["snapshots"][0];
    ensure!(
        snapshot["label"] == "kept" && snapshot["occasion"] == "asked",
        "{listed}"
    );
    let row = hetckpt::ps(sandbox)?.pop().context("ps lists no program")?;
    ensure!(row["label"] == "kept", "{row}");
    fs::write(&go, "")?;
    let ended = job.wait(PATIENCE)?;
    let before = ["label 0", "checkpoint 0"];
    let lines = [&before[..], &["checkpoint 1", "checkpoint 0", "restored 1", "PASS"]].concat();
    ensure_said(sandbox, &ended, &lines)?;
    let own = hetckpt::inspect(sandbox, &sandbox.path("own.hetsnap"))?;
    ensure!(own["processes"][0]["label"] == "kept", "{own}");
    Ok(())
}

fn in_python(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let (script, archive) = (sandbox.path("program.py"), sandbox.path("a.hetsnap"));
    fs::write(&script, PYTHON_PROGRAM)?;
    let module = Installation::get().stage.join("lib/hetckpt/python");
    let program: [OsString; 3] = ["python3".into(), script.into(), archive.clone().into()];
    let start = |mut command: Command, program: &[OsString]| {
        command.args(program).env("PYTHONPATH", &module);
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONIOENCODING", "utf-8");
        Running::run(command, PATIENCE)
    };
    let mut natively = Command::new(&program[0]);
    sandbox.equip(&mut natively);
    let not_running = "not running: the program does not run under hetckpt";
    ensure_said(sandbox, &start(natively, &program[1..])?, &["restored 0", not_running])?;

    let ran = start(hetckpt::command(sandbox, ["run", "--device", "cpu", "--"]), &program)?;
    let errors = ["-3 True", "-4 True", "-7 True", "embedded null byte"];
    let begun = [&["restored 0", "too early: True"][..], &errors].concat();
    ensure_said(
        sandbox,
        &ran,
        &[&begun[..], &["checkpoint False", "restored 0 4711"]].concat(),
    )?;
    let label = &hetckpt::inspect(sandbox, &archive)?["processes"][0]["label"];
    ensure!(label == "\u{3b1}\u{3b2}\u{3b3}", "{label}");
    let restored = restore(sandbox, &archive)?;
    ensure!(
        restored.code == 0 && restored.stdout.ends_with("checkpoint True\nrestored 1 4711\n"),
        "{}",
        restored.text()
    );
    Ok(())
}
