//! How `hetckpt doctor` and `hetckpt check` print what they found.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::finding::{Finding, Verdict};
use hetckpt_report::{exit, quantity};

use crate::output;

/// Prints what was found. The status is 1 if there is a problem.
pub fn report(findings: &[Finding], as_json: bool) -> ExitCode {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    if as_json {
        output::json(&json!({ "problems": problems, "warnings": warnings, "checks": findings }));
    } else {
        findings.iter().map(line).for_each(output::line);
        output::line(match (problems, warnings) {
            (0, 0) => "all is well".to_owned(),
            (0, _) => quantity::counted(warnings, "warning"),
            (_, 0) => quantity::counted(problems, "problem"),
            _ => [(problems, "problem"), (warnings, "warning")]
                .map(|(n, one)| quantity::counted(n, one))
                .join(", "),
        });
    }
    match problems {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::FAILED),
    }
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
