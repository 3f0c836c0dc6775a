//! A program is dumped and restored over and over, and whoever does it is killed each time, at a random moment.
//!
//! After each kill the program either runs or is an archive, and goes on from there, until it comes to its right
//! result, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hetckpt_e2e::actors::{Actor, find, is_left_by_criu, names, strike, wait_until_only_left_by_criu};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Installation;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::is_gone;

/// A dump, or a restore, takes less, mostly, even where the machine has much else to do.
const SPAN: Duration = Duration::from_millis(1200);
/// Kills for each program, before it is left to come to its end.
const KILLS_OF_A_PROGRAM: u32 = 20;

/// The tests.
pub fn tests() -> Vec<Test> {
    let given = std::env::var("HETCKPT_PREEMPTIONS").ok();
    let count: u32 = given.and_then(|text| text.parse().ok()).unwrap_or(4);
    vec![
        Test::new("kills_in_a_loop_of_dumps_and_restores_lose_nothing", move |context| {
            in_a_loop(context, count)
        })
        .times(1 + count / 20),
    ]
}

/// How many came to what.
#[derive(Default)]
struct Tally {
    kills: u32,
    dumps: u32,
    dumped: u32,
    restores: u32,
    restored: u32,
    /// Programs that CRIU, killed, left running its code.
    injected: u32,
    programs: u32,
}

fn in_a_loop(context: &mut Context, count: u32) -> Result<()> {
    let mut tally = Tally::default();
    while tally.kills < count {
        let until = count.min(tally.kills + KILLS_OF_A_PROGRAM);
        one_program(context, until, &mut tally).with_context(|| format!("after {} kills", tally.kills))?;
        tally.programs += 1;
    }
    context.note(format!(
        "{} kills: {} in dumps, after which {} programs were archives and the others ran on; {} in restores, after which {} ran and \
         the others were archives still; of {} programs {} ended in code that a killed CRIU had left them in, the others came to \
         their right result, once",
        tally.kills, tally.dumps, tally.dumped, tally.restores, tally.restored, tally.programs, tally.injected
    ));
    Ok(())
}

/// A program, wherever it is.
struct Wanderer<'a> {
    context: &'a Context,
    pid: i32,
    /// Every command that has stood in for it, with what it printed.
    commands: Vec<Running>,
    /// The archive that it was last dumped to.
    archive: Option<PathBuf>,
    num_dumps: u32,
}

fn one_program(context: &mut Context, until: u32, tally: &mut Tally) -> Result<()> {
    let mut random = context.random.clone();
    let kills = u64::from(until - tally.kills);
    let mut program = Wanderer::start(context, kills)?;
    while tally.kills < until {
        let victims: &[Actor] = match random.below(3) {
            0 => &[Actor::Cli],
            1 => &[Actor::Criu],
            _ => &[Actor::Cli, Actor::Criu],
        };
        let delay = random.moment(SPAN);
        let is_stored = program.archive.is_some();
        let what = || {
            format!(
                "{victims:?} killed after {delay:?} of a {}",
                if is_stored { "restore" } else { "dump" }
            )
        };
        let has_hit = match is_stored {
            false => program.killed_dump(victims, delay),
            true => program.killed_restore(victims, delay),
        };
        let has_hit = has_hit.with_context(what)?;
        let is_stored_now = program.archive.is_some();
        if !is_stored && !is_stored_now && is_gone(program.pid) && !program.has_printed() {
            tally.kills += 1;
            tally.dumps += 1;
            tally.injected += 1;
            break;
        }
        if program.has_printed() {
            ensure!(!is_stored_now, "it has ended and is an archive");
            tally.kills += u32::from(has_hit);
            break;
        }
        if has_hit {
            tally.kills += 1;
            tally.dumps += u32::from(!is_stored);
            tally.dumped += u32::from(!is_stored && is_stored_now);
            tally.restores += u32::from(is_stored);
            tally.restored += u32::from(is_stored && !is_stored_now);
        }
    }
    let finished = match is_gone(program.pid) && program.archive.is_none() && !program.has_printed() {
        true => program.context.sandbox.wait_until_empty(Duration::from_secs(20)),
        false => program.finish(),
    };
    // The next program draws on.
    context.random = random;
    finished
}

impl<'a> Wanderer<'a> {
    /// Starts one that has enough to do for so many kills.
    fn start(context: &'a Context, kills: u64) -> Result<Self> {
        let sandbox = &context.sandbox;
        let pid_file = sandbox.path("pid");
        // Of the program before.
        let _ = fs::remove_file(&pid_file);
        let second = hetckpt_e2e::calibration::baseline(&PACED)?.length;
        let mut command = hetckpt::command(sandbox, ["run", "--device", &Installation::from_device(), "--pid-file"]);
        command
            .arg(&pid_file)
            .arg("--")
            .args(PACED.command(second * (kills / 4 + 1)));
        let running = Running::start(command)?;
        let text = || fs::read_to_string(&pid_file).unwrap_or_default();
        wait_until("the program has a process id", || Ok(text().ends_with('\n')))?;
        let program = Self {
            context,
            pid: text().trim().parse()?,
            commands: vec![running],
            archive: None,
            num_dumps: 0,
        };
        wait_until("the program runs a kernel", || program.is_running())?;
        Ok(program)
    }

