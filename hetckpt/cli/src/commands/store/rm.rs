//! `hetckpt store rm`: snapshots go.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::failure_code::Code;
use hetckpt_store::failure::failure;

use super::named;
use crate::output;
use crate::store_arguments::Rm;

/// Removes them.
pub fn run(options: &Rm) -> anyhow::Result<ExitCode> {
    let names = options.snapshots.iter().map(|name| named(name));
    // All names are looked at before anything goes.
    let names = names.collect::<Result<Vec<_>, _>>()?;
    if let Some((job, _)) = names.iter().find(|(_, id)| id.is_none() != options.all) {
        let failure = Failure::new(
            Code::StoreFailed,
            format!("{job} is to be removed: one snapshot, or all of it?"),
        );
        return Err(failure.help("name snapshots (KEY/ID), or jobs (KEY) with --all").into());
    }
    let store = options.which.open()?;
    for (job, id) in &names {
        let removed = match id {
            Some(id) => store.remove(job, id),
            None => store.remove_job(job),
        };
        removed.map_err(|error| failure(&error))?;
    }
    match options.which.json {
        true => output::json(&json!({ "removed": options.snapshots })),
        false => remark::note(format!("removed {}", options.snapshots.join(", "))),
    }
    Ok(ExitCode::SUCCESS)
}
