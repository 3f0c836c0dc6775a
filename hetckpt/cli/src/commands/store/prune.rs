//! `hetckpt store prune`: what is not to be kept goes.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::quantity;
use hetckpt_store::failure::failure;

use crate::output;
use crate::store_arguments::Prune;

/// Prunes.
pub fn run(options: &Prune) -> anyhow::Result<ExitCode> {
    let store = options.which.open()?;
    let pruned = store.prune(options.job.as_ref(), &options.keep(), options.dry_run);
    let pruned = pruned.map_err(|error| failure(&error))?;
    if options.which.json {
        let removed = pruned
            .removed
            .iter()
            .map(|removal| json!({ "name": removal.name, "why": removal.why.name(), "bytes": removal.bytes }));
        let removed: Vec<_> = removed.collect();
        output::json(&json!({ "dry_run": options.dry_run, "kept": pruned.kept, "removed": removed }));
        return Ok(ExitCode::SUCCESS);
    }
    let what = if options.dry_run { "would remove" } else { "removed" };
    for removal in &pruned.removed {
        let size = quantity::bytes(removal.bytes);
        output::line(format!("{what} {} ({size}): {}", removal.name, removal.why.name()));
    }
    let freed = pruned.removed.iter().map(|removal| removal.bytes).sum();
    output::line(format!(
        "{what} {}, {}; {} kept",
        pruned.removed.len(),
        quantity::bytes(freed),
        quantity::counted(pruned.kept.len(), "snapshot")
    ));
    Ok(ExitCode::SUCCESS)
}
