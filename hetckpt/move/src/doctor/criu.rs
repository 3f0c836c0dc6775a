//! CRIU, and what it says of the Linux it runs on.

use std::process::{Command, Stdio};

use hetckpt_criu::locate::Criu;
use hetckpt_report::finding::Finding;

const PROGRAM: &str = "criu";

const KERNEL: &str = "criu-check";

/// Is CRIU there, and can it work here?
pub fn examine() -> Vec<Finding> {
    match Criu::find() {
        Ok(found) => {
            let text = format!("version {}, {}", found.version, found.program.display());
            vec![Finding::ok(PROGRAM, text), kernel(&found)]
        }
        Err(failure) => vec![Finding::failed(PROGRAM, &failure)],
    }
}

/// `criu check` looks at what every dump needs, `--extra` at what some programs need.
fn kernel(criu: &Criu) -> Finding {
    let help =
        "CRIU's words name what is missing: an option of Linux's configuration, or a privilege of this container";
    if let Some(complaint) = check(criu, &[]) {
        let why = match complaint.reasons.is_empty() {
            true => complaint.status,
            false => complaint.reasons.join("; "),
        };
        return Finding::problem(KERNEL, format!("`criu check` fails: {why}"), help);
    }
    match check(criu, &["--extra"]) {
        Some(complaint) if !complaint.reasons.is_empty() => {
            let why = complaint.reasons.join("; ");
            Finding::warning(KERNEL, format!("`criu check --extra` misses: {why}"), help)
        }
        _ if lacks_network_lock(criu) => Finding::warning(
            KERNEL,
            "Linux cannot drop the packets of a connection (`criu check --feature network_lock_nftables`): TCP connections cannot be dumped",
            "nf_tables is missing in Linux's configuration, or CAP_NET_ADMIN in this container's",
        ),
        _ => Finding::ok(KERNEL, "Linux has what CRIU needs"),
    }
}

/// True if root cannot dump TCP connections; nobody else can anyway.
fn lacks_network_lock(criu: &Criu) -> bool {
    nix::unistd::geteuid().is_root() && check(criu, &["--feature", "network_lock_nftables"]).is_some()
}

/// What `criu check` does not like.
struct Complaint {
    /// How it ended.
    status: String,
    /// What it misses, as far as that matters here.
    reasons: Vec<String>,
}

/// Runs `criu check`; `None` if it is satisfied.
fn check(criu: &Criu, more: &[&str]) -> Option<Complaint> {
    let mut command = Command::new(&criu.program);
    command.arg("check").args(more).stdin(Stdio::null());
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        command.arg("--unprivileged");
    }
    command.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let reasons = said.lines().filter_map(reason);
            let reasons: Vec<String> = reasons
                .filter(|words| is_root || !is_of_root(words))
                .map(str::to_owned)
                .collect();
            let is_satisfied = !is_root && output.status.code().is_some() && reasons.is_empty();
            (!is_satisfied).then(|| Complaint {
                status: output.status.to_string(),
                reasons,
            })
        }
        Err(e) => Some(Complaint {
            status: e.to_string(),
            reasons: vec![],
        }),
    }
}

/// True of what only root has, and what is no part of a program that hetckpt dumps: network devices and connections.
fn is_of_root(words: &str) -> bool {
    ["net:", "TCP repair", "XDG_RUNTIME_DIR", "Does not look good"]
        .iter()
        .any(|part| words.contains(part))
}

/// What a line of CRIU's says is missing: `Error (criu/cr-check.c:12): words`, or `Warn`.
fn reason(line: &str) -> Option<&str> {
    let is_reason = line.contains("Error") || line.contains("Warn");
    // The one is said at level Error and harmless; the other is for dumps that rest on others, which the plugin
    // refuses.
    let is_harmless = line.contains("RLIMIT_NOFILE") || line.contains("Dirty tracking is OFF");
    (is_reason && !is_harmless).then(|| line.split_once("): ").map_or(line, |(_, words)| words).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_words_of_errors_and_warnings() {
        let words = "Timer slack is not supported";
        assert_eq!(reason(&format!("Warn  (criu/cr-check.c:824): {words}")), Some(words));
        assert_eq!(reason(&format!("Error (criu/cr-check.c:24): {words}")), Some(words));
        assert_eq!(reason("Looks good but some kernel features are missing"), None);
        let harmless = "Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self";
        assert_eq!(reason(harmless), None);
    }
}
