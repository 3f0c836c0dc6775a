//! What the ends say to each other, and how large that may be. docs/migration.md has it as a table.

use hetckpt_ring::failure_code::Code;
use serde::{Deserialize, Serialize};

use hetckpt_report::failure::Failure;

/// Largest message, bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Most bytes of the archive in one frame.
pub const MAX_DATA_BYTES: usize = 256 << 10;

/// Longest text of a refusal that is believed.
const MAX_TEXT: usize = 2000;

/// Most notes of a refusal.
const MAX_NOTES: usize = 20;

/// A message, sent as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Message {
    /// The first of either end. The version is read before the rest.
    Hello {
        /// [`super::PROTOCOL`].
        protocol: u32,
        /// Version of the program.
        written_by: String,
    },
    /// Source: will you take this program? It still runs.
    Offer(Offer),
    /// Target: yes, in an archive of so many bytes at most.
    Accept {
        /// The bytes.
        limit_bytes: u64,
    },
    /// Either: still at it.
    Working,
    /// Source: that was the archive.
    Complete {
        /// Its size.
        size_bytes: u64,
        /// BLAKE3 hash of its manifest, in hexadecimal.
        manifest_hash: String,
    },
    /// Target: the archive is whole, flushed to disk, and can be restored here as far as can be told.
    Prepared {
        /// Where it is.
        archive: String,
    },
    /// Source: the program has ended here and is yours.
    Released {
        /// Which.
        id: String,
    },
    /// Source: the program goes on here; forget it.
    Withdrawn {
        /// Which.
        id: String,
    },
    /// Target: it runs.
    Running {
        /// Its process id.
        pid: i32,
    },
    /// Target: it is mine, but does not run.
    NotRunning {
        /// Why.
        reason: Report,
        /// Where its archive is.
        archive: String,
    },
    /// Target: there is nothing left of it.
    Forgotten,
    /// Either: no, and why.
    Refused(Report),
}

/// A program that is to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// A random number, in hexadecimal, that nobody else knows.
    pub id: String,
    /// The root of its tree.
    pub root_pid: i32,
    /// Its command line.
    pub command: Vec<String>,
    /// Ids of its processes and threads.
    pub pids: Vec<u32>,
    /// The pid namespace, and the machine's boot, in which they are counted.
    pub pid_space: String,
    /// Device memory of each process that has some.
    pub device_bytes: Vec<u64>,
    /// About as much as the archive will unpack to.
    pub estimated_bytes: u64,
    /// A process has a terminal open.
    pub has_terminal: bool,
    /// Working folder of the root.
    pub working_folder: String,
}

/// A failure on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    code: String,
    message: String,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    help: Option<String>,
}

impl From<&Failure> for Report {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.to_string(),
            message: failure.message.clone(),
            notes: failure.notes.clone(),
            help: failure.help.clone(),
        }
    }
}

impl Report {
    /// As a failure of ours, which `peer` has met. What it says is shown, so nothing in it may be more than text.
    pub fn failure(&self, peer: &str) -> Failure {
        let code = self.code.parse().unwrap_or(Code::NotUnderstood);
        let mut failure = Failure::new(code, format!("{peer}: {}", plain(&self.message)));
        failure.notes = self.notes.iter().take(MAX_NOTES).map(|note| plain(note)).collect();
        failure.help = self.help.as_deref().map(plain);
        failure
    }
}

/// `text` without what a terminal would obey, and not longer than anybody reads.
pub fn plain(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MAX_TEXT).collect()
}

/// True if `id` is one that [`new_id`] may have given: it becomes a file's name.
pub fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A number that nobody can guess, in hexadecimal.
pub fn new_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Failure::new(Code::StandIn, "the system gives no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_is_text_and_no_more() {
        let report = Report {
            code: "HK07\u{1b}".into(),
            message: format!("red \u{1b}[31m{}", "x".repeat(10_000)),
            notes: vec!["a\nb".into(); 100],
            help: None,
        };
        let failure = report.failure("node");
        assert_eq!(failure.code, Code::NotUnderstood);
        assert!(failure.message.starts_with("node: red  [31mxxx") && failure.message.len() < 3000);
        assert_eq!((failure.notes.len(), &*failure.notes[0]), (20, "a b"));
    }

    #[test]
    fn ids_are_names_of_files() {
        let id = new_id().unwrap();
        assert!(is_id(&id) && id != new_id().unwrap());
        for id in [
            "",
            "../../../../../../../../../../etc",
            &id[1..],
            &id.to_uppercase().replace('0', "G"),
        ] {
            assert!(!is_id(id), "{id}");
        }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let message = Message::Complete {
            size_bytes: 7,
            manifest_hash: "ab".into(),
        };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(text, r#"{"kind":"complete","size_bytes":7,"manifest_hash":"ab"}"#);
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }
}
