//! Dumps and restores one after another, and at moments when there is no kernel to stop.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::baseline::Baseline;
use hetckpt_e2e::calibration;
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::job::{Attempt, Dumped, Job, is_mid_flight, kernels_in_flight};
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::{self, PACED, Program};
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;

use super::opencl_refusals::compile;
use super::preempt::check;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("dumps_twice_in_a_row", dumps_twice_in_a_row),
        Test::new("left_running_then_dumped_later", left_running_then_dumped_later),
        Test::new(
            "restores_an_archive_of_a_program_left_running",
            restores_an_archive_of_a_program_left_running,
        ),
        Test::new("restores_one_archive_twice", restores_one_archive_twice),
        Test::new(
            "dumps_a_restored_program_again_and_again",
            dumps_a_restored_program_again_and_again,
        ),
        Test::new("dumps_while_no_kernel_runs", dumps_while_no_kernel_runs),
        Test::new("dumps_before_the_first_cuda_call", dumps_before_the_first_cuda_call),
        Test::new("a_server_with_nothing_to_do_sleeps", a_server_with_nothing_to_do_sleeps)
            .needs(&[Requirement::Programs]),
        Test::new("dumps_again_what_holds_all_signals_back", holds_all_signals_back),
        Test::new("restores_detached", restores_detached),
        Test::new("dumps_a_shell_around_the_program", dumps_a_shell_around_the_program),
        Test::new("file_locks_are_held_after_a_restore", file_locks),
    ]
}

/// [`PACED`], twice as long as a baseline, and its uninterrupted outcome.
fn long_spin() -> Result<Baseline> {
    calibration::lasting(&PACED, 2)
}

fn start_paced<'a>(context: &'a Context, baseline: &Baseline) -> Result<Job<'a>> {
    let mut job = Job::start(&context.sandbox, &PACED.command(baseline.length))?;
    job.wait_for_kernel()?;
    Ok(job)
}

fn ensure_mid_flight(dumped: &Dumped<'_>) -> Result<()> {
    let kernels = kernels_in_flight(&dumped.inspect()?);
    ensure!(
        kernels.iter().any(is_mid_flight),
        "no kernel was caught part-way: {kernels:?}"
    );
    Ok(())
}

fn dumps_twice_in_a_row(context: &mut Context) -> Result<()> {
    let baseline = long_spin()?;
    let mut job = start_paced(context, &baseline)?;
    let first = job.dump_and_leave_running()?;
    let second = job.dump_and_leave_running()?;
    for archive in [&first, &second] {
        let kernels = kernels_in_flight(&hetckpt::inspect(&context.sandbox, archive)?);
        ensure!(
            kernels.iter().any(is_mid_flight),
            "{} has no kernel part-way",
            archive.display()
        );
    }
    check(&PACED, &baseline.outcome, &job.finish()?)
}

fn left_running_then_dumped_later(context: &mut Context) -> Result<()> {
    let baseline = long_spin()?;
    let mut job = start_paced(context, &baseline)?;
    job.dump_and_leave_running()?;
    std::thread::sleep(Duration::from_millis(300));
    let dumped = job.dump()?;
    ensure_mid_flight(&dumped)?;
    check(&PACED, &baseline.outcome, &dumped.restore()?.finish()?)
}

fn restores_an_archive_of_a_program_left_running(context: &mut Context) -> Result<()> {
    let baseline = long_spin()?;
    let mut job = start_paced(context, &baseline)?;
    let archive = job.dump_and_leave_running()?;
    job.kill()?;
    let restored = hetckpt::restore(&context.sandbox, &archive, &Installation::to_device())?;
    check(&PACED, &baseline.outcome, &restored.wait(hetckpt::PATIENCE)?)
}

fn restores_one_archive_twice(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let dumped = start_paced(context, &baseline)?.dump()?;
    let archive = dumped.archive.clone();
    check(&PACED, &baseline.outcome, &dumped.restore()?.finish()?)?;
    let again = hetckpt::restore(&context.sandbox, &archive, &Installation::to_device())?;
    check(&PACED, &baseline.outcome, &again.wait(hetckpt::PATIENCE)?)
}

/// A kernel with barriers and shared memory goes through four archives.
fn dumps_a_restored_program_again_and_again(context: &mut Context) -> Result<()> {
    for program in [PACED, Program::of_the_ten("persistent")?, Program::of_the_ten("scan")?] {
        let (device, times) = (Installation::from_device(), (4 / u64::from(program.lasts)).max(1));
        calibration::until_long_enough(&device, &program, times, |baseline| {
            four_archives(&context.sandbox, &program, baseline)
        })?;
    }
    Ok(())
}

