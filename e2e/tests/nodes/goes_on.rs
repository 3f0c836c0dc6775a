//! Programs that go on on another node, on another kind of device.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Attempt, Job};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::{PACED, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use hetckpt_e2e::user;
use serde_json::Value;

use super::node::{Node, PREFIX};

/// The tests: one program in each, all ten if `HETCKPT_E2E_ALL_NODES` is set.
pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = Program::between_nodes()
        .flat_map(|program| Installation::ways_between_nodes().map(|ways| (program, ways)))
        .map(|(program, (from, to))| {
            let name = format!("other_node_{}_from_{from}_to_{to}", program.name);
            let devices = Requirement::of_devices([&from, &to]);
            let test = Test::new(name, move |context| goes_on(context, &program, &from, &to));
            devices.into_iter().fold(test, Test::also_needs)
        })
        .collect();
    tests.push(Test::new("other_node_to_and_fro", to_and_fro));
    tests.push(Test::new("other_node_with_other_libraries", other_libraries));
    tests.push(Test::new("other_node_from_a_folder_of_images", from_folder));
    tests
        .into_iter()
        .map(|test| test.also_needs(Requirement::Mounting))
        .collect()
}

/// A program that lies in the test's folder, with a library of its own, and runs there.
pub struct Application {
    /// Its file.
    pub program: PathBuf,
    /// Where its library is.
    pub libraries: PathBuf,
    arguments: Vec<OsString>,
}

impl Application {
    /// Copies `program`, which is to run for `length`.
    pub fn new(sandbox: &Sandbox, program: &Program, length: u64) -> Result<Self> {
        let libraries = sandbox.path("app/lib");
        fs::create_dir_all(&libraries)?;
        let mut command = program.command(length);
        let file = sandbox.path("app").join(program.name);
        executable::copy(Path::new(&command[0]), &file)?;
        for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"] {
            let library = Path::new(folder).join("libstdc++.so.6");
            if library.exists() {
                fs::copy(library, libraries.join("libstdc++.so.6"))?;
                break;
            }
        }
        Ok(Self {
            program: file,
            libraries,
            arguments: command.split_off(1),
        })
    }

    /// Starts it on `device` in `folder`, which is made; a kernel runs.
    pub fn start<'a>(&self, sandbox: &'a Sandbox, device: &str, folder: &Path) -> Result<Job<'a>> {
        fs::create_dir_all(folder)?;
        let mut command = vec![self.program.clone().into_os_string()];
        command.extend(self.arguments.iter().cloned());
        let mut job = Job::start_with(sandbox, &command, device, |command| {
            command.env("LD_LIBRARY_PATH", &self.libraries).current_dir(folder);
        })?;
        job.wait_for_kernel()?;
        Ok(job)
    }
}

/// Dumps `job` on this machine; gives its process id, the archive and what it had printed.
pub fn dump(sandbox: &Sandbox, job: Job<'_>, options: &[&str]) -> Result<(i32, PathBuf, String)> {
    let pid = job.pid();
    let archive = sandbox.path("job.hetsnap");
    let mut command = hetckpt::command(sandbox, ["dump", "--force", "--pid", &pid.to_string(), "-o"]);
    command.arg(&archive).args(options);
    Running::run(command, PATIENCE)?.success("dump")?;
    Ok((pid, archive, job.finish()?.stdout))
}

fn check(program: &Program, baseline: &Baseline, same_kind: bool, outcome: &Outcome) -> Result<()> {
    ensure!(outcome.code == 0, "{}", outcome.text());
    let is_right = match program.is_float && !same_kind {
        true => outcome.stdout.ends_with("PASS\n"),
        false => outcome.stdout == baseline.outcome.stdout,
    };
    ensure!(
        is_right,
        "an uninterrupted run printed\n{}\nbut it was: {}",
        baseline.outcome.stdout,
        outcome.text()
    );
    Ok(())
}

/// Files that process `pid` maps.
fn mapped(pid: i32) -> Result<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps
        .lines()
        .filter_map(|line| Some(format!("/{}", line.split_once(" /")?.1)))
        .collect())
}

