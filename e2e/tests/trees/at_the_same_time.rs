//! Several dumps and restores at a time: of different programs, which do not disturb each other, and of the same, of
//! which one wins and the others say why they do not.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Attempt, Job};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::num_dumps;
use super::tree::{Baseline, CHILDREN_ONLY, THREADS, WORKERS, wait_for_kernels};

/// The tests.
pub fn tests() -> Vec<Test> {
    let count = num_dumps();
    vec![
        Test::new("several_jobs_are_dumped_and_restored_at_the_same_time", several_jobs),
        Test::new("two_dumps_of_the_same_job", move |context| two_dumps(context, count)).times(1 + count / 10),
        Test::new("two_restores_of_the_same_archive", move |context| {
            two_restores(context, count)
        })
        .times(1 + count / 10)
        // In namespaces of their own both may run.
        .also_needs(Requirement::Root),
        Test::new("a_restore_is_not_disturbed_by_ps", restore_beside_ps),
    ]
}

/// One of several jobs in a sandbox.
struct Concurrent {
    supervisor: Running,
    archive: PathBuf,
    pid: i32,
    baseline: Baseline,
}

/// They share the runtime directory, as all jobs of a user on a node do.
fn several_jobs(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let mut jobs = vec![];
    // They share the processors, and the last is to run still when the last dump begins.
    let [workers, threads, children] = [WORKERS, THREADS, CHILDREN_ONLY].map(|tree| tree.longer_baseline(8));
    let (workers, threads, children) = (workers?, threads?, children?);
    let all = [
        (WORKERS, workers),
        (THREADS, threads.clone()),
        (CHILDREN_ONLY, children),
        (THREADS, threads),
    ];
    for (number, (tree, baseline)) in all.into_iter().enumerate() {
        let pid_file = sandbox.path(&format!("pid-{number}"));
        let mut command = hetckpt::command(sandbox, ["run", "--device", &Installation::from_device(), "--pid-file"]);
        command
            .arg(&pid_file)
            .arg("--")
            .args(tree.command(sandbox, baseline.length)?);
        let supervisor = Running::start(command)?;
        let pid = read_pid(&pid_file)?;
        jobs.push(Concurrent {
            supervisor,
            archive: sandbox.path(&format!("{number}.hetsnap")),
            pid,
            baseline,
        });
    }
    wait_for_kernels(sandbox, 5)?;
    let mut dumps = vec![];
    for job in &jobs {
        let mut command = hetckpt::command(sandbox, ["dump", "--pid", &job.pid.to_string(), "-o"]);
        command.arg(&job.archive);
        dumps.push(Running::start(command)?);
    }
    for dump in dumps {
        dump.wait(PATIENCE)?.success("a dump beside others")?;
    }
    let mut printed = vec![];
    for job in &mut jobs {
        let never = Running::start(std::process::Command::new("true"))?;
        let ended = std::mem::replace(&mut job.supervisor, never).wait(PATIENCE)?;
        ensure!(ended.code == 128 + 9, "{}", ended.text());
        printed.push(ended.stdout);
    }
    let mut restores = vec![];
    for job in &jobs {
        let mut command = hetckpt::command(sandbox, ["restore", "--device", &Installation::to_device()]);
        command.arg(&job.archive);
        restores.push(Running::start(command)?);
    }
    for ((job, restore), printed) in jobs.into_iter().zip(restores).zip(printed) {
        let ended = restore.wait(PATIENCE)?;
        ensure!(
            ended.code == 0 && printed + &ended.stdout == job.baseline.outcome.stdout,
            "one of several restored jobs: {}",
            ended.text()
        );
    }
    sandbox.wait_until_empty(Duration::from_secs(10))
}

fn read_pid(file: &Path) -> Result<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(pid) = text.strip_suffix('\n').and_then(|digits| digits.parse().ok()) {
            return Ok(pid);
        }
        ensure!(Instant::now() < deadline, "`hetckpt run` writes no process id");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What became of the second of two dumps.
