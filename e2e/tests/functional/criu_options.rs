//! Options of plain `criu dump` and `criu restore`: with the plugin they do what they do without.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt::PATIENCE;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu::{
    Program, criu, criu_command, ensure_dumped, ensure_ends_right, ensure_same, paced, start_paced, wait_for_kernel,
    wait_until_gone, with_shim,
};
use hetckpt_e2e::process::{Running, exit_code};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::{Sandbox, is_gone};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("plain_criu_leaves_the_program_stopped", leaves_stopped),
        Test::new(
            "plain_criu_restores_what_it_left_stopped",
            restores_what_was_left_stopped,
        ),
        Test::new("plain_criu_takes_a_job_of_a_shell", shell_job),
        Test::new("plain_criu_keeps_a_tcp_connection", keeps_a_tcp_connection),
        Test::new("plain_criu_keeps_an_outside_unix_socket", keeps_an_outside_socket),
        Test::new("plain_criu_keeps_a_file_lock", keeps_a_file_lock),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

fn dump(sandbox: &Sandbox, pid: i32, options: &[&str]) -> Result<()> {
    let tree = pid.to_string();
    let arguments = [&["--tree", &tree], options].concat();
    criu(sandbox, "dump", true, &arguments)?.success("criu dump")?;
    Ok(())
}

fn restore(sandbox: &Sandbox, options: &[&str]) -> Result<()> {
    let arguments = [&["--restore-detached"], options].concat();
    criu(sandbox, "restore", true, &arguments)?.success("criu restore")?;
    Ok(())
}

/// A program that is dumped and left stopped.
fn left_stopped(sandbox: &Sandbox, length: u64) -> Result<Program> {
    let program = start_paced(sandbox, length)?;
    dump(sandbox, program.pid(), &["--leave-stopped"])?;
    // Not only until its kernels would have ended.
    std::thread::sleep(Duration::from_millis(200));
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid()))?;
    ensure!(stat.contains(") T "), "it is not left stopped: {stat}");
    ensure_same(&sandbox.path("out"), "")?;
    Ok(program)
}

fn leaves_stopped(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = left_stopped(sandbox, baseline.length)?;
    kill(Pid::from_raw(program.pid()), Signal::SIGCONT)?;
    let code = program.finish()?;
    ensure!(code == 0, "the program ended with {code}");
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)?;
    sandbox.wait_until_empty(Duration::from_secs(10))
}

fn restores_what_was_left_stopped(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let program = left_stopped(sandbox, baseline.length)?;
    let pid = program.pid();
    // Its end is its user's business, and ends the device server too.
    ensure_dumped(sandbox, program)?;
    restore(sandbox, &[])?;
    ensure_ends_right(sandbox, pid, &baseline)
}

/// A shell leads the session and has the terminal; of its jobs one is taken, and comes back to another terminal.
fn shell_job(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let words: Vec<String> = paced(baseline.length)
        .iter()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let job = format!("{} 2>err & echo $! >pid.new; mv pid.new pid; wait\n", words.join(" "));
    fs::write(sandbox.path("job.sh"), job)?;
    let mut shell = on_a_terminal("sh job.sh");
    with_shim(sandbox, &mut shell);
    let shell = Running::start(shell)?;
    wait_for_kernel(sandbox)?;
    let pid = fs::read_to_string(sandbox.path("pid"))?.trim().parse()?;

    let alone = criu(sandbox, "dump", true, &["--tree", &format!("{pid}")])?;
    ensure!(alone.code != 0, "CRIU takes jobs of a shell without being told to");
    ensure!(!is_gone(pid), "the program has ended with the refused dump");
    dump(sandbox, pid, &["--shell-job"])?;
    let shell = shell.wait(PATIENCE)?;
    ensure!(
        !shell.stdout.contains("PASS"),
        "it ended before the dump: {}",
        shell.text()
    );
    wait_until_gone(pid)?;

    let restore = criu_command(sandbox, "restore", &Installation::get().plugin_folder())?;
    let words: Vec<String> = std::iter::once(restore.get_program())
        .chain(restore.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let mut terminal = on_a_terminal(&format!("{} --shell-job", words.join(" ")));
    sandbox.equip(&mut terminal);
    terminal.env("HETCKPT_DEVICE", Installation::to_device());
    let outcome = Running::run(terminal, PATIENCE)?.success("criu restore")?;
    let printed = outcome.stdout.replace('\r', "");
    ensure!(printed == baseline.outcome.stdout, "{}", outcome.text());
    sandbox.wait_until_empty(Duration::from_secs(10))
}

/// `command` of a shell, in a session and on a terminal of its own, whose output comes out of this.
fn on_a_terminal(command: &str) -> Command {
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", command, "/dev/null"]);
    script
}

/// [`PACED`], which prints into `socket`, once its kernel runs.
fn printing_into(sandbox: &Sandbox, length: u64, socket: OwnedFd) -> Result<Printing> {
    let mut setsid = Command::new("setsid");
    setsid.args(paced(length));
    with_shim(sandbox, &mut setsid);
    setsid
        .stdin(Stdio::null())
        .stdout(socket)
        .stderr(File::create(sandbox.path("err"))?);
    let program = Printing(setsid.spawn()?);
    wait_for_kernel(sandbox)?;
    Ok(program)
}

struct Printing(Child);

impl Printing {
    fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.0.id())?)
    }

    /// Makes sure that the dump has ended it.
    fn ensure_dumped(mut self, sandbox: &Sandbox) -> Result<()> {
        wait_until_gone(self.pid()?)?;
        let code = exit_code(self.0.wait()?);
        ensure!(code == 128 + 9, "it ended with {code}");
        sandbox.wait_until_empty(Duration::from_secs(10))
    }
}

