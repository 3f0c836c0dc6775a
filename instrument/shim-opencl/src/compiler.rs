//! The compiler: clang as a process of its own, with libclc, from OpenCL C to LLVM IR and from there to PTX.
//!
//! Two steps, because the IR says what PTX does not: types, names and address spaces of kernels' arguments.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::device_printf;

/// Functions that the library lacks.
const PRELUDE: &str = include_str!("prelude.cl");
const TARGET: &str = "--target=nvptx64--nvidiacl";
/// OpenCL C's functions for that target, as libclc's packages install them.
const LIBRARY: &str = "clc/nvptx64--nvidiacl.bc";
/// All is inlined: a kernel's parameters, of which the launch's offset is one, are known only in the kernel.
const INLINE_THRESHOLD: &str = "-inline-threshold=1000000";

/// Name of a function that has a kernel's body, before the kernel's.
const BODY: &str = "@__clang_ocl_kern_imp_";

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
pub fn toolchain() -> Result<&'static Toolchain, &'static str> {
    static FOUND: OnceLock<Result<Toolchain, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(String::as_str)
}

fn given(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable)?;
    (!value.is_empty()).then(|| PathBuf::from(value))
}

fn find() -> Result<Toolchain, String> {
    let is_there = |path: &PathBuf| path.is_file();
    let clang = match given("HETCKPT_CLANG") {
        Some(clang) if is_there(&clang) => clang,
        Some(clang) => return Err(format!("HETCKPT_CLANG names {}, which is no file", clang.display())),
        None => clang_in_path(&std::env::var_os("PATH").unwrap_or_default())
            .ok_or("OpenCL programs are built by clang, and there is none in PATH (HETCKPT_CLANG can name one)")?,
    };
    let library = match given("HETCKPT_LIBCLC") {
        Some(library) if is_there(&library) => library,
        Some(library) => return Err(format!("HETCKPT_LIBCLC names {}, which is no file", library.display())),
        None => ["/usr/lib", "/usr/share", "/usr/local/lib", "/usr/local/share"]
            .map(|folder| Path::new(folder).join(LIBRARY))
            .into_iter()
            .find(is_there)
            .ok_or(
                "OpenCL programs need libclc's nvptx64--nvidiacl.bc, and it is not installed (HETCKPT_LIBCLC can name it)",
            )?,
    };
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
    /// The compiler's log, if it fails.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Compiled, String> {
        let mut to_ir = Command::new(&self.clang);
        to_ir.args([TARGET, "-x", "cl"]);
        if !options.iter().any(|option| option.starts_with("-cl-std=")) {
            to_ir.arg("-cl-std=CL1.2");
        }
        to_ir.args(["-cl-kernel-arg-info", "-Xclang", "-finclude-default-header"]);
        to_ir
            .args(["-Xclang", "-mlink-bitcode-file", "-Xclang"])
            .arg(&self.library);
        to_ir.args(["-O3", "-mllvm", INLINE_THRESHOLD, "-S", "-emit-llvm"]);
        // An older libclc has another data layout; that is no fault of the source, which may be built with -Werror.
        to_ir.args(["-Wno-unknown-warning-option", "-Wno-linker-warnings"]);
        to_ir.args(options).args(["-", "-o", "-"]);
        let (ir, mut log) = run(to_ir, &format!("{}{PRELUDE}{source}", device_printf::definitions()))?;

        let mut to_ptx = Command::new(&self.clang);
        to_ptx.args([TARGET, "-x", "ir", "-O3", "-mllvm", INLINE_THRESHOLD]);
        to_ptx.args(["-S", "-", "-o", "-"]);
        let (ptx, more) =
            run(to_ptx, &with_bodies_in_kernels(&ir)).map_err(|more| format!("{log}{}", without_trace(&more)))?;
        log.push_str(&more);
        Ok(Compiled { ir, ptx, log })
    }
}

