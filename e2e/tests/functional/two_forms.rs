//! A folder of images and an archive are the same snapshot: `pack`, `unpack`, and `restore` of either.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::plain_criu;
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("images_of_plain_criu_are_packed_and_restored", packs),
        Test::new("an_archive_is_unpacked_and_restored_by_plain_criu", unpacks),
        Test::new("pack_refuses_what_is_no_whole_dump", pack_refuses),
        Test::new("unpack_is_all_or_nothing", unpack_refuses),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

/// The files in `folder` with their sizes.
fn listing(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.insert(
            entry.file_name().to_string_lossy().into_owned(),
            entry.metadata()?.len(),
        );
    }
    Ok(files)
}

/// Starts a program under `hetckpt run`, whose output goes into a pipe, and has plain CRIU dump it to `images`.
fn dump_by_plain_criu(sandbox: &Sandbox, baseline: &Baseline) -> Result<i32> {
    let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let pid = job.pid();
    plain_criu::criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?.success("criu dump")?;
    let ended = job.finish()?;
    ensure!(ended.code == 128 + 9, "criu dump was to end it: {}", ended.text());
    Ok(pid)
}

fn pack(sandbox: &Sandbox, images: &Path, archive: &Path) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, ["pack", "-o"]);
    command.arg(archive).arg(images);
    Running::run(command, PATIENCE)
}

fn unpack(sandbox: &Sandbox, archive: &Path, images: &Path) -> Result<Outcome> {
    let mut command = hetckpt::command(sandbox, ["unpack"]);
    command.arg(archive).arg(images);
    Running::run(command, PATIENCE)
}

fn packs(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let pid = dump_by_plain_criu(sandbox, &baseline)?;
    let (images, archive) = (sandbox.path("images"), sandbox.path("packed.hetsnap"));
    let before = listing(&images)?;
    pack(sandbox, &images, &archive)?.success("pack")?;

    let inspected = hetckpt::inspect(sandbox, &archive)?;
    ensure!(inspected["root_pid"] == pid, "{inspected}");
    let command: Vec<String> = serde_json::from_value(inspected["command"].clone())?;
    let expected = PACED.command(baseline.length);
    ensure!(expected.iter().eq(command.iter().map(String::as_str)), "{command:?}");
    ensure!(
        inspected["processes"][0]["kernels_in_flight"][0].is_object(),
        "the kernel in flight is not listed: {inspected}"
    );
    ensure!(
        inspected["criu_version"]
            .as_str()
            .is_some_and(|version| version.contains('.')),
        "{inspected}"
    );

    // The archive, then the folder itself: both hold the same, and are only read.
    for snapshot in [&archive, &images] {
        let restored = hetckpt::restore(sandbox, snapshot, &Installation::to_device())?.wait(PATIENCE)?;
        ensure!(
            restored == baseline.outcome,
            "{}: {}",
            snapshot.display(),
            restored.text()
        );
        sandbox.wait_until_empty(Duration::from_secs(10))?;
    }
    ensure!(
        listing(&images)? == before,
        "the images are not as they were: {:?}",
        listing(&images)?
    );
    Ok(())
}

fn unpacks(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = plain_criu::start_paced(sandbox, baseline.length)?;
    let pid = program.pid();
    let archive = sandbox.path("dumped.hetsnap");
    hetckpt::dump(sandbox, pid, &archive, false)?.success("dump")?;
    drop(program);
    sandbox.wait_until_empty(Duration::from_secs(10))?;

    let images = sandbox.path("images");
    unpack(sandbox, &archive, &images)?.success("unpack")?;
    let mode = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o7777) };
    ensure!(mode(&images)? == 0o700, "the folder has mode {:o}", mode(&images)?);
    for name in listing(&images)?.keys() {
        let mode = mode(&images.join(name))?;
        ensure!(mode == 0o600, "{name} has mode {mode:o}");
    }
    // There and back again it is the same archive, but for what only a running process tells.
    let again = sandbox.path("again.hetsnap");
    pack(sandbox, &images, &again)?.success("pack")?;
    let (mut first, mut second) = (hetckpt::inspect(sandbox, &archive)?, hetckpt::inspect(sandbox, &again)?);
    for inspected in [&mut first, &mut second] {
        // A dump takes memory first, as it comes, and cuts it by its addresses.
        let members = inspected["members"].as_array_mut().context("no members")?;
        members.sort_by_key(|member| member["name"].to_string());
        let is_memory = |member: &&mut serde_json::Value| {
            member["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("criu/pages-"))
        };
        for member in members.iter_mut().filter(is_memory) {
            for key in ["parts", "stored_bytes"] {
                member[key].take();
            }
        }
    }
    for key in ["root_pid", "command", "processes", "members"] {
        ensure!(
            first[key] == second[key],
            "{key}: {} became {}",
            first[key],
            second[key]
        );
    }
    plain_criu::criu(sandbox, "restore", true, &["--restore-detached"])?.success("criu restore")?;
    plain_criu::wait_until_gone(pid)?;
    plain_criu::ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
}

