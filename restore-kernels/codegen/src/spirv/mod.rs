//! OpenCL C to SPIR-V, for OpenCL devices that take an intermediate language and have no compiler of their own.
//!
//! clang does it, as a process of its own: generated OpenCL C says all that SPIR-V would, and is what most devices take.
//! A `prelude.cl` put before it has what clang lacks. SPIR-V 1.2 is that of OpenCL 2.1's devices, which were the first to take any.
//!
//! `HETCKPT_CLANG` names the clang to ask first; then come those in `PATH` and in Debian's folders, the newest first.

mod error;

pub use error::Error;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hetckpt_abi::opencl_program::OpenClProgram;

const PRELUDE: &str = include_str!("prelude.cl");
const TARGET: &str = "--target=spirv64v1.2-unknown-unknown";
/// As `clang --print-targets` names it.
const TARGET_NAME: &str = "spirv64";

/// A clang that knows SPIR-V.
#[derive(Debug)]
pub struct Compiler {
    clang: PathBuf,
}

impl Compiler {
    /// The newest there is.
    ///
    /// # Errors
    /// [`Error::NoCompiler`].
    pub fn find() -> Result<Self, Error> {
        let asked = candidates();
        match asked.iter().position(|clang| knows_spirv(clang)) {
            Some(first) => Ok(Self {
                clang: asked[first].clone(),
            }),
            None => Err(Error::NoCompiler { asked }),
        }
    }

    /// The program as a SPIR-V module.
    ///
    /// # Errors
    /// All but [`Error::NoCompiler`].
    pub fn binary(&self, program: &OpenClProgram) -> Result<Vec<u8>, Error> {
        self.run(program, "-c")
    }

    /// The same as text, which `spirv-as` takes.
    ///
    /// # Errors
    /// All but [`Error::NoCompiler`].
    pub fn assembly(&self, program: &OpenClProgram) -> Result<String, Error> {
        let text = self.run(program, "-S")?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn run(&self, program: &OpenClProgram, output: &str) -> Result<Vec<u8>, Error> {
        let mut command = Command::new(&self.clang);
        command.args([TARGET, "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"]);
        if program.requires.correctly_rounded_divide_sqrt {
            command.arg("-cl-fp32-correctly-rounded-divide-sqrt");
        }
        command.args(["-O1", output, "-", "-o", "-"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let cannot = |source| Error::NotRun {
            clang: self.clang.clone(),
            source,
        };
        let mut child = command.spawn().map_err(cannot)?;
        // It reads all of its input before it writes. Should it end before, its log says why.
        let text = format!("{PRELUDE}{}", program.text);
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
        let result = child.wait_with_output().map_err(cannot)?;
        if result.status.success() {
            return Ok(result.stdout);
        }
        Err(Error::Refused {
            clang: self.clang.clone(),
            log: String::from_utf8_lossy(&result.stderr).trim_end().to_owned(),
        })
    }
}

/// Clangs to ask, in that order.
fn candidates() -> Vec<PathBuf> {
    let given = std::env::var_os("HETCKPT_CLANG").filter(|value| !value.is_empty());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).flat_map(|folder| numbered(&folder, "clang-", ""));
    let mut all: Vec<(u32, PathBuf)> = in_path.chain(numbered(Path::new("/usr/lib"), "llvm-", "bin/clang")).collect();
    all.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let plain = std::env::split_paths(&path).map(|folder| folder.join("clang"));
    given
        .map(PathBuf::from)
        .into_iter()
        .chain(all.into_iter().map(|(_, path)| path))
        .chain(plain)
        .filter(|path| path.is_file())
        .collect()
}

/// Files `inside` the entries of a folder whose names are `prefix` and a number.
fn numbered(folder: &Path, prefix: &str, inside: &str) -> Vec<(u32, PathBuf)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let with_number = |entry: std::fs::DirEntry| {
        let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
        let path = entry.path();
        Some((version, if inside.is_empty() { path } else { path.join(inside) }))
    };
    entries.filter_map(with_number).collect()
}

fn knows_spirv(clang: &Path) -> bool {
    let output = Command::new(clang).arg("--print-targets").stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let targets = String::from_utf8_lossy(&output.stdout).into_owned();
        targets.split_whitespace().any(|word| word == TARGET_NAME)
    })
}
