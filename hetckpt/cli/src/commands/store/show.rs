//! `hetckpt store show`: what is known of a snapshot.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::quantity;
use hetckpt_store::error::StoreError;
use hetckpt_store::failure::failure;
use hetckpt_store::name::SnapshotId;

use super::named;
use crate::output;
use crate::store_arguments::Show;

/// Shows it.
pub fn run(options: &Show) -> anyhow::Result<ExitCode> {
    let (job, id) = named(&options.snapshot)?;
    let store = options.which.open()?;
    let found = match &id {
        Some(id) => store.record_at(&job, id),
        None => store.latest(&job).and_then(|latest| {
            latest.ok_or_else(|| StoreError::NoSuchSnapshot {
                store: store.name().to_owned(),
                name: job.to_string(),
            })
        }),
    };
    let record = found.map_err(|error| failure(&error))?;
    let ended = store.ended(&job).map_err(|error| failure(&error))?;
    if options.which.json {
        output::json(&json!({ "snapshot": record, "ended": ended }));
        return Ok(ExitCode::SUCCESS);
    }
    let encrypted = if record.encrypted { ", encrypted" } else { "" };
    output::line(format!("snapshot  {}", record.name()));
    output::line(format!("made      {} ({})", record.time, record.draft.occasion.name()));
    if !record.draft.label.is_empty() {
        output::line(format!("label     {}", record.draft.label));
    }
    output::line(format!("size      {}{encrypted}", quantity::bytes(record.stored_bytes)));
    if !record.needs().is_empty() {
        let needs: Vec<&str> = record.needs().iter().map(SnapshotId::as_str).collect();
        output::line(format!("needs     {}", needs.join(" ")));
    }
    output::line(format!("blake3    {}", record.blake3));
    output::line(format!(
        "device    {} {}",
        record.draft.device.kind, record.draft.device.name
    ));
    output::line(format!("host      {}", record.draft.host));
    output::line(format!("dumped in {:.2} s", record.draft.dump_seconds));
    output::line(format!("command   {}", record.draft.command.join(" ")));
    if let Some(ended) = ended {
        output::line(format!("program   ended with {} at {}", ended.exit_code, ended.time));
    }
    Ok(ExitCode::SUCCESS)
}
