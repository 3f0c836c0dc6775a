//! All programs that have a device server.

use hetckpt_ring::failure_code::Code;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use procfs::process::Process;
use serde::Serialize;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::control_socket::ControlSocket;
use hetckpt_ring::error::RingError;
use hetckpt_ring::runtime_dir::{list_servers, runtime_dir, socket_path};

use crate::namespaces::{job_folders, pids};
use crate::runtime_folder;
use crate::server_client::{no_answer, status};

/// The same in a list of all: one that does not answer is not to keep the others from being listed.
const LIST_LIMIT: Duration = Duration::from_secs(5);

/// After which time no more servers of other users are asked: they may be anything.
const OTHERS_LIMIT: Duration = Duration::from_secs(10);

/// A program with a device server.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its process id.
    pub pid: u32,
    /// Its device server's.
    pub server_pid: u32,
    /// `cpu`, `cuda:0`. While it is suspended, what it would go on with: `auto` too.
    pub device: String,
    /// `running`, `paused` or `suspended`.
    pub state: &'static str,
    /// Device memory that the program has asked for.
    pub allocated_bytes: u64,
    /// Device memory in use for that: whole pages of the device.
    pub memory_bytes: u64,
    /// Kernels in flight.
    pub running_kernels: usize,
    /// Their names.
    pub kernels: Vec<String>,
    /// What the program calls its state; empty if it says nothing.
    pub label: String,
    /// Kernels that bind a snapshot to some GPUs: what they were compiled for and some of their names.
    pub native_code: Vec<String>,
    /// The user that it runs as, by number.
    pub user: Option<u32>,
    /// Command line.
    pub command: String,
}

/// All programs of this user with a device server, in namespaces of their own or not; for root, unless a runtime
/// directory is named, those of others too.
pub fn all() -> Result<Vec<Row>, Failure> {
    let own = runtime_dir();
    let mut rows = rows_in(&own, false)?;
    rows.extend(rows_of_jobs(&own)?);
    if geteuid().is_root() && std::env::var_os(runtime_folder::VARIABLE).is_none() {
        let asked = Instant::now();
        for folder in runtime_folder::of_others(&own) {
            if asked.elapsed() > OTHERS_LIMIT {
                remark::note(format!(
                    "servers in {} and others were not asked: some do not answer",
                    folder.display()
                ));
                break;
            }
            rows.extend(rows_in(&folder, true)?);
            rows.extend(rows_of_jobs(&folder)?);
        }
    }
    rows.sort_by_key(|row| row.pid);
    rows.dedup_by_key(|row| row.pid);
    Ok(rows)
}

fn rows_of_jobs(folder: &Path) -> Result<Vec<Row>, Failure> {
    let jobs = job_folders::folders(&folder.join(job_folders::JOBS));
    jobs.iter().try_fold(vec![], |mut rows, job| {
        rows.extend(rows_in(job, true)?);
        Ok(rows)
    })
}

/// That one does not answer keeps nobody from listing the others.
fn tell(failure: &Failure) {
    remark::note(format!("{}: {}", failure.message, failure.notes.join("; ")));
}

/// Those whose servers have their sockets in `dir`; process ids of other namespaces are translated.
fn rows_in(dir: &Path, is_job: bool) -> Result<Vec<Row>, Failure> {
    let mut rows = vec![];
    for pid in list_servers(dir) {
        let mut socket = match ControlSocket::connect(&socket_path(dir, pid)) {
            Ok(socket) => socket,
            Err(RingError::NoServer { .. }) => continue,
            Err(error) if is_job => {
                tell(
                    &Failure::new(
                        Code::NoAnswer,
                        format!("{} does not answer", socket_path(dir, pid).display()),
                    )
                    .note(error.to_string()),
                );
                continue;
            }
            Err(error) => {
                tell(&no_answer(i32::try_from(pid).unwrap_or(-1), &error));
                continue;
            }
        };
        // Within, it is called otherwise.
        let seen = is_job.then(|| seen_from_here(&socket, pid)).flatten();
        if is_job && seen.is_none() {
            continue; // it is about to end
        }
        let called = i32::try_from(seen.map_or(pid, |(app, _)| app)).unwrap_or(-1);
        let mut status = match status(&mut socket, called, LIST_LIMIT) {
            Ok(status) => status,
            // A server that leaves while we ask is no row and no failure.
            Err(_) if !socket.is_alive() => continue,
            Err(failure) => {
                tell(&failure);
                continue;
            }
        };
        if let Some((app, server)) = seen {
            (status.app_pid, status.server_pid) = (app, server);
        }
        let process = i32::try_from(status.app_pid)
            .ok()
            .and_then(|pid| Process::new(pid).ok());
        let command = process
            .as_ref()
            .and_then(|process| process.cmdline().ok())
            .unwrap_or_default()
            .join(" ");
        rows.push(Row {
            pid: status.app_pid,
            server_pid: status.server_pid,
            device: status.device,
            state: match status {
                _ if status.is_suspended => "suspended",
                _ if status.is_paused => "paused",
                _ => "running",
            },
            allocated_bytes: status.allocated_bytes,
            memory_bytes: status.memory_bytes,
            running_kernels: status.kernels.len(),
            kernels: status.kernels,
            label: status.label,
            native_code: status.native_code,
            user: process
                .and_then(|process| process.status().ok())
                .map(|status| status.euid),
            command,
        });
    }
    Ok(rows)
}

/// What the process that is called `app` in the namespace of the server at the other end is called here, and the
/// server.
fn seen_from_here(socket: &ControlSocket, app: u32) -> Option<(u32, u32)> {
    let server = getsockopt(socket.as_stream(), PeerCredentials).ok()?.pid();
    let app = pids::find(&pids::namespace(server)?, i32::try_from(app).ok()?)?;
    Some((u32::try_from(app).ok()?, u32::try_from(server).ok()?))
}
