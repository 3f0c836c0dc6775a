//! Starting a program that was released to this node, and noting what becomes of it.
//!
//! The restore is `hetckpt restore` as anybody may call it, in a process group of its own: it and the program live on
//! if `serve` ends. A program is started once. That it is about to be is on disk before it is: after a crash in between
//! it is not started again, since nobody could tell whether it ran.

use hetckpt_ring::failure_code::Code;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use procfs::process::Process;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;

use crate::migration::depot::{Depot, ProcessId, Record, State};
use crate::migration::message::{Report, plain};
use crate::migration::serve_options::Serve;

/// How often it is looked whether a program runs, or has ended.
const INTERVAL: Duration = Duration::from_millis(5);

/// The same for one that was started by an earlier `serve`.
const ADOPTED_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two attempts to write a record.
const ROOM_INTERVAL: Duration = Duration::from_millis(300);

/// Times that a restore is looked for that an earlier `serve` may just have been starting.
const MAX_LOOKS: usize = 10;

/// How much of what a restore says is looked at.
const MAX_SAID: usize = 64 << 10;

/// What `hetckpt restore` is told on this node.
#[derive(Debug)]
pub struct Launcher {
    /// The folder.
    pub depot: Depot,
    /// Our own options.
    pub options: Serve,
}

impl Launcher {
    /// Starts the program `id`, which was released, and sees to its end, in a thread of its own.
    pub fn start(self: &Arc<Self>, id: &str) {
        let (this, id) = (Arc::clone(self), id.to_owned());
        std::thread::spawn(move || {
            if let Err(failure) = this.run(&id) {
                this.fail(&id, &failure);
            }
        });
    }

    fn set(&self, id: &str, state: State) -> Result<(), Failure> {
        let Some(record) = self.depot.record(id) else {
            return Err(Failure::new(
                Code::CannotWrite,
                format!("{} is gone", self.depot.file(id, "json").display()),
            ));
        };
        let root_pid = self.root_pid(id).unwrap_or(record.root_pid);
        self.depot.write(
            id,
            &Record {
                state,
                root_pid,
                ..record
            },
        )
    }

    /// What the program is called on this node, once it runs.
    fn root_pid(&self, id: &str) -> Option<i32> {
        let text = fs::read_to_string(self.depot.file(id, "pid")).ok()?;
        text.trim_end().parse().ok()
    }

    /// As [`Launcher::set`], but waits for room where the disk is full: the source goes by the record, and so does the
    /// next `serve`.
    fn set_in_time(&self, id: &str, state: State) -> Result<(), Failure> {
        let mut is_told = false;
        loop {
            match self.set(id, state.clone()) {
                Err(failure) if self.depot.record(id).is_some() => {
                    if !std::mem::replace(&mut is_told, true) {
                        remark::note(format!("{id}: {}; this is tried again", failure.message));
                    }
                    std::thread::sleep(ROOM_INTERVAL);
                }
                result => return result,
            }
        }
    }

    fn fail(&self, id: &str, failure: &Failure) {
        let archive = self.depot.file(id, "hetsnap");
        remark::note(format!(
            "{id}: not restored: [{}] {}; {} has it",
            failure.code,
            failure.message,
            archive.display()
        ));
        self.depot.remove_unfinished(id);
        let reason = Report::from(failure);
        if let Err(failure) = self.set_in_time(id, State::Failed { reason }) {
            remark::note(format!("{id}: {}", failure.message));
        }
    }

    fn run(&self, id: &str) -> Result<(), Failure> {
        self.set_in_time(id, State::Starting { restore: None })?;
        let mut child = self.spawn(id)?;
        let restore = process_id(&child);
        // Should this fail, the program runs all the same: only a `serve` that is started anew would not know.
        let _ = self.set(id, State::Starting { restore: Some(restore) });
        let ended = self.wait_until_running(id, &mut child)?;
        let program = self.program_of(id, restore);
        self.note_running(id, restore)?;
        let status = match ended {
            Some(status) => Ok(status),
            None => child.wait(),
        };
        // A restore that was killed tells nothing of the program, which goes on.
        let status = status.ok().and_then(|status| status.code());
        if status.is_none() {
            wait_until_gone(program);
        }
        self.note_end(id, status)
    }

