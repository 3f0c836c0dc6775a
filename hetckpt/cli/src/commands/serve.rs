//! `hetckpt serve`: take programs that other nodes move here.

use std::process::ExitCode;

use hetckpt_move::migration::serve;
use hetckpt_move::migration::serve_options::Serve;

/// Listens until it is killed.
pub fn run(options: Serve) -> anyhow::Result<ExitCode> {
    match serve::serve(options)? {}
}
