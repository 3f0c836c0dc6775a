//! `criu dump --plugin hetgpu` and `criu restore --plugin hetgpu`, through `hetckpt criu` and its wrapper.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("criu_dumps_with_the_plugin_by_name", |context: &mut Context| {
            there_and_back(context, true)
        })
        .also_needs(Requirement::Root),
        Test::new("criu_restores_with_the_plugin_by_name", |context: &mut Context| {
            there_and_back(context, false)
        })
        .also_needs(Requirement::Root),
        Test::new("criu_by_our_hand_ends_as_criu_does", ends_as_criu_does).needs(&[Requirement::Criu]),
        Test::new("criu_with_a_plugin_that_is_not_there", refuses_other_plugins).needs(&[Requirement::Criu]),
    ]
}

/// Puts the wrapper, under the name `criu`, and `hetckpt` into a folder, as an installation does.
fn install_wrapper(sandbox: &Sandbox) -> Result<PathBuf> {
    let folder = sandbox.path("bin");
    fs::create_dir_all(&folder)?;
    let wrapper = folder.join("criu");
    if !wrapper.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hetckpt/wrapper/criu");
        executable::copy(&source, &wrapper)?;
        symlink(Installation::get().hetckpt(), folder.join("hetckpt"))?;
    }
    Ok(wrapper)
}

/// `criu` as one calls it who has put the wrapper before CRIU on PATH.
fn wrapped(sandbox: &Sandbox, arguments: &[&str]) -> Result<Command> {
    let wrapper = install_wrapper(sandbox)?;
    let mut command = Command::new(&wrapper);
    sandbox.equip(&mut command);
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let mut path: Vec<PathBuf> = [&wrapper, &Installation::get().criu]
        .iter()
        .filter_map(|program| Some(program.parent()?.to_owned()))
        .collect();
    path.extend(std::env::split_paths(&inherited));
    command
        .env("PATH", std::env::join_paths(path)?)
        .env_remove("HETCKPT_CRIU");
    command.env("HETCKPT_DEVICE", Installation::to_device()).args(arguments);
    Ok(command)
}

/// One of dump and restore through the wrapper, the other by CRIU alone.
fn there_and_back(context: &mut Context, by_name_at_dump: bool) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = plain_criu::start_paced(sandbox, baseline.length)?;
    let pid = program.pid();
    let tree = pid.to_string();
    fs::create_dir_all(sandbox.path("images"))?;
    let step = |verb: &str, by_name: bool, more: &[&str]| -> Result<Outcome> {
        if !by_name {
            return plain_criu::criu(sandbox, verb, true, more);
        }
        let log = format!("{verb}.log");
        let mut command = wrapped(
            sandbox,
            &[verb, "--plugin", "hetgpu", "-v4", "-D", "images", "-o", &log],
        )?;
        command.args(more);
        Running::run(command, PATIENCE)
    };
    step("dump", by_name_at_dump, &["--tree", &tree])?.success("criu dump")?;
    drop(program);
    sandbox.wait_until_empty(Duration::from_secs(10))?;
    step("restore", !by_name_at_dump, &["--restore-detached"])?.success("criu restore")?;
    plain_criu::wait_until_gone(pid)?;
    plain_criu::ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
}

/// Whatever CRIU is asked, its words and its exit status come out as if it had been asked itself.
fn ends_as_criu_does(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let installation = Installation::get();
    let images = sandbox.path("images");
    fs::create_dir_all(&images)?;
    let plugins = installation.plugin_folder();
    for arguments in [
        &["--version"][..],
        &["check"],
        &["no-such-verb"],
        &["dump", "--no-such-option"],
        &["dump", "--tree", "999999999", "-D", "images"],
        &["restore", "-D", "images"],
        &[],
    ] {
        let by_name = Running::run(wrapped(sandbox, arguments)?, PATIENCE)?;
        let mut with_plugin = wrapped(sandbox, arguments)?;
        let has_images = arguments.contains(&"-D");
        let mut stock = Command::new(&installation.criu);
        sandbox.equip(&mut stock);
        stock.args(arguments);
        if has_images {
            with_plugin.arg("--plugin=hetgpu");
            stock.arg("--libdir").arg(&plugins);
        }
        let (with_plugin, stock) = (Running::run(with_plugin, PATIENCE)?, Running::run(stock, PATIENCE)?);
        for ours in [by_name, with_plugin] {
            ensure!(
                ours.code == stock.code && ours.stdout == stock.stdout,
                "criu {arguments:?}\nitself: {}\nours: {}",
                stock.text(),
                ours.text()
            );
        }
    }
    Ok(())
}

fn refuses_other_plugins(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let empty = sandbox.path("empty");
    fs::create_dir(&empty)?;
    let empty = empty.to_string_lossy();
    for (arguments, code, part) in [
        (
            &["dump", "--plugin", "cuda", "--tree", "1"][..],
            "HK0906",
            "no plugin `cuda`",
        ),
        (&["dump", "--plugin"], "HK0906", "without a name"),
        (
            &["dump", "--plugin", "hetgpu", "--libdir", &empty],
            "HK0906",
            "it has no hetgpu_plugin.so",
        ),
    ] {
        let outcome = Running::run(wrapped(sandbox, arguments)?, PATIENCE)?;
        ensure!(
            outcome.code == 125 && outcome.stderr.contains(code) && outcome.stderr.contains(part),
            "criu {arguments:?}: {}",
            outcome.text()
        );
    }
    // The wrapper is not taken for CRIU, and does not look for itself for ever.
    let mut itself = wrapped(sandbox, &["check"])?;
    itself.env("HETCKPT_CRIU", install_wrapper(sandbox)?);
    let mut alone = wrapped(sandbox, &["check"])?;
    let path: Vec<OsString> = vec![sandbox.path("bin").into(), "/usr/bin".into(), "/bin".into()];
    alone.env("PATH", std::env::join_paths(path)?);
    let outcome = Running::run(itself, PATIENCE)?;
    ensure!(
        outcome.code == 125 && outcome.stderr.contains("HK0901") && outcome.stderr.contains("own wrapper"),
        "{}",
        outcome.text()
    );
    let outcome = Running::run(alone, PATIENCE)?;
    // There may be a CRIU of the system's: then that is the one.
    ensure!(
        outcome.code != 125 || outcome.stderr.contains("HK090"),
        "{}",
        outcome.text()
    );
    Ok(())
}
