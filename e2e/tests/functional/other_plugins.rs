//! Our plugin in one folder with somebody else's. CRIU asks them in the folder's raw order, and of each hook's plugins
//! no more than the first that answers anything but "not mine": so both orders are tried.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu::{
    self, Program, criu_command, ensure_dumped, ensure_ends_right, ensure_same, wait_until_reaped,
};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

/// What no CRIU dumps without a plugin that knows it. That it is open changes nothing.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Where our plugin stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    First,
    Last,
}

/// For which processes the other plugin says that all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    None,
    All,
}

/// The tests.
pub fn tests() -> Vec<Test> {
    let test = |name: &str, ours: Ours| Test::new(name, move |context: &mut Context| both_work(context, ours));
    let tests = vec![
        test("beside_another_plugin_behind_ours", Ours::First),
        test("beside_another_plugin_before_ours", Ours::Last),
        Test::new(
            "beside_a_plugin_that_answers_for_all_dumps_are_refused",
            refuses_to_lose_state,
        ),
        Test::new(
            "beside_a_plugin_that_answers_for_all_restores_work",
            restores_all_the_same,
        ),
        Test::new("images_of_two_plugins_need_both", need_both),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

/// Compiles the other plugin.
fn compile(sandbox: &Sandbox) -> Result<PathBuf> {
    let plugin = sandbox.path("other");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&plugin)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("criu-plugins/other.c"));
    Running::run(cc, PATIENCE)?.success("cc")?;
    Ok(plugin)
}

/// A folder that CRIU reads our plugin and the other one from, in the order wanted.
fn folder(sandbox: &Sandbox, ours: Ours) -> Result<PathBuf> {
    folder_with(sandbox, &[compile(sandbox)?], ours)
}

/// A folder that CRIU reads our plugin and `others` from, in the order wanted: by names, which decide in most file
/// systems.
pub fn folder_with(sandbox: &Sandbox, others: &[PathBuf], ours: Ours) -> Result<PathBuf> {
    for attempt in 0..100 {
        let folder = sandbox.path(&format!("plugins-{ours:?}-{attempt}"));
        fs::create_dir(&folder)?;
        let link_ours = || symlink(our_plugin(), folder.join("hetgpu_plugin.so"));
        // Where names do not decide, the order in which they were made does.
        if attempt % 2 == 0 {
            link_ours()?;
        }
        for other in others {
            let name = other.file_stem().context("a plugin without a name")?.display();
            symlink(other, folder.join(format!("{name}{attempt}.so")))?;
        }
        if attempt % 2 == 1 {
            link_ours()?;
        }
        // As CRIU does, without sorting.
        let listed: Vec<OsString> = fs::read_dir(&folder)?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        let at_the_place = match ours {
            Ours::First => listed.first(),
            Ours::Last => listed.last(),
        };
        if at_the_place.is_some_and(|name| name == "hetgpu_plugin.so") {
            return Ok(folder);
        }
    }
    bail!("no names of the other plugins have the folder read with ours {ours:?}")
}

fn our_plugin() -> PathBuf {
    Installation::get().plugin_folder().join("hetgpu_plugin.so")
}

/// `criu VERB` with the plugins of `folder`.
fn criu(sandbox: &Sandbox, verb: &str, folder: &Path, answers: Answers, more: &[&str]) -> Result<Outcome> {
    let mut command = criu_command(sandbox, verb, folder)?;
    command
        .args(more)
        .env("OTHER_PLUGIN_CALLS", sandbox.path(&format!("{verb}.calls")))
        .env("OTHER_PLUGIN_DEVICE", DEVICE);
    if answers == Answers::All {
        command.env("OTHER_PLUGIN_ANSWERS", "all");
    }
    Running::run(command, PATIENCE)
}

/// A shell, and below it a program that has our device.
pub struct Tree {
    pub shell: Program,
    pub paced: i32,
    has_device: bool,
}

impl Tree {
    /// Starts it; the shell has the other plugin's device open, if there is one.
    fn with_device(sandbox: &Sandbox, length: u64) -> Result<Self> {
        match Path::new(DEVICE).exists() {
            true => Self::begin(sandbox, length, &format!("exec 3<{DEVICE}; ")),
            false => Self::start(sandbox, length),
        }
    }

    /// Starts it; the shell has nothing but what every process has.
    pub fn start(sandbox: &Sandbox, length: u64) -> Result<Self> {
        Self::begin(sandbox, length, "")
    }

    fn begin(sandbox: &Sandbox, length: u64, open: &str) -> Result<Self> {
        let script = format!("{open}\"$@\" 3<&-; exit $?");
        let mut command: Vec<OsString> = ["sh", "-c", &script, "sh"].map(OsString::from).to_vec();
        command.extend(plain_criu::paced(length));
        let shell = Program::start(sandbox, &command)?;
        let pid = shell.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let paced = children.trim().parse().context("the shell's child")?;
        Ok(Self {
            shell,
            paced,
            has_device: !open.is_empty(),
        })
    }

    /// Makes sure that a dump has ended it and that its process ids are free.
    pub fn ensure_dumped(self, sandbox: &Sandbox) -> Result<()> {
        ensure_dumped(sandbox, self.shell)?;
        wait_until_reaped(self.paced)
    }

