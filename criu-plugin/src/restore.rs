//! What a restore needs beyond asking servers: starting them, finding the shim's socket and ring.

#![allow(unsafe_code, reason = "kill has no safe form here")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hetckpt_ring::app_memory::{AppMemory, PINNED_NAME, RING_NAME, open_pidfd};
use hetckpt_ring::consumer::Consumer;
use hetckpt_ring::control_socket::MAX_FDS;
use hetckpt_ring::error::RingError;
use hetckpt_ring::layout::TOTAL_BYTES;
use hetckpt_ring::message::{RESERVED, Request, Response};
use hetckpt_ring::pinned_table::PinnedArea;
use hetckpt_ring::server_start::is_ring_link;
use hetckpt_ring::version::Readable;

use crate::error::PluginError;
use crate::{client, host, log};

/// Starts a server for each process in the images that had one, and waits until all are ready: device chosen, memory
/// loaded, kernels compiled. They work at the same time.
pub fn start_servers() -> Result<(), PluginError> {
    let dir = host::image_dir()?;
    let pids = processes_in(&dir)?;
    let Some((first, others)) = pids.split_first() else {
        return Ok(());
    };
    if !host::claim_inventory() {
        return Err(PluginError::NotMarked);
    }
    let server = server_program()?;
    let start = |&pid: &u32| match spawn(&server, &dir, pid) {
        Ok(child) => Ok((pid, child)),
        Err(source) => Err(PluginError::StartServer {
            program: server.clone(),
            source,
        }),
    };
    let mut started = vec![start(first)?];
    let mut failure = None;
    // Of several restores at the same time, the one that comes by the first process goes on. Did each begin with all of
    // them, each could come by some.
    if started.iter_mut().all(|(_, child)| is_reserved(child)) {
        for pid in others {
            start(pid).map_or_else(|error| failure = Some(error), |server| started.push(server));
        }
    }
    // All are waited for even if one fails: nobody else would look at what became of them.
    for (pid, child) in started {
        if let Err(error) = wait_until_ready(pid, child) {
            failure.get_or_insert(error);
        }
    }
    // The others leave when this process ends.
    failure.map_or(Ok(()), Err)
}

fn spawn(server: &Path, dir: &Path, pid: u32) -> std::io::Result<Child> {
    Command::new(server)
        .arg("--restore")
        .arg(dir)
        .args(["--pid", &pid.to_string()])
        // It leaves with this process, if that comes to nothing.
        .args(["--restorer", &std::process::id().to_string()])
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Waits until the server that `child` starts has its process for itself; false if it cannot.
fn is_reserved(child: &mut Child) -> bool {
    let mut line = String::new();
    let stdout = child.stdout.take().map(BufReader::new);
    stdout.is_some_and(|mut stdout| stdout.read_line(&mut line).is_ok()) && line == RESERVED
}

/// Waits until the server for process `pid`, which `child` starts, is ready, and connects to it.
fn wait_until_ready(pid: u32, child: Child) -> Result<(), PluginError> {
    let output = child
        .wait_with_output()
        .map_err(|source| PluginError::UnknownEnd { pid, source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(PluginError::CannotTakeOver { pid, said });
    }
    if !client::connect(pid)? {
        return Err(PluginError::DoesNotListen { pid });
    }
    log::info(&format!("device server for process {pid} is ready"));
    Ok(())
}

/// Processes whose device state lies among the images.
fn processes_in(dir: &Path) -> Result<Vec<u32>, PluginError> {
    let entries = fs::read_dir(dir).map_err(|source| PluginError::Read {
        path: dir.to_owned(),
        source,
    })?;
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_prefix("hetgpu-")?
                .strip_suffix(".json")?
                .parse()
                .ok()
        })
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

/// `$HETCKPT_SERVER`, else the one of the installation that this plugin belongs to.
fn server_program() -> Result<PathBuf, PluginError> {
    if let Some(named) = std::env::var_os("HETCKPT_SERVER").filter(|name| !name.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    // CRIU's folder may have a link to it.
    let plugin = host::own_path().and_then(|path| path.canonicalize().ok());
    let plugin = plugin.ok_or(PluginError::UnknownPlugin)?;
    let candidates = [
        plugin.parent().map(|p| p.join("../../bin/hetckpt-server")),
        Some("/usr/bin/hetckpt-server".into()),
    ];
    candidates
        .into_iter()
        .flatten()
        .find(|path| path.exists())
        .ok_or(PluginError::NoServerProgram)
}

fn socket_file(inode: u32) -> Result<PathBuf, PluginError> {
    Ok(host::image_dir()?.join(format!("hetgpu-socket-{inode}")))
}

/// Notes among the images that the socket with `inode` is the one of process `pid` to its server.
pub fn note_socket(inode: u32, pid: u32) -> Result<(), PluginError> {
    let path = socket_file(inode)?;
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        writeln!(file, "{pid}")
    };
    write().map_err(|source| PluginError::Write { path, source })
}

/// The process that [`note_socket`] noted; `None` for sockets that are not ours.
pub fn process_of_socket(inode: u32) -> Result<Option<u32>, PluginError> {
    let path = socket_file(inode)?;
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(pid) => Ok(Some(pid)),
            Err(_) => Err(PluginError::Damaged { path }),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PluginError::Read { path, source }),
    }
}

