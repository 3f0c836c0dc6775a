//! Starting a program and standing in for it: passing on its output, signals and exit status.

use hetckpt_ring::failure_code::Code;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::sys::signal::Signal;
use nix::sys::stat::{SFlag, fstat};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use hetckpt_report::failure::Failure;
use hetckpt_report::installation::Installation;
use hetckpt_report::{exit, remark};
use hetckpt_ring::virtual_gpu::{VIRTUAL_GPU_ENV, VirtualGpu};

use crate::checkpoint_service::CheckpointService;
use crate::hidden_verbs::LAUNCH;
use crate::launch::MARK;
use crate::namespaces;
use crate::relay::{Relay, copied_pipe, is_foreign};
use crate::result_file::ResultFile;
use crate::signals::HeldSignals;

/// Nobody has said anything to who waits for the program here. Not into a file, which the program may share: a restore
/// would find it longer than it was.
fn remark_on_kill(pid: i32) {
    let is_file =
        fstat(io::stderr()).is_ok_and(|found| SFlag::from_bits_truncate(found.st_mode).contains(SFlag::S_IFREG));
    if is_file {
        return;
    }
    remark::note(format!(
        "process {pid} was killed, as a dump does with a program that it has stored"
    ));
}

/// Waits for a child of ours and gives the exit status a shell would.
pub fn wait_for(pid: i32) -> Result<ExitCode, Failure> {
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                if signal == Signal::SIGKILL {
                    remark_on_kill(pid);
                }
                return Ok(ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1)));
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => {
                return Err(Failure::new(Code::StandIn, format!("cannot wait for process {pid}")).note(e.to_string()));
            }
        }
    }
}

/// Variables by which frameworks hand over PTX, too, and not machine code alone, which only a GPU of its kind runs and
/// which stops at kernels' ends alone. Triton takes the paths of assemblers: ours keep the PTX beside their output.
fn keeping_ptx(installation: &Installation) -> impl Iterator<Item = (&'static str, OsString)> {
    let assembler = |file| installation.library_folder.join(file);
    let assemblers = [
        ("TRITON_PTXAS_PATH", assembler("ptxas")),
        ("TRITON_PTXAS_BLACKWELL_PATH", assembler("ptxas-blackwell")),
    ];
    let assemblers = assemblers.into_iter().filter(|(_, path)| path.exists());
    let assemblers = assemblers.map(|(name, path)| (name, path.into_os_string()));
    assemblers.chain([("CUPY_COMPILE_WITH_PTX", "1".into())])
}

/// Starts `command` under the shim, stands in for it until it ends, and gives its exit status. Checkpoints that it asks
/// for itself are made by the job that listens at `job`, if there is one.
pub fn run(
    installation: &Installation,
    device: &str,
    virtual_gpu: Option<VirtualGpu>,
    command: &[OsString],
    pid_file: Option<&Path>,
    job: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let shim = installation.require(installation.shim())?;
    installation.require(installation.server.clone())?;
    let cannot = |e: io::Error| {
        let name = command
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Failure::new(Code::StandIn, format!("cannot run {name}")).note(e.to_string())
    };
    let is_inside = namespaces::is_inside();
    // Within, the process id is another than the one to be told.
    let pid_file = pid_file.filter(|_| !is_inside);
    let pid_file = pid_file.map(|path| ResultFile::open(path, Code::StandIn)).transpose()?;
    let held = HeldSignals::hold()?;
    let out = copied_pipe(io::stdout().is_terminal() || is_foreign(1), false)?;
    let err = copied_pipe(io::stderr().is_terminal() || is_foreign(2), true)?;

    let checkpoints = CheckpointService::listen(job);
    let mut launch = Command::new(std::env::current_exe().map_err(cannot)?);
    launch.arg(LAUNCH);
    if is_inside {
        launch.arg("--inside");
    }
    launch.arg("--").args(command);
    launch.env("HETCKPT_DEVICE", device).env(MARK, &shim);
    if let Some(gpu) = virtual_gpu {
        launch.env(VIRTUAL_GPU_ENV, gpu.to_string());
    }
    for (name, value) in keeping_ptx(installation) {
        // What the user sets stays.
        if std::env::var_os(name).is_none() {
            launch.env(name, value);
        }
    }
    launch.env_remove(namespaces::INSIDE);
    launch.env(
        "LD_LIBRARY_PATH",
        prepend(
            &installation.library_folder,
            std::env::var_os("LD_LIBRARY_PATH").as_deref(),
        ),
    );
    // There Numba is told to link by the driver.
    if let Some(folder) = installation.python_startup() {
        let path = prepend(&folder, std::env::var_os("PYTHONPATH").as_deref());
        launch.env("PYTHONPATH", path);
    }
    show_opencl(&mut launch, installation);
    if io::stdin().is_terminal() {
        launch.stdin(Stdio::null());
    }
    let mut relays = vec![];
    if let Some((pipe, relay)) = out {
        launch.stdout(pipe);
        relays.push(relay);
    }
    if let Some((pipe, relay)) = err {
        launch.stderr(pipe);
        relays.push(relay);
    }
    if is_inside {
        namespaces::leave_ids_to_program();
    }
    let mut child = launch.spawn().map_err(cannot)?;
    drop(launch); // with our ends of the pipes
    let pid = i32::try_from(child.id()).unwrap_or(-1);
    if let Some(file) = pid_file {
        file.write(&format!("{pid}\n"));
    }
    if is_inside {
        namespaces::tell_root_pid(pid);
    }
    held.pass_to(pid);
    checkpoints.iter().for_each(|service| service.serve(pid));
    let status = child.wait().map_err(cannot)?;
    relays.into_iter().for_each(Relay::finish);
    if status.signal() == Some(Signal::SIGKILL as i32) {
        remark_on_kill(pid);
    }
    Ok(exit::from_wait_status(status))
}

/// Has the OpenCL loader find our ICD and no other: a vendor's driver in the program could not be dumped.
///
/// `OCL_ICD_VENDORS` is the folder of ICDs for both loaders in use, ocl-icd and Khronos's; with a slash at its end,
/// because the older ones of Khronos's append names as they are. What the user had set goes under another name, for the
/// device server: its OpenCL devices are the user's.
fn show_opencl(launch: &mut Command, installation: &Installation) {
    let Some(folder) = installation.opencl_vendors() else {
        return;
    };
    for name in ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"] {
        if let Some(value) = std::env::var_os(name) {
            launch.env(format!("HETCKPT_{name}"), value).env_remove(name);
        }
    }
    let mut vendors = folder.into_os_string();
    vendors.push("/");
    launch.env("OCL_ICD_VENDORS", vendors);
}

fn prepend(folder: &Path, path: Option<&OsStr>) -> OsString {
    let mut result = folder.as_os_str().to_owned();
    if let Some(path) = path.filter(|p| !p.is_empty()) {
        result.push(":");
        result.push(path);
    }
    result
}
