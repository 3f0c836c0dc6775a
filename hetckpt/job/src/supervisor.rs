//! A job's run, from its start to its end.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use hetckpt_report::failure::Failure;
use hetckpt_report::{exit, quantity, remark};
use hetckpt_ring::checkpoint::{Answer, Outcome};
use hetckpt_ring::failure_code::Code;
use hetckpt_scheduler::{Reason, Requeue, Scheduler};
use hetckpt_store::error::StoreError;
use hetckpt_store::failure::failure;
use hetckpt_store::name::SnapshotId;
use hetckpt_store::record::{Device, Draft, Occasion, Record};
use hetckpt_supervise::dump_command::{self, Dump, DumpError, Dumped};
use hetckpt_supervise::hidden_verbs::SENTINEL;

use crate::asked::Asked;
use crate::changing::{Change, Wanted};
use crate::devices;
use crate::grace::{MARGIN, Promise};
use crate::kept_environment;
use crate::options::Options;
use crate::program::Program;
use crate::signals::Signals;
use crate::snapshots::{Owner, Snapshots, host};

/// How long this waits at most for something to happen.
const TICK: Duration = Duration::from_millis(50);

/// How often it is looked whether the grace time does.
const PROMISE_CHECK: Duration = Duration::from_secs(30);

/// How often a dump is tried while there is time, and how long after one that failed.
const ATTEMPTS: u32 = 3;
const AFTER_FAILED: Duration = Duration::from_secs(1);

/// How long a dump may take from the program's end to its own.
const STORED_WITHIN: Duration = Duration::from_secs(30);

/// How long a dump that is given up has to end.
const GIVING_UP: Duration = Duration::from_secs(3);

/// Exit code of a program that SIGKILL has ended.
const KILLED: u8 = 128 + Signal::SIGKILL as u8;

/// Exit code of a job that was cancelled.
const CANCELLED: u8 = 128 + Signal::SIGTERM as u8;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
enum NoSnapshot {
    /// The dump failed.
    #[error("{0}")]
    Dump(#[from] DumpError),
    /// The store does not take it.
    #[error("{}", failure(.0))]
    Store(#[from] StoreError),
}

/// What a run came to.
enum End {
    /// The program has ended by itself.
    Ended(u8),
    /// It could not be started: whoever starts the job again may have mended that.
    NotStarted(u8),
    /// The program was stored and ended, or could not be stored and was ended: the job is to be queued again.
    QueueAgain(Reason),
    /// Somebody has cancelled the job.
    Cancelled,
    /// The program, its device or its device server was lost.
    Lost { code: u8, device: Option<String> },
}

/// A snapshot that is being taken.
struct Taken {
    draft: Draft,
    /// Where the dump writes the archive.
    place: PathBuf,
}

/// What a dump is for after which the program runs on.
enum Beside {
    /// Its time has come.
    Periodic(Taken),
    /// The program has asked for a snapshot.
    Asked(Taken),
    /// The program has asked for an archive in a file of its own.
    AskedFile,
}

/// What is done beside the program's running.
enum Work {
    Nothing,
    /// A dump is made and the program runs on.
    Beside(Dump, Beside),
    /// The last snapshot of this run is taken.
    Final {
        dump: Dump,
        taken: Taken,
        reason: Reason,
        deadline: Option<Instant>,
        attempt: u32,
    },
    /// A last snapshot is to be tried again.
    Again {
        reason: Reason,
        deadline: Option<Instant>,
        attempt: u32,
        at: Instant,
    },
    /// The program is taken off its device, or put back.
    Changing(Change),
    /// The program is being ended.
    Terminating,
}

/// A run of the job.
pub struct Supervisor<'a> {
    options: &'a Options,
    scheduler: &'a dyn Scheduler,
    snapshots: Snapshots,
    signals: Signals,
    /// Signals that came while the program was not yet there.
    waiting: Vec<Signal>,
    promise: Promise,
    /// What the program asks for and has not got yet.
    asked: Option<Asked>,
    num_lost: u32,
    failed_devices: Vec<String>,
    sentinel: Option<Child>,
    /// Whether the program is on its device, whether it is to be, and when the next attempt is due.
    now: Wanted,
    wanted: Wanted,
    change_at: Option<Instant>,
}

impl<'a> Supervisor<'a> {
    /// Nothing is started yet.
    pub fn new(options: &'a Options, scheduler: &'a dyn Scheduler, snapshots: Snapshots, signals: Signals) -> Self {
        let grace = options.grace.or_else(|| scheduler.grace());
        Self {
            options,
            scheduler,
            snapshots,
            signals,
            waiting: vec![],
            promise: Promise::new(grace),
            asked: None,
            num_lost: 0,
            failed_devices: vec![],
            sentinel: None,
            now: Wanted::Running,
            wanted: Wanted::Running,
            change_at: None,
        }
    }