/// Hands the ring, the pinned memory and a pidfd of the restored process to its server, which runs the kernels on.
pub fn attach(pid: u32) -> Result<(), PluginError> {
    let ring = open_ring(pid)?;
    let pinned = pinned_areas(pid, &ring)?;
    for areas in pinned.chunks(MAX_FDS) {
        let fds = memfds(pid, areas)?;
        let areas = areas.to_vec();
        ask(pid, &Request::AddPinned { areas }, &fds)?;
    }
    let pidfd = open_pidfd(pid).map_err(of_program("pidfd", pid))?;
    let num_pinned = pinned.len() as u64;
    ask(pid, &Request::Attach { pid, num_pinned }, &[ring, pidfd])
}

/// Makes sure that [`attach`] would find all it needs in process `pid`, which has been captured: the program itself
/// keeps account of its pinned memory.
pub fn ensure_attachable(pid: u32) -> Result<(), PluginError> {
    let ring = open_ring(pid)?;
    for areas in pinned_areas(pid, &ring)?.chunks(MAX_FDS) {
        memfds(pid, areas)?;
    }
    Ok(())
}

fn ask(pid: u32, request: &Request, fds: &[OwnedFd]) -> Result<(), PluginError> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    match client::ask(pid, request, &fds, None)? {
        Response::Done { .. } => Ok(()),
        other => Err(PluginError::UnexpectedAnswer {
            request: Box::new(request.clone()),
            answer: Box::new(other),
        }),
    }
}

fn pinned_areas(pid: u32, ring: &OwnedFd) -> Result<Vec<PinnedArea>, PluginError> {
    let (_, side) = Consumer::open(ring.as_fd(), Readable::HERE).map_err(of_program("ring", pid))?;
    Ok(side.pinned_table().areas())
}

fn memfds(pid: u32, areas: &[PinnedArea]) -> Result<Vec<OwnedFd>, PluginError> {
    let memfd = |area: &PinnedArea| {
        let memory = AppMemory {
            pid,
            fd: area.fd,
            name: PINNED_NAME,
            size_bytes: area.size_bytes,
        };
        memory.take().map_err(of_program("pinned memory", pid))
    };
    areas.iter().map(memfd).collect()
}

fn of_program(what: &'static str, pid: u32) -> impl Fn(RingError) -> PluginError {
    move |source| PluginError::OfProgram { what, pid, source }
}

fn open_ring(pid: u32) -> Result<OwnedFd, PluginError> {
    let path = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = fs::read_dir(&path).map_err(|source| PluginError::Read { path, source })?;
    for entry in entries.flatten() {
        let is_ring = fs::read_link(entry.path()).is_ok_and(|link| is_ring_link(&link));
        if let (true, Some(fd)) = (is_ring, entry.file_name().to_str().and_then(|name| name.parse().ok())) {
            let ring = AppMemory {
                pid,
                fd,
                name: RING_NAME,
                size_bytes: TOTAL_BYTES as u64,
            };
            return ring.take().map_err(of_program("ring", pid));
        }
    }
    Err(PluginError::NoRing { pid })
}

/// Ends a process that was rebuilt but cannot be resumed.
pub fn end_process(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: kill touches no memory; CRIU holds the process frozen, or it was just seen to have a ring, so its id
        // has not been reused.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
