//! What goes wrong with a store.

use std::io;
use std::path::PathBuf;

use crate::encryption::KeyError;
use crate::location::BadUrl;
use crate::name::BadName;
use crate::record::BadRecord;
use crate::redact::Told;

/// What is wrong with a snapshot that is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its record.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// It is shorter or longer than its record says.
    #[error("it has {found} bytes, and its record says {expected}")]
    Size {
        /// Bytes that there are.
        found: u64,
        /// Bytes that there should be.
        expected: u64,
    },
    /// It does not have its hash.
    #[error("it does not have the hash that its record says")]
    Hash,
    /// It has its hash, but is not what the key decrypts, although the key is right.
    #[error("it is no whole encrypted file")]
    Encryption,
    /// The archive within has another size than the record says.
    #[error("decrypted it has {found} bytes, and its record says {expected}")]
    ArchiveSize {
        /// Bytes that came out.
        found: u64,
        /// Bytes that the record says.
        expected: u64,
    },
}

/// What goes wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is none of a store. The caller's mistake.
    #[error("{url} is no store")]
    Url {
        /// The URL, without what may be secret.
        url: String,
        /// Why.
        #[source]
        source: BadUrl,
    },
    /// A name is none. The caller's mistake.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The store did not do something.
    #[error("cannot {action} {object} in the store {store}")]
    Remote {
        /// The store.
        store: String,
        /// What was tried: a verb.
        action: &'static str,
        /// With what.
        object: String,
        /// What the store, or the connection, said.
        #[source]
        source: Told,
    },
    /// The store did not answer.
    #[error("cannot {action} {object} in the store {store}: it has not answered for {seconds} s")]
    Silent {
        /// The store.
        store: String,
        /// What was tried: a verb.
        action: &'static str,
        /// With what.
        object: String,
        /// How long it had, seconds.
        seconds: u64,
    },
    /// A store of this kind cannot do it.
    #[error("the store {store} cannot {action} {object}")]
    NotSupported {
        /// The store.
        store: String,
        /// What was tried: a verb.
        action: &'static str,
        /// With what.
        object: String,
    },
    /// A file or folder of a store that is a folder.
    #[error("cannot {action} {}", path.display())]
    Folder {
        /// What was tried: a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of this machine: what is to be stored, or what is to be written.
    #[error("cannot {action} {}", path.display())]
    Local {
        /// What was tried: a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no such snapshot, or none of that job.
    #[error("the store {store} has no snapshot {name}")]
    NoSuchSnapshot {
        /// The store.
        store: String,
        /// The snapshot or the job.
        name: String,
    },
    /// A snapshot is not what was stored.
    #[error("the snapshot {name} in the store {store} is damaged")]
    Damaged {
        /// The store.
        store: String,
        /// The snapshot.
        name: String,
        /// How.
        #[source]
        source: Damage,
    },
    /// Another run of the job is at work.
    #[error("the job {job} is claimed by run {run} on {host} (process {pid}), last at {renewed}")]
    Claimed {
        /// The job.
        job: String,
        /// The machine.
        host: String,
        /// The process there.
        pid: u32,
        /// Its run.
        run: u64,
        /// When it has last said so, RFC 3339.
        renewed: String,
    },
    /// The claim was another run's in the meantime, or could not be kept.
    #[error("the claim of the job {job} was lost")]
    ClaimLost {
        /// The job.
        job: String,
    },
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// A record cannot be made. A bug in hetckpt.
    #[error("a record cannot be written down")]
    Record(#[source] serde_json::Error),
    /// The runtime for object stores cannot be started, or a thread of it has died. The host's fault, or a bug in
    /// hetckpt.
    #[error("cannot start what speaks to object stores")]
    Runtime(#[source] io::Error),
}