    /// Runs the job to this run's end.
    pub fn run(mut self) -> Result<ExitCode, Failure> {
        self.start_sentinel();
        let code = self.run_program();
        if let Some(mut sentinel) = self.sentinel.take() {
            // It ends with us in any case.
            let _ = sentinel.kill();
            let _ = sentinel.wait();
        }
        code.map(ExitCode::from)
    }

    fn run_program(&mut self) -> Result<u8, Failure> {
        loop {
            let Some(mut program) = self.start()? else {
                return Ok(self.queue_again(Reason::Unknown));
            };
            self.now = Wanted::Running;
            match self.attend(&mut program)? {
                End::Ended(code) => {
                    if let Err(failure) = self.snapshots.set_ended(code) {
                        remark::note(format!("{failure}: a run of this job would begin anew"));
                    }
                    return Ok(code);
                }
                End::NotStarted(code) => return Ok(code),
                End::QueueAgain(reason) => {
                    return match self.snapshots.owner() {
                        Owner::We => Ok(self.queue_again(reason)),
                        // It is for that run to go on.
                        Owner::Another(who) => Err(taken(who)),
                    };
                }
                End::Cancelled => {
                    remark::note("the job was cancelled: the program was ended, its snapshots are kept");
                    return Ok(CANCELLED);
                }
                End::Lost { code, device } => {
                    let what = match &device {
                        Some(device) => format!("the device server on {device} is gone"),
                        None => "the program was killed".to_owned(),
                    };
                    if self.num_lost == self.options.retries || self.snapshots.list().is_empty() {
                        remark::note(format!("{what}, and there is nothing to go on from"));
                        return Ok(code);
                    }
                    self.num_lost += 1;
                    remark::note(format!("{what}; retry {} of {}", self.num_lost, self.options.retries));
                    self.failed_devices.extend(device);
                }
            }
        }
    }

