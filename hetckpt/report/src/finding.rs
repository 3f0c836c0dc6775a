//! What `hetckpt doctor` and `hetckpt check` find.

use hetckpt_ring::failure_code::Code;
use serde::Serialize;

use crate::failure::Failure;

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Some of it does not work, or not well.
    Warning,
    /// Nothing works before this is put right.
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
    pub code: Option<Code>,
    /// What to do.
    pub help: Option<String>,
}

impl Finding {
    /// A finding without code and help.
    pub fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            found: found.into().replace('\n', "; "),
            code: None,
            help: None,
        }
    }

    /// All is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found)
    }

    /// What may go wrong.
    pub fn warning(check: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..Self::new(check, Verdict::Warning, found)
        }
    }

    /// What will go wrong.
    pub fn problem(check: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..Self::new(check, Verdict::Problem, found)
        }
    }

    /// The problem that `failure` is.
    pub fn failed(check: &'static str, failure: &Failure) -> Self {
        let mut found = failure.message.clone();
        for note in &failure.notes {
            found.push_str(": ");
            found.push_str(note);
        }
        Self {
            code: Some(failure.code),
            help: failure.help.clone(),
            ..Self::new(check, Verdict::Problem, found)
        }
    }
}

/// The failure of whoever needs that there is no problem; the first one leads, all are told.
pub fn refusal(findings: &[Finding]) -> Option<Failure> {
    let mut problems = findings.iter().filter(|finding| finding.verdict == Verdict::Problem);
    let first = problems.next()?;
    let code = first.code.unwrap_or(Code::CriuRestore);
    let mut failure = Failure::new(code, first.found.clone());
    failure.help = first.help.clone();
    for more in problems {
        failure = failure.note(format!("also: {}", more.found));
        if let Some(help) = more.help.as_ref().filter(|help| Some(*help) != first.help.as_ref()) {
            failure = failure.note(format!("to mend that: {help}"));
        }
    }
    Some(failure)
}

/// The first few of `names`, and how many there are beside.
pub fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len() as u64;
    listed_of(names, count)
}

/// As [`listed`], where `names` are only some of `count`.
pub fn listed_of(names: impl Iterator<Item = String>, count: u64) -> String {
    const MAX_NAMED: usize = 5;
    let mut parts: Vec<String> = names.take(MAX_NAMED).collect();
    let num_more = count.saturating_sub(parts.len() as u64);
    if num_more > 0 {
        parts.push(format!("and {num_more} more"));
    }
    parts.join(", ")
}
