//! Dumps of a tree whose processes are just starting their device servers, ending, or becoming other programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::Job;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::num_dumps;
use super::tree::{ADOPTS, WORKERS, rows, script, wait_for_kernels};

/// The tests.
pub fn tests() -> Vec<Test> {
    let count = num_dumps();
    vec![
        Test::new("dumps_while_children_come_and_go", move |context| {
            while_children_come_and_go(context, count)
        })
        .times(1 + count / 10),
        Test::new(
            "a_tree_that_adopts_its_servers_is_refused",
            servers_in_the_tree_are_refused,
        ),
        Test::new("dump_waits_for_a_childs_starting_server", waits_for_a_starting_child),
        Test::new(
            "plain_criu_refuses_a_tree_with_a_child_that_starts_slowly",
            plain_criu_refuses_a_slow_child,
        )
        .also_needs(Requirement::Root),
    ]
}

/// Many short programs, two at a time. Dumps follow one another, so that each program's start and end meets some.
fn while_children_come_and_go(context: &mut Context, count: u32) -> Result<()> {
    let (mut dumped, mut again, mut restored) = (0, 0, 0);
    for round in 0..count {
        let sandbox = Sandbox::new()?;
        let pause = context.random.moment(Duration::from_millis(40));
        let tallied = one_storm(&sandbox, pause);
        let tallied = tallied.with_context(|| format!("round {round}, dumps {pause:?} apart\n{}", sandbox.logs()))?;
        dumped += tallied.0;
        again += tallied.1;
        restored += 1;
    }
    context.note(format!(
        "{dumped} dumps, {again} refused and tried again, {restored} restored"
    ));
    Ok(())
}

fn one_storm(sandbox: &Sandbox, pause: Duration) -> Result<(u32, u32)> {
    const PROGRAMS: usize = 16;
    let programs = Installation::get().programs.display().to_string();
    let text = format!(
        "i=0\nwhile [ $i -lt {PROGRAMS} ]; do\n\
         {programs}/paced --iterations 20 --blocks 16 & one=$!\n\
         {programs}/fork_after_init --iterations 10 --launches 1 --children 1 --child-ms 10 & two=$!\n\
         wait $one || exit 1\nwait $two || exit 1\ni=$((i + 1))\ndone\necho all done"
    );
    let command = [script(sandbox, "storm.sh", &text)?.into_os_string()];
    let expected = hetckpt::run(sandbox, storm_alone(&command))?.success("the uninterrupted storm")?;
    let mut expected: Vec<String> = expected.stdout.lines().map(str::to_owned).collect();
    ensure!(
        expected.len() == 2 * PROGRAMS + 1,
        "the uninterrupted storm printed {expected:?}"
    );
    expected.sort();

    let mut job = Job::start(sandbox, &command)?;
    let archive = sandbox.path("storm.hetsnap");
    let (mut dumped, mut again) = (0, 0);
    while !job.has_ended()? && dumped < 8 {
        std::thread::sleep(pause);
        let outcome = hetckpt::dump(sandbox, job.pid(), &archive, true)?;
        match outcome.code {
            0 => dumped += 1,
            _ if outcome.stderr.contains("again in a moment") => again += 1,
            // The storm may be over.
            _ if outcome.stderr.contains("HK0801") => break,
            _ => anyhow::bail!("dump {}: {}", dumped + again, outcome.text()),
        }
    }
    let last = hetckpt::dump(sandbox, job.pid(), &archive, false)?;
    let ended = job.finish()?;
    let mut printed = ended.stdout;
    if last.code == 0 {
        let restored = hetckpt::restore(sandbox, &archive, &Installation::to_device())?.wait(PATIENCE)?;
        ensure!(
            restored.code == 0,
            "the storm: {printed:?}, the restored one: {}",
            restored.text()
        );
        printed += &restored.stdout;
    } else {
        ensure!(
            ended.code == 0,
            "the last dump: {}\nthe storm: exit code {}",
            last.text(),
            ended.code
        );
    }
    let mut printed: Vec<String> = printed.lines().map(str::to_owned).collect();
    printed.sort();
    ensure!(printed == expected, "the storm printed {printed:?} {}", ended.stderr);
    Ok((dumped, again))
}

fn storm_alone(command: &[std::ffi::OsString]) -> Vec<std::ffi::OsString> {
    let device = Installation::from_device();
    let mut arguments: Vec<std::ffi::OsString> = vec!["run".into(), "--device".into(), device.into(), "--".into()];
    arguments.extend(command.iter().cloned());
    arguments
}