    /// Passes the scheduler's signal on, where it signals only what runs beside the job.
    fn start_sentinel(&mut self) {
        let (Some(mut command), Some(signal), Ok(program)) = (
            self.scheduler.sentinel(),
            self.options.on.first(),
            std::env::current_exe(),
        ) else {
            return;
        };
        if self.options.no_sentinel {
            return;
        }
        command
            .arg(program)
            .arg(SENTINEL)
            .args([&std::process::id().to_string(), signal.as_str()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        match command.spawn() {
            Ok(child) => self.sentinel = Some(child),
            Err(e) => remark::note(format!("nothing waits for the scheduler's signal beside the job: {e}")),
        }
    }

    /// Starts the program, or goes on from a snapshot; `None` if that is not possible here.
    fn start(&mut self) -> Result<Option<Program>, Failure> {
        let device = devices::other_than(&self.options.device, &self.failed_devices);
        let records = self.snapshots.look()?;
        if records.is_empty() {
            return Program::start(self.options, &device).map(Some);
        }
        for (age, record) in records.iter().enumerate() {
            let begun = Instant::now();
            let archive = self.snapshots.archive(record).map_err(|e| failure(&e))?;
            // Files may have grown since, but for what was written behind the last dump of a run.
            // Even then: a run that went on from it may have been lost. So they are cut back at the second try.
            let has_run_on = record.draft.occasion != Occasion::Final || age > 0;
            let tries: &[bool] = if has_run_on { &[true] } else { &[false, true] };
            for &rewinds_outputs in tries {
                let mut program = Program::go_on(self.options, &device, &archive, rewinds_outputs)?;
                if self.has_begun(&mut program) {
                    self.say_that_it_goes_on(&mut program, record, begun.elapsed());
                    self.snapshots.set_num_failures(0);
                    return Ok(Some(program));
                }
            }
            if !self.snapshots.is_damaged(record).map_err(|e| failure(&e))? {
                break;
            }
            remark::note(format!("the snapshot of {} is damaged", record.time));
        }
        let num_failures = self.snapshots.num_failures() + 1;
        self.snapshots.set_num_failures(num_failures);
        if num_failures > self.options.retries {
            return Err(Failure::new(Code::CriuRestore, "the job cannot be restored")
                .note(format!(
                    "{num_failures} runs in a row have failed; its snapshots are kept"
                ))
                .help(format!(
                    "`hetckpt check` says what is missing for {} in the store",
                    records[0].name()
                ))
                .exit(exit::OWN_FAILURE));
        }
        remark::note(format!(
            "the job cannot go on here ({num_failures} of {} runs in a row); its snapshots are kept",
            self.options.retries
        ));
        Ok(None)
    }

    /// Waits until the restored program runs. False if it could not be restored.
    fn has_begun(&mut self, program: &mut Program) -> bool {
        loop {
            let come = self.signals.wait(Duration::from_millis(20));
            self.waiting.extend(come);
            // A program that has ended already has told its process id all the same.
            let has_ended = program.exit_code().is_some();
            if program.pid().is_some() {
                return true;
            }
            if has_ended {
                return false;
            }
        }
    }

    fn say_that_it_goes_on(&self, program: &mut Program, record: &Record, took: Duration) {
        remark::note(format!(
            "goes on from the snapshot of {} (on {}, device {}): {} in {}",
            record.time,
            record.draft.host,
            record.draft.device.name,
            quantity::bytes(record.archive_bytes),
            quantity::duration(took)
        ));
        let remark = program
            .pid()
            .and_then(|pid| kept_environment::remark(pid, self.scheduler.variable_prefixes()));
        if let Some(remark) = remark {
            remark::note(remark);
        }
    }

    /// Looks after the program until it has ended.
    fn attend(&mut self, program: &mut Program) -> Result<End, Failure> {
        let mut work = Work::Nothing;
        let mut snapshot_at = self.options.every.map(|every| Instant::now() + every);
        let mut checked = None::<Instant>;
        self.asked = None;
        loop {
            // It asks for one at a time: whoever has asked before is gone.
            self.asked = program.asked().or_else(|| self.asked.take());
            let mut come = std::mem::take(&mut self.waiting);
            come.extend(self.signals.wait(TICK));
            for signal in come {
                match signal {
                    Signal::SIGTSTP => self.wanted = Wanted::Suspended,
                    Signal::SIGCONT => self.wanted = Wanted::Running,
                    _ if self.options.on.contains(&signal) => work = self.store(program, work, signal),
                    _ => program.pass_on(signal),
                }
            }
            // Before the program: that one ends with its last dump.
            work = match self.advance(program, work) {
                Ok(work) => work,
                Err(end) => return Ok(end),
            };
            if let Some(code) = program.exit_code()
                && let Some(end) = self.ended(program, &mut work, code)
            {
                return Ok(end);
            }
            program.look_after_servers();
            if let Owner::Another(who) = self.snapshots.owner() {
                if let Work::Beside(dump, _) | Work::Final { dump, .. } = &work {
                    dump.give_up();
                }
                program.kill();
                return Err(taken(who));
            }
            if self.wanted == Wanted::Suspended
                && let Work::Beside(mut dump, _) = work
            {
                dump.give_up();
                wait_for(&mut dump, GIVING_UP);
                work = Work::Nothing;
            }
            if matches!(work, Work::Nothing) && self.now != self.wanted {
                work = self.begin_change(program);
            }
            if !matches!(work, Work::Nothing) || self.now == Wanted::Suspended {
                continue;
            }
            if self.asked.is_some() {
                work = self.begin_asked(program);
                continue;
            }
            if checked.is_none_or(|checked| checked.elapsed() > PROMISE_CHECK) && !program.device().is_empty() {
                checked = Some(Instant::now());
                if let Some(remark) = self.promise.remark(program.memory_bytes(), self.snapshots.list()) {
                    remark::note(remark);
                }
            }
            if let Some(every) = self.options.every
                && snapshot_at.is_some_and(|at| at <= Instant::now())
            {
                work = self.begin_periodic(program);
                snapshot_at = Some(Instant::now() + every);
            }
        }
    }

    /// Takes the program off its device, or puts it back, if that is due.
    fn begin_change(&mut self, program: &mut Program) -> Work {
        let is_due = self.change_at.is_none_or(|at| at <= Instant::now());
        let Some(pid) = program.pid().filter(|_| is_due) else {
            return Work::Nothing;
        };
        self.change_at = Some(Instant::now() + AFTER_FAILED);
        match Change::start(self.options, pid, self.wanted) {
            Ok(change) => Work::Changing(change),
            Err(e) => {
                remark::note(format!("the program is neither suspended nor resumed: {e}"));
                Work::Nothing
            }
        }
    }

    /// What a change has come to. One that has failed is tried again, as long as it is wanted.
    fn end_change(&mut self, to: Wanted, result: Result<Duration, String>) {
        match (result, to) {
            (Ok(took), Wanted::Suspended) => {
                remark::note(format!("suspended in {}: the device is free", quantity::duration(took)));
            }
            (Ok(took), Wanted::Running) => remark::note(format!("goes on after {}", quantity::duration(took))),
            (Err(why), _) => return remark::note(why),
        }
        (self.now, self.change_at) = (to, None);
    }

    /// A signal has come on which the program is to be stored.
    fn store(&mut self, program: &mut Program, work: Work, signal: Signal) -> Work {
        if matches!(work, Work::Final { .. } | Work::Again { .. } | Work::Terminating) {
            return work;
        }
        let come = Instant::now();
        let reason = self.scheduler.reason();
        remark::note(format!("{signal}: {reason}"));
        match work {
            // What the program has asked for is still due should it run on.
            Work::Beside(mut dump, _) => {
                dump.give_up();
                wait_for(&mut dump, GIVING_UP);
            }
            // It is stored as well in either state.
            Work::Changing(mut change) => {
                if let Some(result) = change.wait(GIVING_UP) {
                    self.end_change(change.to, result);
                }
            }
            _ => {}
        }
        if reason == Reason::Cancelled {
            program.terminate();
            return Work::Terminating;
        }
        let limit = self.options.grace.or_else(|| self.scheduler.time_left(reason));
        let deadline = limit.map(|limit| come + limit.saturating_sub(MARGIN));
        self.begin_final(program, reason, deadline, 1)
    }

    fn begin_final(&mut self, program: &mut Program, reason: Reason, deadline: Option<Instant>, attempt: u32) -> Work {
        match self.begin(program, Occasion::Final) {
            Ok((dump, taken)) => Work::Final {
                dump,
                taken,
                reason,
                deadline,
                attempt,
            },
            Err(e) => {
                if let Some(e) = e {
                    remark::note(format!("no snapshot: {e}"));
                }
                again(reason, deadline, attempt)
            }
        }
    }

    fn begin_periodic(&mut self, program: &mut Program) -> Work {
        match self.begin(program, Occasion::Periodic) {
            Ok((dump, taken)) => Work::Beside(dump, Beside::Periodic(taken)),
            Err(e) => {
                if let Some(e) = e {
                    note_missing(program, &e);
                }
                Work::Nothing
            }
        }
    }

    /// Begins what the program has asked for.
    fn begin_asked(&mut self, program: &mut Program) -> Work {
        let file = self.asked.as_ref().and_then(|asked| asked.file.clone());
        let begun = match (file, program.pid()) {
            (Some(file), Some(pid)) => match self.dump(pid, &file, Occasion::Asked, None, true) {
                Ok(dump) => Ok((dump, Beside::AskedFile)),
                Err(e) => Err(Some(e.into())),
            },
            (None, Some(_)) => self
                .begin(program, Occasion::Asked)
                .map(|(dump, taken)| (dump, Beside::Asked(taken))),
            (_, None) => Err(None),
        };
        match begun {
            Ok((dump, beside)) => Work::Beside(dump, beside),
            Err(e) => {
                if let Some(e) = e {
                    self.answer(Err(e));
                }
                Work::Nothing
            }
        }
    }

    /// Tells the program what came of what it has asked for. While somebody else has the program it is tried again.
    fn answer(&mut self, result: Result<(), NoSnapshot>) {
        if matches!(&result, Err(NoSnapshot::Dump(error)) if error.is_busy()) {
            return;
        }
        let Some(asked) = self.asked.take() else { return };
        asked.answer(&match result {
            Ok(()) => Answer::done(),
            Err(why) => Answer::new(Outcome::Failed, why.to_string()),
        });
    }

    /// Starts a dump to the file `place`; one that has its name is replaced if `force`.
    fn dump(
        &self,
        pid: i32,
        place: &Path,
        occasion: Occasion,
        parent: Option<&Path>,
        force: bool,
    ) -> Result<Dump, DumpError> {
        let how = dump_command::Options {
            parent,
            leave_running: occasion != Occasion::Final,
            force,
            pause_timeout: self.options.pause_timeout,
        };
        Dump::start(pid, place, how)
    }

    /// Begins a dump. `Err(None)` if the program has not begun yet.
    fn begin(&mut self, program: &mut Program, occasion: Occasion) -> Result<(Dump, Taken), Option<NoSnapshot>> {
        let pid = program.pid().ok_or(None)?;
        let (id, place) = self.snapshots.new_place().map_err(|e| Some(e.into()))?;
        let memory_bytes = program.memory_bytes();
        let device = program.device();
        let draft = Draft {
            id,
            device: Device {
                kind: device.split(':').next().unwrap_or_default().to_owned(),
                name: device.to_owned(),
            },
            host: host(),
            occasion,
            dump_seconds: 0.0,
            memory_bytes,
            label: String::new(),
            command: self
                .options
                .command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            needs: vec![],
        };
        // The last one of a run is all that is left of the program: it rests on no other.
        let parent = (occasion != Occasion::Final)
            .then(|| self.snapshots.parent(&draft.id))
            .flatten();
        let dump = self.dump(pid, &place, occasion, parent.as_deref(), false);
        let dump = dump.map_err(|e| Some(e.into()))?;
        Ok((dump, Taken { draft, place }))
    }

    /// Goes on with what is done beside. `Err` with the run's end.
    fn advance(&mut self, program: &mut Program, work: Work) -> Result<Work, End> {
        match work {
            Work::Beside(mut dump, beside) => match dump.result() {
                None => Ok(Work::Beside(dump, beside)),
                Some(result) => {
                    self.end_beside(program, beside, result);
                    Ok(Work::Nothing)
                }
            },
            Work::Final {
                mut dump,
                taken,
                reason,
                deadline,
                attempt,
            } => {
                let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
                if is_over {
                    dump.give_up();
                    wait_for(&mut dump, GIVING_UP);
                }
                match dump.result() {
                    Some(result) => match self.publish(taken, result, deadline) {
                        Ok(()) => Err(End::QueueAgain(reason)),
                        // The program has been ended.
                        Err(NoSnapshot::Store(why)) => {
                            self.say_where_it_is_kept(&why);
                            Err(End::QueueAgain(reason))
                        }
                        Err(NoSnapshot::Dump(_)) if is_over => self.out_of_time(program, reason, deadline),
                        Err(NoSnapshot::Dump(why)) => {
                            remark::note(format!("no snapshot: {why}"));
                            self.without_snapshot(program, reason, deadline, attempt)
                        }
                    },
                    None if is_over => self.out_of_time(program, reason, deadline),
                    None => Ok(Work::Final {
                        dump,
                        taken,
                        reason,
                        deadline,
                        attempt,
                    }),
                }
            }
            Work::Changing(mut change) => match change.result() {
                None => Ok(Work::Changing(change)),
                Some(result) => {
                    self.end_change(change.to, result);
                    Ok(Work::Nothing)
                }
            },
            Work::Again {
                reason,
                deadline,
                attempt,
                at,
            } if at <= Instant::now() => Ok(self.begin_final(program, reason, deadline, attempt + 1)),
            other => Ok(other),
        }
    }

    /// What a dump has come to after which the program runs on.
    fn end_beside(&mut self, program: &mut Program, beside: Beside, result: Result<Dumped, DumpError>) {
        match beside {
            Beside::Periodic(taken) => {
                if let Err(why) = self.publish(taken, result, None) {
                    note_missing(program, &why);
                }
            }
            Beside::Asked(taken) => match self.publish(taken, result, None) {
                // A signal has come: the program is stored now.
                Err(NoSnapshot::Store(StoreError::Interrupted)) => {}
                published => self.answer(published),
            },
            Beside::AskedFile => self.answer(result.map(drop).map_err(NoSnapshot::from)),
        }
    }

    fn out_of_time(&mut self, program: &mut Program, reason: Reason, deadline: Option<Instant>) -> Result<Work, End> {
        remark::note("no snapshot: the grace time is over");
        self.without_snapshot(program, reason, deadline, ATTEMPTS)
    }

    /// A program that has been ended is in an archive that the store has not taken.
    fn say_where_it_is_kept(&mut self, why: &StoreError) {
        let failure = failure(why);
        let notes: String = failure.notes.iter().map(|note| format!(": {note}")).collect();
        remark::note(format!("the store does not take the snapshot: {failure}{notes}"));
        if let Some(folder) = self.snapshots.keep_scratch() {
            remark::note(format!("the archive is kept on {}, in {}", host(), folder.display()));
        }
    }

    /// A last dump has failed: it is tried again while there is time; then a job that is preempted goes without.
    fn without_snapshot(
        &mut self,
        program: &mut Program,
        reason: Reason,
        deadline: Option<Instant>,
        attempt: u32,
    ) -> Result<Work, End> {
        let has_time = deadline.is_none_or(|deadline| deadline > Instant::now() + AFTER_FAILED);
        if attempt < ATTEMPTS && has_time {
            return Ok(again(reason, deadline, attempt));
        }
        if matches!(reason, Reason::Preempted { .. }) {
            program.kill();
            return Err(End::QueueAgain(reason));
        }
        remark::note("the program runs on");
        Ok(Work::Nothing)
    }

    /// Makes a snapshot of what a dump has left. One after which the program runs on is given up for a signal.
    fn publish(
        &mut self,
        taken: Taken,
        result: Result<Dumped, DumpError>,
        deadline: Option<Instant>,
    ) -> Result<(), NoSnapshot> {
        let dumped = result.inspect_err(|_| self.snapshots.borrow_no_more())?;
        let runs_on = taken.draft.occasion != Occasion::Final;
        let signals = &self.signals;
        let is_interrupted = || match runs_on {
            true => signals.have_come(),
            false => deadline.is_some_and(|deadline| deadline <= Instant::now()),
        };
        let draft = Draft {
            dump_seconds: dumped.time.as_secs_f64(),
            label: dumped.label,
            needs: dumped
                .borrows_from
                .iter()
                .filter_map(|file| SnapshotId::of_archive(file))
                .collect(),
            ..taken.draft
        };
        let record = self
            .snapshots
            .publish(draft, &taken.place, self.options.keep, &is_interrupted)?;
        remark::note(format!(
            "snapshot {}: {} in {}",
            record.name(),
            quantity::bytes(record.stored_bytes),
            quantity::duration(dumped.time)
        ));
        Ok(())
    }

    /// The command that stands in for the program has ended with `code`. `None` if a dump has ended it, or may have.
    fn ended(&mut self, program: &Program, work: &mut Work, code: u8) -> Option<End> {
        match work {
            Work::Terminating => return Some(End::Cancelled),
            // It is about to say whether that was it.
            Work::Final { dump, .. } if code == KILLED => {
                if wait_for(dump, STORED_WITHIN).is_some_and(|result| result.is_ok()) {
                    return None;
                }
            }
            Work::Beside(dump, _) | Work::Final { dump, .. } => {
                // It finds no program.
                wait_for(dump, GIVING_UP);
            }
            Work::Nothing | Work::Changing(_) | Work::Again { .. } => {}
        }
        // Those of `run` for a program that cannot be started. One that ends with them by itself is run again.
        if matches!(code, exit::OWN_FAILURE | exit::NOT_RUN | exit::NOT_FOUND) {
            return Some(End::NotStarted(code));
        }
        let device = program.lost_device().map(str::to_owned);
        Some(match code == KILLED || device.is_some() {
            true => End::Lost { code, device },
            false => End::Ended(code),
        })
    }

    /// Has the job queued again; gives the exit code for that.
    fn queue_again(&self, reason: Reason) -> u8 {
        let asked = match reason {
            Reason::Preempted { is_requeued: true } => Ok(Requeue::Queued),
            _ => self.scheduler.requeue(),
        };
        let from = match self.snapshots.list().first() {
            Some(record) => format!("goes on from the snapshot of {}", record.time),
            None => "begins anew: it has no snapshot".to_owned(),
        };
        let code = self
            .options
            .requeue_exit
            .unwrap_or_else(|| self.scheduler.exit_to_requeue());
        remark::note(match asked {
            Ok(Requeue::Queued) => format!("the job is queued again, and {from}"),
            Ok(Requeue::ByExitCode) => format!("exit code {code} has the job queued again; it {from}"),
            Ok(Requeue::ByHand(what)) => format!("{what}; it {from}"),
            Err(e) => format!(
                "the job could not be queued again: {e}. Submit it again with --name {}; it {from}",
                self.snapshots.job()
            ),
        });
        code
    }
}

/// The program was ended because the job is not ours any more.
fn taken(who: String) -> Failure {
    Failure::new(
        Code::JobClaimed,
        "the program was ended here: another run of the job has it",
    )
    .note(who)
    .exit(exit::OWN_FAILURE)
}

fn again(reason: Reason, deadline: Option<Instant>, attempt: u32) -> Work {
    Work::Again {
        reason,
        deadline,
        attempt,
        at: Instant::now() + AFTER_FAILED,
    }
}

/// Says that there is no periodic snapshot; of a program that has ended nobody wants one.
fn note_missing(program: &mut Program, why: &impl fmt::Display) {
    if !program.is_over() {
        remark::note(format!("no snapshot this time: {why}"));
    }
}

/// Waits for a dump's end.
fn wait_for(dump: &mut Dump, limit: Duration) -> Option<Result<Dumped, DumpError>> {
    let until = Instant::now() + limit;
    loop {
        match dump.result() {
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}
