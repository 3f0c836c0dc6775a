//! OpenCL C to SPIR-V, for OpenCL devices that take an intermediate language and have no compiler of their own.
//!
//! Generated OpenCL C says all that SPIR-V would, and is what most devices take; so clang and Khronos's translator make
//! the one of the other, as processes of their own. The module is not optimised, for which devices have their means,
//! and which the translator does not always bear. clang's own generator of SPIR-V was tried (22.1): with and without
//! optimisation some conversions of small integers came out wrong.
//!
//! SPIR-V 1.2 is that of OpenCL 2.2. A `prelude.cl` put before the text has atomics that hold for the whole device.

mod error;

pub use error::Error;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hetckpt_abi::opencl_program::OpenClProgram;

const PRELUDE: &str = include_str!("prelude.cl");
/// Where Debian's packages have the programs of version NN: `llvm-NN/bin`.
const LLVM_FOLDERS: &str = "/usr/lib";
const TO_BITCODE: [&str; 16] = [
    "-target",
    "spir64-unknown-unknown",
    "-x",
    "cl",
    "-Xclang",
    "-finclude-default-header",
    // Not 0, with which functions ask not to be optimised by anybody.
    "-O1",
    "-Xclang",
    "-disable-llvm-passes",
    "-w",
    "-nogpulib",
    "-emit-llvm",
    "-c",
    "-",
    "-o",
    "-",
];
const TO_SPIRV: [&str; 4] = ["--spirv-max-version=1.2", "-", "-o", "-"];

/// clang and the translator.
#[derive(Debug)]
pub struct Compiler {
    clang: PathBuf,
    translator: PathBuf,
}

impl Compiler {
    /// The newest pair of the same version.
    ///
    /// # Errors
    /// [`Error::NoCompiler`].
    pub fn find() -> Result<Self, Error> {
        let (clangs, translators) = (versions_of("clang"), versions_of("llvm-spirv"));
        let pairs = translators.into_iter().filter_map(|(version, translator)| {
            let (_, clang) = clangs.iter().find(|(v, _)| *v == version)?;
            Some((version, clang.clone(), translator))
        });
        let newest = pairs.max_by_key(|(version, ..)| *version);
        let (_, clang, translator) = newest.ok_or(Error::NoCompiler)?;
        Ok(Self { clang, translator })
    }

    /// The program as a SPIR-V module.
    ///
    /// # Errors
    /// All but [`Error::NoCompiler`].
    pub fn binary(&self, program: &OpenClProgram) -> Result<Vec<u8>, Error> {
        // SPIR-V has all scopes, OpenCL C 1.2 has no words for them.
        let language = match program.orders_for_device {
            true => "-cl-std=CL2.0",
            false => "-cl-std=CL1.2",
        };
        let mut options = vec![language];
        if program.requires.correctly_rounded_divide_sqrt {
            options.push("-cl-fp32-correctly-rounded-divide-sqrt");
        }
        let text = format!("{PRELUDE}{}", program.text);
        let bitcode = run(&self.clang, options.iter().chain(&TO_BITCODE), text.as_bytes())?;
        run(&self.translator, TO_SPIRV.iter(), &bitcode)
    }
}

/// A module as text, by `spirv-dis`.
///
/// # Errors
/// All but [`Error::NoCompiler`].
pub fn disassemble(module: &[u8]) -> Result<String, Error> {
    let text = run(Path::new("spirv-dis"), ["-"].iter(), module)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What a program makes of `input`.
fn run<'a>(program: &Path, arguments: impl Iterator<Item = &'a &'a str>, input: &[u8]) -> Result<Vec<u8>, Error> {
    let cannot = |source| Error::NotRun {
        program: program.to_owned(),
        source,
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    // It reads all of its input before it writes. Should it end before, its log says why.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input));
    let result = child.wait_with_output().map_err(cannot)?;
    if result.status.success() {
        return Ok(result.stdout);
    }
    Err(Error::Refused {
        program: program.to_owned(),
        log: String::from_utf8_lossy(&result.stderr).trim_end().to_owned(),
    })
}

/// `NAME-NN` in `PATH`, and `NAME` among Debian's programs of version NN.
fn versions_of(name: &str) -> Vec<(u32, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let prefix = format!("{name}-");
    let in_path = std::env::split_paths(&path).flat_map(|folder| numbered(&folder, &prefix));
    let in_folders = numbered(Path::new(LLVM_FOLDERS), "llvm-").into_iter();
    let in_folders = in_folders.map(|(version, folder)| (version, folder.join("bin").join(name)));
    in_path.chain(in_folders).filter(|(_, path)| path.is_file()).collect()
}

/// Entries of a folder whose names are `prefix` and a number.
fn numbered(folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let with_number = |entry: std::fs::DirEntry| {
        let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
        Some((version, entry.path()))
    };
    entries.filter_map(with_number).collect()
}
