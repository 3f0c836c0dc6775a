//! The compiler: clang as a process of its own, with libclc, from OpenCL C to LLVM IR and from there to PTX.
//!
//! Two steps, because the IR says what PTX does not: types, names and address spaces of kernels' arguments. Programs
//! that are compiled and linked apart are bitcode in between; an empty program that is compiled with it is the linker.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::compile_error::{CompileError, MissingTool};
use crate::device_printf;

/// Functions that the library lacks.
const PRELUDE: &str = include_str!("prelude.cl");
const TARGET: &str = "--target=nvptx64--nvidiacl";
/// For older processors clang puts rotations together from shifts; this is the oldest that has instructions for them
/// and that every clang has.
const PROCESSOR: [&str; 4] = ["-Xclang", "-target-cpu", "-Xclang", "sm_50"];
/// OpenCL C's functions for that target, as libclc's packages install them.
const LIBRARY: &str = "clc/nvptx64--nvidiacl.bc";
/// All is inlined: a kernel's parameters, of which the launch's offset is one, are known only in the kernel.
const INLINE_THRESHOLD: &str = "-inline-threshold=1000000";

/// The file of a source with headers. Nobody has a header with this name.
const SOURCE: &str = "hetckpt-program.cl";
/// What a file of bitcode begins with.
const BITCODE: &[u8] = b"BC\xc0\xde";

/// A compiler with its library.
#[derive(Debug)]
pub struct Toolchain {
    clang: PathBuf,
    library: PathBuf,
}

/// What became of a source.
#[derive(Debug)]
pub struct Compiled {
    /// LLVM IR as text.
    pub ir: String,
    /// PTX.
    pub ptx: String,
    /// What the compiler said.
    pub log: String,
}

/// True if programs can be built from source.
pub fn is_available() -> bool {
    toolchain().is_ok()
}

/// The compiler, or what is missing.
pub fn toolchain() -> Result<&'static Toolchain, &'static MissingTool> {
    static FOUND: OnceLock<Result<Toolchain, MissingTool>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref()
}

/// The file that a variable names, if it names one.
fn named(variable: &'static str) -> Result<Option<PathBuf>, MissingTool> {
    match std::env::var_os(variable).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => {
            let path = PathBuf::from(value);
            if path.is_file() {
                Ok(Some(path))
            } else {
                Err(MissingTool::NoFile { variable, path })
            }
        }
    }
}

fn find() -> Result<Toolchain, MissingTool> {
    let clang = named("HETCKPT_CLANG")?
        .or_else(|| clang_in_path(&std::env::var_os("PATH").unwrap_or_default()))
        .ok_or(MissingTool::Clang)?;
    let library = named("HETCKPT_LIBCLC")?
        .or_else(|| {
            ["/usr/lib", "/usr/share", "/usr/local/lib", "/usr/local/share"]
                .map(|folder| Path::new(folder).join(LIBRARY))
                .into_iter()
                .find(|path| path.is_file())
        })
        .ok_or(MissingTool::Library)?;
    Ok(Toolchain { clang, library })
}

/// `clang`, else the `clang-NN` with the highest number.
fn clang_in_path(path: &OsString) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(path).collect();
    let plain = folders.iter().map(|folder| folder.join("clang"));
    if let Some(found) = plain.into_iter().find(|path| path.is_file()) {
        return Some(found);
    }
    let entries = folders
        .iter()
        .filter_map(|folder| folder.read_dir().ok())
        .flatten()
        .flatten();
    let numbered = entries.filter_map(|entry| {
        let name = entry.file_name();
        let number: u32 = name.to_str()?.strip_prefix("clang-")?.parse().ok()?;
        Some((number, entry.path()))
    });
    numbered.max().map(|(_, path)| path)
}

