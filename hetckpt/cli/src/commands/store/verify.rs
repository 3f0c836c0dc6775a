//! `hetckpt store verify`: which snapshots are good.

use std::process::ExitCode;

use serde_json::json;

use hetckpt_report::{exit, quantity, remark};
use hetckpt_store::failure::failure;
use hetckpt_store::verify::State;
use hetckpt_store::watch::Watch;

use crate::output;
use crate::store_arguments::Verify;

/// Reads them all. The status is 1 if one is not good.
pub fn run(options: &Verify) -> anyhow::Result<ExitCode> {
    let store = options.which.open()?;
    let mut progress = |done| remark::progress(format!("verifying {}", quantity::bytes(done)));
    let verified = store.verify(options.job.as_ref(), &mut Watch::new(&mut progress, &|| false));
    remark::progress_done();
    let verified = verified.map_err(|error| failure(&error))?;
    let why = |state: &State| match state {
        State::Good { is_locked: true } => Some("its hash is right; without a key it was not decrypted".to_owned()),
        State::Damaged { why } => Some(why.clone()),
        _ => None,
    };
    if options.which.json {
        let all = verified.iter().map(|one| {
            json!({ "job": one.job, "id": one.id, "bytes": one.stored_bytes, "state": one.state.name(), "why": why(&one.state) })
        });
        output::json(&json!({ "snapshots": all.collect::<Vec<_>>() }));
    } else {
        for one in &verified {
            let why = why(&one.state).map_or_else(String::new, |why| format!(": {why}"));
            let size = quantity::bytes(one.stored_bytes);
            output::line(format!("{:<7}  {}/{} ({size}){why}", one.state.name(), one.job, one.id));
        }
    }
    let is_good = verified.iter().all(|one| matches!(one.state, State::Good { .. }));
    Ok(ExitCode::from(if is_good { 0 } else { exit::FAILED }))
}
