//! What NVIDIA's command `cuda-checkpoint` does: the command is a call of a function of the driver library, which has
//! its arguments.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command's main function"
)]

use crate::checkpoint::{Action, ProcessState, act};
use crate::pointers::{In, Text};

const USAGE: &str = "usage: cuda-checkpoint --toggle --pid PID
       cuda-checkpoint --action lock|checkpoint|restore|unlock --pid PID [--timeout MS]
       cuda-checkpoint --get-state --pid PID
       cuda-checkpoint --get-restore-tid --pid PID";

/// A command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Help,
    Toggle(i32),
    Act(i32, Action),
    GetRestoreThread(i32),
}

/// The command's `main`, of `count` arguments.
pub extern "C" fn main(count: i32, arguments: In<Text>) -> i32 {
    let all: Option<Vec<String>> = arguments.list(count.max(1) as u64).ok().and_then(|list| {
        let texts = list.into_iter().skip(1).map(|text| text.get().ok().map(str::to_owned));
        texts.collect()
    });
    let understood = all.ok_or_else(|| "the arguments cannot be read".to_owned());
    match understood.and_then(|all| understood_as(all.into_iter())) {
        Ok(order) => carry_out(&order),
        Err(what) => {
            eprintln!("{what}\n{USAGE}");
            1
        }
    }
}

fn understood_as(arguments: impl Iterator<Item = String>) -> Result<Order, String> {
    let mut arguments = arguments.peekable();
    let (mut pid, mut limit_ms, mut what) = (None, 0, None);
    if arguments.peek().is_none() {
        return Ok(Order::Help);
    }
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let mut value = || {
            let given = inline.clone().or_else(|| arguments.next());
            given.ok_or_else(|| format!("{name} needs a value"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Order::Help),
            "--pid" | "-p" => {
                let text = value()?;
                pid = Some(text.parse::<i32>().map_err(|_| format!("`{text}` is no process id"))?);
            }
            "--timeout" | "-t" => {
                let text = value()?;
                limit_ms = text
                    .parse()
                    .map_err(|_| format!("`{text}` is no number of milliseconds"))?;
            }
            "--toggle" | "--get-state" | "--get-restore-tid" => what = Some(name),
            "--action" | "-a" => what = Some(value()?),
            _ => return Err(format!("unknown argument `{name}`")),
        }
    }
    let pid = pid.ok_or("--pid is missing")?;
    match what.as_deref() {
        Some("--toggle") => Ok(Order::Toggle(pid)),
        Some("--get-state") => Ok(Order::Act(pid, Action::State)),
        Some("--get-restore-tid") => Ok(Order::GetRestoreThread(pid)),
        Some("lock") => Ok(Order::Act(pid, Action::Lock { limit_ms })),
        Some("checkpoint") => Ok(Order::Act(pid, Action::Checkpoint)),
        Some("restore") => Ok(Order::Act(pid, Action::Restore)),
        Some("unlock") => Ok(Order::Act(pid, Action::Unlock)),
        Some(other) => Err(format!("unknown action `{other}`")),
        None => Err("it is not said what to do".to_owned()),
    }
}

fn carry_out(order: &Order) -> i32 {
    let done = match *order {
        Order::Help => {
            println!("{USAGE}");
            return 0;
        }
        Order::GetRestoreThread(pid) => act(pid, Action::State).map(|_| println!("{pid}")),
        Order::Act(pid, Action::State) => act(pid, Action::State).map(|state| println!("{}", state.name())),
        Order::Act(pid, action) => act(pid, action).map(drop),
        Order::Toggle(pid) => act(pid, Action::State).and_then(|state| {
            let both = match state {
                ProcessState::Checkpointed => [Action::Restore, Action::Unlock],
                // One that is locked is refused by name.
                ProcessState::Running | ProcessState::Locked => [Action::Lock { limit_ms: 0 }, Action::Checkpoint],
            };
            act(pid, both[0])?;
            act(pid, both[1]).map(drop).inspect_err(|_| {
                // It is in neither of the two states.
                let _ = act(
                    pid,
                    if state == ProcessState::Running {
                        Action::Unlock
                    } else {
                        Action::Checkpoint
                    },
                );
            })
        }),
    };
    match done {
        Ok(()) => 0,
        Err(refusal) => {
            eprintln!("cuda-checkpoint: {} (CUDA error {})", refusal.message, refusal.result.0);
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Order, String> {
        understood_as(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn command_lines_are_understood() {
        for (line, order) in [
            ("", Order::Help),
            ("--toggle --pid 7", Order::Toggle(7)),
            ("--pid=7 --toggle", Order::Toggle(7)),
            (
                "--action lock -p 7 --timeout 20",
                Order::Act(7, Action::Lock { limit_ms: 20 }),
            ),
            ("--action unlock --pid 7", Order::Act(7, Action::Unlock)),
            ("--get-state --pid 7", Order::Act(7, Action::State)),
            ("--get-restore-tid --pid 7", Order::GetRestoreThread(7)),
        ] {
            assert_eq!(of(line), Ok(order), "{line}");
        }
        for line in [
            "--toggle",
            "--toggle --pid x",
            "--pid 7",
            "--action dance --pid 7",
            "--frob",
        ] {
            assert!(of(line).is_err(), "{line}");
        }
    }
}