/// The IR with kernels' bodies inlined in the next step. Since LLVM 21 a kernel only calls a function that has its body, and which
/// must not be inlined.
fn with_bodies_in_kernels(ir: &str) -> Cow<'_, str> {
    if !ir.contains(BODY) {
        return ir.into();
    }
    let mut out = String::with_capacity(ir.len());
    for line in ir.lines() {
        let is_body = line.starts_with("define ") && line.contains(BODY) && !line.contains("_kernel void @");
        match line.strip_prefix("define dso_local ").filter(|_| is_body) {
            Some(function) => out.extend(["define internal ", function]),
            None if line.starts_with("attributes #") => out.push_str(&line.replace(" noinline ", " ")),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out.into()
}

/// Runs the compiler on `input`; gives its output and what it said.
///
/// Files in memory take the place of pipes: a compiler that ends before it has read all would end the program too, by SIGPIPE.
fn run(mut command: Command, input: &str) -> Result<(String, String), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = exchange(&mut command, input).map_err(|e| format!("cannot run {name}: {e}\n"))?;
    match (ended.status, ended.log.is_empty()) {
        (Some(status), _) if status.success() => Ok((ended.out, ended.log)),
        (None, _) if ended.has_result() => Ok((ended.out, ended.log)),
        (_, false) => Err(ended.log),
        (Some(status), true) => Err(format!("{name}: {status}\n")),
        (None, true) => Err(format!(
            "{name} gives nothing and says nothing, and the program keeps its exit status from us\n"
        )),
    }
}

/// What a process leaves.
struct Ended {
    /// None if the program ignores SIGCHLD or has waited for the process itself: then nobody knows any more.
    status: Option<ExitStatus>,
    out: String,
    log: String,
}

impl Ended {
    /// True if what it has written shows no failure. Text that is cut off is refused by whoever reads it next.
    fn has_result(&self) -> bool {
        self.out.ends_with('\n') && !self.log.contains("error:")
    }
}

fn exchange(command: &mut Command, input: &str) -> io::Result<Ended> {
    let mut given = file_in_memory()?;
    given.write_all(input.as_bytes())?;
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
        out: text_of(out)?,
        log: text_of(log)?,
    })
}

fn file_in_memory() -> io::Result<File> {
    Ok(memfd_create(c"hetckpt-compiler", MFdFlags::MFD_CLOEXEC)?.into())
}

fn text_of(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Of a failure inside the compiler, what it could not do; not its stack.
fn without_trace(log: &str) -> String {
    let lines = log.lines().take_while(|line| !line.starts_with("PLEASE submit"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_get_their_bodies_back() {
        let kernel =
            "define dso_local ptx_kernel void @k() #0 {\n  call void @__clang_ocl_kern_imp_k() #2\n  ret void\n}\n";
        let ir = format!(
            "{kernel}define dso_local void @__clang_ocl_kern_imp_k() #1 {{\n}}\n\
             attributes #0 = {{ convergent noinline \"a\"=\"b\" }}\n@text = constant [10 x i8] c\" noinline \"\n"
        );
        assert_eq!(
            with_bodies_in_kernels(&ir),
            format!(
                "{kernel}define internal void @__clang_ocl_kern_imp_k() #1 {{\n}}\n\
                 attributes #0 = {{ convergent \"a\"=\"b\" }}\n@text = constant [10 x i8] c\" noinline \"\n"
            )
        );
        let older = "define dso_local spir_kernel void @k() #0 {\n}\nattributes #0 = { convergent noinline }\n";
        assert_eq!(with_bodies_in_kernels(older), older);
    }

    /// What signals do is the process's, so both are one test.
    #[test]
    #[expect(unsafe_code, reason = "signals as in a C program")]
    fn a_compiler_harms_no_program_whatever_its_signals_do() {
        use nix::sys::signal::{SigHandler, Signal, signal};
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(command, &"x\n".repeat(1 << 20))
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