impl Toolchain {
    /// Compiles `source` with the application's options.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn build(&self, source: &str, options: &[String]) -> Result<Compiled, CompileError> {
        let mut to_ir = self.command(options);
        self.link_library(&mut to_ir);
        to_ir.args(["-S", "-emit-llvm", "-", "-o", "-"]);
        self.to_ptx(run(to_ir, with_prelude(source).as_bytes())?)
    }

    /// Compiles `source` to bitcode; gives the compiler's log too. `headers` are what it may include, by name and text.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn compile(
        &self,
        source: &str,
        options: &[String],
        headers: &[(PathBuf, String)],
    ) -> Result<(Vec<u8>, String), CompileError> {
        let folder = Folder::new()?;
        for (name, text) in headers {
            folder.add(name, text.as_bytes())?;
        }
        // What is handed over comes before what lies in folders: in brackets because this is the first one, in quotes
        // because the source lies there too.
        folder.add(Path::new(SOURCE), with_prelude(source).as_bytes())?;
        let before = format!("-I{}", folder.path().display());
        let mut command = self.command(&[&[before], options].concat());
        command
            .args(["-c", "-emit-llvm", "-o", "-"])
            .arg(folder.path().join(SOURCE));
        run(command, b"")
    }

    /// Links bitcode to bitcode.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn link(&self, objects: &[&[u8]], options: &[String]) -> Result<(Vec<u8>, String), CompileError> {
        let (folder, mut command) = self.linker(objects, options)?;
        command.args(["-c", "-emit-llvm", "-", "-o", "-"]);
        let linked = run(command, b"\n");
        drop(folder);
        linked
    }

    /// Links bitcode and the library to what a device is given.
    ///
    /// # Errors
    /// See [`CompileError`].
    pub fn link_all(&self, objects: &[&[u8]], options: &[String]) -> Result<Compiled, CompileError> {
        let (folder, mut command) = self.linker(objects, options)?;
        self.link_library(&mut command);
        command.args(["-S", "-emit-llvm", "-", "-o", "-"]);
        let linked = run(command, b"\n");
        drop(folder);
        self.to_ptx(linked?)
    }

    /// clang with an OpenCL C program for input, as far as all compilations have it in common.
    fn command(&self, options: &[String]) -> Command {
        let mut command = Command::new(&self.clang);
        command.args([TARGET, "-x", "cl"]).args(PROCESSOR);
        if !options.iter().any(|option| option.starts_with("-cl-std=")) {
            command.arg("-cl-std=CL1.2");
        }
        command.args(["-cl-kernel-arg-info", "-Xclang", "-finclude-default-header"]);
        command.args(["-O3", "-mllvm", INLINE_THRESHOLD]);
        // An older libclc has another data layout; that is no fault of the source, which may be built with -Werror.
        command.args(["-Wno-unknown-warning-option", "-Wno-linker-warnings"]);
        command.args(options);
        command
    }

    fn link_library(&self, command: &mut Command) {
        link_bitcode(command, &self.library);
    }

    /// clang with an empty program for input and objects to link, which lie in the folder.
    fn linker(&self, objects: &[&[u8]], options: &[String]) -> Result<(Folder, Command), CompileError> {
        let folder = Folder::new()?;
        let mut command = self.command(options);
        for (number, object) in objects.iter().enumerate() {
            let name = PathBuf::from(format!("{number}.bc"));
            folder.add(&name, object)?;
            link_bitcode(&mut command, &folder.path().join(name));
        }
        Ok((folder, command))
    }

    /// From IR, and what has been said so far, to PTX.
    fn to_ptx(&self, (ir, mut log): (Vec<u8>, String)) -> Result<Compiled, CompileError> {
        let ir = text_of(ir);
        let mut command = Command::new(&self.clang);
        command.args([TARGET, "-x", "ir"]).args(PROCESSOR);
        command.args(["-O3", "-mllvm", INLINE_THRESHOLD, "-S", "-", "-o", "-"]);
        let (ptx, more) = match run(command, with_all_in_kernels(&ir).as_bytes()) {
            Ok(both) => both,
            Err(cause) => {
                let cause = Box::new(cause);
                return Err(CompileError::InPtx { said: log, cause });
            }
        };
        log.push_str(&more);
        Ok(Compiled {
            ir,
            ptx: text_of(ptx),
            log,
        })
    }
}

fn link_bitcode(command: &mut Command, file: &Path) {
    command.args(["-Xclang", "-mlink-bitcode-file", "-Xclang"]).arg(file);
}

fn with_prelude(source: &str) -> String {
    format!("{}{PRELUDE}{source}", device_printf::definitions())
}

/// A folder of files for the compiler, gone with this.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Result<Self, CompileError> {
        let made = tempfile::Builder::new().prefix("hetckpt-opencl-").tempdir();
        made.map(Self).map_err(CompileError::Folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds a file; `name` has no parts but ordinary ones.
    fn add(&self, name: &Path, content: &[u8]) -> Result<(), CompileError> {
        let path = self.path().join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, content))
            .map_err(|cause| CompileError::Write { path, cause })
    }
}

