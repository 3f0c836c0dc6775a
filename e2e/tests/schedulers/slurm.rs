//! Under a real Slurm.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};

use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

use super::cluster::{Accounting, Cluster, Job, PATIENCE, Site, has_database, root};

/// Steps of the test program, each with a sleep of 0.1 ms, unless it is hurried. OpenCL's kernels cannot sleep: there
/// these take some ten seconds. A GPU looks across its bus for whether it is to hurry, at each step.
fn iterations() -> &'static str {
    let [(from, to), _] = Installation::ways_between_nodes();
    match [from, to].iter().any(|device| device.starts_with("opencl")) {
        true => "80000000",
        false => "1000000",
    }
}

/// How the job is submitted.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// As the batch script, whose output is a file.
    Batch,
    /// As the batch script, which asked for a signal.
    BatchWithSignal,
    /// As a step: its output goes to Slurm's daemon by pipes.
    Step,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    name: &'static str,
    is_root: bool,
    form: Form,
    site: Site,
}

/// A site that leaves so many seconds, and does no more.
const fn plain_site(grace: u32) -> Site {
    Site {
        grace,
        sends_signals: false,
        accounting: Accounting::None,
    }
}

const fn round(name: &'static str, is_root: bool, form: Form, grace: u32, sends_signals: bool) -> Round {
    Round {
        name,
        is_root,
        form,
        site: Site {
            grace,
            sends_signals,
            accounting: Accounting::None,
        },
    }
}

/// What every check runs.
const ALWAYS: [Round; 2] = [
    round("slurm_root_batch_without_grace", true, Form::Batch, 0, false),
    round("slurm_user_step_with_grace", false, Form::Step, 20, false),
];

/// What `make soak` runs besides, each many times.
const MORE: [Round; 6] = [
    round("slurm_root_batch_with_grace", true, Form::Batch, 20, false),
    round("slurm_root_batch_with_signal", true, Form::BatchWithSignal, 20, true),
    round("slurm_root_step_without_grace", true, Form::Step, 0, false),
    round("slurm_user_batch_without_grace", false, Form::Batch, 0, false),
    round("slurm_user_batch_with_grace", false, Form::Batch, 20, false),
    round("slurm_user_batch_with_signal", false, Form::BatchWithSignal, 20, true),
];

/// Preempted because of its quality of service, not of its partition.
const BY_QUALITY: Round = Round {
    name: "slurm_batch_by_quality_of_service",
    // Accounting takes no jobs of `nobody` from 26.05 on.
    is_root: true,
    form: Form::Batch,
    site: Site {
        grace: 20,
        sends_signals: false,
        accounting: Accounting::Qualities,
    },
};

