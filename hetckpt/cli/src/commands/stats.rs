//! `hetckpt stats`: what a program's device servers have done, and do.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use hetckpt_bpf::histogram::Histogram;
use hetckpt_report::failure::Failure;
use hetckpt_report::quantity;
use hetckpt_ring::failure_code::Code;
use hetckpt_ring::server_stats::{Done, ServerStats};
use hetckpt_supervise::namespaces::enter;
use hetckpt_supervise::server_client::{self, Hold};
use hetckpt_supervise::target::Target;

use crate::arguments::Stats;
use crate::output;

/// Prints what has been done since the servers were started; with `--watch`, what is done from then on, again and
/// again.
pub fn run(options: &Stats) -> anyhow::Result<ExitCode> {
    if let Some(code) = enter::run_where(options.pid)? {
        return Ok(code);
    }
    let target = Target::find(options.pid)?;
    let mut servers = server_client::holds(&target.tree())?;
    if servers.is_empty() {
        let what = format!("process {} has made no CUDA or OpenCL call yet", target.called());
        return Err(Failure::new(Code::NotUnderHetckpt, what)
            .note("there is no device server to ask")
            .help("try again after the program's first call")
            .into());
    }
    let mut before = ask(&mut servers)?;
    let Some(every) = options.watch else {
        tell(options, &before);
        return Ok(ExitCode::SUCCESS);
    };
    loop {
        std::thread::sleep(every);
        if output::is_lost() || target.tree().is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let now = match ask(&mut servers) {
            Ok(now) => now,
            // The program has ended.
            Err(_) if Target::find(options.pid).is_err() => return Ok(ExitCode::SUCCESS),
            Err(failure) => return Err(failure.into()),
        };
        let since: Vec<ServerStats> = now
            .iter()
            .zip(&before)
            .map(|(now, before)| difference(now, before))
            .collect();
        tell(options, &since);
        before = now;
    }
}

fn ask(servers: &mut [Hold]) -> Result<Vec<ServerStats>, Failure> {
    servers.iter_mut().map(Hold::stats).collect()
}

/// What was done from `before` to `now`.
fn difference(now: &ServerStats, before: &ServerStats) -> ServerStats {
    let done = now.done.iter().zip(&before.done).map(|(now, before)| Done {
        what: now.what.clone(),
        count: now.count.saturating_sub(before.count),
        bytes: now.bytes.saturating_sub(before.bytes),
        time_ns: now.time_ns.saturating_sub(before.time_ns),
        histogram: now
            .histogram
            .iter()
            .zip(&before.histogram)
            .map(|(now, before)| now.saturating_sub(*before))
            .collect(),
    });
    ServerStats {
        age_us: now.age_us.saturating_sub(before.age_us),
        cpu_us: now.cpu_us.saturating_sub(before.cpu_us),
        done: done.collect(),
        ..now.clone()
    }
}

fn tell(options: &Stats, stats: &[ServerStats]) {
    if options.json {
        let rows: Vec<Value> = stats.iter().map(row).collect();
        return output::json(&json!(rows));
    }
    stats.iter().for_each(print);
}

fn row(stats: &ServerStats) -> Value {
    let done = stats.done.iter().map(|done| {
        let histogram = Histogram(done.histogram.clone());
        json!({
            "what": done.what,
            "count": done.count,
            "bytes": done.bytes,
            "time_ns": done.time_ns,
            "p50_ns": histogram.percentile(50),
            "p99_ns": histogram.percentile(99),
            "histogram": done.histogram,
        })
    });
    json!({
        "pid": stats.app_pid,
        "server_pid": stats.server_pid,
        "device": stats.device,
        "device_name": stats.device_name,
        "seconds": seconds(stats.age_us),
        "cpu_seconds": seconds(stats.cpu_us),
        "done": done.collect::<Vec<_>>(),
    })
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

fn print(stats: &ServerStats) {
    let time = seconds(stats.age_us).max(1e-6);
    output::line(format!(
        "process {} on {} ({}), {:.1} s: its server has used {:.1} % of a processor",
        stats.app_pid,
        stats.device,
        stats.device_name,
        time,
        100.0 * seconds(stats.cpu_us) / time,
    ));
    output::line(format!(
        "{:<10} {:>12} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}",
        "WHAT", "COUNT", "PER S", "BYTES", "PER S", "MEAN", "P50", "P99"
    ));
    for done in stats.done.iter().filter(|done| done.count > 0) {
        let histogram = Histogram(done.histogram.clone());
        let moves_bytes = done.bytes > 0;
        let rate = (done.bytes as f64 / time) as u64;
        let bytes = |n: u64| {
            if moves_bytes {
                quantity::bytes(n)
            } else {
                "-".to_owned()
            }
        };
        output::line(format!(
            "{:<10} {:>12} {:>12.1} {:>12} {:>12} {:>10} {:>10} {:>10}",
            done.what.replace('_', " "),
            done.count,
            done.count as f64 / time,
            bytes(done.bytes),
            bytes(rate),
            nanoseconds(done.time_ns / done.count),
            nanoseconds(histogram.percentile(50)),
            nanoseconds(histogram.percentile(99)),
        ));
    }
    if stats.done.iter().all(|done| done.count == 0) {
        output::line("nothing was done");
    }
}

fn nanoseconds(ns: u64) -> String {
    quantity::duration(Duration::from_nanos(ns))
}
