//! Stopping a program's kernels for a while, without dumping it.

use hetckpt_ring::failure_code::Code;
use std::time::Duration;

use hetckpt_report::failure::Failure;

use crate::server_client;
use crate::target::Target;

/// How often kernels are stopped, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// How long to hold them.
    pub hold: Duration,
    /// How often to do it.
    pub repeat: u32,
    /// Time between letting go and the next pause.
    pub interval: Duration,
    /// Longest time to wait for kernels to stop, in seconds.
    pub timeout_s: u32,
}

/// Pauses the kernels of the tree of `target`, holds them, and lets them go, as often as is asked for. Gives for each
/// pause how long the slowest device server took, the shortest first.
pub fn pause(target: &Target, pauses: &Pauses) -> Result<Vec<Duration>, Failure> {
    let mut holds = server_client::holds(&target.tree())?;
    if holds.is_empty() {
        let what = format!("process {} has made no CUDA or OpenCL call yet", target.called());
        return Err(Failure::new(Code::NotUnderHetckpt, what)
            .note("nothing was paused: there is no device server")
            .help("try again after the program's first call"));
    }
    let mut latencies = vec![];
    for round in 0..pauses.repeat {
        if round > 0 {
            std::thread::sleep(pauses.interval);
        }
        let mut slowest = Duration::ZERO;
        for hold in &mut holds {
            slowest = slowest.max(hold.pause(pauses.timeout_s)?);
        }
        latencies.push(slowest);
        std::thread::sleep(pauses.hold);
        for hold in &mut holds {
            hold.resume()?;
        }
    }
    latencies.sort();
    Ok(latencies)
}
