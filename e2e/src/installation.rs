//! Where the parts under test are, and what this machine lacks to test them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::user;

/// CRIU's own plugin for programs that have NVIDIA's driver.
pub const CUDA_PLUGIN: &str = "cuda_plugin.so";

/// CRIU's own plugin for programs that have AMD's.
pub const AMDGPU_PLUGIN: &str = "amdgpu_plugin.so";

/// The staged tree, the test programs and CRIU. Each has an environment variable and a default that `make` uses.
#[derive(Clone, Debug)]
pub struct Installation {
    /// `HETCKPT_STAGE`: holds `bin` and `lib` (default `target/stage`).
    pub stage: PathBuf,
    /// `HETCKPT_PROGRAMS`: the compiled test programs (default `target/e2e/programs`).
    pub programs: PathBuf,
    /// `HETCKPT_CRIU`: the criu program (default `~/.cache/hetckpt/criu/bin/criu`).
    pub criu: PathBuf,
    /// `HETCKPT_E2E_STATE`: what one run of the tests leaves for the next: calibration, translated kernels (default
    /// `target/e2e/state`).
    pub state: PathBuf,
}

impl Installation {
    /// The one of this process.
    pub fn get() -> &'static Self {
        static FOUND: OnceLock<Installation> = OnceLock::new();
        FOUND.get_or_init(Self::find)
    }

    fn find() -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = variable("CARGO_TARGET_DIR").unwrap_or_else(|| workspace.join("target"));
        let home = variable("HOME").unwrap_or_else(|| PathBuf::from("/root"));
        let cache = variable("HETCKPT_CACHE").unwrap_or_else(|| home.join(".cache/hetckpt"));
        Self {
            stage: variable("HETCKPT_STAGE").unwrap_or_else(|| target.join("stage")),
            programs: variable("HETCKPT_PROGRAMS").unwrap_or_else(|| target.join("e2e/programs")),
            criu: variable("HETCKPT_CRIU").unwrap_or_else(|| cache.join("criu/bin/criu")),
            state: variable("HETCKPT_E2E_STATE").unwrap_or_else(|| target.join("e2e/state")),
        }
    }

    /// `bin/hetckpt`.
    #[must_use]
    pub fn hetckpt(&self) -> PathBuf {
        self.stage.join("bin/hetckpt")
    }

    /// The folder of the CRIU plugin.
    #[must_use]
    pub fn plugin_folder(&self) -> PathBuf {
        self.stage.join("lib/criu")
    }

    /// The folder of the shim.
    #[must_use]
    pub fn shim_folder(&self) -> PathBuf {
        self.stage.join("lib/hetckpt")
    }

    /// The folder of CRIU's own plugins, which belong to one version of it: `HETCKPT_E2E_CRIU_PLUGINS`, else one of the
    /// prefix that the CRIU under test was installed in, if there are any.
    ///
    /// A CRIU in a prefix of its own looks in `/usr/lib/criu` too, but what lies there is the system's CRIU's.
    #[must_use]
    pub fn criu_plugins(&self) -> Option<PathBuf> {
        if let Some(given) = variable("HETCKPT_E2E_CRIU_PLUGINS") {
            return Some(given);
        }
        let program = self.criu.canonicalize().ok()?;
        let prefix = program.parent()?.parent()?;
        let folders = ["lib", "lib64", "lib/x86_64-linux-gnu", "root/usr/lib"];
        let mut folders = folders.into_iter().map(|folder| prefix.join(folder).join("criu"));
        folders.find(|folder| folder.join(CUDA_PLUGIN).is_file())
    }

    /// The devices that `hetckpt devices --json` lists.
    ///
    /// # Errors
    /// If the command fails.
    pub fn devices(&self) -> Result<Vec<Value>> {
        let mut command = Command::new(self.hetckpt());
        // OpenCL's implementations leave files in the user's home.
        user::equip(&mut command);
        let output = command.args(["devices", "--json"]).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{} cannot be run", self.hetckpt().display()))?;
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "`hetckpt devices --json` says {}",
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    /// Device the tests start programs on: `HETCKPT_E2E_FROM`, else `HETCKPT_DEVICE`, else `auto`.
    #[must_use]
    pub fn from_device() -> String {
        first_variable(&["HETCKPT_E2E_FROM", "HETCKPT_DEVICE"])
    }

    /// Device the tests restore programs on: `HETCKPT_E2E_TO`, else as [`Installation::from_device`].
    #[must_use]
    pub fn to_device() -> String {
        first_variable(&["HETCKPT_E2E_TO", "HETCKPT_E2E_FROM", "HETCKPT_DEVICE"])
    }

    /// The two ways between two kinds of device that a program takes from node to node: there and back, between
    /// `HETCKPT_E2E_FROM` and `HETCKPT_E2E_TO` if both are set, else between the CPU and an OpenCL device.
    #[must_use]
    pub fn ways_between_nodes() -> [(String, String); 2] {
        let given = ["HETCKPT_E2E_FROM", "HETCKPT_E2E_TO"].map(|name| std::env::var(name).unwrap_or_default());
        let [one, other] = match given.iter().any(String::is_empty) {
            true => ["cpu", "opencl"].map(str::to_owned),
            false => given,
        };
        [(one.clone(), other.clone()), (other, one)]
    }
}