/// Nothing if the program comes to its end on the way, or is caught between two kernels.
fn four_archives(sandbox: &Sandbox, program: &Program, baseline: &Baseline) -> Result<Option<()>> {
    let mut job = Job::start(sandbox, &program.command(baseline.length))?;
    for round in 0..4 {
        let begin = Instant::now();
        let attempt = job.try_dump_at_kernel().with_context(|| {
            format!(
                "{} of length {}, {:?} after restore {round}; kernels in flight for {:?} when uninterrupted",
                program.name,
                baseline.length,
                begin.elapsed(),
                baseline.kernels
            )
        })?;
        let dumped = match attempt {
            Attempt::Dumped(dumped) => dumped,
            Attempt::Ended(outcome) => {
                check(program, &baseline.outcome, &outcome)?;
                return Ok(None);
            }
        };
        if kernels_in_flight(&dumped.inspect()?).is_empty() {
            return Ok(None);
        }
        ensure_mid_flight(&dumped)?;
        job = dumped.restore()?;
    }
    check(program, &baseline.outcome, &job.finish()?)?;
    Ok(Some(()))
}

fn dumps_while_no_kernel_runs(context: &mut Context) -> Result<()> {
    let quick = program::command("late_cuda", &["--wait-ms", "0"]);
    let expected = Job::start(&context.sandbox, &quick)?.finish()?;
    let command = program::command("late_cuda", &["--wait-ms", "0", "--idle-ms", "2000", "--progress"]);
    let job = Job::start(&context.sandbox, &command)?;
    job.wait_for_stderr("idle")?;
    let dumped = job.dump()?;
    let inspected = dumped.inspect()?;
    ensure!(
        kernels_in_flight(&inspected).is_empty(),
        "no kernel was in flight, yet: {inspected}"
    );
    let allocated = inspected["processes"][0]["allocated_bytes"].as_u64();
    ensure!(allocated >= Some(4 << 16), "its device memory is missing: {inspected}");
    let outcome = dumped.restore()?.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout == expected.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}

fn dumps_before_the_first_cuda_call(context: &mut Context) -> Result<()> {
    let quick = program::command("late_cuda", &["--wait-ms", "0"]);
    let expected = Job::start(&context.sandbox, &quick)?.finish()?;
    let job = Job::start(
        &context.sandbox,
        &program::command("late_cuda", &["--wait-ms", "2000", "--progress"]),
    )?;
    job.wait_for_stderr("waiting")?;
    let dumped = job.dump()?;
    let processes = dumped.inspect()?["processes"].as_array().map(Vec::len);
    ensure!(
        processes == Some(0),
        "no process had a device yet, `inspect` has {processes:?}"
    );
    let outcome = dumped.restore()?.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout == expected.stdout,
        "{}",
        outcome.text()
    );
    Ok(())
}

/// Processor time that process `pid` and its threads have used, in user and in system mode.
fn processor_time(pid: u64) -> Result<Duration> {
    /// Linux counts these times in hundredths of a second on every x86-64.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the device server is gone")?;
    // The command's name, in parentheses, may hold blanks; behind it stand the fields from the third on.
    let fields = stat
        .rsplit_once(')')
        .map_or("", |(_, fields)| fields)
        .split_whitespace();
    let times: Vec<u32> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ensure!(times.len() == 2, "/proc/{pid}/stat holds no times: {stat}");
    Ok(TICK * times.iter().sum())
}

/// No measurement: what is to be seen is whether it spins.
fn a_server_with_nothing_to_do_sleeps(context: &mut Context) -> Result<()> {
    let command = program::command("late_cuda", &["--wait-ms", "0", "--idle-ms", "3000", "--progress"]);
    let mut job = Job::start(&context.sandbox, &command)?;
    job.wait_for_stderr("idle")?;
    let row = job.wait_for_row("a device server", |row| row["server_pid"].is_u64())?;
    let server = row["server_pid"].as_u64().context("no process id")?;
    // What it does after a kernel's end may take a moment.
    std::thread::sleep(Duration::from_millis(300));
    let (began, before) = (Instant::now(), processor_time(server)?);
    std::thread::sleep(Duration::from_secs(1));
    let (used, elapsed) = (processor_time(server)?.saturating_sub(before), began.elapsed());
    ensure!(
        !job.supervisor().stderr_so_far().contains("launched"),
        "the program was not idle for so long"
    );
    ensure!(
        used < elapsed / 5,
        "an idle device server used {used:?} of processor time in {elapsed:?}"
    );
    let outcome = job.finish()?;
    ensure!(
        outcome.code == 0 && outcome.stdout.ends_with("PASS\n"),
        "{}",
        outcome.text()
    );
    Ok(())
}