fn goes_on(context: &mut Context, program: &Program, from: &str, to: &str) -> Result<()> {
    let sandbox = &context.sandbox;
    let node = Node::new(sandbox)?;
    ensure!(
        !node.reach(&Installation::get().hetckpt()).exists(),
        "the other node has this one's hetckpt"
    );
    calibration::until_long_enough(from, program, 1, |baseline| {
        let app = Application::new(sandbox, program, baseline.length)?;
        let job = app.start(sandbox, from, &sandbox.path(""))?;
        let pid = job.pid();
        let Attempt::Dumped(dumped) = job.try_dump()? else {
            return Ok(None);
        };
        let archive = node.send(&dumped.archive)?;
        ensure!(!node.reach(&app.program).exists(), "the other node has the program");

        let restored = node.restore(&archive, to, &[])?;
        // Nothing, where the rest of its work took no time there.
        let maps = mapped(node.restored_pid(pid)?).unwrap_or_default();
        let outcome = restored.wait(PATIENCE)?;
        let outcome = Outcome {
            stdout: dumped.printed + &outcome.stdout,
            ..outcome
        };
        check(program, baseline, false, &outcome)?;
        sandbox.wait_until_empty(PATIENCE)?;
        let left = node.leftovers()?;
        ensure!(left.is_empty(), "the restore left {left:?}");
        if maps.is_empty() {
            return Ok(None);
        }
        ensure_laid_out(program, &maps).map(Some)
    })
}

/// Fails unless the files that a restored program maps are the archive's where the node lacks them, else the node's.
fn ensure_laid_out(program: &Program, maps: &[String]) -> Result<()> {
    let is_laid_out = |name: &str| {
        maps.iter()
            .any(|path| path.contains("/hetckpt-files-") && path.ends_with(name))
    };
    ensure!(
        is_laid_out(program.name) && is_laid_out("libcuda.so.1") && is_laid_out("libstdc++.so.6"),
        "{maps:?}"
    );
    let is_of_node = |name: &str| {
        maps.iter()
            .any(|path| !path.starts_with("/tmp") && path.ends_with(name))
    };
    ensure!(
        is_of_node("libc.so.6"),
        "the node's own files are to be used where they are the same: {maps:?}"
    );
    Ok(())
}

/// Detached, seen by `ps`, dumped there, restored there again, dumped, and restored here.
fn to_and_fro(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length * 2)?;
    let node = Node::new(sandbox)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let (pid, archive, _) = dump(sandbox, job, &[])?;
    let mut at_node = node.send(&archive)?;
    for round in 0..2 {
        // Its output goes to a file, because the program has it from then on.
        let restore = format!(
            "{PREFIX}/bin/hetckpt restore --detach --device cpu {} >/tmp/in/out-{round} 2>/tmp/in/err || {{ cat /tmp/in/err >&2; exit 1; }}",
            at_node.display()
        );
        let mut command = node.command("sh");
        command.args(["-euc", &restore]);
        Running::run(command, PATIENCE)?.success(&restore)?;
        let out = fs::read_to_string(node.reach(Path::new(&format!("/tmp/in/out-{round}"))))?;
        let dumped = pid;
        let pid: i32 = out.trim().parse()?;
        ensure!(
            pid == dumped || user::tested().is_some(),
            "restore --detach printed {out}"
        );
        let ps = Running::run(node.hetckpt(["ps", "--json"]), PATIENCE)?.success("ps")?;
        let rows: Vec<Value> = serde_json::from_str(&ps.stdout)?;
        ensure!(
            rows.iter().any(|row| row["pid"] == pid),
            "`ps` does not list {pid}: {}",
            ps.stdout
        );
        ensure!(
            node.leftovers()?.len() == 1,
            "one folder of files: {:?}",
            node.leftovers()?
        );
        at_node = node.dump(pid, &format!("round-{round}.hetsnap"))?;
        sandbox.wait_until_empty(PATIENCE)?;
        ensure!(
            node.leftovers()?.is_empty(),
            "the ended program left {:?}",
            node.leftovers()?
        );
    }
    let back = sandbox.path("back.hetsnap");
    fs::copy(node.reach(&at_node), &back)?;
    sandbox.give(&back)?;
    let inspected = hetckpt::inspect(sandbox, &back)?;
    let files = inspected["files"].to_string();
    let program = app.program.display().to_string();
    ensure!(files.contains(&program) && !files.contains("hetckpt-files-"), "{files}");
    // Here all is in its place: nothing is laid out.
    let mut check = hetckpt::command(sandbox, ["check", "--device", "cpu"]);
    check.arg("--own-stdio").arg(&back);
    let said = Running::run(check, PATIENCE)?.success("check")?;
    ensure!(said.stdout.contains("as they were"), "{}", said.text());
    // Its output was in a file of the node.
    let mut restore = hetckpt::command(sandbox, ["restore", "--device", "cpu", "--own-stdio"]);
    restore.arg(&back);
    let outcome = Running::run(restore, PATIENCE)?;
    ensure!(
        outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
        "{}",
        outcome.text()
    );
    Ok(())
}