fn ensure_refused(outcome: &Outcome, code: &str, part: &str) -> Result<()> {
    ensure!(
        outcome.code == 1 && outcome.stderr.contains(code) && outcome.stderr.contains(part),
        "it was to be refused with {code} and {part:?}: {}",
        outcome.text()
    );
    Ok(())
}

fn pack_refuses(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let pid = dump_by_plain_criu(sandbox, &baseline)?;
    let (images, archive) = (sandbox.path("images"), sandbox.path("packed.hetsnap"));
    let outside = sandbox.path("aside");
    let names = [
        "inventory.img".to_owned(),
        "pstree.img".to_owned(),
        format!("core-{pid}.img"),
        format!("hetgpu-{pid}.mem"),
        format!("hetgpu-{pid}.json"),
    ];
    for name in &names {
        let path = images.join(name);
        fs::rename(&path, &outside)?;
        // Every process's device state may be missing: then nothing names its files.
        let part = if name.ends_with(".json") { "device state" } else { name };
        ensure_refused(&pack(sandbox, &images, &archive)?, "HK0705", part)?;
        std::os::unix::fs::symlink(&outside, &path)?;
        ensure_refused(&pack(sandbox, &images, &archive)?, "HK0705", "")?;
        fs::remove_file(&path)?;
        fs::rename(&outside, &path)?;
    }
    let memory = fs::OpenOptions::new()
        .write(true)
        .open(images.join(format!("hetgpu-{pid}.mem")))?;
    let size = memory.metadata()?.len();
    memory.set_len(size - 1)?;
    ensure_refused(
        &pack(sandbox, &images, &archive)?,
        "HK0705",
        &format!("hetgpu-{pid}.mem"),
    )?;
    let mut restore = hetckpt::command(sandbox, ["restore"]);
    restore.arg(&images);
    let outcome = Running::run(restore, PATIENCE)?;
    ensure!(
        outcome.code == 125 && outcome.stderr.contains("HK0705"),
        "{}",
        outcome.text()
    );
    memory.set_len(size)?;

    std::os::unix::fs::symlink("/etc/passwd", images.join("link.img"))?;
    ensure_refused(&pack(sandbox, &images, &archive)?, "HK0705", "link.img")?;
    fs::remove_file(images.join("link.img"))?;
    ensure_refused(
        &pack(sandbox, &images, &images.join("x.hetsnap"))?,
        "HK0704",
        "among the images",
    )?;
    ensure_refused(&pack(sandbox, &sandbox.path("none"), &archive)?, "HK0705", "none")?;
    ensure!(!archive.exists(), "a refused folder was packed");
    pack(sandbox, &images, &archive)?.success("pack of the whole dump")?;
    Ok(())
}

fn unpack_refuses(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let mut job = Job::start(sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    let archive = job.dump()?.archive;
    let folder = sandbox.path("folder");
    fs::create_dir(&folder)?;
    let images = folder.join("images");

    let mut bytes = fs::read(&archive)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = sandbox.path("damaged.hetsnap");
    fs::write(&damaged, &bytes)?;
    ensure_refused(&unpack(sandbox, &damaged, &images)?, "HK0702", "hash")?;
    ensure!(
        listing(&folder)?.is_empty(),
        "a damaged archive left {:?}",
        listing(&folder)?
    );

    fs::create_dir(&images)?;
    ensure_refused(&unpack(sandbox, &damaged, &images)?, "HK0702", "hash")?;
    ensure!(
        listing(&images)?.is_empty(),
        "a damaged archive left {:?}",
        listing(&images)?
    );
    unpack(sandbox, &archive, &images)?.success("unpack into an empty folder")?;
    let before = listing(&images)?;
    ensure!(before.contains_key("inventory.img"), "{before:?}");
    ensure_refused(&unpack(sandbox, &archive, &images)?, "HK0706", "is not empty")?;
    ensure_refused(&unpack(sandbox, &archive, &archive)?, "HK0706", "is no folder")?;
    ensure!(listing(&images)? == before, "a refused unpack changed the folder");
    Ok(())
}
