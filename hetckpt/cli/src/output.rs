//! The only place that prints: results to stdout, everything else to stderr.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the module that prints"
)]

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use hetckpt_report::failure::Failure;
use hetckpt_report::remark::{self, note};

/// Why a result could not be written.
static LOST: OnceLock<ErrorKind> = OnceLock::new();

/// From now on remarks and progress are shown; those for the person who asked for more, if `verbosity` is not 0.
pub fn show_remarks(verbosity: u8) {
    let layer = Remarks {
        with_details: verbosity > 0,
    };
    // It fails only if it was done before.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
}

/// Prints what the other crates remark ([`remark`]).
struct Remarks {
    with_details: bool,
}

impl<S: Subscriber> Layer<S> for Remarks {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        match event.metadata().target() {
            remark::NOTE => {}
            remark::DETAIL if self.with_details => {}
            remark::PROGRESS => {
                event.record(&mut message);
                return progress(&message.0);
            }
            _ => return,
        }
        event.record(&mut message);
        let _ = writeln!(io::stderr(), "hetckpt: {}", printable(&message.0));
    }
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// What is being done, on one line, only on a terminal; an empty text takes the line away.
fn progress(text: &str) {
    if io::stderr().is_terminal() {
        let name = if text.is_empty() { "" } else { "hetckpt: " };
        let _ = write!(io::stderr(), "\r\x1b[K{name}{}", printable(text));
    }
}

/// `text` without what a terminal would obey: names of programs and kernels are whatever others have put into an
/// archive, and messages of a device server may be another user's. Lines stay lines.
fn printable(text: &str) -> String {
    let obeyed = |c: char| is_obeyed(c) && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if obeyed(c) { ' ' } else { c }).collect()
}

/// True for what moves the cursor, ends a line, or changes the order in which a line is shown (Unicode Standard Annex
/// 9, "Directional Formatting Characters"): text with it can look like another line.
fn is_obeyed(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A line of a result, whatever `text` holds. Once one could not be written, no other is: what a verb has to put away
/// and its exit status do not depend on who reads.
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
            let _ = writeln!(err, "  = help: {}", printable(&way_out(failure)));
        }
        None => {
            let _ = writeln!(err, "error: {}", printable(&format!("{error:#}")));
        }
    }
}

/// What to do: what the failure itself says, else what its code does.
fn way_out(failure: &Failure) -> Cow<'_, str> {
    match (&failure.help, failure.code.help()) {
        (Some(help), _) => Cow::Borrowed(help),
        (None, paragraphs) if paragraphs.contains('\n') => format!("docs/errors.md, {}", failure.code).into(),
        (None, sentence) => Cow::Borrowed(sentence),
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
            "help": way_out(failure),
        }),
        None => json!({ "message": format!("{error:#}") }),
    };
    json(&json!({ "error": told }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_have_nothing_to_obey() {
        assert_eq!(
            printable("a\u{1b}]0;title\u{7}\tb\nc\r\u{9b}d\u{e9}"),
            "a ]0;title \tb\nc  d\u{e9}"
        );
        assert_eq!(printable("cpu\u{202e}gnp\u{2066}"), "cpu gnp ");
    }
}
