//! Why there is no SPIR-V.

use std::path::PathBuf;

/// Failure of a [`super::Compiler`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The programs that make it are not there (the machine's lack).
    #[error("SPIR-V is made by clang and the llvm-spirv of the same version, and there is no such pair")]
    NoCompiler,
    /// One of them cannot be run (the machine's).
    #[error("cannot run {}", program.display())]
    NotRun {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// One of them refuses its input (a bug in us, or in it).
    #[error("{} makes no SPIR-V:\n{log}", program.display())]
    Refused {
        /// The program.
        program: PathBuf,
        /// What it said.
        log: String,
    },
}
