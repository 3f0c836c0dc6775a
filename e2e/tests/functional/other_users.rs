//! What root does with programs of other users that run without namespaces of their own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, kill_processes_of};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use procfs::process::{FDTarget, Process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Number of `CAP_SYS_RESOURCE` (capability.h).
const SYS_RESOURCE: u32 = 24;
/// Number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;
/// Whom nothing belongs to.
const NOBODY: u32 = 65534;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "root_dumps_a_program_of_another_user_without_namespaces",
            of_another_user,
        )
        .also_needs(Requirement::Root),
        Test::new(
            "root_enters_namespaces_of_another_user_with_nothing_of_its_own",
            in_another_users_namespaces,
        )
        .also_needs(Requirement::Root),
        Test::new(
            "root_sees_programs_of_other_users_and_hears_as_whom_it_dumps_them",
            seen_by_root,
        )
        .also_needs(Requirement::Root),
        Test::new(
            "what_root_restores_has_a_server_of_the_user_it_had_before",
            server_of_before,
        )
        .also_needs(Requirement::Root),
        Test::new(
            "a_server_of_roots_has_only_the_privileges_that_it_needs",
            few_privileges,
        )
        .also_needs(Requirement::Root),
    ]
}

/// Of a program that was started, and of one that was restored.
fn few_privileges(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let mut job = Job::start_with(sandbox, &PACED.command(baseline.length), "cpu", |_| ())?;
    job.wait_for_kernel()?;
    ensure_cannot_administrate(sandbox, job.pid())?;
    let restored = job.dump()?.restore_on("cpu")?;
    ensure_cannot_administrate(sandbox, restored.pid())?;
    let outcome = restored.finish()?;
    ensure!(outcome == baseline.outcome, "{}", outcome.text());
    Ok(())
}

fn ensure_cannot_administrate(sandbox: &Sandbox, pid: i32) -> Result<()> {
    let row = hetckpt::ps_row(sandbox, pid)?.context("the program is not listed")?;
    let status = fs::read_to_string(format!("/proc/{}/status", row["server_pid"]))?;
    for field in ["CapEff:", "CapPrm:", "CapInh:"] {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .context("no capabilities")?;
        let capabilities = u64::from_str_radix(line.trim(), 16)?;
        ensure!(capabilities & 1 << SYS_ADMIN == 0, "{field} {capabilities:x}");
    }
    Ok(())
}

/// Ends what has this runtime directory, in which the test's own means do not look, when it is dropped.
struct End(PathBuf);

impl Drop for End {
    fn drop(&mut self) {
        kill_processes_of(&self.0);
    }
}

/// Of process `pid`: its user and group, if it has had no others, and its capabilities.
fn rights_of(pid: i32) -> Result<[String; 3]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let mut found = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("")
            .split_whitespace();
        let first = found.next().unwrap_or("");
        if found.all(|other| other == first) {
            first.to_owned()
        } else {
            "several".to_owned()
        }
    };
    Ok([field("Uid:"), field("Gid:"), field("CapPrm:")])
}

fn has_capability(number: u32) -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .context("no CapEff")?;
    Ok(u64::from_str_radix(effective.trim(), 16)? & 1 << number != 0)
}

/// A folder that any user may look into, with the installation in it.
fn open_installation() -> Result<TempDir> {
    let open = tempfile::Builder::new().prefix("hk-open-").tempdir()?;
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755))?;
    let mut copy = Command::new("cp");
    copy.arg("-r")
        .arg(&Installation::get().stage)
        .arg(open.path().join("stage"));
    ensure!(copy.status()?.success(), "cannot copy the installation");
    Ok(open)
}

