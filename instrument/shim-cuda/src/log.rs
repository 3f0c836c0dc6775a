//! What the shim has to say, to the program's stderr: what a program did not get, since many ignore the result that
//! tells them. `HETCKPT_LOG` makes it less (`error`, `off`) or more (`debug`).

use std::collections::HashSet;
use std::io::Write;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::result::CuResult;

static LEVEL: LazyLock<Level> = LazyLock::new(|| match std::env::var("HETCKPT_LOG").as_deref() {
    Ok("off" | "0" | "error") => Level::Quiet,
    Ok(text) if text.contains("debug") || text.contains("trace") => Level::Everything,
    Ok(_) | Err(_) => Level::Notes,
});

static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Quiet,
    Notes,
    Everything,
}

/// Says that the CUDA runtime looked for something that is not implemented, once for each. It looks for all there is,
/// so this is said only to who wants to hear everything (`HETCKPT_LOG=debug`).
pub fn looked_for(what: &str) {
    detail(&format!("{what} is not implemented"));
}

/// Says something that matters to few, once (`HETCKPT_LOG=debug`).
pub fn detail(text: &str) {
    if *LEVEL >= Level::Everything && is_first(text) {
        write(text);
    }
}

/// Says that the program itself looked for a function that is not implemented, once for each.
pub fn not_found(what: &str) {
    note(&format!(
        "{what} is not implemented; the program asked for it and did not get it"
    ));
}

/// Says that the program used something that is not implemented, once for each.
pub fn not_implemented(what: &str) {
    note(&format!("{what}: what the program asked for is not implemented"));
}

/// Says which result a call had, once for each, to who wants to hear everything.
pub fn refused(call: &str, result: CuResult) {
    if *LEVEL >= Level::Everything {
        detail(&format!("{call}: result {}", result.0));
    }
}

/// Says something worth knowing, once.
pub fn note(text: &str) {
    if *LEVEL >= Level::Notes && is_first(text) {
        write(text);
    }
}

/// Says something worth knowing, once for each `subject`, which can be told in many ways.
pub fn note_of(subject: &str, text: &str) {
    if *LEVEL >= Level::Notes && is_first(subject) {
        write(text);
    }
}

/// Says why the program will not get what it asked for, once; not to be silenced.
pub fn failure(text: &str) {
    if is_first(text) {
        write(text);
    }
}

/// Says what the program is to say, as it is.
pub fn plain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn is_first(text: &str) -> bool {
    SAID.lock().get_or_insert_default().insert(text.to_owned())
}

fn write(text: &str) {
    let _ = writeln!(std::io::stderr(), "hetckpt: {text}");
}
