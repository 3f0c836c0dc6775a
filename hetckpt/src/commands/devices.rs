//! `hetckpt devices`: what this machine offers, as the device server finds it.

use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

use crate::cli::Devices;
use crate::diagnostic::Failure;
use crate::install::Installation;
use crate::output;

/// Lists the devices.
pub fn run(options: Devices) -> anyhow::Result<ExitCode> {
    let devices = tried(&Installation::find()?)?;
    if options.json {
        output::json(&Value::Array(devices));
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!(
        "{:<10} {:<40} {:>10} {:>10} {:>5}  {}",
        "DEVICE", "NAME", "MEMORY", "FREE", "SMS", "DRIVER"
    ));
    for device in &devices {
        let text = |key: &str| device[key].as_str().unwrap_or("-").to_owned();
        let number = |key: &str| device[key].as_u64().unwrap_or(0);
        output::line(format!(
            "{:<10} {:<40} {:>10} {:>10} {:>5}  {}",
            text("id"),
            text("name"),
            output::bytes(number("total_bytes")),
            output::bytes(number("free_bytes")),
            number("num_multiprocessors"),
            text("driver"),
        ));
        if let Some(features) = opencl_features(device) {
            output::line(format!("{:<10} {features}", ""));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whose an OpenCL device is, what it has and what it lacks, in a line.
fn opencl_features(device: &Value) -> Option<String> {
    let opencl = &device["opencl"];
    let list = |key: &str| -> Vec<String> {
        let values = opencl[key].as_array().into_iter().flatten();
        values
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect()
    };
    let max = output::bytes(opencl["max_allocation_bytes"].as_u64()?);
    let vendor = device["vendor"].as_str().filter(|vendor| !vendor.is_empty());
    let mut parts: Vec<String> = vendor.map(|vendor| format!("vendor {vendor}")).into_iter().collect();
    parts.push(format!("buffers of up to {max}"));
    let features = [("fp64", "fp64"), ("fp16", "fp16"), ("int64_atomics", "64-bit atomics")];
    let present = features.iter().filter(|(key, _)| opencl[key].as_bool() == Some(true));
    parts.extend(present.map(|&(_, name)| name.to_owned()));
    let sizes = opencl["sub_group_sizes"].as_array().into_iter().flatten();
    let sizes: Vec<u64> = sizes.filter_map(Value::as_u64).collect();
    if !sizes.is_empty() {
        parts.push(format!("sub-groups of {}", in_runs(&sizes)));
    }
    parts.extend(opencl["il_version"].as_str().map(str::to_owned));
    let lacks = list("lacks");
    if !lacks.is_empty() {
        parts.push(format!("lacks {}", lacks.join(", ")));
    }
    if opencl["sees_host_writes"].as_bool() == Some(false) {
        parts.push("stopped between launches of bounded length".to_owned());
    }
    if let Some(why) = unusable(device) {
        parts.push(format!("cannot be used: {why}"));
    }
    Some(parts.join("; "))
}

/// Numbers with what lies between two of them left out where it is all there: there are devices whose sub-groups may have any size.
fn in_runs(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|&one, &next| one.checked_add(1) == Some(next));
    let texts = runs.map(|run| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        few => few.iter().map(u64::to_string).collect::<Vec<_>>().join("/"),
    });
    texts.collect::<Vec<_>>().join("/")
}

/// Why a device that was [`tried`] cannot be used, if so.
pub fn unusable(device: &Value) -> Option<&str> {
    device["opencl"]["unusable"].as_str()
}

/// Asks the server program for the devices: only it knows drivers.
pub fn list(installation: &Installation) -> Result<Vec<Value>, Failure> {
    ask(installation, "--list-devices")
}

/// The same, with what only shows when OpenCL devices are opened.
pub fn tried(installation: &Installation) -> Result<Vec<Value>, Failure> {
    ask(installation, "--try-devices")
}

fn ask(installation: &Installation, argument: &str) -> Result<Vec<Value>, Failure> {
    let server = installation.require(installation.server.clone())?;
    let failed = |why: String| Failure::new("HK0803", format!("{} cannot list devices", server.display())).note(why);
    let output = Command::new(&server)
        .args([argument, "--json"])
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))
}

/// Makes sure that `wanted` is a device of this machine. The server is asked only where a look does not do: a driver takes its time to
/// start, and the program's own server will start it anyway.
pub fn require(installation: &Installation, wanted: &str) -> Result<(), Failure> {
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
        false => require_among(&list(installation)?, wanted),
    }
}

/// True if `wanted` is the device `id`, whose last numbers may be left out if they are 0.
pub fn is_called(id: &str, wanted: &str) -> bool {
    std::iter::successors(Some(id), |id| id.strip_suffix(":0")).any(|name| name == wanted)
}

/// Makes sure that `wanted` (auto, or a device's id, whose last numbers may be left out if they are 0) is among `devices`.
pub fn require_among(devices: &[Value], wanted: &str) -> Result<(), Failure> {
    let ids: Vec<&str> = devices.iter().filter_map(|d| d["id"].as_str()).collect();
    let is_there = wanted == "auto" || ids.iter().any(|id| is_called(id, wanted));
    if is_there {
        return Ok(());
    }
    Err(
        Failure::new("HK0501", format!("there is no device `{wanted}` on this machine"))
            .note(format!("there are: {}", ids.join(", ")))
            .help("`hetckpt devices` lists them; `--device auto` takes the first CUDA GPU, else the CPU")
            .unsupported(),
    )
}

#[cfg(test)]
mod tests {
    use super::in_runs;

    #[test]
    fn many_numbers_take_little_room() {
        let all: Vec<u64> = (1..4096).collect();
        assert_eq!(in_runs(&all), "1-4095");
        assert_eq!(in_runs(&[1, 2, 4, 8]), "1/2/4/8");
        assert_eq!(in_runs(&[2, 3, 4, 8, 16, 17]), "2-4/8/16/17");
        assert_eq!(in_runs(&[32]), "32");
    }
}
