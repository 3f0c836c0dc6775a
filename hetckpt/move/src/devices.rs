//! The devices of this machine, as the device server finds them: only it knows drivers.

use hetckpt_report::failure::Failure;
use hetckpt_ring::failure_code::Code;
use hetckpt_ring::message::DeviceSummary;

use crate::server_question::ask;

/// Why a device that was [`tried`] cannot be used, if so.
pub fn unusable(device: &DeviceSummary) -> Option<&str> {
    device.opencl.as_ref()?.unusable.as_deref()
}

/// Asks the server's program for the devices: only it knows drivers.
pub fn list() -> Result<Vec<DeviceSummary>, Failure> {
    ask(Code::Installation, &["--list-devices", "--json"], &[])
}

/// The same, with what only shows when OpenCL devices are opened.
pub fn tried() -> Result<Vec<DeviceSummary>, Failure> {
    ask(Code::Installation, &["--try-devices", "--json"], &[])
}

/// Makes sure that `wanted` is a device of this machine. The server is asked only where a look does not do: a driver
/// takes its time to start, and the program's own server will start it anyway.
pub fn require(wanted: &str) -> Result<(), Failure> {
    let gpus = || std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    let is_there = match wanted.strip_prefix("cuda") {
        _ if wanted == "auto" || wanted == "cpu" => true,
        Some("") => gpus() > 0,
        Some(number) => number
            .strip_prefix(':')
            .and_then(|n| n.parse().ok())
            .is_some_and(|n: usize| n < gpus()),
        None => false,
    };
    match is_there {
        true => Ok(()),
        false => require_among(&list()?, wanted),
    }
}

/// True if `wanted` is the device `id`, whose last numbers may be left out if they are 0.
pub fn is_called(id: &str, wanted: &str) -> bool {
    std::iter::successors(Some(id), |id| id.strip_suffix(":0")).any(|name| name == wanted)
}

/// Makes sure that `wanted` (auto, or a device's id, whose last numbers may be left out if they are 0) is among
/// `devices`.
pub fn require_among(devices: &[DeviceSummary], wanted: &str) -> Result<(), Failure> {
    let ids: Vec<&str> = devices.iter().map(|device| &*device.id).collect();
    let is_there = wanted == "auto" || ids.iter().any(|id| is_called(id, wanted));
    if is_there {
        return Ok(());
    }
    Err(Failure::new(
        Code::NoSuchDevice,
        format!("there is no device `{wanted}` on this machine"),
    )
    .note(format!("there are: {}", ids.join(", ")))
    .help("`hetckpt devices` lists them; `--device auto` takes the first CUDA GPU, else the CPU"))
}