    /// The restore of `id` that runs, if there is one: it has just been started, or nobody has seen to it since.
    fn find_restore(&self, id: &str) -> Option<ProcessId> {
        let archive = self.depot.file(id, "hetsnap");
        let is_its = |process: &Process| {
            let command = process.cmdline().unwrap_or_default();
            command.get(1).is_some_and(|verb| verb == "restore") && command.last().map(Path::new) == Some(&archive)
        };
        for _ in 0..MAX_LOOKS {
            let all = procfs::process::all_processes().into_iter().flatten().flatten();
            let found = all.filter(is_its).find_map(|process| {
                let start = start_of(process.pid)?;
                Some(ProcessId {
                    pid: process.pid,
                    start,
                })
            });
            if found.is_some() {
                return found;
            }
            std::thread::sleep(ADOPTED_INTERVAL);
        }
        None
    }

    /// The program that `restore` stands in for, if that has not made a pid namespace for it.
    fn program_of(&self, id: &str, restore: ProcessId) -> Option<ProcessId> {
        let pid = self.root_pid(id)?;
        let parent = Process::new(pid).and_then(|process| process.stat()).ok()?.ppid;
        let start = start_of(pid).filter(|_| parent == restore.pid)?;
        Some(ProcessId { pid, start })
    }

    /// `hetckpt restore`, with what we were told.
    fn spawn(&self, id: &str) -> Result<Child, Failure> {
        let cannot = |e: std::io::Error| Failure::new(Code::StandIn, "cannot start the restore").note(e.to_string());
        let open = |extension: &str| {
            let mut file = OpenOptions::new();
            file.create(true).append(true).mode(0o600);
            file.open(self.depot.file(id, extension)).map_err(cannot)
        };
        let mut arguments: Vec<OsString> =
            vec!["restore".into(), "--device".into(), self.options.device.clone().into()];
        if let Some(folder) = &self.options.adaptation.cwd {
            arguments.extend(["--cwd".into(), folder.clone().into_os_string()]);
        }
        for (is_wanted, option) in [
            (self.options.adaptation.rewind_outputs, "--rewind-outputs"),
            (self.options.adaptation.own_stdio, "--own-stdio"),
            (self.options.any_processor, "--any-processor"),
            // The source was told to take them along, and they have nowhere else to go on.
            (true, "--tcp-established"),
            (true, "--ext-unix-sk"),
        ] {
            arguments.extend(is_wanted.then(|| option.into()));
        }
        if let Some(when) = self.options.adaptation.namespaces.to_possible_value() {
            arguments.extend(["--namespaces".into(), when.get_name().into()]);
        }
        Command::new(std::env::current_exe().map_err(cannot)?)
            .args(arguments)
            .arg("--pid-file")
            .arg(self.depot.file(id, "pid"))
            .arg("--timings")
            .arg(self.depot.file(id, "started"))
            .arg(self.depot.file(id, "hetsnap"))
            .stdin(Stdio::null())
            .stdout(open("stdout")?)
            .stderr(open("stderr")?)
            .process_group(0)
            .spawn()
            .map_err(cannot)
    }

    /// Fails if the restore does. Gives its status if the program has ended already.
    fn wait_until_running(&self, id: &str, child: &mut Child) -> Result<Option<ExitStatus>, Failure> {
        loop {
            let ended = child.try_wait().ok().flatten();
            if self.depot.file(id, "started").exists() {
                return Ok(ended);
            }
            match ended {
                Some(status) if status.code().is_none() => return Err(unknown("the restore was killed")),
                Some(_) => return Err(failure_of(&self.depot.file(id, "stderr"))),
                None => {}
            }
            std::thread::sleep(INTERVAL);
        }
    }

    fn note_running(&self, id: &str, restore: ProcessId) -> Result<(), Failure> {
        self.set_in_time(id, State::Running { restore })?;
        if let Some(record) = self.depot.record(id) {
            let command = plain(&record.command.join(" "));
            remark::note(format!("{id}: runs as process {}: {command}", record.root_pid));
        }
        self.remove_archive(id);
        Ok(())
    }

    /// The archive of a program that has come to run is not needed any more; whoever wants it says --keep.
    fn remove_archive(&self, id: &str) {
        if !self.options.keep {
            let _ = fs::remove_file(self.depot.file(id, "hetsnap"));
        }
    }

    fn remove_ended(&self, id: &str) {
        self.remove_archive(id);
        self.depot.remove_ended(id);
    }

    fn note_end(&self, id: &str, status: Option<i32>) -> Result<(), Failure> {
        let how = status.map_or("nobody knows how".to_owned(), |status| format!("with status {status}"));
        remark::note(format!("{id}: has ended, {how}"));
        // First: without `ID.started`, a `serve` that is started anew would take the restore for one that has failed.
        self.set_in_time(id, State::Ended { status })?;
        self.remove_ended(id);
        Ok(())
    }

