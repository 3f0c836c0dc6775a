//! Stands before NVIDIA's assembler for programs that hand over machine code alone, as Triton does: runs it, and puts
//! its output and the PTX into one file, a fatbin, which every driver takes. `hetckpt run` names it to Triton
//! (`TRITON_PTXAS_PATH`).
//!
//! The assembler is the one of the Triton that has started this, else the one that `PATH` has.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use hetckpt_fatbin::entry::Kind;
use hetckpt_fatbin::write::{Part, fatbin};

/// What ends the answer to `--version`, so that what is kept by it is not mistaken for machine code alone.
const VERSION: &str = "Output with PTX, by hetckpt\n";

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    let Some(assembler) = assembler(&name) else {
        eprintln!("hetckpt: no ptxas found: neither Triton's own nor in PATH");
        return ExitCode::from(127);
    };
    let mut command = Command::new(&assembler);
    command.args(&arguments);
    let cannot = |error: &dyn std::fmt::Display| {
        eprintln!("hetckpt: {}: {error}", assembler.display());
        ExitCode::FAILURE
    };
    let files = Files::of(&arguments);
    let says_version = arguments
        .iter()
        .any(|argument| argument == "--version" || argument == "-V");
    if files.is_none() && !says_version {
        return cannot(&command.exec());
    }
    let status = match command.status() {
        Ok(status) => status,
        Err(error) => return cannot(&error),
    };
    if !status.success() {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return code.map_or(ExitCode::FAILURE, ExitCode::from);
    }
    if says_version {
        let _ = std::io::stdout().write_all(VERSION.as_bytes());
    }
    // Without the PTX it is machine code, as it would have been.
    if let Some(files) = files
        && let Err(error) = files.pack()
    {
        eprintln!("hetckpt: {}: the PTX was not kept: {error}", files.output.display());
    }
    ExitCode::SUCCESS
}

/// The assembler of the Triton whose process has started this one, or that of `PATH`.
fn assembler(name: &OsStr) -> Option<PathBuf> {
    let name = Path::new(name).file_name().unwrap_or(OsStr::new("ptxas"));
    let beside_triton = || {
        let parent = procfs::process::Process::new(parent_id().cast_signed()).ok()?;
        let maps = parent.maps().ok()?;
        let mut paths = maps.iter().filter_map(|map| match &map.pathname {
            procfs::process::MMapPath::Path(path) => Some(path),
            _ => None,
        });
        let library = paths.find(|path| path.ends_with("triton/_C/libtriton.so"))?;
        let folder = library.parent()?.parent()?.join("backends/nvidia/bin");
        [name, OsStr::new("ptxas")]
            .map(|name| folder.join(name))
            .into_iter()
            .find(|path| path.is_file())
    };
    let own = env::current_exe().and_then(fs::canonicalize).ok();
    let in_path = || {
        let path = env::var_os("PATH")?;
        let found = env::split_paths(&path).map(|folder| folder.join("ptxas"));
        let mut found = found.filter(|path| path.is_file());
        found.find(|path| fs::canonicalize(path).ok() != own)
    };
    beside_triton().or_else(in_path)
}

/// What is assembled, and what of it is to be kept.
struct Files {
    input: PathBuf,
    output: PathBuf,
    arch: u32,
    is_arch_specific: bool,
}

impl Files {
    /// As Triton calls the assembler; `None` if it is called in another way, and is to do what it does.
    fn of(arguments: &[OsString]) -> Option<Self> {
        let mut inputs = arguments
            .iter()
            .map(Path::new)
            .filter(|path| path.extension() == Some(OsStr::new("ptx")));
        let input = inputs.next().filter(|_| inputs.next().is_none())?;
        let at = arguments.iter().position(|argument| argument == "-o")?;
        let output = arguments.get(at + 1)?;
        let arch = arguments
            .iter()
            .find_map(|argument| argument.to_str()?.strip_prefix("--gpu-name=sm_"))?;
        let digits = arch.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        Some(Self {
            input: input.to_owned(),
            output: output.into(),
            arch: digits.parse().ok()?,
            is_arch_specific: arch.ends_with('a'),
        })
    }

    /// Puts the PTX beside the machine code.
    fn pack(&self) -> std::io::Result<()> {
        let (cubin, ptx) = (fs::read(&self.output)?, fs::read(&self.input)?);
        let part = |kind, payload| Part {
            kind,
            arch: self.arch,
            is_arch_specific: self.is_arch_specific,
            payload,
        };
        let both = fatbin(&[part(Kind::Cubin, &cubin), part(Kind::Ptx, &ptx)]);
        let temporary = self.output.with_extension("hetckpt");
        fs::write(&temporary, both).and_then(|()| fs::rename(&temporary, &self.output))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn files(arguments: &[&str]) -> Option<Files> {
        Files::of(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn tritons_way_of_calling_is_known() {
        let found = files(&[
            "-lineinfo",
            "-v",
            "--gpu-name=sm_90a",
            "/tmp/x.ptx",
            "-o",
            "/tmp/x.ptx.o",
        ])
        .unwrap();
        assert_eq!((found.arch, found.is_arch_specific), (90, true));
        assert_eq!(
            (found.input.to_str(), found.output.to_str()),
            (Some("/tmp/x.ptx"), Some("/tmp/x.ptx.o"))
        );
        let found = files(&["--gpu-name=sm_100", "a.ptx", "-o", "a.cubin"]).unwrap();
        assert_eq!((found.arch, found.is_arch_specific), (100, false));
    }

    #[test]
    fn other_ways_are_left_to_the_assembler() {
        assert!(files(&["--version"]).is_none());
        assert!(files(&["a.ptx", "b.ptx", "--gpu-name=sm_90", "-o", "c"]).is_none());
        assert!(files(&["a.ptx", "--gpu-name=sm_90", "-o"]).is_none());
        assert!(files(&["a.ptx", "-o", "c"]).is_none());
    }

    #[test]
    fn both_lie_in_the_output() {
        let folder = env::temp_dir().join(format!("hetckpt-ptxas-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = Files {
            input: folder.join("a.ptx"),
            output: folder.join("a.o"),
            arch: 90,
            is_arch_specific: false,
        };
        fs::write(&files.input, ".version 8.0\n").unwrap();
        fs::write(&files.output, "machine code").unwrap();
        files.pack().unwrap();
        let both = fs::read(&files.output).unwrap();
        let kinds: Vec<Kind> = hetckpt_fatbin::entry::entries(&both)
            .unwrap()
            .iter()
            .map(|entry| entry.kind)
            .collect();
        assert_eq!(kinds, [Kind::Cubin, Kind::Ptx]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