/// The IR with all that kernels call inlined in the next step: their parameters, one of which the launch's offset is,
/// are known in no other function. So a kernel that another one calls may be inlined, and other functions are nobody's
/// but the kernels'. Since LLVM 21 a kernel only calls a function that has its body.
fn with_all_in_kernels(ir: &str) -> String {
    const NOT_INTERNAL: [&str; 6] = [
        "dso_local ",
        "weak ",
        "weak_odr ",
        "linkonce ",
        "linkonce_odr ",
        "hidden ",
    ];
    let mut out = String::with_capacity(ir.len());
    for line in ir.lines() {
        match line
            .strip_prefix("define ")
            .filter(|_| !line.contains("_kernel void @"))
        {
            Some(mut function) => {
                while let Some(rest) = NOT_INTERNAL.iter().find_map(|word| function.strip_prefix(word)) {
                    function = rest;
                }
                let is_private = function.starts_with("internal ") || function.starts_with("private ");
                out.extend(["define ", if is_private { "" } else { "internal " }, function]);
            }
            None if line.starts_with("attributes #") => out.push_str(&line.replace(" noinline ", " ")),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Runs the compiler on `input`; gives its output and what it said.
///
/// Files in memory take the place of pipes: a compiler that ends before it has read all would end the program too, by
/// SIGPIPE.
fn run(mut command: Command, input: &[u8]) -> Result<(Vec<u8>, String), CompileError> {
    let compiler = command.get_program().to_string_lossy().into_owned();
    let ended = match exchange(&mut command, input) {
        Ok(ended) => ended,
        Err(cause) => return Err(CompileError::Run { compiler, cause }),
    };
    match (ended.status, ended.log.is_empty()) {
        (Some(status), _) if status.success() => Ok((ended.out, ended.log)),
        (None, _) if ended.has_result() => Ok((ended.out, ended.log)),
        (_, false) => Err(CompileError::Refused { log: ended.log }),
        (Some(status), true) => Err(CompileError::Failed { compiler, status }),
        (None, true) => Err(CompileError::Silent { compiler }),
    }
}

/// What a process leaves.
struct Ended {
    /// None if the program ignores SIGCHLD or has waited for the process itself: then nobody knows any more.
    status: Option<ExitStatus>,
    out: Vec<u8>,
    log: String,
}

impl Ended {
    /// True if what it has written shows no failure. What is cut off is refused by whoever reads it next.
    fn has_result(&self) -> bool {
        (self.out.ends_with(b"\n") || self.out.starts_with(BITCODE)) && !self.log.contains("error:")
    }
}

fn exchange(command: &mut Command, input: &[u8]) -> io::Result<Ended> {
    let mut given = file_in_memory()?;
    given.write_all(input)?;
    given.rewind()?;
    let (out, log) = (file_in_memory()?, file_in_memory()?);
    command.stdin(given).stdout(out.try_clone()?).stderr(log.try_clone()?);
    let status = match command.spawn()?.wait() {
        Ok(status) => Some(status),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => None,
        Err(e) => return Err(e),
    };
    Ok(Ended {
        status,
        out: bytes_of(out)?,
        log: text_of(bytes_of(log)?),
    })
}

fn file_in_memory() -> io::Result<File> {
    Ok(memfd_create(c"hetckpt-compiler", MFdFlags::MFD_CLOEXEC)?.into())
}

fn bytes_of(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is not UTF-8 is replaced.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_inlined_into_kernels() {
        let kernel = "define dso_local ptx_kernel void @k() #0 {\n  call void @f() #2\n  ret void\n}\n";
        let text = "@text = constant [10 x i8] c\" noinline \"\n";
        for linkage in [
            "",
            "dso_local ",
            "internal ",
            "weak_odr dso_local ",
            "linkonce_odr hidden ",
        ] {
            let ir = format!(
                "{kernel}define {linkage}void @f() #1 {{\n}}\n\
                 attributes #0 = {{ convergent noinline \"a\"=\"b\" }}\n{text}"
            );
            assert_eq!(
                with_all_in_kernels(&ir),
                format!(
                    "{kernel}define internal void @f() #1 {{\n}}\n\
                     attributes #0 = {{ convergent \"a\"=\"b\" }}\n{text}"
                )
            );
        }
    }

    /// What signals do is the process's, so both are one test.
    #[test]
    #[expect(unsafe_code, reason = "signals as in a C program")]
    fn a_compiler_harms_no_program_whatever_its_signals_do() {
        use nix::sys::signal::{SigHandler, Signal, signal};
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(command, "x\n".repeat(1 << 20).as_bytes()).map_err(|e| e.build_log())
        };
        let set = |which, handler| {
            // SAFETY: no handler is a function.
            unsafe { signal(which, handler) }.unwrap()
        };
        let before = set(Signal::SIGPIPE, SigHandler::SigDfl);
        assert_eq!(shell("exec <&-; echo broken >&2; exit 3"), Err("broken\n".to_owned()));
        assert!(shell("exit 3").unwrap_err().contains("exit status: 3"));
        assert!(shell("echo x; exit 3").is_err());
        set(Signal::SIGPIPE, before);

        let before = set(Signal::SIGCHLD, SigHandler::SigIgn);
        let (out, log) = shell("echo warning >&2; exec cat").unwrap();
        assert_eq!((out.len(), &*log), (2 << 20, "warning\n"));
        assert_eq!(shell("echo 'error: x' >&2; exit 1"), Err("error: x\n".to_owned()));
        assert!(shell("exit 1").unwrap_err().contains("exit status"));
        set(Signal::SIGCHLD, before);
    }

    #[test]
    fn plain_clang_comes_first_then_the_newest() {
        let folder = std::env::temp_dir().join(format!("hetckpt-clang-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| std::fs::write(folder.join(name), "").unwrap();
        for name in ["clang-9", "clang-14", "clang-format", "clang++-15"] {
            file(name);
        }
        let path = folder.clone().into_os_string();
        assert_eq!(clang_in_path(&path), Some(folder.join("clang-14")));
        file("clang");
        assert_eq!(clang_in_path(&path), Some(folder.join("clang")));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
