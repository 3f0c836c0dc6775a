//! Jobs whose snapshots lie in an object store: a real S3 server, which may go away.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use age::secrecy::ExposeSecret;
use age::x25519::Identity;
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement, s3_server};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

/// Where the snapshots are.
const STORE: &str = "s3://bucket/snapshots";

const ITERATIONS: &str = "300000";

/// How long a job may take to say that its store does not answer.
const FIRST_LOOK: Duration = Duration::from_secs(40);

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = [
        Test::new("job_on_an_object_store_goes_on", |context| goes_on(context, false)),
        Test::new("job_on_an_object_store_with_a_key_goes_on", |context| {
            goes_on(context, true)
        }),
        Test::new("job_without_its_object_store_is_not_run", unreachable),
        Test::new("job_whose_object_store_goes_away_keeps_the_archive", goes_away),
        Test::new("dump_into_an_object_store_is_restored_from_there", dumped),
        Test::new("damage_in_an_object_store_is_found_where_it_is_read", damaged),
    ];
    tests
        .into_iter()
        .map(|test| test.also_needs(Requirement::S3Server))
        .collect()
}

/// A server over a folder of the test.
struct Server {
    port: u16,
    folder: PathBuf,
    process: Child,
}

impl Server {
    fn start(context: &Context) -> Result<Self> {
        let folder = context.sandbox.path("server");
        fs::create_dir_all(folder.join("bucket"))?;
        Self::start_at(folder, free_port()?)
    }

