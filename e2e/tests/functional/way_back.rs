//! A program is ended only if it can come back: what a restore would refuse is found by the dump.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::is_gone;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new(
            "files_of_its_own_processes_come_back_or_the_program_is_not_ended",
            process_files,
        ),
        Test::new("what_criu_does_not_take_is_named_and_how_to_be_rid_of_it", obstacles),
        Test::new(
            "semaphores_and_settings_of_threads_are_kept_and_the_rest_is_named",
            settings,
        ),
        Test::new("a_limit_on_the_size_of_files_is_told_and_no_lock_stays", limited_files),
        Test::new("an_archive_replaces_only_files_and_only_if_told", taken_names),
        Test::new("a_terminal_of_its_own_comes_back_without_any_other", own_terminal),
    ]
}

/// A shell on the CPU device; it has done `begin`, and when the file `go` is there it does `end`.
fn start<'a>(context: &'a Context, begin: &str, end: &str) -> Result<Job<'a>> {
    let (go, ready) = (context.sandbox.path("go"), context.sandbox.path("ready"));
    let _ = (fs::remove_file(&go), fs::remove_file(&ready));
    let script = format!(
        "{begin}\n: >{}\nwhile [ ! -e {} ]; do read -rt 0.05 <> <(:); done\n{end}",
        ready.display(),
        go.display()
    );
    let job = Job::start_with(
        &context.sandbox,
        &["bash", "-c", &script].map(OsString::from),
        "cpu",
        |_| (),
    )?;
    let deadline = Instant::now() + PATIENCE;
    while !ready.exists() {
        ensure!(Instant::now() < deadline, "the shell does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(job)
}

fn let_go(context: &Context) -> Result<()> {
    Ok(fs::write(context.sandbox.path("go"), "")?)
}

/// `maps` is there again when its process is; of another descriptor nobody can tell.
fn process_files(context: &mut Context) -> Result<()> {
    let job = start(context, "exec 3</proc/self/fdinfo/0", ":")?;
    let archive = context.sandbox.path("lost.hetsnap");
    let outcome = hetckpt::dump(&context.sandbox, job.pid(), &archive, false)?;
    ensure!(
        outcome.code == 1
            && outcome.stderr.contains("HK0907")
            && outcome.stderr.contains("fdinfo/0 cannot come back")
            && outcome.stderr.contains("runs on"),
        "{}",
        outcome.text()
    );
    ensure!(!is_gone(job.pid()) && !archive.exists());
    let_go(context)?;
    job.finish()?.success("the program that was not dumped")?;

    let job = start(
        context,
        "exec 3</proc/self/maps 4</proc/self/task/$BASHPID/stat",
        "read -r map <&3; read -r pid rest <&4; [ $pid = $BASHPID ] && echo ${map:+mapped}",
    )?;
    let restored = job.dump()?.restore_on("cpu")?;
    let_go(context)?;
    let outcome = restored.finish()?.success("the restored program")?;
    ensure!(outcome.stdout == "mapped\n", "{}", outcome.text());
    Ok(())
}

/// Makes a pseudo-terminal, and a process that answers on its other end what it is told here.
const WITH_TERMINAL: &str = r#"
    use constant { UNLOCK => 0x40045431, NUMBER => 0x80045430, TAKE => 0x540e };
    $| = 1;
    open(my $master, "+<", "/dev/ptmx") or die;
    ioctl($master, UNLOCK, my $no = pack("i", 0)) and ioctl($master, NUMBER, my $number = pack("i", 0)) or die;
    my $path = "/dev/pts/" . unpack("i", $number);
    open(my $slave, "+<", $path) or die;
    if (!fork) {
        close $master;
        syscall(112);
        ioctl($slave, TAKE, 0);
        while (sysread $slave, my $word, 99) { syswrite $slave, "got $word"; }
        exit;
    }
    close $slave;
    while (my $word = <STDIN>) {
        syswrite $master, $word;
        my $heard = "";
        sysread $master, $heard, 99, length $heard or die until $heard =~ /(got \w+)\r/;
        $heard =~ /(got \w+)\r/ and print "$1\n";
    }
"#;

/// Two processes of one tree, with a pseudo-terminal between them.
fn own_terminal(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    fs::write(sandbox.path("with-terminal"), WITH_TERMINAL)?;
    let begin = format!(
        "coproc perl '{}'\nask() {{ echo $1 >&${{COPROC[1]}}; read -r line <&${{COPROC[0]}}; echo $line; }}\nask one",
        sandbox.path("with-terminal").display()
    );
    let job = start(context, &begin, "ask two; kill $COPROC_PID; wait")?;
    let dumped = job.dump()?;

    // Whatever is given the terminal's number, `script` for one, stands in the way.
    let check = || hetckpt::run(sandbox, [OsString::from("check"), (&dumped.archive).into()]);
    let mut taken = vec![];
    let refusal = loop {
        let outcome = check()?;
        if outcome.stdout.contains("HK0908") {
            break outcome;
        }
        ensure!(taken.len() < 64, "no number is in use: {}", outcome.text());
        taken.push(fs::File::options().read(true).write(true).open("/dev/ptmx")?);
    };
    ensure!(refusal.stdout.contains("in use here: /dev/pts/"), "{}", refusal.text());
    let options: &[&str] = match nix::unistd::geteuid().is_root() {
        true => &["--namespaces", "always"],
        false => {
            taken.clear();
            &[]
        }
    };
    let mut command = hetckpt::command(sandbox, ["restore", "--device", "cpu"]);
    command.args(options).arg(&dumped.archive);
    let restored = Running::start(command)?;
    let_go(context)?;
    let outcome = restored.wait(PATIENCE)?;
    ensure!(
        dumped.printed + &outcome.stdout == "got one\ngot two\n",
        "{}",
        outcome.text()
    );
    Ok(())
}

/// By `dump` and by `pack`; whatever was there stays as it was.
fn taken_names(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let job = start(context, ":", ":")?;
    let pid = job.pid().to_string();
    let [file, link] = ["old.hetsnap", "link.hetsnap"].map(|name| sandbox.path(name));
    fs::write(&file, "somebody's")?;
    std::os::unix::fs::symlink(&file, &link)?;
    let dump = |archive: &Path, options: &[&str]| {
        let mut command = hetckpt::command(sandbox, ["dump", "--json", "--leave-running", "--pid", &pid, "-o"]);
        command.arg(archive).args(options);
        Running::run(command, PATIENCE)
    };
    let images = sandbox.path("no-images");
    for options in [&[][..], &["--force"]] {
        for archive in [&file, &link] {
            if archive == &file && !options.is_empty() {
                continue;
            }
            let mut pack = hetckpt::command(sandbox, ["pack", "--json", "-o"]);
            pack.arg(archive).arg(&images).args(options);
            for refused in [dump(archive, options)?, Running::run(pack, PATIENCE)?] {
                let said: serde_json::Value = serde_json::from_str(&refused.stdout).with_context(|| refused.text())?;
                ensure!(
                    refused.code == 1 && said["error"]["code"] == "HK0707",
                    "{}",
                    refused.text()
                );
            }
        }
    }
    ensure!(fs::read_to_string(&file)? == "somebody's" && link.is_symlink());
    dump(&file, &["--force"])?.success("dump --force")?;
    hetckpt::inspect(sandbox, &file)?;
    let_go(context)?;
    job.finish()?.success("the program")?;
    Ok(())
}

/// A tracer, seen before CRIU runs, then a removed file with another name, which CRIU tells of.
fn obstacles(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let [first, second, traced] = ["first", "second", "traced"].map(|name| sandbox.path(name).display().to_string());
    // The child has its parent trace it (PTRACE_TRACEME).
    let begin = format!(
        "echo x >{first}; exec 3<{first}; ln {first} {second}; rm {first}
        perl -e 'syscall(101, 0, 0, 0, 0); $| = 1; print \"$$\\n\"; sleep 600' >{traced} &
        until [ -s {traced} ]; do read -rt 0.05 <> <(:); done"
    );
    let job = start(context, &begin, "wait; read -r x <&3; echo $x")?;
    let archive = sandbox.path("job.hetsnap");
    let refused = |code: &str, words: &str, help: &str| -> Result<()> {
        let outcome = hetckpt::dump(sandbox, job.pid(), &archive, false)?;
        let said = [code, words, help, "runs on"]
            .iter()
            .all(|part| outcome.stderr.contains(part));
        ensure!(outcome.code == 1 && said && !archive.exists(), "{}", outcome.text());
        Ok(())
    };
    refused("HK0912", "is traced by process", "detach the debugger")?;
    let processes = sandbox.processes();
    let is_traced = |pid: &&i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    let child = processes.iter().find(is_traced).context("nobody is traced")?;
    kill(Pid::from_raw(*child), Signal::SIGKILL)?;
    while !is_gone(*child) {
        std::thread::sleep(Duration::from_millis(2));
    }
    refused("HK0903", "removed but has another name", "ln OTHER-NAME NAME")?;
    let_go(context)?;
    let outcome = job.finish()?.success("the program")?;
    ensure!(outcome.stdout == "x\n", "{}", outcome.text());
    Ok(())
}

/// An eventfd that counts down by one, timer slack; and a personality, which nobody keeps.
fn settings(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let program = r#"
        $| = 1;
        my $eventfd = syscall(290, 3, 1);
        syscall(157, 29, 123456, 0, 0);
        syscall(135, 0x0040000);
        print "ready\n";
        <STDIN>;
        open(my $counter, "<&=", $eventfd) or die;
        my @counts = map { sysread $counter, my $count, 8; unpack "Q", $count } 1 .. 3;
        open(my $slack, "<", "/proc/self/timerslack_ns") or die;
        print "@counts ", <$slack>;
    "#;
    fs::write(sandbox.path("program"), program)?;
    let begin = format!(
        "coproc perl '{}'\nread -r line <&${{COPROC[0]}}",
        sandbox.path("program").display()
    );
    let job = start(
        context,
        &begin,
        "echo >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo $line; wait",
    )?;
    let dumped = job.dump()?;
    ensure!(
        dumped.report["not_kept"].to_string().contains("personality of process"),
        "{}",
        dumped.report
    );
    let restored = dumped.restore_on("cpu")?;
    let_go(context)?;
    let outcome = restored.finish()?.success("the restored program")?;
    ensure!(outcome.stdout == "1 1 1 123456\n", "{}", outcome.text());
    Ok(())
}

/// Neither the dump nor CRIU is ended by the limit; and a dump that is killed leaves no lock.
fn limited_files(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let job = start(context, ":", ":")?;
    let pid = job.pid().to_string();
    for kib in ["1", "100"] {
        let archive = sandbox.path("job.hetsnap");
        let dump = hetckpt::command(sandbox, ["dump", "--pid", &pid, "-o"]);
        let mut limited = std::process::Command::new("bash");
        sandbox.equip(&mut limited);
        limited.args(["-c", "ulimit -f $0; exec \"$@\"", kib]);
        limited.arg(dump.get_program()).args(dump.get_args()).arg(&archive);
        let outcome = Running::run(limited, PATIENCE)?;
        let said = ["File too large", "ulimit -f", "runs on"]
            .iter()
            .all(|part| outcome.stderr.contains(part));
        ensure!(outcome.code == 1 && said && !archive.exists(), "{}", outcome.text());
    }
    // Of a job in namespaces the locks lie within.
    if nix::unistd::geteuid().is_root() {
        let lock = sandbox.runtime_dir().join(format!("dump-{pid}.lock"));
        let mut dump = hetckpt::command(sandbox, ["dump", "--leave-running", "--pid", &pid, "-o"]);
        dump.arg(sandbox.path("killed.hetsnap"));
        let mut dump = Running::start(dump)?;
        // When the guardian is there, which sees its end.
        while !dump.has_ended()? && !sandbox.processes().iter().any(|&pid| is_guardian(pid)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(Pid::from_raw(dump.pid()), Signal::SIGKILL)?;
        let deadline = Instant::now() + PATIENCE;
        while lock.exists() {
            ensure!(Instant::now() < deadline, "the lock stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let_go(context)?;
    job.finish()?.success("the program")?;
    Ok(())
}

fn is_guardian(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|&byte| byte == 0).any(|word| word == b"__guard"))
}