/// The node has a C library, a loader, a C++ library and, where the shim was, a file, all of other content.
fn other_libraries(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let node = Node::new(sandbox)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let loaded = mapped(job.pid())?;
    let (pid, archive, printed) = dump(sandbox, job, &[])?;
    let archive = node.send(&archive)?;
    // A library with a few bytes more does what it did.
    for name in ["libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6"] {
        let path = loaded.iter().find(|path| path.ends_with(name));
        let Some(path) = path else { continue };
        node.shell(&format!(
            "cp {path} /tmp/in/{name}; printf other >>/tmp/in/{name}; mount --bind /tmp/in/{name} {path}"
        ))?;
    }
    // As long as ours, and no library at all. A hole, as the folder over it holds little.
    let shim = loaded
        .iter()
        .find(|path| path.ends_with("libcuda.so.1"))
        .cloned()
        .unwrap_or_default();
    let size = fs::metadata(&shim)?.len();
    node.shell(&format!(
        "mkdir -p $(dirname {shim}); truncate -s {size} {shim}; chmod 755 {shim}"
    ))?;

    let restored = node.restore(&archive, "cpu", &[])?;
    let maps = mapped(node.restored_pid(pid)?)?;
    let of_node = maps
        .iter()
        .filter(|path| path.contains(".so") && !path.contains("/hetckpt-files-"));
    let of_node: Vec<&String> = of_node.filter(|path| !path.contains("libgcc_s")).collect();
    ensure!(of_node.is_empty(), "of the node's are {of_node:?}");
    let outcome = restored.wait(PATIENCE)?;
    ensure!(
        printed + &outcome.stdout == baseline.outcome.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}

/// The archive's other form carries the files too, and stays as it was.
fn from_folder(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let node = Node::new(sandbox)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let (_, archive, printed) = dump(sandbox, job, &[])?;
    let archive = node.send(&archive)?;
    let images = Path::new("/tmp/in/images");
    let hashes = || node.shell(&format!("cd {} && sha256sum *", images.display()));
    let mut unpack = node.hetckpt(["unpack"]);
    unpack.arg(&archive).arg(images);
    Running::run(unpack, PATIENCE)?.success("unpack")?;
    let before = hashes()?;
    let outcome = node.restore(images, "cpu", &[])?.wait(PATIENCE)?;
    ensure!(
        printed.clone() + &outcome.stdout == baseline.outcome.stdout,
        "{}",
        outcome.text()
    );
    ensure!(hashes()? == before, "the restore changed the images");

    let mut pack = node.hetckpt(["pack", "-o", "/tmp/in/packed.hetsnap"]);
    pack.arg(images);
    Running::run(pack, PATIENCE)?.success("pack")?;
    let outcome = node
        .restore(Path::new("/tmp/in/packed.hetsnap"), "cpu", &[])?
        .wait(PATIENCE)?;
    ensure!(
        printed + &outcome.stdout == baseline.outcome.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}
