//! The hooks, in the order in which CRIU calls them. At dump: `init`, `pause_devices` for each process, then (all
//! frozen) `checkpoint_devices` for each, `dump_unix_sk` for each socket, `exit`. At restore: `init`, `restore_unix_sk`
//! and `restore_ext_file` in the children, `resume_devices_late` for each process, `exit`. At pre-dump: `init` and
//! `pause_devices` only.

#![allow(unsafe_code, reason = "CRIU lends descriptors by number")]

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::server_start::owns_ring;

use crate::error::PluginError;
use crate::guard::guard;
use crate::{client, eventfds, go_ahead, host, log, restore, threads, user};

const STAGE_DUMP: c_int = 0;
const STAGE_PRE_DUMP: c_int = 1;
const STAGE_RESTORE: c_int = 2;

/// Seconds that kernels have to stop, in CRIU's environment; where it is missing, the servers decide.
const PAUSE_VARIABLE: &str = "HETCKPT_PAUSE_TIMEOUT";

/// How long a server that decides by itself may take. CRIU gives all `PAUSE_DEVICES` together ten seconds unless its
/// `--timeout` says otherwise, and aborts when one does not return.
const PAUSE_LIMIT: Duration = Duration::from_secs(8);

/// How much longer than the kernels a server has to answer that they did not stop.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// How many programs a process may become while its kernels are being stopped.
const PROGRAMS_OF_A_PROCESS: u32 = 5;

/// The images made by this CRIU are marked as needing the plugin.
static IN_INVENTORY: AtomicBool = AtomicBool::new(false);

/// Memory alone is copied, ahead of a dump.
static IS_PRE_DUMP: AtomicBool = AtomicBool::new(false);

/// All of a restore that can be done before any process exists happens here: what is left then is handing over
/// descriptors. Of a dump, waiting until it may begin.
pub extern "C" fn init(stage: c_int) -> c_int {
    IS_PRE_DUMP.store(stage == STAGE_PRE_DUMP, Ordering::Relaxed);
    guard("init", || match stage {
        STAGE_RESTORE => restore::start_servers().map(|()| Some(0)),
        STAGE_DUMP => go_ahead::wait().map(|()| Some(0)),
        _ => Ok(Some(0)),
    })
}

/// Lets go of the servers: those of a dump resume their kernels if their process still lives.
pub extern "C" fn exit(stage: c_int, result: c_int) {
    guard("exit", || {
        let attached = match (stage, result) {
            (STAGE_RESTORE, 0) => attach_left_out(),
            _ => Ok(()),
        };
        // One CRIU process may do several dumps.
        IN_INVENTORY.store(false, Ordering::Relaxed);
        client::disconnect_all();
        attached.map(|()| Some(0))
    });
}

/// A plugin before this one may have answered [`resume_devices_late`] for processes that are ours. They run by now, and
/// wait for their servers.
fn attach_left_out() -> Result<(), PluginError> {
    // Another process, without a ring, may have its id by now.
    let end = |pid: u32| {
        if owns_ring(pid) {
            restore::end_process(pid);
        }
    };
    let attach = |pid: u32| restore::attach(pid).inspect_err(|_| end(pid));
    let failures = client::left_undone().into_iter().filter_map(|pid| attach(pid).err());
    let failures: Vec<PluginError> = failures.collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(PluginError::Several(failures)),
    }
}

/// The process still runs; its kernels must stop, and nothing of it may be lost while it is being frozen. A server that
/// is starting needs the running process to get ready; one whose process ends or becomes another program meanwhile has
/// nothing to stop, but the other program may have.
pub extern "C" fn pause_devices(pid: c_int) -> c_int {
    guard("pause_devices", || {
        let Ok(pid) = u32::try_from(pid) else { return Ok(None) };
        let root = client::root_of_dump(pid);
        for _ in 0..PROGRAMS_OF_A_PROCESS {
            client::wait_for_start(pid)?;
            if !client::connect(pid)? {
                return Ok(None);
            }
            if IS_PRE_DUMP.load(Ordering::Relaxed) {
                // What CRIU tells of as written since belongs to the process's own page tables; its server writes
                // pinned memory by others.
                return Err(PluginError::PreDump { pid });
            }
            client::ensure_outside(pid, root)?;
            match pause(pid) {
                Err(_) if client::was_left(pid) => {}
                result => return result.map(|()| Some(0)),
            }
        }
        Err(PluginError::BecomesOthers { pid })
    })
}

fn pause(pid: u32) -> Result<(), PluginError> {
    let limit = pause_limit(std::env::var(PAUSE_VARIABLE).ok().as_deref());
    let limit_ms = limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let patience = limit.map_or(PAUSE_LIMIT, |limit| limit.saturating_add(ANSWER_MARGIN));
    let request = Request::Pause { limit_ms };
    match client::ask(pid, &request, &[], Some(patience))? {
        Response::Done { elapsed_us } => {
            log::info(&format!("kernels of process {pid} stopped after {elapsed_us} us"));
            Ok(())
        }
        other => Err(unexpected(request, other)),
    }
}

