//! `hetckpt restore`: unpack what is packed, let CRIU and the plugin rebuild the program, and stand in for it.

use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use hetckpt_archive::manifest::Manifest;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::json;
use tempfile::TempDir;

use super::devices;
use crate::cli::Restore;
use crate::criu::locate::Criu;
use crate::diagnostic::Failure;
use crate::install::Installation;
use crate::result_file::ResultFile;
use crate::snapshot::Snapshot;
use crate::supervise::{self, HeldSignals, Relay};
use crate::{criu, output, snapshot_files, target};

/// Restores the program and, unless detached, stands in for it.
pub fn run(options: Restore) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let snapshot = Snapshot::open(&options.snapshot)?;
    let manifest = snapshot.manifest();
    let installation = Installation::find()?;
    let found = Criu::find()?;
    installation.require(installation.plugin_folder.join("hetgpu_plugin.so"))?;
    if !manifest.processes.is_empty() {
        devices::require(&installation, &options.device)?;
    }
    require_free_pids(manifest)?;
    let timings = options.timings.as_deref();
    let timings = timings.map(|path| ResultFile::open(path, "HK0704")).transpose()?;

    // Before the first thread starts: a thread that does not hold a signal back would take it, and end us.
    let held = HeldSignals::hold()?;
    output::progress("unpacking");
    let scratch = scratch_folder()?;
    let images = snapshot.images(scratch.path())?;
    let unpacked = start.elapsed();

    let stdio = Stdio::for_program(manifest, options.detach)?;
    output::progress("restoring processes");
    run_criu(&options, &installation, &found, images, scratch.path(), &stdio)?;
    output::progress_done();
    let restored = start.elapsed();
    let relays = stdio.into_relays();
    drop(scratch);
    if let Some(file) = timings {
        let text = json!({ "unpack": unpacked.as_secs_f64(), "criu": (restored - unpacked).as_secs_f64(), "total": restored.as_secs_f64() });
        file.write(&text.to_string());
    }
    if options.detach {
        output::line(manifest.root_pid.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    held.pass_to(manifest.root_pid);
    let code = supervise::wait_for(manifest.root_pid)?;
    relays.into_iter().for_each(Relay::finish);
    Ok(code)
}

/// CRIU gives processes the ids they had, so these must be free.
fn require_free_pids(manifest: &Manifest) -> Result<(), Failure> {
    let pid = manifest.root_pid;
    // Whoever had it may be a zombie whose parent is about to take notice.
    let is_free = || !target::is_in_use(pid);
    let may_get_free = target::is_gone(pid);
    if !(is_free() || may_get_free && target::wait_until(is_free)) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut failure = Failure::new(
            "HK0905",
            format!("process id {pid} of the snapshot is in use by `{}`", name.trim()),
        );
        if target::is_gone(pid) {
            failure = failure.note("that process has ended and waits for its parent to notice");
        }
        return Err(failure.help("end that process, or restore in a pid namespace of its own: unshare --pid --fork --mount-proc hetckpt restore …"));
    }
    Ok(())
}

/// A folder for CRIU's log and, where they come out of an archive, its images.
fn scratch_folder() -> Result<TempDir, Failure> {
    snapshot_files::private_folder(&std::env::temp_dir(), "hetckpt-restore-")
        .map_err(|e| Failure::new("HK0704", "cannot make a folder for the images").note(e.to_string()))
}

fn run_criu(
    options: &Restore,
    installation: &Installation,
    found: &Criu,
    images: &Path,
    scratch: &Path,
    stdio: &Stdio,
) -> Result<(), Failure> {
    let mut arguments: Vec<OsString> = vec!["--libdir".into(), installation.plugin_folder.clone().into_os_string()];
    arguments.extend(["--restore-detached", "--ghost-limit", "64M"].map(OsString::from));
    if !options.detach {
        arguments.push("--restore-sibling".into());
    }
    for (name, fd) in &stdio.inherited {
        arguments.extend(["--inherit-fd".into(), format!("fd[{}]:{name}", fd.as_raw_fd()).into()]);
    }
    // Not every dump has written down what processor it was on.
    if !options.any_processor && images.join("cpuinfo.img").exists() {
        arguments.push("--cpu-cap=ins".into());
    }
    if stdio.needs_shell_job {
        arguments.push("--shell-job".into());
    }
    let environment: [(&str, OsString); 3] = [
        ("HETCKPT_DEVICE", options.device.clone().into()),
        ("HETCKPT_SERVER", installation.server.clone().into_os_string()),
        ("HETCKPT_CPU_CODEGEN", installation.cpu_codegen().into_os_string()),
    ];
    let call = criu::run::Call {
        verb: "restore",
        images,
        work_folder: scratch,
        arguments: &arguments,
        environment: &environment,
        failure_code: "HK0904",
    };
    criu::run::run(found, &call).map_err(|failure| {
        failure
            .help("`hetckpt check` says what the snapshot needs and this machine lacks")
            .state("nothing was started; the snapshot is as it was")
    })
}

/// What the program gets in place of the pipes it had as stdin, stdout and stderr.
struct Stdio {
    /// CRIU's name of the old pipe and our descriptor for it.
    inherited: Vec<(String, OwnedFd)>,
    relays: Vec<Relay>,
    needs_shell_job: bool,
}

impl Stdio {
    fn for_program(manifest: &Manifest, detach: bool) -> Result<Self, Failure> {
        let mut result = Self {
            inherited: vec![],
            relays: vec![],
            needs_shell_job: false,
        };
        for (fd, name) in manifest.stdio.iter().enumerate().take(3) {
            let known = result.inherited.iter().any(|(inherited, _)| inherited == name);
            if !name.starts_with("pipe:[") || known {
                continue;
            }
            let ours = result.replacement(fd, detach)?;
            // CRIU, a program we start, needs it open.
            fcntl(&ours, FcntlArg::F_SETFD(FdFlag::empty()))
                .map_err(|e| Failure::new("HK0904", "cannot hand over a descriptor").note(e.to_string()))?;
            result.inherited.push((name.clone(), ours));
        }
        Ok(result)
    }

    /// Our own stream number `fd`; a pipe that is copied to it where it is a terminal, or /dev/null when nobody stays to copy.
    fn replacement(&mut self, fd: usize, detach: bool) -> Result<OwnedFd, Failure> {
        let is_terminal = match fd {
            0 => std::io::stdin().is_terminal(),
            1 => std::io::stdout().is_terminal(),
            _ => std::io::stderr().is_terminal(),
        };
        let cannot = |e: std::io::Error| Failure::new("HK0904", "cannot hand over a descriptor").note(e.to_string());
        if is_terminal && (detach || fd == 0) {
            return Ok(fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .map_err(cannot)?
                .into());
        }
        if let Some((pipe, relay)) = supervise::pipe_for_terminal(is_terminal, fd == 2)? {
            self.relays.push(relay);
            return Ok(pipe);
        }
        let own = match fd {
            0 => std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned(),
            1 => std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned(),
            _ => std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned(),
        };
        own.map_err(cannot)
    }

    /// Closes our ends; what is left copies until the program is gone.
    fn into_relays(self) -> Vec<Relay> {
        self.relays
    }
}
