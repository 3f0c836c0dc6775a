//! `hetckpt doctor`: can this machine dump and restore, and if not, what is to be done?

use std::process::ExitCode;

use serde_json::json;

use crate::cli::Doctor;
use crate::doctor::{self, Finding, Verdict};
use crate::{exit, output};

/// Prints what was found. The status is 1 if there is a problem.
pub fn run(options: Doctor) -> anyhow::Result<ExitCode> {
    let findings = doctor::examine();
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    if options.json {
        output::json(&json!({ "problems": problems, "warnings": warnings, "checks": findings }));
    } else {
        findings.iter().map(line).for_each(output::line);
    }
    Ok(match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::FAILED),
    })
}

fn line(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "warning",
        Verdict::Problem => "problem",
    };
    let code = finding.code.as_ref().map(|code| format!(" [{code}]"));
    let help = finding.help.as_ref().map(|help| format!(" -- {help}"));
    format!(
        "{verdict:<8} {:<19} {}{}{}",
        finding.check,
        finding.found,
        code.unwrap_or_default(),
        help.unwrap_or_default()
    )
}
