//! One process's state as CUDA's checkpoint functions have it (`cuCheckpointProcess…`), for our driver library, which
//! answers them: locked, then checkpointed, then locked again, then running.
//!
//! Locked: kernels stand still, whatever becomes of whoever has locked. Checkpointed: suspended.

use std::fmt;

use clap::{Args, ValueEnum};
use procfs::process::Process;

use hetckpt_report::failure::Failure;
use hetckpt_report::number;
use hetckpt_ring::failure_code::Code;

use crate::dump_lock::DumpLock;
use crate::server_client::{self, Hold};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// To know its state.
    State,
    /// Kernels to stop.
    Lock,
    /// The device to be given back.
    Checkpoint,
    /// Everything to be on a device again.
    Restore,
    /// Kernels to go on.
    Unlock,
}

/// What state a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// Its kernels run.
    Running,
    /// They are held.
    Locked,
    /// It is off its device.
    Checkpointed,
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Locked => "locked",
            Self::Checkpointed => "checkpointed",
        })
    }
}

/// The arguments.
#[derive(Debug, Args)]
pub struct ProcessControl {
    /// The process.
    #[arg(value_parser = number::process_id, long)]
    pub pid: i32,
    /// What to do.
    #[arg(long, value_enum)]
    pub action: Action,
    /// Milliseconds that kernels have to stop; 0: as long as the server gives them.
    #[arg(long, default_value_t = 0)]
    pub limit_ms: u64,
}

/// Does it; gives the state that the process is in then.
pub fn act(options: &ProcessControl) -> Result<ProcessState, Failure> {
    let pid = options.pid;
    let _lock = match options.action {
        Action::State => None,
        _ => Some(DumpLock::take(&[pid])?),
    };
    if Process::new(pid).is_err() {
        return Err(Failure::new(Code::NoSuchProcess, format!("there is no process {pid}")));
    }
    let mut holds = server_client::holds(&[pid])?;
    let Some(hold) = holds.first_mut() else {
        let what = format!("process {pid} has no device server");
        return Err(Failure::new(Code::NotUnderHetckpt, what));
    };
    let before = state(hold)?;
    let (needed, after) = match options.action {
        Action::State => return Ok(before),
        Action::Lock => (ProcessState::Running, ProcessState::Locked),
        Action::Checkpoint => (ProcessState::Locked, ProcessState::Checkpointed),
        Action::Restore => (ProcessState::Checkpointed, ProcessState::Locked),
        Action::Unlock => (ProcessState::Locked, ProcessState::Running),
    };
    if before != needed {
        let what = format!("process {pid} is {before}, not {needed}");
        return Err(Failure::new(Code::WrongMoment, what));
    }
    match options.action {
        Action::State => {}
        Action::Lock => hold.lock(options.limit_ms)?,
        Action::Checkpoint => hold.suspend(0, None).map(drop)?,
        Action::Restore => hold.resume_on(None)?,
        Action::Unlock => hold.unlock()?,
    }
    Ok(after)
}

fn state(hold: &mut Hold) -> Result<ProcessState, Failure> {
    let status = hold.status()?;
    Ok(match status {
        _ if status.is_suspended => ProcessState::Checkpointed,
        _ if status.is_locked => ProcessState::Locked,
        _ => ProcessState::Running,
    })
}