/// The path that the environment variable `name` holds, if any.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn first_variable(names: &[&str]) -> String {
    let values = names.iter().filter_map(|name| std::env::var(name).ok());
    values
        .into_iter()
        .find(|value| !value.is_empty())
        .unwrap_or_else(|| "auto".to_owned())
}

/// What a test needs beside the staged tree. Nothing else is a reason to skip one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// What CRIU needs to dump and restore: root, or else namespaces, which hetckpt makes.
    Privileges,
    /// The same for plain CRIU, for which nobody makes namespaces.
    Root,
    /// A CRIU program; its version is the tested program's business.
    Criu,
    /// The plugin for CUDA that CRIU brings itself.
    CriuPlugins,
    /// The compiled test programs, for which nvcc is needed.
    Programs,
    /// The compiled OpenCL programs, for which headers are needed, and what programs are built with at run time.
    OpenclPrograms,
    /// An OpenCL device.
    OpenclDevice,
    /// An NVIDIA GPU.
    Gpu,
    /// Programs start on the CPU, not on a GPU.
    CpuOnly,
    /// No program is on an OpenCL device: these have no virtual memory management and no barriers of parts of a block,
    /// and those that are CPUs have no room for two blocks that wait for one another.
    NoOpenclDevice,
    /// Programs that start elsewhere do not go on on an NVIDIA GPU, which cannot bring lanes into step again.
    StaysInStep,
    /// File systems can be mounted; not everywhere where one is root.
    Mounting,
    /// Faults of a program and of its system calls can be handed over, as memory that moves by page needs it.
    MovingPages,
    /// Slurm's programs and munge's.
    Slurm,
    /// Open MPI's `mpirun`, and the test programs for it.
    Mpi,
    /// `s3s-fs`, an S3 server.
    S3Server,
    /// Driver calls can be traced, for which eBPF programs must be permitted.
    Tracing,
    /// The program `clinfo`.
    Clinfo,
    /// The program `python3`.
    Python,
}

/// Why it is so.
fn cannot_move_pages() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|text| text.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(6)) {
        return Some("needs Linux 6.6".to_owned());
    }
    let opened = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd");
    opened.err().map(|error| format!("needs /dev/userfaultfd: {error}"))
}

impl Requirement {
    /// What tests need that run programs on `devices`.
    #[must_use]
    pub fn of_devices(devices: [&str; 2]) -> Option<Self> {
        let is_opencl = |device: &str| device.starts_with("opencl");
        devices.into_iter().any(is_opencl).then_some(Self::OpenclDevice)
    }

