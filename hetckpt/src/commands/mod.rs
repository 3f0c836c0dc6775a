//! One file a verb.

mod run;
mod ps;
mod dump;
mod restore;
mod migrate;
mod serve;
mod pack;
mod unpack;
mod criu;
mod pause;
pub mod inspect;
pub mod devices;
mod doctor;
mod check;
mod kernel;

use std::process::ExitCode;

use crate::cli::Command;

/// Runs the command given.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(options) => run::run(options),
        Command::Launch(options) => run::launch(options),
        Command::Init(options) => Ok(crate::namespaces::init::init(&options)?),
        Command::Guard(options) => dump::guard(options),
        Command::Keep(options) => restore::keep(&options),
        Command::Ps(options) => ps::run(options),
        Command::Dump(options) => dump::run(options),
        Command::Restore(options) => restore::run(options),
        Command::Migrate(options) => migrate::run(options),
        Command::Serve(options) => serve::run(options),
        Command::Pack(options) => pack::run(options),
        Command::Unpack(options) => unpack::run(options),
        Command::Criu(options) => criu::run(options),
        Command::Pause(options) => pause::run(options),
        Command::Inspect(options) => inspect::run(options),
        Command::Devices(options) => devices::run(options),
        Command::Doctor(options) => doctor::run(options),
        Command::Check(options) => check::run(options),
        Command::Kernel(options) => kernel::run(options),
    }
}
