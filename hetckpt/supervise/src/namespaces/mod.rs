//! A job's own namespaces: process ids that are free on every node, nothing that outlives the job, and no need of root
//! where user namespaces are allowed, since CRIU has within them the privileges that it needs.
//!
//! `hetckpt run` and `restore` make them ([`create`]) and run themselves again within, below an init ([`init`]); verbs
//! that take a process id go there first ([`enter`]). So each verb does within what it would do without, and knows
//! nothing of namespaces.
//!
//! ```text
//! hetckpt run ──> init (process 1) ─┬─> hetckpt run ──> program
//!                                   └─> device server
//! hetckpt dump ──(setns)──> hetckpt dump ──> criu
//! ```
//!
//! The runtime directory of a job is a folder of the user's, `jobs/…`, which lies over the user's within. The rest of
//! the file system is the same.

pub mod away;
pub mod clocks;
pub mod create;
pub mod descriptors;
pub mod enter;
pub mod init;
pub mod job_folders;
pub mod pids;
pub mod privileges;

use hetckpt_ring::failure_code::Code;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use hetckpt_report::failure::Failure;
use hetckpt_ring::runtime_dir::runtime_dir;

/// In the environment of commands that run within a job's namespaces.
pub const INSIDE: &str = "HETCKPT_INSIDE";

/// In the environment of commands that root gave and that run as another user, whose the namespaces are.
pub const AS_ANOTHER: &str = "HETCKPT_AS_ANOTHER";

/// Adds to what fails for want of rights, or of a file, as whom it was tried, if that is not who gave the command.
pub fn with_user(failure: Failure) -> Failure {
    if std::env::var_os(AS_ANOTHER).is_none() {
        return failure;
    }
    let user = nix::unistd::geteuid();
    let failure = failure.note(format!(
        "the program runs in namespaces of user {user}, so this is done as that user: what only root may enter cannot be used"
    ));
    match failure.code {
        Code::CriuMissing => failure.help(format!(
            "install CRIU where user {user} may run it too, as /usr/local/sbin/criu, and name it in HETCKPT_CRIU if it is elsewhere"
        )),
        Code::CannotWrite => failure.help(format!("name a file in a folder that user {user} may write to, and move it afterwards")),
        _ => failure,
    }
}

/// Whether a program gets namespaces of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// If the user is not root, and they can be had.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl Choice {
    /// True if they are to be made, by this process.
    pub fn is_wanted(self) -> bool {
        !is_inside()
            && match self {
                Self::Auto => !nix::unistd::geteuid().is_root(),
                Self::Always => true,
                Self::Never => false,
            }
    }
}

/// True if this process runs within namespaces that were made for it or its program.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The last process id for commands of ours; programs have those behind it.
const LAST_OF_OURS: u32 = 999;

/// From how many a program's first process id is taken. With its children's it is to stay below the least usual
/// `kernel.pid_max`, 32768.
const SPREAD: u32 = 20_000;

/// What is started from now on gets a process id that no command of ours gets which restores it one day in a new
/// namespace.
///
/// Programs name files in shared folders by their process id, Open MPI all of a run. So it is another one in each job.
pub fn leave_ids_to_program() {
    let random = RandomState::new().build_hasher().finish();
    let last = u64::from(LAST_OF_OURS) + random % u64::from(SPREAD);
    // Where this cannot be set, an id may be in use when the program is restored, and that is said then.
    let _ = std::fs::write("/proc/sys/kernel/ns_last_pid", last.to_string());
}

/// File of the job's folder in which the command within tells the one without which process is the program.
pub const ROOT_PID: &str = "root.pid";

/// Its name once that one knows.
pub const KNOWN_ROOT_PID: &str = "root.known";

/// How long the command without has to look.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Tells the command without that process `pid`, as it is called within, is the program, and waits until it has looked
/// what it is called there: until we wait for the program's end, it has a name. A failure is none of the program's: the
/// command without then waits for its end.
pub fn tell_root_pid(pid: i32) {
    let path = runtime_dir().join(ROOT_PID);
    match crate::result_file::ResultFile::open(&path, Code::CannotWrite) {
        Ok(file) => file.write(&format!("{pid}\n")),
        Err(failure) => hetckpt_report::remark::note(failure.to_string()),
    }
    let started = Instant::now();
    while path.exists() && started.elapsed() < LOOK_LIMIT {
        std::thread::sleep(LOOK_INTERVAL);
    }
}
