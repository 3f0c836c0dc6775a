//! What is left of a restore when processes are rebuilt: memory is filled and kernels are built beside that.

use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::error::ServerError;

/// What is left, and what becomes of it.
pub struct RestOfRestore(Mutex<State>);

enum State {
    /// Nothing, or nothing any more.
    Done,
    /// A thread is at it.
    Running(JoinHandle<Result<(), ServerError>>),
    /// It has failed, and somebody was told why.
    Failed,
}

impl RestOfRestore {
    /// Nothing is left.
    #[must_use]
    pub fn nothing() -> Self {
        Self(Mutex::new(State::Done))
    }

    /// Starts `work` on a thread of its own.
    ///
    /// # Errors
    /// [`ServerError::Os`].
    pub fn start(work: impl FnOnce() -> Result<(), ServerError> + Send + 'static) -> Result<Self, ServerError> {
        let spawned = thread::Builder::new().name("restore".to_owned()).spawn(work);
        let running = spawned.map_err(|source| ServerError::Os {
            call: "thread creation",
            source,
        })?;
        Ok(Self(Mutex::new(State::Running(running))))
    }

    /// Waits until all is done.
    ///
    /// # Errors
    /// Why it could not be done; the first who asks is told.
    pub fn wait(&self) -> Result<(), ServerError> {
        let mut state = self.0.lock();
        let running = match std::mem::replace(&mut *state, State::Failed) {
            State::Running(running) => running,
            State::Done => {
                *state = State::Done;
                return Ok(());
            }
            State::Failed => return Err(ServerError::WrongMoment("the program could not be restored")),
        };
        let ended = running
            .join()
            .unwrap_or_else(|_| Err(ServerError::Daemon("the thread that restores has died".into())));
        if ended.is_ok() {
            *state = State::Done;
        }
        ended
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_and_stays_one() {
        let rest = RestOfRestore::start(|| Err(ServerError::WrongMoment("why"))).unwrap();
        assert!(rest.wait().unwrap_err().to_string().contains("why"));
        assert!(rest.wait().is_err());
        let dies = RestOfRestore::start(|| panic!("meant")).unwrap();
        assert!(matches!(dies.wait(), Err(ServerError::Daemon(_))));
    }

    #[test]
    fn what_is_done_is_done() {
        let rest = RestOfRestore::start(|| Ok(())).unwrap();
        rest.wait().unwrap();
        rest.wait().unwrap();
        RestOfRestore::nothing().wait().unwrap();
    }
}
