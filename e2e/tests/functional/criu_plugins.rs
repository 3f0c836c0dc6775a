//! Our plugin in one folder with those that CRIU brings itself, `cuda_plugin.so` and `amdgpu_plugin.so`, as far as
//! there are any.
//!
//! The former is in use only where `cuda-checkpoint` is on `PATH` and there is a GPU. NVIDIA's cannot do without its
//! driver, so a script stands in for it here, and CRIU is told, by the means of its own tests, to do without the GPU.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{AMDGPU_PLUGIN, CUDA_PLUGIN, Installation, Requirement};
use hetckpt_e2e::plain_criu::{criu_command, ensure_ends_right};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::other_plugins::{Ours, Tree, folder_with};

/// Answers what `cuda_plugin` asks, as NVIDIA's program does: whether it has the option `--action`; of a process that
/// has CUDA, which of its threads is the driver's and how far that is; and nothing but an exit code of any other
/// process. `HAS_CUDA` is the one that has CUDA, 0 for none; `old` makes it a program of the drivers before 555, of no
/// use to the plugin. Each call is noted, one a line.
const CUDA_CHECKPOINT: &str = r#"#!/bin/sh
echo "$*" >>"$CUDA_CHECKPOINT_CALLS"
case "$HAS_CUDA:$*" in
old:-h) echo '--toggle --pid PID' ;;
*:-h) echo '--action lock|checkpoint|restore|unlock' ;;
"$HAS_CUDA:--get-restore-tid --pid $HAS_CUDA") echo "$HAS_CUDA" ;;
"$HAS_CUDA:--get-state --pid $HAS_CUDA") echo running ;;
"$HAS_CUDA:--action "*" --pid $HAS_CUDA"*) ;;
*) echo 'no CUDA' >&2; exit 1 ;;
esac
"#;

/// Has `cuda_plugin` take for granted that there is a GPU (`FI_PLUGIN_CUDA_FORCE_ENABLE`).
const ASSUME_GPU: (&str, &str) = ("CRIU_FAULT", "138");

/// What `cuda_plugin` asks of a process in each of its hooks.
const ASKED: &str = "--get-restore-tid --pid ";

/// What the stand-in for `cuda-checkpoint` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuda {
    /// It is too old: the plugin stays idle.
    Idle,
    /// No process has CUDA.
    None,
    /// This process has CUDA, as far as the plugin can tell.
    Of(i32),
}

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("beside_amdgpu_and_cuda_plugins_behind_ours", |context: &mut Context| {
            all_work(context, Ours::First, Cuda::None)
        }),
        Test::new(
            "beside_amdgpu_and_idle_cuda_plugins_before_ours",
            |context: &mut Context| all_work(context, Ours::Last, Cuda::Idle),
        ),
        Test::new(
            "beside_a_cuda_plugin_that_answers_first_no_state_is_lost",
            loses_no_state,
        ),
        Test::new("beside_a_cuda_plugin_that_answers_first_restores_work", restores),
    ];
    let needs = |test: Test| test.also_needs(Requirement::Root).also_needs(Requirement::CriuPlugins);
    tests.into_iter().map(needs).collect()
}

