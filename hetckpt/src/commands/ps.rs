//! `hetckpt ps`: the programs whose device servers run here.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::Ps;
use crate::{output, server_client};

/// Lists the programs.
pub fn run(options: Ps) -> anyhow::Result<ExitCode> {
    let rows = server_client::all()?;
    if options.json {
        output::json(&json!(rows));
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!(
        "{:>8} {:<10} {:<8} {:>10} {:>8}  {}",
        "PID", "DEVICE", "STATE", "MEMORY", "KERNELS", "COMMAND"
    ));
    for row in &rows {
        output::line(format!(
            "{:>8} {:<10} {:<8} {:>10} {:>8}  {}",
            row.pid,
            row.device,
            row.state,
            output::bytes(row.allocated_bytes),
            row.running_kernels,
            row.command
        ));
    }
    Ok(ExitCode::SUCCESS)
}
