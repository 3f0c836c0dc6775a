//! `hetckpt ps`: the programs whose device servers run here.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::quantity;
use hetckpt_supervise::server_list;

use crate::arguments::Ps;
use crate::output;

/// Lists the programs.
pub fn run(options: &Ps) -> anyhow::Result<ExitCode> {
    let rows = server_list::all()?;
    if options.json {
        output::json(&json!(rows));
        return Ok(ExitCode::SUCCESS);
    }
    // Of users there is something to tell only where there are several.
    let own = nix::unistd::geteuid().as_raw();
    let has_others = rows.iter().any(|row| row.user != Some(own));
    let user = |text: String| {
        if has_others {
            format!("{text:>8} ")
        } else {
            String::new()
        }
    };
    output::line(format!(
        "{:>8} {}{:<10} {:<9} {:>10} {:>8}  {}",
        "PID",
        user("USER".to_owned()),
        "DEVICE",
        "STATE",
        "MEMORY",
        "KERNELS",
        "COMMAND"
    ));
    for row in &rows {
        output::line(format!(
            "{:>8} {}{:<10} {:<9} {:>10} {:>8}  {}",
            row.pid,
            user(row.user.map_or_else(|| "?".to_owned(), |user| user.to_string())),
            row.device,
            row.state,
            quantity::bytes(row.allocated_bytes),
            row.running_kernels,
            row.command
        ));
        if !row.label.is_empty() {
            output::line(format!("{:>8} {}", "", row.label));
        }
        for code in &row.native_code {
            output::line(format!("{:>8} a snapshot needs a GPU for {code}", ""));
        }
    }
    Ok(ExitCode::SUCCESS)
}
