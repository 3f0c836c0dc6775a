//! The only place that prints: results to stdout, everything else to stderr.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the module that prints"
)]

use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::json;

use crate::diagnostic::Failure;

static VERBOSITY: AtomicU8 = AtomicU8::new(0);
/// The last second of the year 9999.
const LAST_MOMENT: u64 = 253_402_300_799;
/// Why a result could not be written.
static LOST: OnceLock<ErrorKind> = OnceLock::new();

/// Sets how much [`detail`] lets through.
pub fn set_verbosity(level: u8) {
    VERBOSITY.store(level, Ordering::Relaxed);
}

/// `text` without what a terminal would obey: names of programs and kernels are whatever others have put into an archive, and messages of a
/// device server may be another user's. Lines stay lines.
fn printable(text: &str) -> String {
    let obeyed = |c: char| is_obeyed(c) && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if obeyed(c) { ' ' } else { c }).collect()
}

/// True for what moves the cursor, ends a line, or changes the order in which a line is shown (Unicode Standard Annex 9, "Directional
/// Formatting Characters"): text with it can look like another line.
fn is_obeyed(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A line of a result, whatever `text` holds. Once one could not be written, no other is: what a verb has to put away and its exit
/// status do not depend on who reads.
pub fn line(text: impl AsRef<str>) {
    let text = text.as_ref().chars();
    lines(text.map(|c| if is_obeyed(c) { ' ' } else { c }).collect::<String>());
}

/// As [`line()`], of several lines in one text.
pub fn lines(text: impl AsRef<str>) {
    write_result(|out| writeln!(out, "{}", printable(text.as_ref())));
}

/// A value as JSON on stdout: as it is, since JSON has no control characters, and who reads it is a machine.
pub fn json(value: &impl Serialize) {
    write_result(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    });
}

fn write_result(write: impl FnOnce(&mut BufWriter<StdoutLock<'_>>) -> io::Result<()>) {
    if LOST.get().is_some() {
        return;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        // A reader that has gone away knows.
        if error.kind() != ErrorKind::BrokenPipe {
            note(format!("the result cannot be written: {error}"));
        }
        let _ = LOST.set(error.kind());
    }
}

/// True if a result could not be written, although its reader had not gone away.
pub fn is_lost() -> bool {
    LOST.get().is_some_and(|&kind| kind != ErrorKind::BrokenPipe)
}

/// A remark for the person watching.
pub fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "hetckpt: {}", printable(text.as_ref()));
}

/// A remark for the person who asked for more.
pub fn detail(text: impl AsRef<str>) {
    if VERBOSITY.load(Ordering::Relaxed) > 0 {
        note(text);
    }
}

/// Progress on one line, only on a terminal.
pub fn progress(text: impl AsRef<str>) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[Khetckpt: {}", text.as_ref());
    }
}

/// Progress through `total` bytes, for whoever counts those that are done.
pub fn byte_progress(what: &'static str, total: u64) -> impl FnMut(u64) {
    move |done| progress(format!("{what} {} of {}", bytes(done), bytes(total)))
}

/// Takes the progress line away.
pub fn progress_done() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// What clap has to say.
pub fn clap(error: &clap::Error) {
    let _ = error.print();
}

/// A failure, as docs/errors.md describes it.
pub fn failure(error: &anyhow::Error) {
    let mut err = std::io::stderr();
    match error.downcast_ref::<Failure>() {
        Some(failure) => {
            let _ = writeln!(err, "error[{}]: {}", failure.code, printable(&failure.message));
            for note in &failure.notes {
                let _ = writeln!(err, "  = note: {}", printable(note));
            }
            if let Some(state) = &failure.state {
                let _ = writeln!(err, "  = state: {}", printable(state));
            }
            if let Some(help) = &failure.help {
                let _ = writeln!(err, "  = help: {}", printable(help));
            }
        }
        None => {
            let _ = writeln!(err, "error: {}", printable(&format!("{error:#}")));
        }
    }
}

/// The same for machines, on stdout, where the result would be.
pub fn json_failure(error: &anyhow::Error) {
    let told = match error.downcast_ref::<Failure>() {
        Some(failure) => json!({
            "code": failure.code,
            "message": failure.message,
            "notes": failure.notes,
            "state": failure.state,
            "help": failure.help,
        }),
        None => json!({ "message": format!("{error:#}") }),
    };
    json(&json!({ "error": told }));
}

/// A number of bytes for people: `4.0 GiB`.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A length of time for people: `33.9 ms`, `2.4 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// A moment for people, in UTC: `2026-03-01 12:30:00 UTC`.
pub fn moment(seconds_since_1970: u64) -> String {
    let moment = UNIX_EPOCH.checked_add(Duration::from_secs(seconds_since_1970));
    // A year that has more than four digits cannot be told like that.
    let text = moment.filter(|_| seconds_since_1970 <= LAST_MOMENT);
    text.map_or_else(
        || format!("{seconds_since_1970} s after 1970"),
        |moment| {
            format!(
                "{} UTC",
                humantime::format_rfc3339_seconds(moment)
                    .to_string()
                    .replace('T', " ")
                    .trim_end_matches('Z')
            )
        },
    )
}

/// `count` things by name: `1 pause`, `2 pauses`.
pub fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(duration(Duration::from_nanos(33_907_542)), "33.9 ms");
        assert_eq!(duration(Duration::from_micros(12)), "12 µs");
        assert_eq!(duration(Duration::from_millis(2449)), "2.4 s");
        assert_eq!(counted(1, "pause"), "1 pause");
        assert_eq!(counted(0, "pause"), "0 pauses");
        assert_eq!(moment(1_772_368_200), "2026-03-01 12:30:00 UTC");
        assert_eq!(moment(u64::MAX), format!("{} s after 1970", u64::MAX));
    }

    #[test]
    fn terminals_have_nothing_to_obey() {
        assert_eq!(
            printable("a\u{1b}]0;title\u{7}\tb\nc\r\u{9b}d\u{e9}"),
            "a ]0;title \tb\nc  d\u{e9}"
        );
        assert_eq!(printable("cpu\u{202e}gnp\u{2066}"), "cpu gnp ");
    }
}
