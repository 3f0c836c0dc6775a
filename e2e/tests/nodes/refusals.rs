//! What cannot go on on another node, or must not be believed, is refused before anything is started.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use serde_json::{Value, json};

use super::goes_on::{Application, dump};
use super::node::{Node, ensure_says};

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("other_node_without_carried_files", nothing_carried),
        Test::new("other_node_without_room", no_room),
        Test::new("damaged_carried_files_are_refused", damaged),
        Test::new("carried_files_do_not_escape", escaping),
    ]
}

fn nothing_carried(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let node = Node::new(sandbox)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let (_, archive, printed) = dump(sandbox, job, &["--bundle", "none"])?;
    let at_node = node.send(&archive)?;
    let missing = format!("{} is missing", app.program.display());
    node.ensure_refused(
        &at_node,
        &[],
        "HK0907",
        &[&missing, "libcuda.so.1 is missing", "--bundle"],
    )?;
    let mut check = node.hetckpt(["check", "--json", "--device", "cpu"]);
    check.arg(&at_node);
    let outcome = Running::run(check, PATIENCE)?;
    ensure!(
        outcome.code == 1 && outcome.stdout.contains(&missing),
        "{}",
        outcome.text()
    );

    // Here it goes on; and dumped again, for nodes of the same distribution.
    let inspected = hetckpt::inspect(sandbox, &archive)?;
    ensure!(inspected["files"] == json!([]), "{inspected}");
    let restored = hetckpt::restore(sandbox, &archive, "cpu")?;
    let started = std::time::Instant::now();
    while !sandbox.path("timings.json").exists() && started.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let pid = fs::read_to_string(sandbox.path("pid"))?.trim_end().to_owned();
    let mut again = hetckpt::command(sandbox, ["dump", "--bundle", "missing", "--pid", &pid, "-o"]);
    let second = sandbox.path("second.hetsnap");
    again.arg(&second);
    Running::run(again, PATIENCE)?.success("dump --bundle missing")?;
    let between = restored.wait(PATIENCE)?.stdout;
    let files = hetckpt::inspect(sandbox, &second)?["files"].to_string();
    ensure!(files.contains("app/paced") && files.contains("libcuda.so.1"), "{files}");
    ensure!(!files.contains("libc.so.6"), "{files}");
    let at_node = node.send(&second)?;
    let outcome = node.restore(&at_node, "cpu", &[])?.wait(PATIENCE)?;
    ensure!(
        printed + &between + &outcome.stdout == baseline.outcome.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}

fn no_room(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let node = Node::new(sandbox)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let (_, archive, _) = dump(sandbox, job, &[])?;
    let at_node = node.send(&archive)?;
    node.shell("mkdir /tmp/small /tmp/noexec; mount -t tmpfs -o size=4m small /tmp/small; mount -t tmpfs -o noexec noexec /tmp/noexec")?;
    for (folder, part) in [("/tmp/small", "free in /tmp/small"), ("/tmp/noexec", "mounted noexec")] {
        let mut command = node.hetckpt(["restore", "--device", "cpu"]);
        command.arg(&at_node).env("TMPDIR", folder);
        let outcome = Running::run(command, PATIENCE)?;
        ensure_says(&outcome, "HK0704", &[part, "TMPDIR"])?;
        ensure!(sandbox.processes().is_empty(), "a refused restore left processes");
        let left = fs::read_dir(node.reach(Path::new(folder)))?.count();
        ensure!(left == 0, "a refused restore left {left} files in {folder}");
    }
    Ok(())
}

/// Where the bytes of `member` begin in the archive.
fn position(bytes: &[u8], member: &str) -> Result<usize> {
    let header = [member.as_bytes(), b"\0"].concat();
    let found = (0..bytes.len())
        .step_by(512)
        .rfind(|&at| bytes[at..].starts_with(&header));
    Ok(found.context("no such member")? + 512)
}

fn damaged(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let node = Node::new(sandbox)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let (_, archive, _) = dump(sandbox, job, &[])?;
    let good = fs::read(&archive)?;
    let inspected = hetckpt::inspect(sandbox, &archive)?;
    let files = inspected["files"].as_array().cloned().unwrap_or_default();
    ensure!(files.len() > 3, "{inspected}");
    // What the other node has besides, it does not take from an archive.
    let is_lacking = |file: &&Value| {
        let path = file["path"].as_str().unwrap_or_default();
        !["/usr", "/lib"].iter().any(|folder| path.starts_with(folder))
    };
    let lacking: Vec<&Value> = files.iter().filter(is_lacking).collect();
    ensure!(lacking.len() > 1, "{inspected}");
    for file in lacking {
        let [member, path] = ["member", "path"].map(|field| file[field].as_str().unwrap_or_default());
        let mut bytes = good.clone();
        let at = position(&bytes, member)? + 100;
        bytes[at] ^= 4;
        fs::write(&archive, &bytes)?;
        node.ensure_refused(&node.send(&archive)?, &[], "HK0702", &[path])?;
    }
    Ok(())
}

/// Lists that lead elsewhere, in a folder of images, are neither packed nor restored. (Those in archives: unit tests.)
fn escaping(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let sandbox = &context.sandbox;
    let app = Application::new(sandbox, &PACED, baseline.length)?;
    let job = app.start(sandbox, "cpu", &sandbox.path(""))?;
    let (_, archive, _) = dump(sandbox, job, &[])?;
    let images = sandbox.path("images");
    let mut unpack = hetckpt::command(sandbox, ["unpack"]);
    unpack.arg(&archive).arg(&images);
    Running::run(unpack, PATIENCE)?.success("unpack")?;
    let index = images.join("hetckpt-files.json");
    let list: Vec<Value> = serde_json::from_slice(&fs::read(&index)?)?;
    let victim = sandbox.path("victim");
    let escape = format!("/../../../../../../../../..{}", victim.display());
    for (key, value) in [
        ("path", escape.as_str()),
        ("member", "files/../../victim"),
        ("member", "files/pages-1.img"),
    ] {
        let mut list = list.clone();
        list[0][key] = json!(value);
        fs::write(&index, serde_json::to_vec(&list)?)?;
        let mut pack = hetckpt::command(sandbox, ["pack", "-o"]);
        pack.arg(sandbox.path("packed.hetsnap")).arg(&images);
        ensure_says(&Running::run(pack, PATIENCE)?, "HK0705", &["hetckpt-files.json"])?;
        let mut restore = hetckpt::command(sandbox, ["restore", "--device", "cpu"]);
        restore.arg(&images);
        ensure_says(&Running::run(restore, PATIENCE)?, "HK0705", &["hetckpt-files.json"])?;
    }
    // A file of the list that is a link to something else.
    fs::write(&index, serde_json::to_vec(&list)?)?;
    let packed = images.join("hetckpt-file-0.zst");
    fs::remove_file(&packed)?;
    std::os::unix::fs::symlink("/etc/hostname", &packed)?;
    let mut restore = hetckpt::command(sandbox, ["restore", "--device", "cpu"]);
    restore.arg(&images);
    ensure_says(&Running::run(restore, PATIENCE)?, "HK0705", &["no regular file"])?;
    ensure!(!victim.exists(), "something was written outside");
    Ok(())
}