    fn start_at(folder: PathBuf, port: u16) -> Result<Self> {
        let process = Command::new(s3_server())
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", "AKTEST", "--secret-key", "SKTEST"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { port, folder, process };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(start.elapsed() < PATIENCE, "the S3 server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn end(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Names of what is stored of the job whose name ends in `extension`.
    fn stored(&self, extension: &str) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join("bucket/snapshots/a"));
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.ends_with(extension) && name.starts_with(|c: char| c.is_ascii_digit()))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// `hetckpt` with these arguments, which finds the store at `port`.
fn command(context: &Context, port: u16, arguments: &[&str]) -> Command {
    let mut command = hetckpt::command(&context.sandbox, arguments);
    command
        .env("AWS_ACCESS_KEY_ID", "AKTEST")
        .env("AWS_SECRET_ACCESS_KEY", "SKTEST")
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ENDPOINT", format!("http://127.0.0.1:{port}"));
    // What is made on the way lies in the test's folder.
    command.env("TMPDIR", context.sandbox.path(""));
    command
}

fn start(context: &Context, port: u16, more: &[&str]) -> Result<Running> {
    let arguments = ["job", "--scheduler", "none", "--name", "a", "--store", STORE];
    let mut command = command(context, port, &arguments);
    command
        .args(more)
        .arg("--")
        .arg(Installation::get().programs.join("paced"))
        .args(["--iterations", ITERATIONS]);
    Running::start(command)
}

/// Waits until the program has a kernel in flight.
fn wait_at_work(context: &Context) -> Result<()> {
    for _ in 0..600 {
        let rows = hetckpt::ps(&context.sandbox)?;
        if rows.iter().any(|row| row["running_kernels"].as_u64() > Some(0)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("no kernel comes to work")
}

fn signal(job: &Running, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(job.pid()), signal).context("the job is gone")
}

/// Lets the program come to its end, which must be the right one.
fn finish(job: Running) -> Result<()> {
    let ended = job.wait_hurrying(PATIENCE)?;
    ensure!(ended.code == 0 && ended.stdout.contains("PASS"), "{}", ended.text());
    Ok(())
}

fn goes_on(context: &mut Context, is_encrypted: bool) -> Result<()> {
    let server = Server::start(context)?;
    let key = context.sandbox.path("key").display().to_string();
    let more: &[&str] = match is_encrypted {
        true => &["--key-file", &key],
        false => &[],
    };
    if is_encrypted {
        let identity = Identity::generate().to_string();
        fs::write(&key, identity.expose_secret())?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        context.sandbox.give(Path::new(&key))?;
    }
    for _ in 0..2 {
        let job = start(context, server.port, more)?;
        wait_at_work(context)?;
        std::thread::sleep(context.random.moment(Duration::from_millis(500)));
        signal(&job, Signal::SIGTERM)?;
        let stored = job.wait(PATIENCE)?;
        ensure!(
            stored.code == 75 && !server.stored(".json").is_empty(),
            "{}",
            stored.text()
        );
    }
    let job = start(context, server.port, more)?;
    job.wait_for_stderr("goes on from the snapshot", PATIENCE)?;
    wait_at_work(context)?;
    finish(job)?;
    ensure!(
        server.stored("").is_empty(),
        "snapshots are left: {:?}",
        server.stored("")
    );
    let again = start(context, server.port, more)?.wait(PATIENCE)?;
    ensure!(
        again.code == 0 && again.stderr.contains("has ended before"),
        "{}",
        again.text()
    );
    Ok(())
}

fn unreachable(context: &mut Context) -> Result<()> {
    let begun = Instant::now();
    let refused = start(context, free_port()?, &[])?.wait(PATIENCE)?;
    let took = begun.elapsed();
    context.note(format!("said after {took:.1?}"));
    ensure!(
        refused.code == 125 && refused.stderr.contains("error[HK07"),
        "{}",
        refused.text()
    );
    ensure!(took < FIRST_LOOK, "it took {took:?}: {}", refused.text());
    Ok(())
}

fn goes_away(context: &mut Context) -> Result<()> {
    let mut server = Server::start(context)?;
    let job = start(context, server.port, &["--every", "2s", "--grace", "30s"])?;
    wait_at_work(context)?;
    job.wait_for_stderr("snapshot a/", PATIENCE)?;
    server.end();
    wait_at_work(context)?;
    let begun = Instant::now();
    signal(&job, Signal::SIGTERM)?;
    let ended = job.wait(PATIENCE)?;
    let took = begun.elapsed();
    context.note(format!("without its store a job ends after {took:.1?}"));
    ensure!(
        ended.code == 75 && took < Duration::from_secs(35),
        "after {took:?}: {}",
        ended.text()
    );
    let kept = ended
        .stderr
        .lines()
        .find_map(|line| line.split_once("the archive is kept on ")?.1.split_once(", in "))
        .with_context(|| ended.text())?
        .1;
    let archives = fs::read_dir(kept)?.flatten();
    let archives: Vec<PathBuf> = archives.map(|entry| entry.path()).collect();
    ensure!(!archives.is_empty(), "{kept} is empty");
    // A periodic one may have just been written too.
    for archive in &archives {
        hetckpt::inspect(&context.sandbox, archive)?;
    }
    // It begins again where the store has it.
    let _server = Server::start_at(server.folder.clone(), server.port)?;
    // Nobody could be told that the run before is over.
    let claim = server.folder.join("bucket/snapshots/a/claim.json");
    fs::remove_file(claim)?;
    let job = start(context, server.port, &[])?;
    job.wait_for_stderr("goes on from the snapshot", PATIENCE)?;
    wait_at_work(context)?;
    finish(job)
}

/// Dumps a program with the `arguments` into the store.
fn dump_into(context: &mut Context, server: &Server, program: &str, arguments: &[&str]) -> Result<String> {
    let pid_file = context.sandbox.path("pid");
    let mut run = hetckpt::command(&context.sandbox, ["run", "--device", "cpu", "--pid-file"]);
    run.arg(&pid_file)
        .arg("--")
        .arg(Installation::get().programs.join(program))
        .args(arguments);
    let program = Running::start(run)?;
    wait_at_work(context)?;
    let pid = fs::read_to_string(&pid_file)?;
    let url = format!("{STORE}/a");
    let dump = command(context, server.port, &["dump", "--pid", pid.trim(), "-o", &url]);
    Running::run(dump, PATIENCE)?.success("dump")?;
    program.wait(PATIENCE)?;
    ensure!(server.stored(".hetsnap").len() == 1, "{:?}", server.stored(""));
    Ok(url)
}

fn dumped(context: &mut Context) -> Result<()> {
    let server = Server::start(context)?;
    let url = dump_into(context, &server, "paced", &["--iterations", ITERATIONS])?;
    let restored = Running::start(command(context, server.port, &["restore", "--device", "cpu", &url]))?;
    wait_at_work(context)?;
    finish(restored)
}

/// Device memory is read in its place; what is wrong with it, and that the store is gone, is said for what it is.
fn damaged(context: &mut Context) -> Result<()> {
    let mut server = Server::start(context)?;
    let url = dump_into(
        context,
        &server,
        "memory_hog",
        &["--mib", "48", "--sleeps", "1", "--iterations", ITERATIONS],
    )?;
    let names = server.stored(".hetsnap");
    let archive = server.folder.join("bucket/snapshots/a").join(&names[0]);
    let file = fs::OpenOptions::new().read(true).write(true).open(&archive)?;
    // Device memory is most of it.
    let middle = file.metadata()?.len() / 2;
    let mut right = [0; 64];
    file.read_exact_at(&mut right, middle)?;
    file.write_all_at(&right.map(|byte| !byte), middle)?;
    let restore = |context: &Context, server: &Server| {
        let arguments = ["restore", "--device", "cpu", &url];
        Running::run(command(context, server.port, &arguments), PATIENCE)
    };
    let ended = restore(context, &server)?;
    ensure!(
        ended.code != 0 && ended.stderr.contains("is damaged"),
        "{}",
        ended.text()
    );
    file.write_all_at(&right, middle)?;
    server.end();
    let ended = restore(context, &server)?;
    ensure!(
        ended.code != 0 && ended.stderr.contains("in the store"),
        "{}",
        ended.text()
    );
    server = Server::start_at(server.folder.clone(), server.port)?;
    let restored = Running::start(command(context, server.port, &["restore", "--device", "cpu", &url]))?;
    wait_at_work(context)?;
    finish(restored)
}
