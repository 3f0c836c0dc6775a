//! Verbs with which hetckpt runs itself: no user types them, and no help lists them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// The second half of `hetckpt run`.
#[derive(Debug, Args)]
pub struct Launch {
    /// It is in namespaces of its own.
    #[arg(long)]
    pub inside: bool,

    /// The program and its arguments.
    #[arg(last = true, required = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

/// Process 1 of a job.
#[derive(Debug, Args)]
pub struct Init {
    /// The command leaves before the program does.
    #[arg(long)]
    pub detach: bool,
    /// The job's runtime directory.
    pub folder: PathBuf,
    /// The arguments of the command to run within.
    #[arg(last = true, required = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

/// What a `hetckpt dump` leaves behind if it is killed.
#[derive(Debug, Args)]
pub struct Guard {
    /// The program.
    pub pid: i32,
    /// Folder with what is unfinished.
    #[arg(long)]
    pub images: PathBuf,
    /// Archive with which the program is to end.
    #[arg(long)]
    pub archive: Option<PathBuf>,
    /// What tells another node whether the program is its own now.
    #[arg(long)]
    pub handover: Option<PathBuf>,
    /// Folder of CRIU's images, if it takes TCP connections.
    #[arg(long)]
    pub tcp_in: Option<PathBuf>,
    /// Processes of its tree that are to stay stopped.
    pub stopped: Vec<i32>,
}

/// What `hetckpt restore` leaves behind where it has laid files out.
#[derive(Debug, Args)]
pub struct Keep {
    /// The program.
    pub pid: i32,
    /// The folder of the files.
    pub folder: PathBuf,
}
