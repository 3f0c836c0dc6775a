//! Leaves root's own things behind before another user's namespaces are entered. What runs there is the file that the
//! user has at this program's path: they may have mounted anything there. So it gets no terminal of root's, into which
//! it could type, no groups, no environment and no files but two pipes, from which its output is copied.
//!
//! This program runs itself again, still outside, in a session of its own; that process enters ([`super::enter`]).

use hetckpt_ring::failure_code::Code;
use std::ffi::OsStr;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::unistd::setsid;

use hetckpt_report::exit;
use hetckpt_report::failure::Failure;

use crate::namespaces::descriptors;
use crate::relay;
use crate::signals::HeldSignals;

/// In the environment of the one that enters.
pub const AWAY: &str = "HETCKPT_AWAY";

/// What it gets of our environment, and the beginning of what else.
const KEPT: [&str; 4] = ["PATH", "LANG", "TERM", "TMPDIR"];

const KEPT_PREFIXES: [&str; 2] = ["HETCKPT_", "LC_"];

/// How long what it has said may take to arrive once it has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// True if this process was run by [`run_again`].
pub fn is_away() -> bool {
    std::env::var_os(AWAY).is_some()
}

/// Runs this very command again, away, and stands in for it.
pub fn run_again() -> Result<ExitCode, Failure> {
    let cannot = |e: std::io::Error| Failure::new(Code::StandIn, "cannot run this command again").note(e.to_string());
    let held = HeldSignals::hold()?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command
        .args(std::env::args_os().skip(1))
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_kept(name)))
        .env(AWAY, "1")
        .stdin(Stdio::null());
    let (out, out_relay) = relay::pipe_through(false, make_printable)?;
    let (err, err_relay) = relay::pipe_through(true, make_printable)?;
    command.stdout(out).stderr(err);
    let mut child = command.spawn().map_err(cannot)?;
    drop(command); // with our ends of the pipes
    held.pass_until_end(&child, None)?;
    let status = child.wait().map_err(cannot)?;
    // What that user has left there may keep the pipes.
    for relay in [out_relay, err_relay] {
        relay.finish_within(LAST_WORDS);
    }
    Ok(exit::from_wait_status(status))
}

/// Leaves the terminal and, to programs that are run from now on, all files but the standard ones.
pub fn leave() -> std::io::Result<()> {
    setsid()?;
    descriptors::keep_from_programs(|_| true)
}

/// Takes away what a terminal would obey: control characters, also those of two bytes in UTF-8 (U+0080 to U+009F).
fn make_printable(bytes: &mut [u8]) {
    for at in 0..bytes.len() {
        let is_kept = match bytes[at] {
            b'\n' | b'\t' => true,
            // What follows may come next time.
            0xc2 => bytes.get(at + 1).is_some_and(|next| !matches!(next, 0x80..=0x9f)),
            byte => !byte.is_ascii_control(),
        };
        if !is_kept {
            bytes[at] = b' ';
        }
    }
}

fn is_kept(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let has_prefix = KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    has_prefix || KEPT.contains(&&*name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_have_nothing_to_obey() {
        let mut said = "a\u{1b}]0;x\u{7}\tb\r\n\u{e9}\u{a9}\u{9b}2J".to_owned().into_bytes();
        make_printable(&mut said);
        // What is left of a character that was cut in two is none.
        assert_eq!(String::from_utf8_lossy(&said), "a ]0;x \tb \n\u{e9}\u{a9} \u{fffd}2J");
    }

    #[test]
    fn nothing_is_kept_but_what_hetckpt_needs() {
        for name in ["PATH", "LC_ALL", "HETCKPT_CRIU", "TMPDIR"] {
            assert!(is_kept(OsStr::new(name)), "{name}");
        }
        for name in ["SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "HOME"] {
            assert!(!is_kept(OsStr::new(name)), "{name}");
        }
    }
}
