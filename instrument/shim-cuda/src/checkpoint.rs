//! Locking and checkpointing other processes. `hetckpt` does it, which finds their device servers wherever they are.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::log;
use crate::result::{CuResult, Outcome};
use crate::server_process::{clean_environment, find_program, own_path};

/// `CUprocessState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProcessState {
    Running = 0,
    Locked = 1,
    Checkpointed = 2,
}

impl ProcessState {
    /// As `cuda-checkpoint` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Locked => "locked",
            Self::Checkpointed => "checkpointed",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Running, Self::Locked, Self::Checkpointed];
        all.into_iter().find(|state| state.name() == name)
    }
}

/// What is wanted of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    State,
    Lock { limit_ms: u32 },
    Checkpoint,
    Restore,
    Unlock,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Lock { .. } => "lock",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
            Self::Unlock => "unlock",
        }
    }
}

/// Why it did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub result: CuResult,
    pub message: String,
}

/// Acts on process `pid`; gives its state then.
pub fn act(pid: i32, action: Action) -> Result<ProcessState, Refusal> {
    let cannot = |message: String| Refusal {
        result: CuResult::NOT_SUPPORTED,
        message,
    };
    if pid <= 0 {
        return Err(Refusal {
            result: CuResult::INVALID_VALUE,
            message: format!("{pid} is no process id"),
        });
    }
    let program = find_program("hetckpt").ok_or_else(|| cannot("hetckpt is not installed".to_owned()))?;
    let limit_ms = match action {
        Action::Lock { limit_ms } => limit_ms,
        _ => 0,
    };
    let mut command = Command::new(program);
    command
        .args(["__process", "--pid", &pid.to_string(), "--action", action.name()])
        .args(["--limit-ms", &limit_ms.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.env_clear();
    for entry in clean_environment(std::env::vars_os(), own_path().as_deref()) {
        let mut parts = entry.as_bytes().splitn(2, |&byte| byte == b'=');
        if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    let mut child = command
        .spawn()
        .map_err(|e| cannot(format!("hetckpt cannot be started: {e}")))?;
    let mut said = String::new();
    let read = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut said));
    // A program that ignores its children's ends gets no status; what was said tells enough.
    let _ = child.wait();
    if !matches!(read, Some(Ok(_))) {
        return Err(cannot("hetckpt said nothing".to_owned()));
    }
    understood(&said)
}

/// The same, as a driver call has it. The reason for a refusal is told once.
pub fn call(pid: i32, action: Action) -> Outcome<ProcessState> {
    act(pid, action).map_err(|refusal| {
        log::note(&format!("{} of process {pid}: {}", action.name(), refusal.message));
        refusal.result
    })
}

/// The line that the verb prints.
fn understood(said: &str) -> Result<ProcessState, Refusal> {
    let line = said.trim_end();
    if let Some(state) = line.strip_prefix("ok ").and_then(ProcessState::of_name) {
        return Ok(state);
    }
    let (code, message) = line
        .strip_prefix("failed ")
        .and_then(|rest| rest.split_once(' '))
        .unwrap_or(("", "hetckpt failed"));
    let result = match code {
        // No such process; one without a device server; not of this state; kernels that do not stop.
        "HK0801" => CuResult::INVALID_VALUE,
        "HK0802" => CuResult::NOT_INITIALIZED,
        "HK0603" => CuResult::ILLEGAL_STATE,
        "HK0602" => CuResult::NOT_READY,
        _ => CuResult::UNKNOWN,
    };
    Err(Refusal {
        result,
        message: message.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        assert_eq!(understood("ok locked\n"), Ok(ProcessState::Locked));
        for (said, result) in [
            (
                "failed HK0603 process 7 is running, not locked\n",
                CuResult::ILLEGAL_STATE,
            ),
            ("failed HK0999 what\n", CuResult::UNKNOWN),
            ("", CuResult::UNKNOWN),
            ("ok asleep", CuResult::UNKNOWN),
        ] {
            assert_eq!(
                understood(said).map_err(|refusal| refusal.result),
                Err(result),
                "{said}"
            );
        }
    }
}
