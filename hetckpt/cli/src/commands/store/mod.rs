//! `hetckpt store`: one file a verb.

mod ls;
mod show;
mod rm;
mod prune;
mod verify;

use std::process::ExitCode;

use hetckpt_report::failure::Failure;
use hetckpt_store::failure::failure;
use hetckpt_store::name::{BadName, Key, SnapshotId};

use crate::store_arguments::StoreVerb;

/// Runs the verb given.
pub fn run(verb: &StoreVerb) -> anyhow::Result<ExitCode> {
    match verb {
        StoreVerb::Ls(options) => ls::run(options),
        StoreVerb::Show(options) => show::run(options),
        StoreVerb::Rm(options) => rm::run(options),
        StoreVerb::Prune(options) => prune::run(options),
        StoreVerb::Verify(options) => verify::run(options),
    }
}

/// `KEY/ID`, or `KEY` alone.
fn named(text: &str) -> Result<(Key, Option<SnapshotId>), Failure> {
    let bad = |error: BadName| failure(&error.into());
    match text.split_once('/') {
        Some((job, id)) => Ok((job.parse().map_err(bad)?, Some(id.parse().map_err(bad)?))),
        None => Ok((text.parse().map_err(bad)?, None)),
    }
}
