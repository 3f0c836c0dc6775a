//! `hetckpt store rm`: snapshots go.

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::failure_code::Code;
use hetckpt_store::failure::failure;
use hetckpt_store::name::{Key, SnapshotId};
use hetckpt_store::store::Store;

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
    let going: Vec<(&Key, &SnapshotId)> = names.iter().filter_map(|(job, id)| Some((job, id.as_ref()?))).collect();
    ensure_needless(&store, &going)?;
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

/// Fails if a snapshot that stays needs one that goes.
fn ensure_needless(store: &Store, going: &[(&Key, &SnapshotId)]) -> Result<(), Failure> {
    let jobs: BTreeSet<&Key> = going.iter().map(|(job, _)| *job).collect();
    for job in jobs {
        let listing = store.list(Some(job)).map_err(|error| failure(&error))?;
        let staying = listing
            .records
            .iter()
            .filter(|record| !going.contains(&(job, record.id())));
        for record in staying {
            if let Some(needed) = record.needs().iter().find(|id| going.contains(&(job, id))) {
                let what = format!("{job}/{needed} is needed by {}, which borrows from it", record.name());
                return Err(Failure::new(Code::StoreFailed, what).help("remove that one, too, or before"));
            }
        }
    }
    Ok(())
}