    /// Why it is not met here, if so. Looked at once for all tests.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        static LOOKED_AT: Mutex<Vec<(Requirement, Option<String>)>> = Mutex::new(Vec::new());
        let mut looked_at = LOOKED_AT.lock();
        let known = looked_at.iter().find(|(requirement, _)| *requirement == self);
        if let Some((_, missing)) = known {
            return missing.clone();
        }
        let missing = self.look();
        looked_at.push((self, missing.clone()));
        missing
    }

    fn look(self) -> Option<String> {
        let installation = Installation::get();
        match self {
            Self::Privileges => cannot_isolate().map(|why| format!("needs root, or user namespaces: {why}")),
            Self::Root if nix::unistd::geteuid().is_root() && user::tested().is_none() => None,
            Self::Root => Some("needs root".to_owned()),
            Self::MovingPages => cannot_move_pages(),
            Self::Criu if installation.criu.is_file() => None,
            Self::Criu => Some(format!("there is no CRIU at {}", installation.criu.display())),
            Self::CriuPlugins => match installation.criu_plugins() {
                Some(folder) if folder.join(CUDA_PLUGIN).is_file() => None,
                Some(folder) => Some(format!("{} holds no {CUDA_PLUGIN}", folder.display())),
                None => Some("CRIU was installed without its own plugins".to_owned()),
            },
            Self::Programs if installation.programs.join("paced").is_file() => None,
            Self::Programs => Some(format!(
                "{} holds no programs (needs nvcc)",
                installation.programs.display()
            )),
            Self::OpenclPrograms if !installation.programs.join("cl_matmul").is_file() => Some(format!(
                "{} holds no OpenCL programs (needs OpenCL headers)",
                installation.programs.display()
            )),
            Self::OpenclPrograms if !has_opencl_compiler() => Some("needs clang and libclc for nvptx64".to_owned()),
            Self::OpenclPrograms => None,
            Self::OpenclDevice if has_opencl_device() => None,
            Self::OpenclDevice => Some("there is no OpenCL device".to_owned()),
            Self::Gpu if starts_on_gpu() => None,
            Self::Gpu => Some("needs an NVIDIA GPU".to_owned()),
            Self::NoOpenclDevice => {
                let devices = [Installation::from_device(), Installation::to_device()];
                let reason = "OpenCL devices do not have what it needs";
                Self::of_devices([&devices[0], &devices[1]]).map(|_| reason.to_owned())
            }
            Self::StaysInStep if starts_on_gpu() || !Installation::to_device().starts_with("cuda") => None,
            Self::StaysInStep => Some("a GPU cannot bring lanes into step again".to_owned()),
            Self::CpuOnly if !starts_on_gpu() => None,
            Self::CpuOnly => Some("is about programs that start on the CPU".to_owned()),
            Self::Slurm => ["slurmctld", "slurmd", "sbatch", "munged"]
                .into_iter()
                .find(|program| !is_on_path(program))
                .map(|program| format!("needs Slurm: there is no {program} on PATH")),
            Self::Mpi if !is_on_path("mpirun") => Some("needs Open MPI: there is no mpirun on PATH".to_owned()),
            Self::Mpi if installation.programs.join("mpi_ring").is_file() => None,
            Self::Mpi => Some(format!("{} holds no MPI programs", installation.programs.display())),
            Self::S3Server if s3_server().is_file() => None,
            Self::S3Server => Some(format!("there is no S3 server at {}", s3_server().display())),
            Self::Mounting => cannot_mount().map(|why| format!("cannot mount a file system: {why}")),
            Self::Tracing => cannot_trace().map(|why| format!("cannot trace driver calls: {why}")),
            Self::Clinfo if Command::new("clinfo").arg("-v").output().is_ok() => None,
            Self::Clinfo => Some("there is no clinfo".to_owned()),
            Self::Python if is_on_path("python3") => None,
            Self::Python => Some("there is no python3 on PATH".to_owned()),
        }
    }
}