enum Second {
    /// The first was under way.
    Refused,
    /// The first had ended, and the program with it.
    CameTooLate,
    /// Both dumps did: the program had come to its end.
    BothCameTooLate,
}

/// The second begins a random moment after the first.
fn two_dumps(context: &mut Context, count: u32) -> Result<()> {
    let (mut refused, mut too_late, mut times) = (0, 0, 1);
    let mut baseline = WORKERS.baseline()?;
    while refused + too_late < 2 * count {
        let delay = context.random.moment(Duration::from_millis(250));
        let sandbox = Sandbox::new()?;
        let second = two_dumps_once(&sandbox, &baseline, delay)
            .with_context(|| format!("the second began after {delay:?}\n{}", sandbox.logs()))?;
        match second {
            Second::Refused => refused += 1,
            Second::CameTooLate => too_late += 1,
            Second::BothCameTooLate => {
                times *= 4;
                ensure!(times <= 64, "the program ends before it is dumped, however long it is");
                baseline = WORKERS.longer_baseline(times)?;
            }
        }
    }
    context.note(format!(
        "the second dump was refused {refused} times and came too late {too_late} times"
    ));
    Ok(())
}

fn two_dumps_once(sandbox: &Sandbox, baseline: &Baseline, delay: Duration) -> Result<Second> {
    let mut job = WORKERS.start(sandbox, baseline.length)?;
    if let Err(error) = wait_for_kernels(sandbox, WORKERS.num_servers) {
        ensure!(job.has_ended()?, error);
        ensure!(job.finish()? == baseline.outcome, "it ended otherwise than by itself");
        return Ok(Second::BothCameTooLate);
    }
    let start = |archive: &Path| {
        let mut command = hetckpt::command(sandbox, ["dump", "--pid", &job.pid().to_string(), "-o"]);
        command.arg(archive);
        Running::start(command)
    };
    let archives = [sandbox.path("first.hetsnap"), sandbox.path("second.hetsnap")];
    let first = start(&archives[0])?;
    std::thread::sleep(delay);
    let second = start(&archives[1])?;
    let dumps = [first.wait(PATIENCE)?, second.wait(PATIENCE)?];
    let ended = job.finish()?;
    let texts = || format!("{}\n{}\n{}", dumps[0].text(), dumps[1].text(), ended.text());
    let winners: Vec<usize> = (0..2).filter(|&which| dumps[which].code == 0).collect();
    if winners.is_empty() && ended == baseline.outcome && archives.iter().all(|archive| !archive.exists()) {
        return Ok(Second::BothCameTooLate);
    }
    let [winner] = winners[..] else {
        anyhow::bail!("one dump was to win: {}", texts());
    };
    let loser = &dumps[1 - winner];
    let was_refused = loser.stderr.contains("error[HK0808]");
    ensure!(was_refused || loser.stderr.contains("error[HK0801]"), "{}", texts());
    ensure!(
        archives[winner].exists() && !archives[1 - winner].exists(),
        "{}",
        texts()
    );
    ensure!(ended.code == 128 + 9, "the dumped program ran on: {}", texts());
    let restored = hetckpt::restore(sandbox, &archives[winner], &Installation::to_device())?.wait(PATIENCE)?;
    ensure!(
        restored.code == 0 && ended.stdout.clone() + &restored.stdout == baseline.outcome.stdout,
        "{}\nrestored: {}",
        texts(),
        restored.text()
    );
    Ok(if was_refused {
        Second::Refused
    } else {
        Second::CameTooLate
    })
}

