//! Where the parts of hetckpt are: beside this program, as `make install` and `make build` lay them out.

use hetckpt_ring::failure_code::Code;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The parts.
#[derive(Clone, Debug)]
pub struct Installation {
    /// `bin/hetckpt-server`.
    pub server: PathBuf,
    /// `lib/hetckpt`, which holds `libcuda.so.1` and the CPU code generator.
    pub library_folder: PathBuf,
    /// `lib/criu`, which holds the CRIU plugin and nothing else.
    pub plugin_folder: PathBuf,
}

impl Installation {
    /// Finds the parts relative to this program.
    ///
    /// # Errors
    /// If Linux does not tell where this program is.
    pub fn find() -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|e| {
            Failure::new(Code::Installation, "cannot tell where hetckpt is installed").note(e.to_string())
        })?;
        let root = program
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/"))
            .to_owned();
        Ok(Self {
            server: root.join("bin/hetckpt-server"),
            library_folder: root.join("lib/hetckpt"),
            plugin_folder: root.join("lib/criu"),
        })
    }

    /// The driver library that programs are given.
    pub fn shim(&self) -> PathBuf {
        self.library_folder.join("libcuda.so.1")
    }

    /// The folder that names our OpenCL ICD, if it is installed.
    pub fn opencl_vendors(&self) -> Option<PathBuf> {
        let folder = self.library_folder.join("OpenCL/vendors");
        folder.join("hetckpt.icd").is_file().then_some(folder)
    }

    /// The folder with what Python programs load first, if it is installed.
    pub fn python_startup(&self) -> Option<PathBuf> {
        let folder = self.library_folder.join("python-startup");
        folder.join("sitecustomize.py").is_file().then_some(folder)
    }

    /// The CPU code generator.
    pub fn cpu_codegen(&self) -> PathBuf {
        self.library_folder.join("libhetckpt_cpu_codegen.so")
    }

    /// `path`, if it is there.
    ///
    /// # Errors
    /// If it is not.
    pub fn require(&self, path: PathBuf) -> Result<PathBuf, Failure> {
        if path.exists() {
            return Ok(path);
        }
        Err(
            Failure::new(Code::Installation, format!("{} is missing", path.display()))
                .help("run hetckpt from its installation (`make build` makes one in target/stage)"),
        )
    }
}
