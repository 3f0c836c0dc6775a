//! What a manifest says of processes' device state.

use hetckpt_ring::failure_code::Code;
use std::error::Error;

use hetckpt_archive::manifest::Manifest;
use hetckpt_report::failure::Failure;
use hetckpt_state::summary::{DescriptionError, Summary};

/// The device servers' summaries in a manifest.
pub fn summaries(manifest: &Manifest) -> Result<Vec<Summary>, Failure> {
    let descriptions = manifest.processes.iter().map(|text| text.parse());
    let summaries = descriptions.map(|described| described.map(|described| described.summary));
    summaries.collect::<Result<_, _>>().map_err(|error| match error {
        DescriptionError::Version { .. } => Failure::new(Code::NewerVersion, error.to_string()),
        error => Failure::new(Code::Damaged, "the archive's description of a process is damaged")
            .note(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    })
}
