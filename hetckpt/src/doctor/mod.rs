//! What this machine needs to dump and restore programs, each thing looked at by itself: `hetckpt doctor` prints it.

mod criu;
mod host;
mod parts;

use serde::Serialize;

use crate::diagnostic::Failure;

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Dumps and restores work, but not all of them or not well.
    Warning,
    /// Nothing can be dumped or restored before this is put right.
    Problem,
}

/// A check and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at; the name does not change.
    pub check: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// What was found, on one line.
    pub found: String,
    /// Code of the failure that a dump or restore would meet, where there is one.
    pub code: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            found: found.into().replace('\n', "; "),
            code: None,
            help: None,
        }
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found)
    }

    fn warning(check: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..Self::new(check, Verdict::Warning, found)
        }
    }

    fn problem(check: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..Self::new(check, Verdict::Problem, found)
        }
    }

    /// The problem that `failure` is.
    fn failed(check: &'static str, failure: &Failure) -> Self {
        let mut found = failure.message.clone();
        for note in &failure.notes {
            found.push_str(": ");
            found.push_str(note);
        }
        Self {
            code: Some(failure.code.to_string()),
            help: failure.help.clone(),
            ..Self::new(check, Verdict::Problem, found)
        }
    }
}

/// Looks at everything. A check that fails keeps none of the others from being made.
pub fn examine() -> Vec<Finding> {
    let mut findings = criu::examine();
    findings.extend([host::privileges(), host::tracing()]);
    findings.extend(parts::examine());
    findings.extend([host::archive_room(), host::restore_room(), host::cpu()]);
    findings
}
