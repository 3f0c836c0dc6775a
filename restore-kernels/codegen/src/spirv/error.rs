//! Why there is no SPIR-V.

use std::path::PathBuf;

/// Failure of a [`super::Compiler`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No clang knows SPIR-V (the machine's: clang 22 does).
    #[error("SPIR-V is made by clang, and none here has the target spirv64 (asked: {})", names(asked))]
    NoCompiler {
        /// Those that were asked.
        asked: Vec<PathBuf>,
    },
    /// It cannot be run (the machine's).
    #[error("cannot run {}", clang.display())]
    NotRun {
        /// The compiler.
        clang: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It refuses the program (a bug in us, or in it).
    #[error("{} makes no SPIR-V of the program:\n{log}", clang.display())]
    Refused {
        /// The compiler.
        clang: PathBuf,
        /// What it said.
        log: String,
    },
}

fn names(asked: &[PathBuf]) -> String {
    let names: Vec<String> = asked.iter().map(|path| path.display().to_string()).collect();
    if names.is_empty() {
        "none is there".to_owned()
    } else {
        names.join(", ")
    }
}