fn restores_detached(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let job = start_paced(context, &baseline)?;
    let dumped = job.dump()?;
    let device = Installation::to_device();
    let pid_file = context.sandbox.path("pid");
    let mut command = hetckpt::command(
        &context.sandbox,
        ["restore", "--detach", "--device", &device, "--pid-file"],
    );
    command.arg(&pid_file).arg(&dumped.archive);
    // The program has our pipe as its output, and the pipe's end is the program's. A program that hurries may print
    // before `restore` does.
    let outcome = Running::run(command, hetckpt::PATIENCE)?.success("restore --detach")?;
    let pid = std::fs::read_to_string(&pid_file)?;
    let program = &baseline.outcome.stdout;
    ensure!(
        [format!("{pid}{program}"), format!("{program}{pid}")].contains(&outcome.stdout),
        "wanted {pid:?} and {program:?}, got {}",
        outcome.text()
    );
    context.sandbox.wait_until_empty(Duration::from_secs(10))
}

fn dumps_a_shell_around_the_program(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let mut command: Vec<OsString> = ["sh", "-c", "\"$0\" \"$@\" --progress; exit 7"]
        .map(OsString::from)
        .to_vec();
    command.extend(PACED.command(baseline.length));
    let job = Job::start(&context.sandbox, &command)?;
    job.wait_for_stderr("launched")?;
    std::thread::sleep(Duration::from_millis(200));
    let dumped = job.dump()?;
    ensure_mid_flight(&dumped)?;
    let outcome = dumped.restore()?.finish()?;
    ensure!(outcome.stdout == baseline.outcome.stdout, "{}", outcome.text());
    ensure!(
        outcome.code == 7,
        "the shell's own exit code is 7, not that of {}",
        outcome.text()
    );
    Ok(())
}

/// As programs that use HDF5 or SQLite hold them.
fn file_locks(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let lock = context.sandbox.path("lock");
    let script = "exec 9>\"$0\"; flock 9; \"$@\" --progress";
    let mut command: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
    command.push(lock.clone().into());
    command.extend(PACED.command(baseline.length));
    let is_locked = || -> Result<bool> {
        let taken = Command::new("flock")
            .arg("--nonblock")
            .arg(&lock)
            .arg("true")
            .status()?;
        Ok(!taken.success())
    };
    let job = Job::start(&context.sandbox, &command)?;
    job.wait_for_stderr("launched")?;
    std::thread::sleep(Duration::from_millis(200));
    let dumped = job.dump()?;
    ensure!(!is_locked()?, "who is gone holds the lock");
    let restored = dumped.restore()?;
    ensure!(is_locked()?, "the restored program does not hold its lock");
    let outcome = restored.finish()?;
    ensure!(outcome == baseline.outcome, "{}", outcome.text());
    ensure!(!is_locked()?, "the lock is held after the program's end");
    Ok(())
}

/// What lets it go on after a dump waits for it, and would be restored by the next one's archive.
fn holds_all_signals_back(context: &mut Context) -> Result<()> {
    const SOURCE: &str = "
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            sigset_t all;
            sigfillset(&all);
            sigprocmask(SIG_BLOCK, &all, NULL);
            fprintf(stderr, \"at work\\n\");
            while (argc == 2 && access(argv[1], F_OK))
                usleep(10000);
            puts(\"done\");
            return 0;
        }";
    let sandbox = &context.sandbox;
    let program = compile(sandbox, "holds_back", SOURCE, &[])?;
    let go = sandbox.path("go");
    let mut job = Job::start(sandbox, &[program.into(), go.clone().into()])?;
    job.wait_for_stderr("at work")?;
    job.dump_and_leave_running()?;
    let restored = job.dump()?.restore()?;
    fs::write(&go, "")?;
    let outcome = restored.finish()?;
    ensure!(outcome.code == 0 && outcome.stdout == "done\n", "{}", outcome.text());
    Ok(())
}
