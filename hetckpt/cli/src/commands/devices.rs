//! `hetckpt devices`: what this machine offers, as the device server finds it.

use std::process::ExitCode;

use hetckpt_move::devices;
use hetckpt_report::quantity;

use crate::arguments::Devices;
use crate::device_text::opencl_features;
use crate::output;

/// Lists the devices.
pub fn run(options: &Devices) -> anyhow::Result<ExitCode> {
    let devices = devices::tried()?;
    if options.json {
        output::json(&devices);
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!(
        "{:<10} {:<40} {:>10} {:>10} {:>5}  {}",
        "DEVICE", "NAME", "MEMORY", "FREE", "SMS", "DRIVER"
    ));
    for device in &devices {
        output::line(format!(
            "{:<10} {:<40} {:>10} {:>10} {:>5}  {}",
            device.id,
            device.name,
            quantity::bytes(device.total_bytes),
            quantity::bytes(device.free_bytes),
            device.num_multiprocessors,
            device.driver,
        ));
        if let Some(features) = opencl_features(device) {
            output::line(format!("{:<10} {features}", ""));
        }
    }
    Ok(ExitCode::SUCCESS)
}