/// `hetckpt ps` connects to each server: also to one whose program is being rebuilt.
fn restore_beside_ps(context: &mut Context) -> Result<()> {
    let baseline = WORKERS.longer_baseline(3)?;
    let sandbox = &context.sandbox;
    let job = WORKERS.start(sandbox, baseline.length)?;
    wait_for_kernels(sandbox, WORKERS.num_servers)?;
    let dumped = job.dump()?;
    let mut restored = hetckpt::restore(sandbox, &dumped.archive, &Installation::to_device())?;
    let mut num_seen = 0;
    while !restored.has_ended()? {
        num_seen += hetckpt::ps(sandbox)?.len();
    }
    ensure!(num_seen > 0, "`hetckpt ps` saw no process of the tree");
    let ended = restored.wait(PATIENCE)?;
    ensure!(
        ended.code == 0 && ended.stdout == baseline.outcome.stdout,
        "{}",
        ended.text()
    );
    sandbox.wait_until_empty(Duration::from_secs(10))
}

fn two_restores(context: &mut Context, count: u32) -> Result<()> {
    let (mut rounds, mut times) = (0, 3);
    let mut baseline = WORKERS.longer_baseline(times)?;
    while rounds < 2 * count {
        let delay = match rounds {
            0 => Duration::ZERO,
            _ => context.random.moment(Duration::from_millis(400)),
        };
        let sandbox = Sandbox::new()?;
        let were_at_once = two_restores_once(&sandbox, &baseline, delay)
            .with_context(|| format!("round {rounds}: the second began after {delay:?}\n{}", sandbox.logs()))?;
        if were_at_once {
            rounds += 1;
            continue;
        }
        // On a machine that has much else to do the program may be over too soon.
        times += 1;
        ensure!(
            times < 10,
            "one program ends before the other is restored, however long it is"
        );
        baseline = WORKERS.longer_baseline(times)?;
    }
    Ok(())
}

/// False if one program had ended before the other was there.
fn two_restores_once(sandbox: &Sandbox, baseline: &Baseline, delay: Duration) -> Result<bool> {
    let job = Job::start(sandbox, &WORKERS.command(sandbox, baseline.length)?)?;
    wait_for_kernels(sandbox, WORKERS.num_servers)?;
    let Attempt::Dumped(dumped) = job.try_dump()? else {
        return Ok(false);
    };
    let pid_files = ["first", "second"].map(|name| sandbox.path(name));
    let start = |pid_file: &Path| {
        let mut command = hetckpt::command(sandbox, ["restore", "--device", &Installation::to_device()]);
        command.arg("--pid-file").arg(pid_file).arg(&dumped.archive);
        Running::start(command)
    };
    let first = start(&pid_files[0])?;
    std::thread::sleep(delay);
    let mut restores = [first, start(&pid_files[1])?];
    let (mut has_run, mut were_at_once) = ([false; 2], true);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let has_ended = [restores[0].has_ended()?, restores[1].has_ended()?];
        for which in 0..2 {
            if !has_run[which] && pid_files[which].exists() {
                has_run[which] = true;
                were_at_once &= !(has_run[1 - which] && has_ended[1 - which]);
            }
        }
        if has_ended == [true; 2] {
            break;
        }
        ensure!(Instant::now() < deadline, "the restores do not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let [first, second] = restores;
    let ended = [first.wait(PATIENCE)?, second.wait(PATIENCE)?];
    let texts = || format!("{}\n{}", ended[0].text(), ended[1].text());
    let is_right = |which: &usize| ended[*which].code == 0 && ended[*which].stdout == baseline.outcome.stdout;
    let is_refused = |which: &usize| {
        let outcome = &ended[*which];
        let messages = outcome.stderr.lines().filter(|line| line.starts_with("error[")).count();
        let is_named = outcome.stderr.contains("HK0905") || outcome.stderr.contains("has a device server already");
        outcome.code == 125 && messages == 1 && is_named && outcome.stdout.is_empty()
    };
    let is_one_of_each = (is_right(&0) && is_refused(&1)) || (is_right(&1) && is_refused(&0));
    ensure!(
        is_one_of_each || !were_at_once && is_right(&0) && is_right(&1),
        "one restore was to run, the other to be refused: {}",
        texts()
    );
    sandbox.wait_until_empty(Duration::from_secs(10))?;
    Ok(were_at_once)
}
