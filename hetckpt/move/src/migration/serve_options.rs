//! What a node that takes programs is told.

use std::path::PathBuf;

use clap::Args;

use hetckpt_report::number;

use crate::adaptation::Adaptation;
use crate::migration::tls::Files;

/// `hetckpt serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Address and port to listen on, as `10.0.0.2:7473` or `[::]:7473`. There is no default; port 0 takes a free one,
    /// which is told.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: String,

    /// Who this node is, and whom it trusts.
    #[command(flatten)]
    pub files: Files,

    /// Folder for what is received; made, for its owner alone, if it is not there. One `serve` uses it at a time.
    #[arg(long, value_name = "FOLDER")]
    pub folder: PathBuf,

    /// Device to resume programs on, as for `restore`.
    #[arg(long, env = "HETCKPT_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub device: String,

    /// Where this machine differs.
    #[command(flatten)]
    pub adaptation: Adaptation,

    /// Take programs even where the processor lacks features of theirs, as for `restore`.
    #[arg(long)]
    pub any_processor: bool,

    /// Keep archives of programs that run.
    #[arg(long)]
    pub keep: bool,

    /// Most bytes of an archive (default: what is free in the folder).
    #[arg(long, value_name = "BYTES")]
    pub max_size: Option<u64>,

    /// Most bytes of all archives in the folder together (default: no limit but what is free).
    #[arg(long, value_parser = number::long, value_name = "BYTES")]
    pub quota: Option<u64>,

    /// Remove a program that was received and verified if its source has not said for so long whose it is (default:
    /// never). A source that has ended the program and cannot reach this node all that time loses it.
    #[arg(long, value_parser = number::long, value_name = "SECONDS")]
    pub expire: Option<u64>,

    /// Longest time for a source to say nothing but that it is at work.
    #[arg(long, value_parser = number::long, value_name = "SECONDS", default_value_t = 600)]
    pub working_limit: u64,

    /// Most programs that are received at a time; others are refused.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub connections: usize,
}