impl Drop for Printing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn keeps_a_tcp_connection(context: &mut Context) -> Result<()> {
    // The one way to keep packets out that needs no program.
    const OPTIONS: [&str; 3] = ["--tcp-established", "--network-lock", "nftables"];
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let theirs = TcpStream::connect(listener.local_addr()?)?;
    let (mut ours, _) = listener.accept()?;
    ours.set_read_timeout(Some(PATIENCE))?;
    let program = printing_into(sandbox, baseline.length, theirs.into())?;
    let pid = program.pid()?;
    dump(sandbox, pid, &OPTIONS)?;
    program.ensure_dumped(sandbox)?;
    restore(sandbox, &OPTIONS)?;
    let mut printed = String::new();
    ours.read_to_string(&mut printed)
        .context("what the restored program prints")?;
    ensure!(printed == baseline.outcome.stdout, "{printed:?}");
    wait_until_gone(pid)
}

/// One that knows no connections, to a name.
fn keeps_an_outside_socket(context: &mut Context) -> Result<()> {
    const OPTIONS: [&str; 1] = ["--ext-unix-sk"];
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let name = sandbox.path("outside.sock");
    let ours = UnixDatagram::bind(&name)?;
    ours.set_read_timeout(Some(PATIENCE))?;
    let theirs = UnixDatagram::unbound()?;
    theirs.connect(&name)?;
    let program = printing_into(sandbox, baseline.length, theirs.into())?;
    let pid = program.pid()?;
    let alone = criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?;
    ensure!(alone.code != 0, "CRIU takes outside sockets without being told to");
    dump(sandbox, pid, &OPTIONS)?;
    program.ensure_dumped(sandbox)?;
    restore(sandbox, &OPTIONS)?;
    let mut printed = String::new();
    while !printed.ends_with("PASS\n") {
        let mut bytes = [0; 4096];
        let length = ours.recv(&mut bytes).with_context(|| format!("after {printed:?}"))?;
        printed += std::str::from_utf8(&bytes[..length])?;
    }
    ensure!(printed == baseline.outcome.stdout, "{printed:?}");
    wait_until_gone(pid)
}

fn keeps_a_file_lock(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let sandbox = &context.sandbox;
    let lock = sandbox.path("lock");
    let mut command = ["flock", "--no-fork"].map(OsString::from).to_vec();
    command.push(lock.clone().into());
    command.extend(paced(baseline.length));
    let program = Program::start(sandbox, &command)?;
    let pid = program.pid();
    let is_free = || -> Result<bool> { Ok(Flock::lock(File::open(&lock)?, FlockArg::LockExclusiveNonblock).is_ok()) };
    ensure!(!is_free()?, "the program has no lock");
    let alone = criu(sandbox, "dump", true, &["--tree", &pid.to_string()])?;
    ensure!(alone.code != 0, "CRIU takes locks without being told to");
    dump(sandbox, pid, &["--file-locks"])?;
    ensure_dumped(sandbox, program)?;
    ensure!(is_free()?, "the lock is still there after the dump");
    restore(sandbox, &["--file-locks"])?;
    ensure!(!is_free()?, "the restored program has no lock");
    ensure_ends_right(sandbox, pid, &baseline)?;
    ensure!(is_free()?, "the lock outlasts the program");
    Ok(())
}
