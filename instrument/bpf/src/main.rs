//! `hetckpt-tracer`: puts probes on driver libraries, and says at the end what they have counted.
//!
//! [`hetckpt_bpf::protocol`] says what it is told and what it answers. It makes no driver call itself.

mod loader;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hetckpt_bpf::protocol::{CHILDREN_OF, LIBRARY, PID, Said};

use crate::loader::{Scope, Trace};

/// How often it is looked for new libraries and processes: at first, and later.
const SOON: Duration = Duration::from_millis(3);
const LATER: Duration = Duration::from_millis(50);

/// Whatever has just begun loads libraries for so long.
const BEGINNING: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let Some((scope, libraries)) = arguments(std::env::args().skip(1)) else {
        let _ = writeln!(
            io::stderr(),
            "usage: hetckpt-tracer {PID} PID | {CHILDREN_OF} PID [{LIBRARY} FILE]..."
        );
        return ExitCode::from(2);
    };
    let said = trace(scope, &libraries);
    let is_done = matches!(said, Said::Measured(_));
    if say(&said).is_ok() && is_done {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<(Scope, Vec<PathBuf>)> {
    let (mut scope, mut libraries) = (None, vec![]);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            PID => scope = Some(Scope::Process(value.parse().ok()?)),
            CHILDREN_OF => scope = Some(Scope::ChildrenOf(value.parse().ok()?)),
            LIBRARY => libraries.push(PathBuf::from(value)),
            _ => return None,
        }
    }
    Some((scope?, libraries))
}

fn trace(scope: Scope, libraries: &[PathBuf]) -> Said {
    let mut storage = loader::Storage::new();
    let mut trace = match Trace::start(&mut storage, scope, libraries) {
        Ok(trace) => trace,
        Err(loader::Refusal::Gone) => return Said::Gone,
        Err(refusal) => return refusal.said(),
    };
    let start = Instant::now();
    if say(&Said::Ready).is_err() {
        return Said::Gone;
    }
    let is_over = stdin_end();
    let mut last_news = start;
    while !is_over.load(Ordering::Relaxed) {
        if trace.look_for_libraries() {
            last_news = Instant::now();
        }
        if trace.has_ended() {
            break;
        }
        thread::sleep(if last_news.elapsed() < BEGINNING { SOON } else { LATER });
    }
    Said::Measured(Box::new(trace.measured(start.elapsed())))
}

/// True from the moment on at which stdin has ended.
fn stdin_end() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&is_over);
    thread::spawn(move || {
        let mut rest = [0; 64];
        while io::stdin().read(&mut rest).is_ok_and(|count| count > 0) {}
        shared.store(true, Ordering::Relaxed);
    });
    is_over
}

fn say(said: &Said) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, said)?;
    writeln!(out)?;
    out.flush()
}