/// A device server that does nothing for `delay` if the program is not its session's leader, that is a child.
fn slow_server_for_children(sandbox: &Sandbox, delay: Duration) -> Result<PathBuf> {
    let server = Installation::get().stage.join("bin/hetckpt-server");
    let text = format!(
        "case $1 in --pid) set -- \"$@\"; read -r _ _ _ _ _ session _ </proc/$2/stat\n\
         [ \"$session\" = \"$2\" ] || {{ : >>{begun}; sleep {delay}; }};; esac\nexec {server} \"$@\"",
        begun = sandbox.path("begun").display(),
        delay = delay.as_secs_f64(),
        server = server.display()
    );
    script(sandbox, "slow-server", &text)
}

/// A tree of which the root has a kernel in flight and the children wait for their servers.
fn start_with_slow_children<'a>(sandbox: &'a Sandbox, length: u64, delay: Duration) -> Result<Job<'a>> {
    let server = slow_server_for_children(sandbox, delay)?;
    let command = WORKERS.command(sandbox, length)?;
    let job = Job::start_with(sandbox, &command, &Installation::from_device(), |command| {
        command.env("HETCKPT_SERVER", server);
    })?;
    let deadline = Instant::now() + PATIENCE;
    while !sandbox.path("begun").exists() || rows(sandbox)?.is_empty() {
        ensure!(Instant::now() < deadline, "the children do not start their servers");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(job)
}

fn waits_for_a_starting_child(context: &mut Context) -> Result<()> {
    let baseline = WORKERS.baseline()?;
    let job = start_with_slow_children(&context.sandbox, baseline.length, Duration::from_secs(2))?;
    let dumped = job.dump()?;
    let processes = dumped.inspect()?["processes"].as_array().map_or(0, Vec::len);
    ensure!(
        processes == WORKERS.num_servers,
        "all servers were to be waited for; {processes} processes were captured"
    );
    let outcome = dumped.restore()?.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout == baseline.outcome.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}

fn plain_criu_refuses_a_slow_child(context: &mut Context) -> Result<()> {
    let baseline = WORKERS.baseline()?;
    let sandbox = &context.sandbox;
    let job = start_with_slow_children(sandbox, baseline.length, Duration::from_secs(9))?;
    let outcome = plain_dump(sandbox, job.pid(), &sandbox.path("images"))?;
    let log = fs::read_to_string(sandbox.path("images/dump.log")).context("the dump's log")?;
    ensure!(
        outcome != 0 && log.contains("is still starting after"),
        "criu dump was to name the process whose server is still starting (exit code {outcome})"
    );
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "after the refusal: {}", ended.text());
    Ok(())
}

/// Frozen with the tree, a server could not answer any more: neither way may try.
fn servers_in_the_tree_are_refused(context: &mut Context) -> Result<()> {
    // Two commands are tried on it, one after the other.
    let baseline = ADOPTS.longer_baseline(3)?;
    let sandbox = &context.sandbox;
    let job = ADOPTS.start(sandbox, baseline.length)?;
    wait_for_kernels(sandbox, ADOPTS.num_servers)?;
    let outcome = hetckpt::dump(sandbox, job.pid(), &sandbox.path("x.hetsnap"), false)?;
    ensure!(
        outcome.code == 1 && outcome.stderr.contains("error[HK0809]") && outcome.stderr.contains("runs on"),
        "hetckpt dump was to refuse: {}",
        outcome.text()
    );
    // Plain CRIU needs root.
    if nix::unistd::geteuid().is_root() {
        let code = plain_dump(sandbox, job.pid(), &sandbox.path("images"))?;
        let log = fs::read_to_string(sandbox.path("images/dump.log")).context("the dump's log")?;
        ensure!(
            code != 0 && log.contains("belongs to the tree that is being dumped"),
            "criu dump was to say why it refuses (exit code {code})"
        );
    }
    let ended = job.finish()?;
    ensure!(ended == baseline.outcome, "after the refusals: {}", ended.text());
    Ok(())
}

/// `criu dump` of the tree of `pid`; gives its exit code.
fn plain_dump(sandbox: &Sandbox, pid: i32, images: &Path) -> Result<i32> {
    let installation = Installation::get();
    fs::create_dir_all(images)?;
    let mut command = Command::new(&installation.criu);
    sandbox.equip(&mut command);
    command
        .args(["dump", "-v4", "-o", "dump.log", "--tree", &pid.to_string(), "-D"])
        .arg(images);
    command.arg("--libdir").arg(installation.plugin_folder());
    Ok(Running::run(command, PATIENCE)?.code)
}
