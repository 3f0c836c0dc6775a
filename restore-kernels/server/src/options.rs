//! The command line. People do not call this program; the shim, the plugin and the command line `hetckpt` do.

use std::os::fd::RawFd;
use std::path::PathBuf;

use hetckpt_ring::question::{LACKING, LACKING_STOPPED, NAME, Stage, TRANSLATE};
use hetckpt_ring::virtual_gpu::{VIRTUAL_GPU_ENV, VirtualGpu};

use crate::choose_device::DeviceChoice;
use crate::error::ServerError;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Serve an application that is starting.
    Serve,
    /// Restore an application from a directory: start a daemon that does, and wait until it is ready.
    Restore(PathBuf),
    /// Be that daemon.
    RestoreHere(PathBuf),
    /// Keep what was suspended: this descriptor lists what the program before has taken along.
    Suspended(RawFd),
    /// List the devices.
    ListDevices {
        /// Try out what drivers do not say.
        tries: bool,
    },
    /// Say the version.
    Version,
    /// Translate the PTX on standard input.
    Translate {
        /// What for.
        stage: Stage,
        /// Only kernels whose names have this in them.
        name: String,
    },
    /// Tell what the kernels of the process state on standard input lack on a device that has not got these features.
    Lacking {
        /// Their names.
        features: Vec<String>,
        /// Not only those that are stopped.
        others: bool,
    },
}

/// The command line as settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do.
    pub task: Task,
    /// The application's process id; 0 where there is none.
    pub pid: u32,
    /// The process that rebuilds the application; 0 where nobody does.
    pub restorer: u32,
    /// Where to write `ready` or `error: …`.
    pub ready_fd: Option<RawFd>,
    /// The device.
    pub device: DeviceChoice,
    /// What the application is to see where that is no GPU.
    pub virtual_gpu: VirtualGpu,
}

/// Usage.
pub const USAGE: &str = "usage: hetckpt-server --pid PID [--ready-fd N] [--device DEVICE]
       hetckpt-server --restore DIR --pid PID --restorer PID [--device DEVICE]
       hetckpt-server --suspended N
       hetckpt-server --list-devices|--try-devices [--json]
       hetckpt-server --translate ir|probed|ptx|llvm|opencl|spirv [--name NAME]
       hetckpt-server --lacking|--lacking-stopped FEATURE,...
       hetckpt-server --version";

impl Options {
    /// Reads the arguments, without the program's name; `device` is `HETCKPT_DEVICE`, `virtual_gpu` is
    /// [`VIRTUAL_GPU_ENV`].
    ///
    /// # Errors
    /// [`ServerError::Usage`].
    pub fn parse(args: impl IntoIterator<Item = String>, device: &str, virtual_gpu: &str) -> Result<Self, ServerError> {
        let usage = |what: String| ServerError::Usage(format!("{what}\n{USAGE}"));
        let mut args = args.into_iter();
        let mut options = Self {
            task: Task::Serve,
            pid: 0,
            restorer: 0,
            ready_fd: None,
            device: DeviceChoice::Auto,
            virtual_gpu: VirtualGpu::default(),
        };
        if !virtual_gpu.is_empty() {
            let parsed = virtual_gpu.parse();
            options.virtual_gpu = parsed.map_err(|e| usage(format!("{VIRTUAL_GPU_ENV}: `{virtual_gpu}`: {e}")))?;
        }
        let mut device = device.to_owned();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| usage(format!("{arg} needs a value")));
            match arg.as_str() {
                "--pid" => {
                    let text = value()?;
                    options.pid = text.parse().map_err(|_| usage(format!("process id `{text}`")))?;
                }
                "--restorer" => {
                    let text = value()?;
                    options.restorer = text.parse().map_err(|_| usage(format!("process id `{text}`")))?;
                }
                "--ready-fd" => {
                    let text = value()?;
                    options.ready_fd = Some(text.parse().map_err(|_| usage(format!("descriptor `{text}`")))?);
                }
                "--suspended" => {
                    let text = value()?;
                    options.task = Task::Suspended(text.parse().map_err(|_| usage(format!("descriptor `{text}`")))?);
                }
                "--device" => device = value()?,
                "--restore" => options.task = Task::Restore(value()?.into()),
                "--restore-here" => options.task = Task::RestoreHere(value()?.into()),
                "--list-devices" => options.task = Task::ListDevices { tries: false },
                "--try-devices" => options.task = Task::ListDevices { tries: true },
                "--version" => options.task = Task::Version,
                TRANSLATE => {
                    let text = value()?;
                    let stage = text.parse::<Stage>().map_err(|e| usage(format!("`{text}`: {e}")))?;
                    options.task = Task::Translate {
                        stage,
                        name: String::new(),
                    };
                }
                NAME => {
                    let wanted = value()?;
                    if let Task::Translate { name, .. } = &mut options.task {
                        *name = wanted;
                    }
                }
                LACKING | LACKING_STOPPED => {
                    options.task = Task::Lacking {
                        features: value()?.split(',').map(str::to_owned).collect(),
                        others: arg == LACKING,
                    }
                }
                "--json" => {}
                _ => return Err(usage(format!("unknown argument `{arg}`"))),
            }
        }
        options.device = DeviceChoice::parse(&device)?;
        let needs_pid = matches!(options.task, Task::Serve | Task::Restore(_) | Task::RestoreHere(_));
        if needs_pid && options.pid == 0 {
            return Err(usage("--pid is missing".to_owned()));
        }
        let needs_restorer = matches!(options.task, Task::Restore(_) | Task::RestoreHere(_));
        if needs_restorer && options.restorer == 0 {
            return Err(usage("--restorer is missing".to_owned()));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse(args: &[&str], device: &str) -> Result<Options, ServerError> {
        Options::parse(args.iter().map(|&a| a.to_owned()), device, "")
    }

    #[test]
    fn option_wins_over_environment() {
        let options = parse(&["--pid", "7", "--ready-fd", "3", "--device", "cuda:2"], "cpu").unwrap();
        let expected = Options {
            task: Task::Serve,
            pid: 7,
            restorer: 0,
            ready_fd: Some(3),
            device: DeviceChoice::Cuda(2),
            virtual_gpu: VirtualGpu::default(),
        };
        assert_eq!(options, expected);
        assert_eq!(parse(&["--pid", "7"], "cpu").unwrap().device, DeviceChoice::Cpu);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (args, device, what) in [
            (&["--pid"][..], "", "--pid needs a value"),
            (&["--frob"], "", "--frob"),
            (&[], "", "--pid is missing"),
            (&["--pid", "x"], "", "`x`"),
            (&["--restore", "images", "--pid", "1"], "", "--restorer is missing"),
            (&["--pid", "1"], "tpu", "`tpu`"),
        ] {
            let message = parse(args, device).unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }
}
