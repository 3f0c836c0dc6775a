//! The command line of `hetckpt store`, and what verbs that take a store's URL have in common.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use hetckpt_report::failure::Failure;
use hetckpt_store::encryption::Encryption;
use hetckpt_store::failure::failure;
use hetckpt_store::keep::Keep;
use hetckpt_store::name::Key;
use hetckpt_store::store::Store;

/// The key for encrypted snapshots.
#[derive(Clone, Debug, Args)]
pub struct KeyFile {
    /// age key file (`age-keygen`) for snapshots in a store: they are encrypted before they are sent, and decrypted
    /// when they are taken out. A file with a secret must not be readable by others. One that holds only recipients
    /// (age1…) can encrypt, but not decrypt.
    #[arg(long, env = "HETCKPT_STORE_KEY", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

impl KeyFile {
    /// The key, if there is one.
    pub fn open(&self) -> Result<Option<Encryption>, Failure> {
        let opened = self.key_file.as_deref().map(Encryption::open).transpose();
        opened.map_err(|error| failure(&error.into()))
    }
}

/// The store.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// The store: a folder, s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, http(s)://HOST/PATH.
    #[arg(long, env = "HETCKPT_STORE", value_name = "URL")]
    pub store: String,

    /// The key.
    #[command(flatten)]
    pub key: KeyFile,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Which {
    /// Opens the store.
    pub fn open(&self) -> Result<Store, Failure> {
        Store::open(&self.store, self.key.open()?).map_err(|error| failure(&error))
    }
}

/// `hetckpt store`.
#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// List the snapshots of a job, or of all jobs, the newest first.
    ///
    /// A snapshot is `good` if its record can be understood and its archive is there in full length; `verify` reads it.
    /// It is `damaged` or `missing` (a record without its archive) otherwise, and then nothing uses it.
    Ls(Ls),
    /// Show what is known of a snapshot, or of a job's latest one, and how the job's program ended.
    Show(Show),
    /// Remove snapshots.
    Rm(Rm),
    /// Remove the snapshots that no rule keeps, and what is left of dumps and uploads that were cut short.
    ///
    /// The rules are those of restic: each goes through a job's snapshots from the newest on, and keeps as many as it
    /// may; what any rule keeps is kept. Without a rule all snapshots are kept. Only good snapshots count, so the
    /// newest good one of a job always stays.
    ///
    /// What has been unfinished for a day is removed too: archives without a record, records without an archive,
    /// uploads in parts, unfinished files.
    Prune(Prune),
    /// Read all bytes of all snapshots, and say which are good.
    ///
    /// Compares size and hash with the record, and, with a key, decrypts. The exit status is 1 if a snapshot is damaged
    /// or missing.
    Verify(Verify),
}

impl StoreVerb {
    /// True if the result is to be JSON.
    pub fn is_json(&self) -> bool {
        match self {
            Self::Ls(options) => options.which.json,
            Self::Show(options) => options.which.json,
            Self::Rm(options) => options.which.json,
            Self::Prune(options) => options.which.json,
            Self::Verify(options) => options.which.json,
        }
    }

    /// True if all that it does is to print something.
    pub fn only_tells(&self) -> bool {
        matches!(self, Self::Ls(_) | Self::Show(_) | Self::Verify(_))
    }
}

/// `hetckpt store ls`.
#[derive(Debug, Args)]
pub struct Ls {
    /// Only this job.
    #[arg(value_name = "KEY")]
    pub job: Option<Key>,

    /// The store.
    #[command(flatten)]
    pub which: Which,
}

/// `hetckpt store show`.
#[derive(Debug, Args)]
pub struct Show {
    /// The snapshot, or the job.
    #[arg(value_name = "KEY[/ID]")]
    pub snapshot: String,

    /// The store.
    #[command(flatten)]
    pub which: Which,
}

/// `hetckpt store rm`.
#[derive(Debug, Args)]
pub struct Rm {
    /// The snapshots. With --all: jobs, of which all is removed.
    #[arg(value_name = "KEY/ID", required = true)]
    pub snapshots: Vec<String>,

    /// Remove all that the store holds of the jobs named: snapshots, how the program ended, who runs it.
    #[arg(long)]
    pub all: bool,

    /// The store.
    #[command(flatten)]
    pub which: Which,
}

/// `hetckpt store prune`.
#[derive(Debug, Args)]
pub struct Prune {
    /// Only this job.
    #[arg(value_name = "KEY")]
    pub job: Option<Key>,

    /// Keep the newest N snapshots.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_last: u32,

    /// Keep the newest snapshot of each hour (UTC), for the last N hours that have one.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_hourly: u32,

    /// Keep the newest snapshot of each day (UTC), for the last N days that have one.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep_daily: u32,

    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// The store.
    #[command(flatten)]
    pub which: Which,
}

impl Prune {
    /// The rules.
    pub fn keep(&self) -> Keep {
        Keep {
            last: self.keep_last,
            hourly: self.keep_hourly,
            daily: self.keep_daily,
        }
    }
}

/// `hetckpt store verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Only this job.
    #[arg(value_name = "KEY")]
    pub job: Option<Key>,

    /// The store.
    #[command(flatten)]
    pub which: Which,
}
