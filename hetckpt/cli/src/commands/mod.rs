//! One file a verb.

mod run;
mod ps;
mod dump;
mod restore;
mod migrate;
mod serve;
mod pack;
mod merge;
mod unpack;
mod criu;
mod pause;
mod suspend;
mod resume;
mod process_control;
mod stats;
mod trace;
mod inspect;
mod store;
mod devices;
mod doctor;
mod check;
mod kernel;

use std::process::ExitCode;

use hetckpt_job::sentinel;
use hetckpt_move::carried::keeper;
use hetckpt_move::migration::handover;
use hetckpt_supervise::namespaces::{self, init};
use hetckpt_supervise::outcome::Outcome;
use hetckpt_supervise::{launch, stopped_tree};

use crate::arguments::Command;
use crate::output;

/// Runs the command given.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(options) => run::run(&options),
        Command::Launch(options) => Err(launch::launch(&options.command, options.inside).into()),
        Command::Init(options) => Ok(init::init(&options)?),
        Command::Guard(options) => {
            stopped_tree::guard(&options, handover::conclude);
            Ok(ExitCode::SUCCESS)
        }
        Command::Sentinel(options) => {
            sentinel::stand_guard(&options)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Process(options) => process_control::run(&options),
        Command::Job(options) => Ok(hetckpt_job::run(&options)?),
        Command::Keep(options) => {
            keeper::keep(&options);
            Ok(ExitCode::SUCCESS)
        }
        Command::Ps(options) => ps::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Restore(options) => restore::run(&options),
        Command::Migrate(options) => migrate::run(&options),
        Command::Serve(options) => serve::run(options),
        Command::Pack(options) => pack::run(&options),
        Command::Merge(options) => merge::run(&options),
        Command::Unpack(options) => unpack::run(&options),
        Command::Criu(options) => criu::run(&options),
        Command::Pause(options) => pause::run(&options),
        Command::Suspend(options) => suspend::run(&options),
        Command::Resume(options) => resume::run(&options),
        Command::Stats(options) => stats::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Inspect(options) => inspect::run(&options),
        Command::Store(verb) => store::run(&verb),
        Command::Devices(options) => devices::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Kernel(options) => kernel::run(&options),
    }
}

/// The exit code of a command that stood in for a program; of a program that runs on by itself the process id is told.
fn code_of(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Ended(code) => code,
        Outcome::Detached(pid) => {
            // Within namespaces the program has another process id than the one to be told.
            if !namespaces::is_inside() {
                output::line(pid.to_string());
            }
            ExitCode::SUCCESS
        }
    }
}
