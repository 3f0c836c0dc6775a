//! What a trace has measured, as text.

use std::time::Duration;

use hetckpt_bpf::measured::{Function, Measured, Process};
use hetckpt_report::quantity::{bytes, counted};

use crate::output;

/// Names of this many entry points are told that were asked for and not given.
const MAX_NAMED: usize = 20;

/// Prints it.
pub fn print(measured: &Measured) {
    output::line(format!(
        "traced for {:.2} s: {}, {}",
        measured.seconds,
        match measured.processes.len() {
            1 => "1 process with driver calls".to_owned(),
            count => format!("{count} processes with driver calls"),
        },
        counted(measured.functions.len(), "function called").replace("function calleds", "functions called"),
    ));
    for library in &measured.libraries {
        let probes = counted(library.functions, "function");
        let late = match library.from_the_start {
            true => "",
            false => " (probes came after it was loaded: first calls may be missing)",
        };
        output::line(format!("  {}: {probes}{late}", library.path));
    }
    functions(measured);
    kernels(measured);
    measured.processes.iter().for_each(|process| memory(process, measured));
    asked(measured);
    for remark in &measured.remarks {
        output::line(format!("not traced: {remark}"));
    }
    if measured.lost > 0 {
        output::line(format!(
            "{} found no room: figures are too small",
            counted_u64(measured.lost, "event")
        ));
    }
}

fn functions(measured: &Measured) {
    if measured.functions.is_empty() {
        return output::line("no driver call was made");
    }
    output::line("");
    output::line(format!(
        "{:<40} {:<20} {:>10} {:>10} {:>8} {:>10} {:>9} {:>9} {:>10}",
        "FUNCTION", "LIBRARY", "CALLS", "PER S", "FAILED", "BYTES", "P50", "P99", "TIME"
    ));
    for function in &measured.functions {
        output::line(row(function, measured.seconds));
    }
}

fn row(function: &Function, seconds: f64) -> String {
    format!(
        "{:<40} {:<20} {:>10} {:>10.1} {:>8} {:>10} {:>9} {:>9} {:>10}",
        function.name,
        function.library,
        function.calls,
        function.calls as f64 / seconds.max(1e-9),
        function.failures,
        function.bytes.map_or_else(|| "-".to_owned(), bytes),
        time(function.p50_ns),
        time(function.p99_ns),
        time(function.total_ns),
    )
}

fn kernels(measured: &Measured) {
    if measured.kernels.is_empty() {
        return;
    }
    output::line("");
    output::line(format!("{:<61} {:>10} {:>10}", "KERNEL", "LAUNCHES", "PER S"));
    for kernel in &measured.kernels {
        let rate = kernel.launches as f64 / measured.seconds.max(1e-9);
        output::line(format!("{:<61} {:>10} {rate:>10.1}", kernel.name, kernel.launches));
    }
}

fn memory(process: &Process, measured: &Measured) {
    output::line("");
    output::line(format!("process {}:", process.pid));
    output::line(format!(
        "  memory: {}, {} in all; {} freed; at most {} at a time, {} at the end",
        counted_u64(process.allocations, "allocation"),
        bytes(process.allocated_bytes),
        process.frees,
        bytes(process.peak_bytes),
        bytes(process.live_bytes),
    ));
    let idle = Duration::from_nanos(process.idle_ns).as_secs_f64();
    output::line(format!(
        "  idle: at least {idle:.3} s ({:.1} %), in {} between a wait's return and the next work",
        100.0 * idle / measured.seconds.max(1e-9),
        counted_u64(process.idle_times, "time"),
    ));
}

fn asked(measured: &Measured) {
    if measured.asked.is_empty() {
        return;
    }
    let refused: Vec<&str> = measured
        .asked
        .iter()
        .filter(|asked| asked.refused > 0)
        .map(|asked| asked.name.as_str())
        .collect();
    output::line("");
    output::line(format!(
        "entry points asked for by name: {}, not given: {}",
        measured.asked.len(),
        refused.len()
    ));
    let rest = refused.len().saturating_sub(MAX_NAMED);
    for name in refused.iter().take(MAX_NAMED) {
        output::line(format!("  not given: {name}"));
    }
    if rest > 0 {
        output::line(format!("  and {rest} more (--json has all)"));
    }
}

fn counted_u64(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

/// A length of time, in three digits or four.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
