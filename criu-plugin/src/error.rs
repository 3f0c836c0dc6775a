//! Why a hook failed. CRIU's log gets a failure with its causes ([`with_causes`]).

use std::error::Error;
use std::io;
use std::path::PathBuf;

use hetckpt_ring::error::RingError;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::server_start::StartError;
use hetckpt_ring::signs_of_life::WaitError;

/// Failure of a hook.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// A device server cannot be asked, or refuses (the server's fault, or the host's).
    #[error("device server of process {pid}")]
    Server {
        pid: u32,
        #[source]
        source: RingError,
    },
    /// A device server gives no answer (the server's fault, or the host's).
    #[error("device server of process {pid}")]
    NoAnswer {
        pid: u32,
        #[source]
        source: WaitError,
    },
    /// A device server answers something that was not asked (a bug in us).
    #[error("unexpected answer to {request:?}: {answer:?}")]
    UnexpectedAnswer {
        request: Box<Request>,
        answer: Box<Response>,
    },
    /// A device server is starting, which the dump cannot wait for (the host's fault).
    #[error("{0}; the process runs on: dump it again in a moment")]
    Starting(StartError),
    /// A device server came up behind the hook that pauses (nobody's fault).
    #[error("process {pid} started its device server while it was being frozen; it runs on: dump it again in a moment")]
    StartedWhileFrozen { pid: u32 },
    /// Whoever runs CRIU has given the dump up before it began (they know why).
    #[error("the dump is not to begin")]
    NoGoAhead(#[source] io::Error),
    /// The process keeps becoming another program (the program's fault).
    #[error("process {pid} keeps calling execve, so it cannot be paused: dump it again in a moment")]
    BecomesOthers { pid: u32 },
    /// The device server is gone, or elsewhere (the host's fault, or the user's).
    #[error(
        "process {pid} has a device server, but none answers in {}: it has ended, or is in another folder, which \
         HETCKPT_RUNTIME_DIR would have to name",
        folder.display()
    )]
    ServerUnreachable { pid: u32, folder: PathBuf },
    /// No connection to a device server is there (a bug in us).
    #[error("process {pid} has no device server")]
    NotConnected { pid: u32 },
    /// A device server would be frozen with its program (the program's fault).
    #[error(
        "the device server of process {pid} (process {server}) belongs to the tree that is being dumped, because a \
         process there adopts orphans (PR_SET_CHILD_SUBREAPER); start that one outside of the tree"
    )]
    InsideTree { pid: u32, server: u32 },
    /// Linux does not tell as whom a device server runs (the host's fault).
    #[error("cannot tell which user the device server of process {pid} runs as")]
    UnknownUser { pid: u32 },
    /// The process has given up the user that its server runs as (the program's fault).
    #[error(
        "the device server of process {pid} runs as user {uid}, group {gid}, but the process itself no longer does: \
         a program that changes its user must do so before its first CUDA call"
    )]
    OtherUser { pid: u32, uid: u32, gid: u32 },
    /// Only memory was to be copied (the user's choice).
    #[error(
        "process {pid} has device state, and memory that its device server writes: pre-dump is not supported; use dump"
    )]
    PreDump { pid: u32 },
    /// Another plugin has answered in this one's place (the installation's fault).
    #[error(
        "process {pid} has device state that was not dumped, because another plugin before this one in CRIU's folder \
         answered for it; use a folder (--libdir) with this plugin alone"
    )]
    NotAsked { pid: u32 },
    /// The program has closed its ring (the program's fault).
    #[error("process {pid} has no ring to its device server")]
    NoRing { pid: u32 },
    /// Something of the program's cannot be had (the program's fault, or the host's).
    #[error("{what} of process {pid}")]
    OfProgram {
        what: &'static str,
        pid: u32,
        #[source]
        source: RingError,
    },
    /// The plugin was loaded by another program than CRIU (the user's fault).
    #[error("criu_get_image_dir is missing: not loaded by CRIU")]
    NotInCriu,
    /// CRIU calls a hook when there are no images (CRIU's fault).
    #[error("CRIU has no image directory now ({code})")]
    NoImageDir { code: i32 },
    /// The folder of the images has no name (the host's fault).
    #[error("cannot tell where the images are")]
    UnknownImageDir(#[source] io::Error),
    /// CRIU does not note that the images need this plugin (CRIU's fault).
    #[error("CRIU refused the plugin's inventory entry ({code})")]
    InventoryRefused { code: i32 },
    /// The images do not say that they need this plugin (the input's fault).
    #[error("the images hold device state but are not marked as needing this plugin")]
    NotMarked,
    /// A file or folder cannot be read (the host's fault, or the input's).
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file among the images cannot be written (the host's fault).
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file among the images is not what was written there (the input's fault).
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf },
    /// The list of eventfds cannot be read (the host's fault, or the input's).
    #[error("{}", path.display())]
    Eventfds {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The list of eventfds ends in the middle of a line (the input's fault).
    #[error("{list} has a line that is cut off")]
    LineCutOff { list: &'static str },
    /// The list of eventfds has something else than numbers (the input's fault).
    #[error("{list} has a line that cannot be read")]
    SenselessLine { list: &'static str },
    /// An eventfd cannot be made (the host's fault, or the input's).
    #[error("cannot make the eventfd {id} of {}", path.display())]
    MakeEventfd {
        id: u32,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The plugin cannot find the installation that it belongs to (the installation's fault).
    #[error("cannot tell where the plugin is")]
    UnknownPlugin,
    /// The installation has no server (the installation's fault).
    #[error("hetckpt-server is not beside the plugin; name it in HETCKPT_SERVER")]
    NoServerProgram,
    /// A device server cannot be started (the installation's fault, or the host's).
    #[error("cannot start {}", program.display())]
    StartServer {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What became of a device server cannot be learnt (the host's fault).
    #[error("device server for process {pid}")]
    UnknownEnd {
        pid: u32,
        #[source]
        source: io::Error,
    },
    /// A device server does not rebuild the state; it has said why.
    #[error("device server for process {pid} cannot take over: {said}")]
    CannotTakeOver { pid: u32, said: String },
    /// A device server that called itself ready is not there (the server's fault).
    #[error("device server for process {pid} is ready but does not listen")]
    DoesNotListen { pid: u32 },
    /// Several processes failed, each for its own reason.
    #[error("{}", .0.iter().map(|error| with_causes(error)).collect::<Vec<_>>().join("; "))]
    Several(Vec<PluginError>),
}

/// An error and its causes on one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_causes() {
        let read = || PluginError::Read {
            path: "/x".into(),
            source: io::ErrorKind::NotFound.into(),
        };
        assert_eq!(with_causes(&read()), "cannot read /x: entity not found");
        let both = PluginError::Several(vec![read(), PluginError::NotMarked]);
        let text = with_causes(&both);
        assert!(
            text.starts_with("cannot read /x: entity not found; the images hold"),
            "{text}"
        );
    }
}
