//! Answers to what the command line asks ([`hetckpt_ring::question`]), on standard output.

#![allow(clippy::print_stdout, reason = "answers are what these tasks are for")]

use std::io::{Read, stdin};

use hetckpt_archive::packed_state;
use hetckpt_ring::question::Stage;
use serde::Serialize;

use crate::choose_device::summaries;
use crate::error::ServerError;
use crate::missing_features::lacking;
use crate::translate::translate;

/// The devices of this machine.
///
/// # Errors
/// [`ServerError::Damaged`].
pub fn devices(tries: bool) -> Result<(), ServerError> {
    say(&summaries(tries))
}

/// The version.
pub fn version() {
    println!("{}", env!("CARGO_PKG_VERSION"));
}

/// The kernels of the PTX on standard input whose names have `name` in them.
///
/// # Errors
/// [`ServerError::Os`], [`ServerError::NotPtx`].
pub fn translation(stage: Stage, name: &str) -> Result<(), ServerError> {
    let mut text = String::new();
    stdin().read_to_string(&mut text).map_err(cannot_read)?;
    say(&translate(&text, stage, name)?)
}

/// What the kernels of the state on standard input lack.
///
/// # Errors
/// [`ServerError::Os`], [`ServerError::State`].
pub fn lacking_features(features: &[String], others: bool) -> Result<(), ServerError> {
    let mut packed = vec![];
    stdin().read_to_end(&mut packed).map_err(cannot_read)?;
    let state = packed_state::unpack(&packed)?;
    let features = features.iter().map(String::as_str).collect();
    say(&lacking(&state, &features, others))
}

fn cannot_read(source: std::io::Error) -> ServerError {
    ServerError::Os { call: "read", source }
}

fn say(answer: &impl Serialize) -> Result<(), ServerError> {
    let json = serde_json::to_string_pretty(answer).map_err(|e| ServerError::Damaged(e.into()))?;
    println!("{json}");
    Ok(())
}
