//! What the shim has to say. To the program's stderr only if `HETCKPT_LOG` is set, or where the program cannot go on.

use std::collections::HashSet;
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

static IS_WANTED: LazyLock<bool> = LazyLock::new(|| {
    std::env::var_os("HETCKPT_LOG").is_some_and(|value| !value.is_empty() && value != "off" && value != "0")
});

static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Says that `what` is not implemented, once for each.
pub fn not_implemented(what: &str) {
    if *IS_WANTED && is_first(what) {
        write(&format!("{what} is not implemented"));
    }
}

/// Says something worth knowing, once.
pub fn note(text: &str) {
    if *IS_WANTED && is_first(text) {
        write(text);
    }
}

/// Says why the program will not get what it asked for, once; not to be silenced.
pub fn failure(text: &str) {
    if is_first(text) {
        write(text);
    }
}

fn is_first(text: &str) -> bool {
    SAID.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(text.to_owned())
}

fn write(text: &str) {
    let _ = writeln!(std::io::stderr(), "hetckpt: {text}");
}
