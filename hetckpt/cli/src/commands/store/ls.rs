//! `hetckpt store ls`: the snapshots.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::quantity;
use hetckpt_store::failure::failure;

use crate::output;
use crate::store_arguments::Ls;

/// Lists them.
pub fn run(options: &Ls) -> anyhow::Result<ExitCode> {
    let store = options.which.open()?;
    let listing = store.list(options.job.as_ref()).map_err(|error| failure(&error))?;
    let state = |is_missing: bool| if is_missing { "missing" } else { "damaged" };
    if options.which.json {
        let unusable = listing.unusable.iter().map(|unusable| {
            let why = unusable.why.as_ref().map(ToString::to_string);
            json!({ "job": unusable.job, "id": unusable.id, "state": state(why.is_none()), "why": why })
        });
        let unusable: Vec<_> = unusable.collect();
        output::json(&json!({ "snapshots": listing.records, "unusable": unusable }));
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = listing.records.iter().map(|record| record.job.as_str().len());
    let width = jobs.max().unwrap_or(0).max(3);
    let row = |job: &str, rest: [&str; 6]| {
        let [id, size, device, occasion, state, label] = rest;
        let line = format!("{job:<width$}  {id:<28} {size:>10}  {device:<24} {occasion:<8} {state:<15} {label}");
        output::line(line.trim_end());
    };
    row(
        "JOB",
        ["ID (its time, UTC)", "SIZE", "DEVICE", "MADE", "STATE", "LABEL"],
    );
    for record in &listing.records {
        let size = quantity::bytes(record.stored_bytes);
        let state = if record.encrypted { "good, encrypted" } else { "good" };
        let device = format!("{} {}", record.draft.device.kind, record.draft.device.name);
        let occasion = record.draft.occasion.name();
        row(
            record.job.as_str(),
            [
                record.id().as_str(),
                &size,
                device.trim(),
                occasion,
                state,
                &record.draft.label,
            ],
        );
    }
    for unusable in &listing.unusable {
        let why = unusable.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let state = format!("{}{why}", state(unusable.why.is_none()));
        row(unusable.job.as_str(), [unusable.id.as_str(), "", "", "", &state, ""]);
    }
    Ok(ExitCode::SUCCESS)
}