    /// What the last command has said, and what is there.
    fn said_last(&self) -> String {
        let said = self.commands.last().map_or(String::new(), Running::said);
        format!("{said}\nprocesses: {:?}", names(&self.context.sandbox.processes()))
    }

    /// True if it has printed its result, and so has ended.
    fn has_printed(&self) -> bool {
        self.results() > 0
    }

    fn results(&self) -> usize {
        self.commands
            .iter()
            .map(|command| command.said().matches("PASS").count())
            .sum()
    }

    /// True while a kernel of it runs.
    fn is_running(&self) -> Result<bool> {
        let row = hetckpt::ps_row(&self.context.sandbox, self.pid)?;
        Ok(row.is_some_and(|row| row["running_kernels"].as_u64().is_some_and(|count| count > 0)))
    }

    /// True while somebody dumps or restores, or cleans up after it; who only stands in for the program does not.
    fn is_busy(&self) -> bool {
        let stand_ins: Vec<i32> = self.commands.iter().map(Running::pid).collect();
        let all = self.context.sandbox.processes();
        let is_busy = |(pid, name): &(i32, String)| match &name[..] {
            "criu" => !is_left_by_criu(*pid, &all),
            "hetckpt" => !stand_ins.contains(pid),
            _ => false,
        };
        names(&all).iter().any(is_busy)
    }

    fn killed_dump(&mut self, victims: &[Actor], delay: Duration) -> Result<bool> {
        let sandbox = &self.context.sandbox;
        let archive = sandbox.path(&format!("{}.hetsnap", self.num_dumps));
        self.num_dumps += 1;
        let mut command = hetckpt::command(sandbox, ["dump", "--pid", &self.pid.to_string(), "-o"]);
        command.arg(&archive);
        let dump = Running::start(command)?;
        std::thread::sleep(delay);
        let has_hit = strike(&find(victims, &sandbox.processes(), dump.pid(), self.pid), None);
        let dump = dump.wait(PATIENCE)?;
        let said = || format!("the dump: {}", dump.text());
        wait_until("whoever was not killed is done", || Ok(!self.is_busy())).with_context(said)?;
        if archive.exists() {
            wait_until("the dumped program is gone", || Ok(is_gone(self.pid))).with_context(said)?;
            sandbox.wait_until_empty(Duration::from_secs(20)).with_context(said)?;
            self.archive = Some(archive);
        } else {
            let is_left_in_injected_code = || victims.contains(&Actor::Criu) && is_gone(self.pid);
            wait_until("the program runs on", || {
                Ok(self.is_running()? || self.has_printed() || is_left_in_injected_code())
            })
            .with_context(said)?;
        }
        Ok(has_hit)
    }

    fn killed_restore(&mut self, victims: &[Actor], delay: Duration) -> Result<bool> {
        let sandbox = &self.context.sandbox;
        let archive = self.archive.clone().context("it is no archive")?;
        let before = fs::read(&archive)?;
        let restore = hetckpt::restore(sandbox, &archive, &Installation::to_device())?;
        let command = restore.pid();
        std::thread::sleep(delay);
        let has_hit = strike(&find(victims, &sandbox.processes(), command, self.pid), None);
        self.commands.push(restore);
        self.wait_until_restored_or_over(command)?;
        ensure!(fs::read(&archive)? == before, "the restore has changed the archive");
        if is_gone(self.pid) && !self.has_printed() {
            // The next restore ends what may be left of CRIU.
            wait_until_only_left_by_criu(sandbox, Duration::from_secs(20))?;
        } else {
            fs::remove_file(&archive)?;
            self.archive = None;
        }
        Ok(has_hit)
    }

    /// Waits until CRIU is done, and the program runs, has ended, or is not there and nobody will start it.
    fn wait_until_restored_or_over(&self, command: i32) -> Result<()> {
        let sandbox = &self.context.sandbox;
        wait_until("the restore is over, one way or the other", || {
            if self.is_busy() {
                return Ok(false);
            }
            let is_restoring = !is_gone(command) && is_gone(self.pid);
            Ok(match is_restoring {
                true => self.has_printed(),
                false => is_gone(self.pid) || self.is_running()? || self.has_printed(),
            })
        })
        .with_context(|| format!("processes: {:?}", names(&sandbox.processes())))
    }

    /// Lets it come to its end.
    fn finish(mut self) -> Result<()> {
        let sandbox = &self.context.sandbox;
        if let Some(archive) = self.archive.take() {
            self.commands
                .push(hetckpt::restore(sandbox, &archive, &Installation::to_device())?);
            wait_until("it runs again", || Ok(self.is_running()? || self.has_printed()))
                .with_context(|| self.said_last())?;
        }
        wait_until("it comes to its end", || Ok(self.has_printed()))?;
        sandbox.wait_until_empty(Duration::from_secs(20))?;
        let results = self.results();
        ensure!(results == 1, "it has come to {results} results");
        remove_archives(sandbox.path("").as_path())
    }
}

fn remove_archives(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "hetsnap") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn wait_until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > deadline {
            bail!("it does not come to this: {what}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
