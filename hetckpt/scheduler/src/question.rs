//! Asking a scheduler by one of its commands, which may hang when its daemon does.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a scheduler has to answer.
pub const LIMIT: Duration = Duration::from_secs(10);

const INTERVAL: Duration = Duration::from_millis(5);

/// Why a scheduler gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// Its command is not there, or cannot be run.
    #[error("{program} cannot be run: {source}")]
    NotRun {
        /// The command.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// It takes too long.
    #[error("{program} did not answer within {} s", LIMIT.as_secs())]
    TooLong {
        /// The command.
        program: String,
    },
    /// It says no.
    #[error("{program}: {said}")]
    Refused {
        /// The command.
        program: String,
        /// Its words.
        said: String,
    },
}

/// What `command` prints, if it succeeds within [`LIMIT`].
///
/// # Errors
/// [`QuestionError`].
pub fn ask(mut command: Command) -> Result<String, QuestionError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let not_run = |source| QuestionError::NotRun {
        program: program.clone(),
        source,
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_run)?;
    // Both are read beside the waiting: a pipe holds only so much.
    let readers = (reader(child.stdout.take()), reader(child.stderr.take()));
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(not_run)? {
            Some(status) => break status,
            None if started.elapsed() > LIMIT => {
                // It may have ended just now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(QuestionError::TooLong { program });
            }
            None => std::thread::sleep(INTERVAL),
        }
    };
    let [output, said] = [readers.0, readers.1].map(|reader| reader.join().unwrap_or_default());
    match status.success() {
        true => Ok(output),
        false => Err(QuestionError::Refused {
            program,
            said: said.trim().to_owned(),
        }),
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = vec![];
        if let Some(mut stream) = stream {
            // What could be read until then is what there is.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn answers_and_refusals_are_told_apart() {
        assert_eq!(ask(shell("echo yes")).unwrap(), "yes\n");
        let refused = ask(shell("echo no >&2; exit 3")).unwrap_err();
        assert_eq!(refused.to_string(), "sh: no");
        let missing = ask(Command::new("/no/such/program")).unwrap_err();
        assert!(matches!(missing, QuestionError::NotRun { .. }), "{missing}");
    }
}