    /// Makes sure that the dump with `outcome` was refused by our plugin, which was not asked in time, and that all
    /// came to the right end without it.
    pub fn ensure_refused(self, sandbox: &Sandbox, outcome: &Outcome, baseline: &Baseline) -> Result<()> {
        let log = fs::read_to_string(sandbox.path("images/dump.log"))?;
        let complaint = log.lines().find_map(|line| line.split_once("hetgpu: error: "));
        let complaint = complaint.map_or("", |(_, complaint)| complaint);
        ensure!(
            outcome.code != 0
                && complaint.contains(&format!("process {}", self.paced))
                && complaint.contains("--libdir"),
            "{}: {complaint:?}",
            outcome.text()
        );
        let code = self.shell.finish()?;
        ensure!(code == 0, "the program ended with {code}");
        ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
    }
}

/// What the other plugin was asked, one call a line.
fn calls(sandbox: &Sandbox, verb: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(sandbox.path(&format!("{verb}.calls")))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Makes sure that `calls` has `call` of just the processes `expected`.
fn ensure_asked(calls: &[String], call: &str, expected: &[i32]) -> Result<()> {
    let asked = calls
        .iter()
        .filter_map(|line| line.strip_prefix(call)?.trim().parse().ok());
    let asked: Vec<i32> = asked.collect();
    ensure!(
        asked == expected,
        "{call} was to be asked of {expected:?}, and was of {asked:?}: {calls:?}"
    );
    Ok(())
}

fn both_work(context: &mut Context, ours: Ours) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let folder = folder(sandbox, ours)?;
    let tree = Tree::with_device(sandbox, baseline.length)?;
    if !tree.has_device {
        context.note(format!("there is no {DEVICE}: the other plugin has nothing of its own"));
    }
    let (shell, paced) = (tree.shell.pid(), tree.paced);
    // Those that ours answers for are not asked of a plugin behind it.
    let left = match ours {
        Ours::First => vec![shell],
        Ours::Last => vec![shell, paced],
    };

    criu(sandbox, "dump", &folder, Answers::None, &["--tree", &shell.to_string()])?.success("criu dump")?;
    let asked = calls(sandbox, "dump")?;
    ensure_asked(&asked, "pause_devices", &left)?;
    ensure_asked(&asked, "checkpoint_devices", &left)?;
    ensure!(
        asked.iter().any(|call| call.starts_with("dump_unix_sk")) == (ours == Ours::Last),
        "{asked:?}"
    );
    let has_device = tree.has_device;
    tree.ensure_dumped(sandbox)?;

    criu(sandbox, "restore", &folder, Answers::None, &["--restore-detached"])?.success("criu restore")?;
    let asked = calls(sandbox, "restore")?;
    ensure_asked(&asked, "resume_devices_late", &left)?;
    ensure_asked(&asked, "is in the inventory", &[1])?;
    for (call, is_expected) in [
        ("restore_unix_sk", ours == Ours::Last),
        ("restore_ext_file", has_device),
    ] {
        ensure!(
            asked.iter().any(|line| line.starts_with(call)) == is_expected,
            "{call}: {asked:?}"
        );
    }
    ensure_ends_right(sandbox, shell, &baseline)
}

/// Ours is not asked for its process by a CRIU whose first plugin has answered for it.
fn refuses_to_lose_state(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let folder = folder(sandbox, Ours::Last)?;
    let tree = Tree::with_device(sandbox, baseline.length)?;
    let shell = tree.shell.pid();
    let outcome = criu(sandbox, "dump", &folder, Answers::All, &["--tree", &shell.to_string()])?;
    tree.ensure_refused(sandbox, &outcome, &baseline)
}

fn restores_all_the_same(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let folder = folder(sandbox, Ours::Last)?;
    let tree = Tree::with_device(sandbox, baseline.length)?;
    let (shell, paced) = (tree.shell.pid(), tree.paced);
    criu(sandbox, "dump", &folder, Answers::None, &["--tree", &shell.to_string()])?.success("criu dump")?;
    tree.ensure_dumped(sandbox)?;
    criu(sandbox, "restore", &folder, Answers::All, &["--restore-detached"])?.success("criu restore")?;
    ensure_asked(&calls(sandbox, "restore")?, "resume_devices_late", &[shell, paced])?;
    ensure_ends_right(sandbox, shell, &baseline)
}

/// A restore without one of the plugins that the images need names it, before it has begun, and leaves them as they
/// were.
fn need_both(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let folder = folder(sandbox, Ours::First)?;
    let tree = Tree::with_device(sandbox, baseline.length)?;
    let shell = tree.shell.pid();
    criu(sandbox, "dump", &folder, Answers::None, &["--tree", &shell.to_string()])?.success("criu dump")?;
    tree.ensure_dumped(sandbox)?;

    let other = sandbox.path("other-alone");
    fs::create_dir(&other)?;
    fs::copy(sandbox.path("other"), other.join("other_plugin.so"))?;
    for (present, missing) in [(Installation::get().plugin_folder(), "other"), (other, "hetgpu")] {
        let outcome = criu(sandbox, "restore", &present, Answers::None, &["--restore-detached"])?;
        let log = fs::read_to_string(sandbox.path("images/restore.log"))?;
        ensure!(
            outcome.code != 0 && log.contains(&format!("Missing required plugin: {missing}")),
            "{}\n{log}",
            outcome.text()
        );
        sandbox.wait_until_empty(Duration::from_secs(10))?;
    }
    criu(sandbox, "restore", &folder, Answers::None, &["--restore-detached"])?.success("criu restore")?;
    ensure_ends_right(sandbox, shell, &baseline)
}