/// CRIU's own plugins.
fn plugins() -> Result<Vec<PathBuf>> {
    let folder = Installation::get().criu_plugins().context("no plugins of CRIU's own")?;
    let paths = [CUDA_PLUGIN, AMDGPU_PLUGIN].map(|name| folder.join(name));
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

/// `criu VERB` with the plugins of `folder` and a `cuda-checkpoint`; makes sure that `cuda_plugin` was in use at a
/// dump, or was not, as `cuda` has it.
fn criu(sandbox: &Sandbox, verb: &str, folder: &Path, cuda: Cuda, more: &[&str]) -> Result<Outcome> {
    let bin = sandbox.path("bin");
    fs::create_dir_all(&bin)?;
    executable::write(&bin.join("cuda-checkpoint"), CUDA_CHECKPOINT)?;
    let mut path = vec![bin];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let has_cuda = match cuda {
        Cuda::Idle => "old".to_owned(),
        Cuda::None => "0".to_owned(),
        Cuda::Of(pid) => pid.to_string(),
    };
    let mut command = criu_command(sandbox, verb, folder)?;
    command
        .args(more)
        .env("PATH", std::env::join_paths(path)?)
        .env("CUDA_CHECKPOINT_CALLS", sandbox.path(&format!("{verb}.calls")))
        .env("HAS_CUDA", has_cuda)
        .env(ASSUME_GPU.0, ASSUME_GPU.1);
    let outcome = Running::run(command, PATIENCE)?;

    let log = fs::read_to_string(sandbox.path(&format!("images/{verb}.log")))?;
    for plugin in plugins()? {
        let name = plugin.file_stem().context("a plugin without a name")?.display();
        ensure!(
            log.contains(&format!("Plugin \"{name}\"")),
            "CRIU has not loaded {name}"
        );
    }
    // At a restore it is in use only where the dump had something for it.
    let is_used = matches!((verb, cuda), ("dump", Cuda::None) | (_, Cuda::Of(_)));
    ensure!(
        log.contains("initialized: cuda_plugin stage") == is_used,
        "{verb}: cuda_plugin should {}be in use",
        if is_used { "" } else { "not " }
    );
    Ok(outcome)
}

/// The processes that `cuda_plugin` was asked for at `verb`, in ascending order.
fn asked(sandbox: &Sandbox, verb: &str) -> Result<Vec<i32>> {
    // Not in use, it may never have called.
    let calls = fs::read_to_string(sandbox.path(&format!("{verb}.calls"))).unwrap_or_default();
    let pids = calls.lines().filter_map(|call| call.strip_prefix(ASKED));
    let mut pids = pids.map(str::parse).collect::<Result<Vec<i32>, _>>()?;
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Makes sure that `cuda_plugin` was asked for just the processes `expected` at `verb`.
fn ensure_asked(sandbox: &Sandbox, verb: &str, mut expected: Vec<i32>) -> Result<()> {
    expected.sort_unstable();
    let asked = asked(sandbox, verb)?;
    ensure!(
        asked == expected,
        "{verb}: wanted {expected:?}, cuda_plugin was asked for {asked:?}"
    );
    Ok(())
}

fn all_work(context: &mut Context, ours: Ours, cuda: Cuda) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let folder = folder_with(sandbox, &plugins()?, ours)?;
    let tree = Tree::start(sandbox, baseline.length)?;
    let shell = tree.shell.pid();
    criu(sandbox, "dump", &folder, cuda, &["--tree", &shell.to_string()])?.success("criu dump")?;
    // What is ours is kept from those behind.
    let left = if cuda == Cuda::Idle { vec![] } else { vec![shell] };
    ensure_asked(sandbox, "dump", left)?;
    tree.ensure_dumped(sandbox)?;
    criu(sandbox, "restore", &folder, cuda, &["--restore-detached"])?.success("criu restore")?;
    ensure_asked(sandbox, "restore", vec![])?;
    ensure_ends_right(sandbox, shell, &baseline)
}

/// `cuda_plugin` in use says of processes without CUDA that all is done (up to CRIU 4.2.1 at least), so that ours,
/// behind it, is not asked in time. One that leaves them to others must do no harm either.
fn loses_no_state(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let folder = folder_with(sandbox, &plugins()?, Ours::Last)?;
    let tree = Tree::start(sandbox, baseline.length)?;
    let (shell, paced) = (tree.shell.pid(), tree.paced);
    let outcome = criu(sandbox, "dump", &folder, Cuda::None, &["--tree", &shell.to_string()])?;
    ensure_asked(sandbox, "dump", vec![shell, paced])?;
    if outcome.code != 0 {
        return tree.ensure_refused(sandbox, &outcome, &baseline);
    }
    context.note("this CRIU's cuda_plugin leaves processes without CUDA to others");
    tree.ensure_dumped(sandbox)?;
    criu(sandbox, "restore", &folder, Cuda::None, &["--restore-detached"])?.success("criu restore")?;
    ensure_ends_right(sandbox, shell, &baseline)
}

/// A tree with a process of either plugin. At the restore `cuda_plugin` comes first, and may say of our process too
/// that all is done.
fn restores(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let others = plugins()?;
    let [first, last] = [Ours::First, Ours::Last].map(|ours| folder_with(sandbox, &others, ours));
    let tree = Tree::start(sandbox, baseline.length)?;
    let (shell, paced) = (tree.shell.pid(), tree.paced);
    let cuda = Cuda::Of(shell);
    criu(sandbox, "dump", &first?, cuda, &["--tree", &shell.to_string()])?.success("criu dump")?;
    ensure_asked(sandbox, "dump", vec![shell])?;
    tree.ensure_dumped(sandbox)?;
    criu(sandbox, "restore", &last?, cuda, &["--restore-detached"])?.success("criu restore")?;
    ensure_asked(sandbox, "restore", vec![shell, paced])?;
    ensure_ends_right(sandbox, shell, &baseline)
}
