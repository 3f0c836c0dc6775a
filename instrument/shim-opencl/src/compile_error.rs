//! Why there is no compiler, or no result of it. What the application reads of it is the build log.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use thiserror::Error;

/// What is missing of the compiler. The fault lies with the host: something is not installed, or not where it is said
/// to be.
#[derive(Debug, Error)]
pub enum MissingTool {
    /// An environment variable leads nowhere.
    #[error("{variable} names {path}, which is no file", path = path.display())]
    NoFile {
        /// The variable.
        variable: &'static str,
        /// What it names.
        path: PathBuf,
    },
    /// There is no clang.
    #[error("OpenCL programs are built by clang, and there is none in PATH (HETCKPT_CLANG can name one)")]
    Clang,
    /// There is no libclc.
    #[error("OpenCL programs need libclc's nvptx64--nvidiacl.bc, and it is not installed (HETCKPT_LIBCLC can name it)")]
    Library,
}

/// Why a source or bitcode is not compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The compiler refuses it. The fault lies with the program.
    #[error("the compiler says: {log}")]
    Refused {
        /// What the compiler says.
        log: String,
    },
    /// The compiler cannot be run: the host's fault, as all that follow but [`Self::InPtx`].
    #[error("cannot run {compiler}")]
    Run {
        /// The compiler.
        compiler: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The compiler fails and does not say why.
    #[error("{compiler}: {status}")]
    Failed {
        /// The compiler.
        compiler: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The compiler fails, as it seems, and nobody knows how it ended.
    #[error(
        "{compiler} wrote neither a result nor a message, and its exit status is unknown: the program collects or ignores its children"
    )]
    Silent {
        /// The compiler.
        compiler: String,
    },
    /// There is no folder for the compiler's files.
    #[error("no folder for the compiler can be made")]
    Folder(#[source] io::Error),
    /// A file for the compiler cannot be written.
    #[error("cannot write {path} for the compiler", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The step from LLVM IR to PTX fails: a bug in the compiler, or in what we give it.
    #[error("the program cannot be made PTX")]
    InPtx {
        /// What the compiler has said on the way to the IR.
        said: String,
        /// Why.
        #[source]
        cause: Box<CompileError>,
    },
}

impl CompileError {
    /// What the application finds in its build log.
    pub fn build_log(&self) -> String {
        match self {
            Self::Refused { log } => log.clone(),
            Self::Run { cause, .. } => format!("{self}: {cause}\n"),
            Self::Failed { .. } | Self::Silent { .. } => format!("{self}\n"),
            Self::Folder(cause) | Self::Write { cause, .. } => format!("error: {self}: {cause}\n"),
            Self::InPtx { said, cause } => format!("{said}{}", without_trace(&cause.build_log())),
        }
    }
}

/// Of a failure inside the compiler, what it could not do; not its stack.
fn without_trace(log: &str) -> String {
    let lines = log.lines().take_while(|line| !line.starts_with("PLEASE submit"));
    lines.map(|line| format!("{line}\n")).collect()
}