/// Waits until the server at `socket` is the user nobody's, and makes sure that it has no privileges. Before it becomes
/// that, and before the one of the program that was dumped has left, root's answers there.
fn ensure_is_nobodys(socket: &Path) -> Result<()> {
    let started = Instant::now();
    let server = loop {
        let found = UnixStream::connect(socket).and_then(|server| Ok(getsockopt(&server, PeerCredentials)?));
        match found {
            Ok(server) if server.uid() == NOBODY => break server,
            found => ensure!(
                started.elapsed() < PATIENCE,
                "no server of that user answers: {found:?}"
            ),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let rights = rights_of(server.pid())?;
    let nobody = NOBODY.to_string();
    ensure!(
        rights == [nobody.as_str(), nobody.as_str(), "0000000000000000"],
        "its server {server:?} has {rights:?}"
    );
    Ok(())
}

fn ensure_leaves_no_files(socket: &Path) -> Result<()> {
    let started = Instant::now();
    while socket.exists() || socket.with_extension("log").exists() {
        ensure!(started.elapsed() < PATIENCE, "the server's files stay");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn restore_without_namespaces(sandbox: &Sandbox, open: &TempDir, images: &Path) -> Result<Running> {
    let mut restore = Command::new(open.path().join("stage/bin/hetckpt"));
    sandbox.equip_for_root(&mut restore);
    restore
        .args(["restore", "--namespaces", "never", "--device", "cpu"])
        .arg(images);
    Running::start(restore)
}

/// The program is root's here, so that CRIU needs no more than it has in containers.
fn server_of_before(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let baseline = calibration::baseline_on("cpu", &PACED)?;
    let open = open_installation()?;
    let mut job = Job::start_with(sandbox, &PACED.command(baseline.length), "cpu", |_| ())?;
    job.wait_for_kernel()?;
    let (archive, images) = (sandbox.path("dumped.hetsnap"), sandbox.path("images"));
    hetckpt::dump(sandbox, job.pid(), &archive, false)?.success("dump")?;
    let pid = job.pid();
    job.finish()?;
    let mut unpack = hetckpt::command(sandbox, ["unpack"]);
    unpack.arg(&archive).arg(&images);
    Running::run(unpack, PATIENCE)?.success("unpack")?;
    let path = images.join(format!("hetgpu-{pid}.user"));
    let user: Value = serde_json::from_slice(&fs::read(&path)?)?;
    ensure!(user == json!({"uid": 0, "gid": 0}), "{user}");
    fs::write(&path, json!({"uid": NOBODY, "gid": NOBODY}).to_string())?;
    // What anybody else could have written is not believed, be it ever so harmless.
    chown(&path, Some(NOBODY), None)?;
    let refused = restore_without_namespaces(sandbox, &open, &images).and_then(|job| job.wait(PATIENCE))?;
    ensure!(
        refused.code != 0 && refused.stderr.contains(&format!("(user {NOBODY}, mode")),
        "{}",
        refused.text()
    );
    chown(&path, Some(0), None)?;

    let restored = restore_without_namespaces(sandbox, &open, &images)?;
    let socket = sandbox.runtime_dir().join(format!("app-{pid}.sock"));
    ensure_is_nobodys(&socket)?;
    let restored = restored.wait(PATIENCE)?;
    ensure!(restored == baseline.outcome, "{}", restored.text());
    ensure_leaves_no_files(&socket)
}

/// Starts [`PACED`] as the user nobody, with a folder `own` in `open` that is nobody's, with or without namespaces.
/// Gives the file that tells its process id.
fn start_as_nobody(sandbox: &Sandbox, open: &TempDir, namespaces: &str) -> Result<(Running, PathBuf)> {
    let program = open.path().join(PACED.name);
    executable::copy(&Installation::get().programs.join(PACED.name), &program)?;
    let own = open.path().join("own");
    fs::create_dir(&own)?;
    chown(&own, Some(NOBODY), Some(NOBODY))?;
    let pid_file = own.join("pid");
    let mut command = Command::new("setpriv");
    sandbox.equip(&mut command);
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.arg(open.path().join("stage/bin/hetckpt"));
    command
        .args(["run", "--namespaces", namespaces, "--device", "cpu", "--pid-file"])
        .arg(&pid_file);
    command.arg("--").arg(&program).args(["--iterations", "1000000000000"]);
    command
        .env("HETCKPT_RUNTIME_DIR", own.join("run"))
        .env("HETCKPT_CACHE_DIR", "off")
        .current_dir(&own);
    Ok((Running::start(command)?, pid_file))
}

/// The process id in the file `pid_file` of `job`, as soon as there is one `is_meant`.
fn wait_for_pid(job: &mut Running, pid_file: &Path, is_meant: impl Fn(&i32) -> bool) -> Result<i32> {
    let started = Instant::now();
    loop {
        let pid = fs::read_to_string(pid_file)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.filter(&is_meant) {
            return Ok(pid);
        }
        if job.has_ended()? || started.elapsed() > PATIENCE {
            bail!("it does not start");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Pauses process `pid`, once it has made its first CUDA call.
fn wait_until_paused(sandbox: &Sandbox, pid: i32) -> Result<()> {
    let started = Instant::now();
    loop {
        let paused = hetckpt::run(sandbox, ["pause", "--pid", &pid.to_string()])?;
        if paused.code == 0 && paused.stderr.is_empty() {
            return Ok(());
        }
        let is_early = paused.stderr.contains("HK0802") && started.elapsed() < PATIENCE;
        ensure!(is_early, "{}", paused.text());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Root stops the kernels of another user's job in namespaces of its own: what it runs there, which is in that user's
/// hands, has nothing of root's.
fn in_another_users_namespaces(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let open = open_installation()?;
    let _end = End(open.path().join("own/run"));
    let (mut job, pid_file) = start_as_nobody(sandbox, &open, "always")?;
    let pid = wait_for_pid(&mut job, &pid_file, |_| true)?;
    wait_until_paused(sandbox, pid)?;

    let mut pause = hetckpt::command(
        sandbox,
        ["pause", "--pid", &pid.to_string(), "--hold-ms", "1500", "--json"],
    );
    pause.env("SECRET_OF_ROOT", "x");
    let started = Instant::now();
    let pause = Running::start(pause)?;
    let within = loop {
        let all = procfs::process::all_processes()?.flatten();
        let is_it = |process: &Process| {
            let is_nobodys = process.status().is_ok_and(|status| status.euid == NOBODY);
            is_nobodys
                && process
                    .cmdline()
                    .is_ok_and(|line| line.iter().any(|word| word == "--hold-ms"))
        };
        if let Some(within) = all.into_iter().find(is_it) {
            break within;
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "nobody goes in: {}",
            pause.wait(PATIENCE)?.text()
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    let environment = within.environ()?;
    ensure!(
        !environment.contains_key(OsStr::new("SECRET_OF_ROOT")),
        "{environment:?}"
    );
    let (own_session, its) = (Process::myself()?.stat()?.session, within.stat()?);
    ensure!(its.session != own_session && its.tty_nr == 0, "{its:?}");
    ensure!(
        within.status()?.groups.iter().all(|&group| group != 0),
        "it is in root's groups"
    );
    let descriptors: Vec<_> = within.fd()?.flatten().map(|fd| fd.target).collect();
    let paused = pause.wait(PATIENCE)?.success("pause")?;
    ensure!(paused.stdout.contains("p50"), "{}", paused.text());
    ensure!(
        descriptors
            .iter()
            .all(|target| !matches!(target, FDTarget::Path(path) if path.starts_with(sandbox.path("")))),
        "{descriptors:?}"
    );
    Ok(())
}

/// Its server is found where the program's environment says, not root's; what is restored has it where the restore's
/// says.
fn of_another_user(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let open = open_installation()?;
    let own = open.path().join("own");
    let _end = End(own.join("run"));
    let (mut job, pid_file) = start_as_nobody(sandbox, &open, "never")?;
    let pid = wait_for_pid(&mut job, &pid_file, |pid| {
        own.join(format!("run/app-{pid}.sock")).exists()
    })?;
    wait_until_paused(sandbox, pid)?;
    let archive = sandbox.path("first.hetsnap");
    let dumped = hetckpt::dump(sandbox, pid, &archive, false)?;
    if !has_capability(SYS_RESOURCE)? {
        // Its device's state had been written by then, without which CRIU does not come so far.
        ensure!(
            dumped.code == 1 && dumped.stderr.contains("CAP_SYS_RESOURCE"),
            "{}",
            dumped.text()
        );
        context.note("root has no CAP_SYS_RESOURCE here, so CRIU cannot dump processes of other users: this is said, and the rest left out");
        return Ok(());
    }
    dumped.success("dump")?;
    let ended = job.wait(PATIENCE)?;
    ensure!(ended.code == 128 + 9, "{}", ended.text());
    let left: Vec<_> = fs::read_dir(own.join("run"))?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    ensure!(
        !left.iter().any(|name| name.to_string_lossy().ends_with(".lock")),
        "{left:?}"
    );

    let restored = hetckpt::restore(sandbox, &archive, "cpu")?;
    let started = Instant::now();
    while hetckpt::ps_row(sandbox, pid)?.is_none() {
        ensure!(started.elapsed() < PATIENCE, "it is not restored: {}", restored.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    let socket = sandbox.runtime_dir().join(format!("app-{pid}.sock"));
    ensure_is_nobodys(&socket)?;
    let live = sandbox.path("live.hetsnap");
    let words = ["dump", "--pid", &pid.to_string(), "--leave-running", "--live", "-o"];
    let mut command = hetckpt::command(sandbox, words);
    command.arg(&live);
    Running::run(command, PATIENCE)?.success("a live dump of what was restored")?;
    hetckpt::inspect(sandbox, &live)?;
    let again = sandbox.path("again.hetsnap");
    hetckpt::dump(sandbox, pid, &again, false)?.success("the dump of what was restored")?;
    let ended = restored.wait(PATIENCE)?;
    ensure!(ended.code == 128 + 9, "{}", ended.text());
    ensure_leaves_no_files(&socket)
}

/// In namespaces of its own the program has no privileges that would count outside; a dump is made as its user, who may
/// not run root's CRIU.
fn seen_by_root(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let open = open_installation()?;
    let _end = End(open.path().join("own/run"));
    let (mut job, pid_file) = start_as_nobody(sandbox, &open, "always")?;
    let pid = wait_for_pid(&mut job, &pid_file, |_| true)?;
    let started = Instant::now();
    loop {
        let mut ps = hetckpt::command(sandbox, ["ps", "--json"]);
        ps.env_remove("HETCKPT_RUNTIME_DIR");
        let rows: Vec<Value> = serde_json::from_str(&Running::run(ps, PATIENCE)?.success("ps")?.stdout)?;
        if let Some(row) = rows.iter().find(|row| row["pid"] == pid) {
            ensure!(row["user"] == NOBODY, "{row}");
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "root does not see it: {rows:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    for set in ["CapInh:\t", "CapPrm:\t", "CapAmb:\t"] {
        ensure!(status.contains(&format!("{set}0000000000000000")), "{status}");
    }
    let hidden = sandbox.path("of-root");
    fs::create_dir(&hidden)?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700))?;
    let mut dump = hetckpt::command(sandbox, ["dump", "--pid", &pid.to_string(), "-o"]);
    dump.arg(hidden.join("x.hetsnap"))
        .env("HETCKPT_CRIU", hidden.join("criu"));
    let refused = Running::run(dump, PATIENCE)?;
    ensure!(
        refused.code == 1
            && refused.stderr.contains("HK0901")
            && refused.stderr.contains(&format!("in namespaces of user {NOBODY}")),
        "{}",
        refused.text()
    );
    Ok(())
}