fn unexpected(request: Request, answer: Response) -> PluginError {
    PluginError::UnexpectedAnswer {
        request: Box::new(request),
        answer: Box::new(answer),
    }
}

/// All processes are frozen and nothing is dumped yet: the server writes the device state among the images. A process
/// that made its first CUDA call after [`pause_devices`] cannot be dumped: frozen, it can neither finish that call nor
/// pause.
pub extern "C" fn checkpoint_devices(pid: c_int) -> c_int {
    guard("checkpoint_devices", || {
        let Ok(pid) = u32::try_from(pid) else { return Ok(None) };
        threads::note(pid)?;
        if !client::is_connected(pid) || client::became_another_program(pid) {
            client::ensure_no_server(pid)?;
            return client::ensure_server_not_lost(pid).map(|()| None);
        }
        if !IN_INVENTORY.swap(true, Ordering::Relaxed) {
            host::add_to_inventory()?;
        }
        let user = user::of_server(pid, client::server_user(pid))?;
        let dir = host::image_dir_fd()?;
        // SAFETY: CRIU keeps its image directory open during every hook.
        let dir = unsafe { BorrowedFd::borrow_raw(dir) };
        match client::ask(pid, &Request::Capture, &[dir], None) {
            // The ring is another program's than the server.
            Err(_) if client::was_left(pid) => client::ensure_no_server(pid).map(|()| None),
            Err(error) => Err(error),
            Ok(Response::Captured { memory_bytes, .. }) => {
                restore::ensure_attachable(pid)?;
                user::note(pid, user)?;
                client::note_done(pid);
                log::info(&format!(
                    "device state of process {pid} written, {memory_bytes} bytes of device memory"
                ));
                Ok(Some(0))
            }
            Ok(other) => Err(unexpected(Request::Capture, other)),
        }
    })
}

/// The shim's connection to its server: noted by inode, so that the restored process gets one to the new server. CRIU
/// has copied all memory by now: it is too late to capture what another plugin has kept from [`checkpoint_devices`].
pub extern "C" fn dump_unix_sk(fd: c_int, inode: c_int) -> c_int {
    guard("dump_unix_sk", || {
        if fd < 0 {
            return Ok(None);
        }
        // SAFETY: CRIU lends the socket for the time of the call.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let Some(pid) = client::server_peer(socket) else {
            return Ok(None);
        };
        if !client::is_done(pid) {
            // CRIU asks no plugin behind one that answers, be it that there was nothing to do.
            return Err(PluginError::NotAsked { pid });
        }
        restore::note_socket(inode.cast_unsigned(), pid)?;
        Ok(Some(0))
    })
}

/// Gives the process being restored a socket connected to its new server.
pub extern "C" fn restore_unix_sk(inode: c_int) -> c_int {
    guard("restore_unix_sk", || {
        match restore::process_of_socket(inode.cast_unsigned())? {
            Some(pid) => Ok(Some(client::socket_for(pid)?.into_raw_fd())),
            None => Ok(None),
        }
    })
}

/// Makes a file of the process being restored that was left to a plugin.
pub extern "C" fn restore_ext_file(id: c_int) -> c_int {
    guard("restore_ext_file", || {
        Ok(eventfds::make(id.cast_unsigned())?.map(IntoRawFd::into_raw_fd))
    })
}

/// The process is rebuilt and frozen: its server gets the ring and runs the kernels on. CRIU ignores a failure here, so
/// a process whose device cannot be resumed is ended: that is the one way to make the restore fail.
pub extern "C" fn resume_devices_late(pid: c_int) -> c_int {
    guard("resume_devices_late", || {
        let Ok(pid) = u32::try_from(pid) else { return Ok(None) };
        threads::set(pid);
        if !client::is_connected(pid) {
            return Ok(None);
        }
        restore::attach(pid).inspect_err(|_| restore::end_process(pid))?;
        client::note_done(pid);
        Ok(Some(0))
    })
}

/// The limit that `text`, in seconds, sets for kernels to stop; `None` if it sets none.
fn pause_limit(text: Option<&str>) -> Option<Duration> {
    let seconds = text?.parse::<f64>().ok()?;
    let limit = Duration::try_from_secs_f64(seconds).ok()?;
    // Less than the protocol can say would mean none at all.
    (limit > Duration::ZERO).then(|| limit.max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_positive_number_of_seconds() {
        for (text, expected_ms) in [("20", 20_000), ("0.5", 500), ("0.0001", 1)] {
            let expected = Some(Duration::from_millis(expected_ms));
            assert_eq!(pause_limit(Some(text)), expected, "{text}");
        }
        for text in [None, Some(""), Some("0"), Some("-1"), Some("soon"), Some("1e300")] {
            assert_eq!(pause_limit(text), None, "{text:?}");
        }
    }
}
