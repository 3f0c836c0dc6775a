//! Taking a program off its devices and letting it go on, where it is.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hetckpt_report::failure::Failure;
use hetckpt_report::remark;
use hetckpt_ring::failure_code::Code;

use crate::dump_lock::DumpLock;
use crate::process_tree;
use crate::server_client::{self, Hold};
use crate::target::Target;

/// What takes the content of device memory.
#[derive(Clone, Debug)]
pub enum Place {
    /// The device servers' memory.
    Ram,
    /// A file, made for it.
    File(PathBuf),
}

/// What was taken off devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Suspended {
    /// The slowest server's, from the request until no kernel ran any more.
    pub pause: Duration,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Processes that were suspended; the others had been before.
    pub processes: usize,
}

/// Suspends the tree of `target`. Kernels have `timeout_s` seconds to stop. After a failure it runs on.
pub fn suspend(target: &Target, place: &Place, timeout_s: u32) -> Result<Suspended, Failure> {
    let tree = target.tree();
    let _lock = DumpLock::take(&tree)?;
    let runs_on = |failure: Failure| {
        ended(target).unwrap_or_else(|| failure.state(format!("the program (pid {}) runs on", target.called())))
    };
    server_client::wait_for_starting(&tree).map_err(runs_on)?;
    let mut holds = running(target, &tree)?;
    // All of them first: processes may wait for one another.
    server_client::pause_all(&mut holds, timeout_s).map_err(runs_on)?;
    let mut done = Suspended::default();
    for at in 0..holds.len() {
        let file = MemoryFile::create(place, &holds[at], at == 0);
        let suspended = file.and_then(|file| file.suspend(&mut holds[at], timeout_s));
        match suspended {
            Ok(suspended) => {
                done.pause = done.pause.max(suspended.pause);
                done.memory_bytes += suspended.memory_bytes;
                done.processes += 1;
            }
            Err(failure) => {
                let stuck = holds.iter_mut().take(at).filter_map(|hold| hold.resume_on(None).err());
                return Err(match stuck.last() {
                    None => runs_on(failure),
                    Some(other) => failure
                        .note(format!("{}: {}", other.message, other.notes.join("; ")))
                        .state("a part of the program stays suspended; `hetckpt resume` lets it go on"),
                });
            }
        }
    }
    Ok(done)
}

/// Those of the tree's servers that are not suspended.
fn running(target: &Target, tree: &[i32]) -> Result<Vec<Hold>, Failure> {
    let (suspended, running) = by_state(target, tree, "suspended")?;
    if running.is_empty() && !suspended.is_empty() {
        remark::note(format!("process {} is suspended already", target.called()));
    }
    Ok(running)
}

/// Connections to the servers that are suspended, and to the others.
fn by_state(target: &Target, tree: &[i32], done: &str) -> Result<(Vec<Hold>, Vec<Hold>), Failure> {
    let holds = server_client::holds(tree)?;
    if holds.is_empty() {
        let what = format!("process {} has made no CUDA or OpenCL call yet", target.called());
        return Err(Failure::new(Code::NotUnderHetckpt, what)
            .note(format!("nothing was {done}: there is no device server"))
            .help("try again after the program's first call"));
    }
    let (mut suspended, mut running) = (vec![], vec![]);
    for mut hold in holds {
        match hold.status()?.is_suspended {
            true => suspended.push(hold),
            false => running.push(hold),
        }
    }
    Ok((suspended, running))
}

/// Lets the tree of `target` go on, on `device`; without one, on what each of its processes was started for. Gives how
/// many processes were suspended.
pub fn resume(target: &Target, device: Option<&str>) -> Result<usize, Failure> {
    let tree = target.tree();
    let _lock = DumpLock::take(&tree)?;
    let (mut suspended, _) = by_state(target, &tree, "resumed")?;
    if suspended.is_empty() {
        remark::note(format!("process {} is not suspended", target.called()));
    }
    for hold in &mut suspended {
        hold.resume_on(device).map_err(|failure| {
            let what = match tree.len() {
                1 => format!("the program (pid {})", target.called()),
                _ => format!("what has not gone on of the program (pid {})", target.called()),
            };
            ended(target).unwrap_or_else(|| {
                failure
                    .state(format!("{what} stays suspended"))
                    .help("free the device, or name another one: --device")
            })
        })?;
    }
    Ok(suspended.len())
}

/// The failure if the program has ended by itself: as long as it does not need its device it can.
fn ended(target: &Target) -> Option<Failure> {
    process_tree::has_ended_or_ends(target.pid).then(|| {
        let what = format!("process {} ended meanwhile", target.called());
        Failure::new(Code::NoSuchProcess, what)
    })
}

/// The file for the memory of one process. It is removed when this is dropped, unless it is in use.
struct MemoryFile(Option<(PathBuf, File)>);

impl MemoryFile {
    fn create(place: &Place, hold: &Hold, is_first: bool) -> Result<Self, Failure> {
        let Place::File(path) = place else {
            return Ok(Self(None));
        };
        let mut name = path.as_os_str().to_owned();
        if !is_first {
            name.push(format!(".{}", hold.app().unwrap_or(0)));
        }
        let cannot = |path: &Path, why: std::io::Error| {
            Failure::new(Code::CannotWrite, format!("cannot make {}", path.display()))
                .note(why.to_string())
                .help("name a file that does not exist, in a folder where you may write")
        };
        let path = std::path::absolute(&name).map_err(|e| cannot(Path::new(&name), e))?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|e| cannot(&path, e))?;
        Ok(Self(Some((path, file))))
    }

    fn suspend(mut self, hold: &mut Hold, timeout_s: u32) -> Result<server_client::Suspended, Failure> {
        let file = self.0.as_ref().map(|(path, file)| (path.as_path(), file));
        let suspended = hold.suspend(timeout_s, file)?;
        self.0 = None;
        Ok(suspended)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