    /// Goes on where an earlier `serve` has ended.
    pub fn take_up(self: &Arc<Self>) {
        for (id, record) in self.depot.records() {
            match record.state {
                State::Prepared => remark::note(format!(
                    "{id}: prepared, but its source has not said whose it is: {} is started when it is released, and removed when it is withdrawn",
                    self.depot.file(&id, "hetsnap").display()
                )),
                State::Released => self.start(&id),
                State::Starting { restore } => self.adopt(id, restore),
                State::Running { restore } => self.adopt(id, Some(restore)),
                // The `serve` before may have ended just after it had noted it.
                State::Ended { .. } => self.remove_ended(&id),
                State::Failed { .. } => {}
            }
        }
    }

    /// Sees to the end of a program whose restore an earlier `serve` has started.
    fn adopt(self: &Arc<Self>, id: String, restore: Option<ProcessId>) {
        let this = Arc::clone(self);
        std::thread::spawn(move || {
            // The `serve` before may have ended just after it had started it.
            let restore = restore.or_else(|| this.find_restore(&id));
            let mut is_noted = false;
            let mut program = None;
            loop {
                let is_there = restore.is_some_and(is_there);
                let has_started = this.depot.file(&id, "started").exists();
                if let (true, false, Some(restore)) = (has_started, is_noted, restore) {
                    program = this.program_of(&id, restore);
                    is_noted = this.note_running(&id, restore).is_ok();
                }
                match (is_there, has_started) {
                    (true, _) => std::thread::sleep(ADOPTED_INTERVAL),
                    (false, true) => {
                        wait_until_gone(program);
                        return drop(this.note_end(&id, None));
                    }
                    (false, false) => {
                        let failure = unknown("`hetckpt serve` ended while the program was being restored");
                        return this.fail(&id, &failure);
                    }
                }
            }
        });
    }
}

fn process_id(child: &Child) -> ProcessId {
    let pid = i32::try_from(child.id()).unwrap_or(-1);
    ProcessId {
        pid,
        start: start_of(pid).unwrap_or_default(),
    }
}

/// When process `pid` was started; none for one that has ended.
fn start_of(pid: i32) -> Option<u64> {
    let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
    (!matches!(stat.state, 'Z' | 'X')).then_some(stat.starttime)
}

fn is_there(process: ProcessId) -> bool {
    start_of(process.pid) == Some(process.start)
}

/// Waits for the end of a program whose restore, which would have told of it, is gone.
fn wait_until_gone(program: Option<ProcessId>) {
    while program.is_some_and(is_there) {
        std::thread::sleep(ADOPTED_INTERVAL);
    }
}

/// The failure for a restore that cannot tell any more what came of it.
fn unknown(why: &str) -> Failure {
    Failure::new(Code::RestoreFailedThere, why)
        .note("nobody knows whether the program ran")
        .help("if it does not run and has left nothing: `hetckpt restore` of the archive")
}

/// The failure that a restore has told on its stderr.
fn failure_of(path: &Path) -> Failure {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(MAX_SAID)..]).into_owned();
    let Some((_, told)) = text.rsplit_once("error[") else {
        return Failure::new(Code::CriuRestore, "the restore ended before the program ran").note(plain(text.trim()));
    };
    let (code, rest) = told.split_once("]: ").unwrap_or(("", told));
    let mut lines = rest.lines();
    let mut failure = Failure::new(
        code.parse().unwrap_or(Code::CriuRestore),
        lines.next().unwrap_or_default(),
    );
    for line in lines {
        if let Some(note) = line.strip_prefix("  = note: ") {
            failure.notes.push(note.to_owned());
        } else if let Some(help) = line.strip_prefix("  = help: ") {
            failure.help = Some(help.to_owned());
        }
    }
    failure
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_restores_failure_is_read_as_it_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stderr");
        fs::write(
            &path,
            "the program said this\nerror[HK0905]: taken\n  = note: by 7\n  = state: nothing\n  = help: free it\n",
        )
        .unwrap();
        let failure = failure_of(&path);
        assert_eq!((failure.code, &*failure.message), (Code::ProcessIdTaken, "taken"));
        assert_eq!(failure.notes, ["by 7"]);
        assert_eq!(failure.help.as_deref(), Some("free it"));
        fs::write(&path, "Killed").unwrap();
        assert_eq!(failure_of(&path).notes, ["Killed"]);
    }

    #[test]
    fn processes_are_not_taken_for_later_ones() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let start = start_of(pid).unwrap();
        assert!(is_there(ProcessId { pid, start }));
        assert!(!is_there(ProcessId { pid, start: start + 1 }));
    }
}