/// The S3 server that `e2e/setup/install-s3-server.sh` builds.
#[must_use]
pub fn s3_server() -> PathBuf {
    let home = variable("HOME").unwrap_or_else(|| PathBuf::from("/root"));
    let cache = variable("HETCKPT_CACHE").unwrap_or_else(|| home.join(".cache/hetckpt"));
    cache.join("s3-server/bin/s3s-fs")
}

/// True if there is a program of that name.
fn is_on_path(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// True if the ICD's compiler and its library are there, by the ICD's rules.
fn has_opencl_compiler() -> bool {
    let there = |name| variable(name).map(|path| path.is_file());
    let libraries = ["/usr/lib", "/usr/share", "/usr/local/lib", "/usr/local/share"];
    let is_library = |folder: &str| Path::new(folder).join("clc/nvptx64--nvidiacl.bc").is_file();
    there("HETCKPT_CLANG").unwrap_or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| has_clang(&folder))
    }) && there("HETCKPT_LIBCLC").unwrap_or_else(|| libraries.into_iter().any(is_library))
}

/// True if `folder` holds `clang`, or `clang-NN`.
fn has_clang(folder: &Path) -> bool {
    let is_numbered = |name: &str| {
        name.strip_prefix("clang-")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let entries = folder.read_dir().ok().into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    folder.join("clang").is_file() || names.any(|name| name.to_str().is_some_and(is_numbered))
}

/// True if programs can be restored on an OpenCL device.
fn has_opencl_device() -> bool {
    Installation::get()
        .devices()
        .is_ok_and(|devices| devices.iter().any(|device| device["kind"] == "opencl"))
}

/// Why a user who is not root can make no namespaces, if so.
fn cannot_isolate() -> Option<String> {
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let tried = Command::new("unshare")
        .args([
            "--user",
            "--map-current-user",
            "--pid",
            "--fork",
            "--mount-proc",
            "true",
        ])
        .output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// Why no file system in memory can be mounted here, if so.
fn cannot_mount() -> Option<String> {
    let mount = || -> Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", "size=64k", "hetckpt-e2e"])
            .arg(folder.path());
        let mounted = command.output()?;
        if !mounted.status.success() {
            return Ok(Some(String::from_utf8_lossy(&mounted.stderr).trim().to_owned()));
        }
        Command::new("umount").arg(folder.path()).status()?;
        Ok(None)
    };
    mount().unwrap_or_else(|error| Some(format!("{error:#}")))
}

/// Why hetckpt may not trace, by its own words, if so.
fn cannot_trace() -> Option<String> {
    let mut command = Command::new(Installation::get().hetckpt());
    user::equip(&mut command);
    match command.args(["trace", "--", "true"]).output() {
        Ok(output) if output.status.code() == Some(3) => {
            let notes = String::from_utf8_lossy(&output.stderr).replace('\n', ";");
            Some(notes)
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// True if programs under test start on a GPU.
#[must_use]
pub fn starts_on_gpu() -> bool {
    static GPU: OnceLock<bool> = OnceLock::new();
    *GPU.get_or_init(|| match Installation::from_device().as_str() {
        "auto" => Installation::get()
            .devices()
            .is_ok_and(|devices| devices.iter().any(|d| d["kind"] == "cuda")),
        device => device.starts_with("cuda"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clang_with_a_version_in_its_name_is_one() -> Result<()> {
        let folder = tempfile::tempdir()?;
        for (name, is_enough) in [("clang-format", false), ("clang++-15", false), ("clang-15", true)] {
            std::fs::write(folder.path().join(name), "")?;
            assert_eq!(has_clang(folder.path()), is_enough, "{name}");
        }
        Ok(())
    }
}
