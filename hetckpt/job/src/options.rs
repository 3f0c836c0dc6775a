//! What `hetckpt job` is told.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;

use hetckpt_report::number;
use hetckpt_scheduler::detect;
use hetckpt_store::name::Key;
use hetckpt_supervise::namespaces::Choice;
use hetckpt_supervise::signals::PASSED_ON;

/// `hetckpt job`.
#[derive(Debug, Args)]
pub struct Options {
    /// Where snapshots lie: a folder that all nodes see, or s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH.
    #[arg(long, env = "HETCKPT_STORE", default_value = "hetckpt-snapshots", value_name = "URL")]
    pub store: String,

    /// age key file with which snapshots are encrypted, as for `dump`.
    #[arg(long, env = "HETCKPT_STORE_KEY", value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Name of the job in the store (default: what the scheduler calls it). A job that is started anew with the same
    /// name goes on where that one was.
    #[arg(long, value_name = "NAME")]
    pub name: Option<Key>,

    /// The scheduler whose job this is (default: the one whose variables are in the environment).
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(detect::NAMES))]
    pub scheduler: Option<String>,

    /// Signals on which the program is dumped and the job is queued again. The program does not get them: it starts
    /// with them ignored.
    #[arg(long, value_name = "SIGNAL", value_parser = signal, value_delimiter = ',', default_values = ["TERM", "USR1"])]
    pub on: Vec<Signal>,

    /// Also take a snapshot that often, while the program runs on: `10m`, `1h 30m`. In a folder without encryption each
    /// has only the memory and the files that have changed since those before, which stay as long as they are
    /// needed.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub every: Option<Duration>,

    /// Take the program off its device at TSTP, and let it go on at CONT, as schedulers send them that suspend jobs
    /// (Slurm: PreemptMode=SUSPEND, `scontrol suspend`). The program starts with TSTP ignored.
    #[arg(long)]
    pub suspendable: bool,

    /// How many snapshots are kept, besides what these need.
    #[arg(long, value_name = "N", value_parser = number::count, default_value_t = 2)]
    pub keep: u32,

    /// How often the job goes on from its last snapshot by itself, after a device or a device server has failed or the
    /// program was killed; and how many runs of the job in a row may fail to restore it.
    #[arg(long, value_name = "N", value_parser = number::whole, default_value_t = 3)]
    pub retries: u32,

    /// Time from the signal to SIGKILL (default: what the scheduler says; if it says nothing, no limit).
    #[arg(long, env = "HETCKPT_GRACE", value_name = "DURATION", value_parser = duration)]
    pub grace: Option<Duration>,

    /// Device to run on, and to go on with: as for `run`.
    #[arg(long, env = "HETCKPT_DEVICE", default_value = "auto", value_name = "DEVICE")]
    pub device: String,

    /// Go on in this folder instead of the program's working folder, as for `restore`.
    #[arg(long, value_name = "FOLDER")]
    pub cwd: Option<PathBuf>,

    /// Whether the program runs in namespaces of its own, as for `run` (default: always, since its process ids may be
    /// taken on the next node; for users other than root, if user namespaces are allowed).
    #[arg(long, value_enum, value_name = "WHEN")]
    pub namespaces: Option<Choice>,

    /// Longest time to wait for kernels to stop.
    #[arg(value_parser = number::whole, long, value_name = "SECONDS", default_value_t = 10)]
    pub pause_timeout: u32,

    /// Exit code with which the job ends to be queued again (default: what the scheduler takes, else 75).
    #[arg(long, value_name = "CODE")]
    pub requeue_exit: Option<u8>,

    /// Start nothing beside the job that passes the scheduler's signal on (Slurm: a step, where only steps are
    /// signalled).
    #[arg(long)]
    pub no_sentinel: bool,

    /// The program and its arguments. All that follows the program is its own.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `hetckpt __sentinel`.
#[derive(Debug, Args)]
pub struct Sentinel {
    /// Process that gets the signal.
    pub pid: i32,
    /// The signal.
    #[arg(value_parser = signal)]
    pub signal: Signal,
}

/// What is no signal or time.
#[derive(Debug, thiserror::Error)]
pub enum NotAnOption {
    /// A signal.
    #[error("a signal's name is expected, such as TERM or USR1")]
    Signal,
    /// A signal that is not meant for this.
    #[error("{0} cannot be used for this; INT, TERM, HUP, USR1, USR2 and QUIT can")]
    Unusable(Signal),
    /// A time.
    #[error("a time is expected, such as 30s, 10m or 1h")]
    Duration,
}

fn signal(text: &str) -> Result<Signal, NotAnOption> {
    let upper = text.to_ascii_uppercase();
    let name = format!("SIG{}", upper.strip_prefix("SIG").unwrap_or(&upper));
    match name.parse().map_err(|_| NotAnOption::Signal)? {
        signal if PASSED_ON.contains(&signal) && signal != Signal::SIGWINCH => Ok(signal),
        other => Err(NotAnOption::Unusable(other)),
    }
}

fn duration(text: &str) -> Result<Duration, NotAnOption> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).map_err(|_| NotAnOption::Duration),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn signals_and_times_are_read_as_people_write_them() {
        assert_eq!(signal("term").unwrap(), Signal::SIGTERM);
        assert_eq!(signal("SIGUSR1").unwrap(), Signal::SIGUSR1);
        assert!(signal("KILL").is_err() && signal("soon").is_err());
        assert_eq!(duration("90").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("1m 30s").unwrap(), Duration::from_secs(90));
        assert!(duration("soon").is_err());
    }
}
