//! Options of several verbs: what a snapshot may meet that is not as it was.

use std::path::PathBuf;

use clap::Args;

use hetckpt_supervise::namespaces::Choice;

/// What a restore may do where this machine differs from that of the dump.
#[derive(Debug, Default, Args)]
pub struct Adaptation {
    /// Go on in this folder instead of the program's working folder.
    #[arg(long, value_name = "FOLDER")]
    pub cwd: Option<PathBuf>,

    /// Cut files that the program writes, and that have grown since the dump, back to what they were. Each is
    /// copied before, to its name with `.after-dump` at its end.
    #[arg(long)]
    pub rewind_outputs: bool,

    /// Give the program restore's own stdin, stdout and stderr where it had files for them, as it is given them where
    /// it had pipes.
    #[arg(long)]
    pub own_stdio: bool,

    /// Whether the program goes on in namespaces of its own, as for `run`: its process ids are free there, whatever
    /// runs on this node.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Choice::Auto)]
    pub namespaces: Choice,
}

/// What becomes of connections to processes that are not of the tree. A dump without these options is refused where
/// there are such, and so is a restore.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Outside {
    /// Take established TCP connections along; in a restore, go on with them. Their packets are dropped between the
    /// dump and the restore, so that the other end waits. The restore needs the local addresses of the connections.
    /// Needs root.
    #[arg(long)]
    pub tcp_established: bool,

    /// Take datagram unix sockets along that are connected to a process outside; in a restore, connect them again, to
    /// whoever has that path or name then.
    #[arg(long)]
    pub ext_unix_sk: bool,
}