/// The tests.
pub fn tests() -> Vec<Test> {
    let rounds = std::env::var("HETCKPT_E2E_SLURM_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let more: &[Round] = if rounds.is_some() { &MORE } else { &[] };
    let rounds: u32 = rounds.unwrap_or(1);
    let preempted = ALWAYS.iter().chain(more).map(|&round| {
        let again = move |context: &mut Context| (0..rounds).try_for_each(|_| preempted_twice(context, round));
        Test::new(round.name, again).times(rounds)
    });
    let mut tests: Vec<Test> = preempted.collect();
    tests.push(Test::new("slurm_cancelled_job_is_not_stored", cancelled));
    if !more.is_empty() {
        if has_database() {
            tests.push(Test::new("slurm_accounting_tells_of_each_run", accounting));
            tests.push(Test::new(BY_QUALITY.name, by_quality));
        }
        let arrays = move |context: &mut Context| (0..rounds).try_for_each(|_| array(context));
        tests.push(Test::new("slurm_array_of_four_tasks", arrays).times(rounds));
        tests.push(Test::new("slurm_suspended_job_goes_on", suspended));
        tests.push(Test::new("slurm_node_killed", node_killed));
        tests.push(Test::new("slurm_job_that_cannot_be_dumped_is_queued_again", undumpable));
    }
    let on_slurm = |test: Test| {
        let test = test.also_needs(Requirement::Root).also_needs(Requirement::Mounting);
        match root() {
            Some(_) => test,
            None => test.also_needs(Requirement::Slurm),
        }
    };
    tests.into_iter().map(on_slurm).collect()
}

/// The command of a job, on the node's kind of device.
fn lines(form: Form, more: &str) -> String {
    let [(one, other), _] = Installation::ways_between_nodes();
    let step = if matches!(form, Form::Step) { "srun " } else { "exec " };
    format!(
        "[ \"$SLURMD_NODENAME\" = n1 ] && device={one} || device={other}\n\
         echo \"on $SLURMD_NODENAME, run ${{SLURM_RESTART_COUNT:-0}}\"\n\
         {step}hetckpt job --store store --device $device {more} -- $PROGRAMS/paced --iterations {}",
        iterations()
    )
}

/// What the program prints when nobody interrupts it. It takes a processor for a while, so it is found out once.
fn digest(context: &Context) -> Result<String> {
    static DIGEST: Mutex<Option<String>> = Mutex::new(None);
    let mut known = DIGEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(digest) = &*known {
        return Ok(digest.clone());
    }
    let digest = find_out_digest(context)?;
    *known = Some(digest.clone());
    Ok(digest)
}

fn find_out_digest(context: &Context) -> Result<String> {
    let mut command = hetckpt::command(&context.sandbox, ["run", "--device", "cpu", "--"]);
    command
        .arg(Installation::get().programs.join("paced"))
        .args(["--iterations", iterations()]);
    // Whoever waits for it hurries it.
    let outcome = Running::run(command, PATIENCE)?.success("the program")?;
    let line = outcome.stdout.lines().find(|line| line.contains("digest"));
    line.map(str::to_owned)
        .ok_or_else(|| anyhow::anyhow!("no digest: {}", outcome.stdout))
}

/// Waits until the program's kernel is at work, and a little longer.
fn wait_at_work(context: &mut Context, cluster: &Cluster, job: &Job, restarts: u32) -> Result<String> {
    let node = cluster.wait_running(job, restarts)?;
    if restarts > 0 {
        let begun = format!("run {restarts}\n");
        cluster.wait_printed(job, &begun)?;
        let since = cluster.printed(job).find(&begun).unwrap_or(0);
        for _ in 0..600 {
            if cluster
                .printed(job)
                .get(since..)
                .is_some_and(|text| text.contains("hetckpt: goes on from"))
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    std::thread::sleep(Duration::from_millis(1500) + context.random.moment(Duration::from_secs(3)));
    Ok(node)
}

fn preempted_twice(context: &mut Context, round: Round) -> Result<()> {
    let cluster = Cluster::up(&context.sandbox, round.site, round.is_root)?;
    preempt_twice(context, &cluster, round)?;
    drop(cluster);
    clear(context)
}

/// Gives the job, which has completed.
fn preempt_twice(context: &mut Context, cluster: &Cluster, round: Round) -> Result<Job> {
    let expected = digest(context)?;
    let mut options = vec!["--exclusive", "--gres=gpu:1"];
    if matches!(round.form, Form::BatchWithSignal) {
        options.push("--signal=B:USR1@60");
    }
    let job = cluster.submit(&options, &lines(round.form, ""))?;
    let first = wait_at_work(context, cluster, &job, 0)?;
    let rival = cluster.take_node(&first)?;
    cluster.wait_running(&rival, 0)?;
    let second = wait_at_work(context, cluster, &job, 1)?;
    ensure!(first != second, "it came back on {first}, which is taken");
    cluster.client("scancel", &[&rival.id])?;
    let rival = cluster.take_node(&second)?;
    cluster.wait_running(&rival, 0)?;
    let third = wait_at_work(context, cluster, &job, 2)?;
    ensure!(third == first, "it is on {third}, which is taken");
    cluster.hurry()?;
    let (state, code) = cluster.wait_ended(&job)?;
    let printed = cluster.printed(&job);
    ensure!((&*state, &*code) == ("COMPLETED", "0:0"), "{state} {code}: {printed}");
    ensure!(printed.contains(&expected), "`{expected}` is not in: {printed}");
    ensure!(
        printed.matches("hetckpt: goes on from").count() == 2,
        "not twice: {printed}"
    );
    cluster.ensure_cleared(&cluster.work().join("store"))?;
    Ok(job)
}

/// Each run has a line in the database: REQUEUED if `hetckpt job` has queued the job again, PREEMPTED if Slurm has.
fn accounting(context: &mut Context) -> Result<()> {
    let site = Site {
        grace: 20,
        sends_signals: true,
        accounting: Accounting::Runs,
    };
    let cluster = Cluster::up(&context.sandbox, site, true)?;
    let round = Round {
        name: "slurm_accounting_tells_of_each_run",
        is_root: true,
        form: Form::BatchWithSignal,
        site,
    };
    let job = preempt_twice(context, &cluster, round)?;
    let arguments = ["-D", "-X", "-P", "-n", "--format=State,ExitCode", "-j", &job.id];
    let told = cluster.wait_told("sacct", &arguments, "COMPLETED|0:0")?;
    let mut runs: Vec<&str> = told.lines().collect();
    context.note(told.trim().replace('\n', ", "));
    ensure!(runs.len() >= 3, "not three runs: {told}");
    ensure!(
        runs.pop() == Some("COMPLETED|0:0"),
        "the last has not completed: {told}"
    );
    // 24.11 notes the run that finishes as PREEMPTED too and queues it again, though its grace time is long over; that
    // one ends at once with the kept exit code. 22.05 and 26.05 do not.
    let is_expected = |run: &&str| ["REQUEUED|0:0", "PREEMPTED|0:0"].contains(run);
    ensure!(
        runs.iter().all(is_expected),
        "a preempted run is something else: {told}"
    );
    Ok(())
}

/// The grace time is the quality's, and the job knows.
fn by_quality(context: &mut Context) -> Result<()> {
    let cluster = Cluster::up(&context.sandbox, BY_QUALITY.site, BY_QUALITY.is_root)?;
    let job = preempt_twice(context, &cluster, BY_QUALITY)?;
    let printed = cluster.printed(&job);
    // `GraceTime` and `KillWait`.
    ensure!(printed.contains("the scheduler leaves 25"), "{printed}");
    Ok(())
}

/// For the next round in the same sandbox.
fn clear(context: &Context) -> Result<()> {
    for name in ["work", "opt"] {
        let path = context.sandbox.path(name);
        if path.exists() {
            std::fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// Slurm sends TSTP to all processes, two seconds later STOP, and at the end CONT.
fn suspended(context: &mut Context) -> Result<()> {
    let expected = digest(context)?;
    let cluster = Cluster::up(&context.sandbox, plain_site(0), true)?;
    let job = cluster.submit(&["--exclusive"], &lines(Form::Batch, "--suspendable"))?;
    wait_at_work(context, &cluster, &job, 0)?;
    for round in 1..=2 {
        cluster.client("scontrol", &["suspend", &job.id])?;
        cluster.wait_printed(&job, "the device is free")?;
        std::thread::sleep(Duration::from_secs(4));
        cluster.client("scontrol", &["resume", &job.id])?;
        for _ in 0..600 {
            if cluster.printed(&job).matches("hetckpt: goes on after").count() == round {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    cluster.hurry()?;
    let (state, code) = cluster.wait_ended(&job)?;
    let printed = cluster.printed(&job);
    ensure!((&*state, &*code) == ("COMPLETED", "0:0"), "{state} {code}: {printed}");
    ensure!(printed.contains(&expected), "`{expected}` is not in: {printed}");
    for what in ["the device is free", "goes on after"] {
        ensure!(printed.matches(what).count() == 2, "not twice `{what}`: {printed}");
    }
    Ok(())
}

fn cancelled(context: &mut Context) -> Result<()> {
    let cluster = Cluster::up(&context.sandbox, plain_site(20), true)?;
    let job = cluster.submit(&["--exclusive"], &lines(Form::Batch, ""))?;
    wait_at_work(context, &cluster, &job, 0)?;
    cluster.client("scancel", &[&job.id])?;
    let (state, _) = cluster.wait_ended(&job)?;
    ensure!(state == "CANCELLED", "{state}");
    cluster.wait_printed(&job, "the job was cancelled")?;
    let printed = cluster.printed(&job);
    ensure!(!printed.contains("hetckpt: snapshot "), "it was stored: {printed}");
    Ok(())
}

fn array(context: &mut Context) -> Result<()> {
    let expected = digest(context)?;
    let cluster = Cluster::up(&context.sandbox, plain_site(0), true)?;
    let all = cluster.submit(
        &["--array=0-3", "--cpus-per-task=1", "--mem=0"],
        &lines(Form::Batch, ""),
    )?;
    let tasks: Vec<Job> = (0..4)
        .map(|task| Job {
            id: format!("{}_{task}", all.id),
        })
        .collect();
    let mut on_first = vec![];
    for task in &tasks {
        let node = cluster.wait_running(task, 0)?;
        if node == "n1" {
            on_first.push(task);
        }
    }
    ensure!(!on_first.is_empty(), "no task runs on n1");
    std::thread::sleep(Duration::from_millis(1500) + context.random.moment(Duration::from_secs(3)));
    let rival = cluster.take_node("n1")?;
    cluster.wait_running(&rival, 0)?;
    cluster.client("scancel", &[&rival.id])?;
    for task in &on_first {
        wait_at_work(context, &cluster, task, 1)?;
    }
    cluster.hurry()?;
    for task in &tasks {
        let (state, code) = cluster.wait_ended(task)?;
        let printed = cluster.printed(task);
        ensure!(
            (&*state, &*code) == ("COMPLETED", "0:0"),
            "task {}: {state} {code}: {printed}",
            task.id
        );
        ensure!(printed.contains(&expected), "task {}: {printed}", task.id);
    }
    drop(cluster);
    clear(context)
}

fn node_killed(context: &mut Context) -> Result<()> {
    let expected = digest(context)?;
    let cluster = Cluster::up(&context.sandbox, plain_site(20), true)?;
    let job = cluster.submit(&["--exclusive"], &lines(Form::Batch, "--every 1s"))?;
    let node = cluster.wait_running(&job, 0)?;
    cluster.wait_printed(&job, "hetckpt: snapshot ")?;
    std::thread::sleep(Duration::from_secs(2));
    cluster.restart_node(&node)?;
    wait_at_work(context, &cluster, &job, 1)?;
    cluster.hurry()?;
    let (state, code) = cluster.wait_ended(&job)?;
    let printed = cluster.printed(&job);
    ensure!((&*state, &*code) == ("COMPLETED", "0:0"), "{state} {code}: {printed}");
    ensure!(
        printed.contains(&expected) && printed.contains("hetckpt: goes on from"),
        "{printed}"
    );
    Ok(())
}

fn undumpable(context: &mut Context) -> Result<()> {
    let cluster = Cluster::up(&context.sandbox, plain_site(20), true)?;
    // A connection to outside is not dumped unless that is asked for.
    let command = "exec hetckpt job --store store --device cpu -- bash -c 'exec 7<>/dev/tcp/127.0.0.1/'$PORT'; exec $PROGRAMS/paced --iterations 600000'";
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let job = cluster.submit(&["--exclusive"], &format!("PORT={port}\n{command}"))?;
    let node = wait_at_work(context, &cluster, &job, 0)?;
    let rival = cluster.take_node(&node)?;
    cluster.wait_running(&rival, 0)?;
    cluster.wait_running(&job, 1)?;
    let printed = cluster.printed(&job);
    ensure!(
        printed.contains("no snapshot") && printed.contains("begins anew"),
        "{printed}"
    );
    Ok(())
}
