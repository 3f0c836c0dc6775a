//! What Python programs load first: Numba is told that nvJitLink is missing, everybody else gets what is there.

use std::ffi::OsString;
use std::fs;

use anyhow::{Result, ensure};
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::Requirement;
use hetckpt_e2e::process::Running;
use hetckpt_e2e::runner::{Context, Test};

/// Packages with the names and functions that count.
const PACKAGES: [(&str, &str); 3] = [
    (
        "cuda/pathfinder/__init__.py",
        "class DynamicLibNotFoundError(RuntimeError): pass\n\
         def load_nvidia_dynamic_lib(libname): return libname\n",
    ),
    (
        "numba/linker.py",
        "def ask(libname):\n    import middle\n    try: return middle.ask(libname)\n    except RuntimeError as e: return str(e)\n",
    ),
    (
        "middle.py",
        "def ask(libname):\n    from cuda.pathfinder import load_nvidia_dynamic_lib\n    return load_nvidia_dynamic_lib(libname)\n",
    ),
];

const PROGRAM: &str = "\
import sys, middle, numba.linker
print(sys.path_is_kept, middle.ask('nvJitLink'), numba.linker.ask('nvvm'), numba.linker.ask('nvJitLink'), sep='\\n')
print(sum('python-startup' in entry for entry in sys.path))
";

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("numba_is_told_that_nvjitlink_is_missing", told)
            .also_needs(Requirement::Python)
            .also_needs(Requirement::CpuOnly),
    ]
}

fn told(context: &mut Context) -> Result<()> {
    let sandbox = &context.sandbox;
    let folder = sandbox.path("packages");
    // The program's own `sitecustomize` is loaded, too.
    let own = (
        "sitecustomize.py",
        "import os, sys\nsys.path_is_kept = __file__.endswith('packages/sitecustomize.py')\ndel os, sys\n",
    );
    for (name, text) in PACKAGES.into_iter().chain([own]) {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap_or(&folder))?;
        fs::write(file, text)?;
    }
    let program: [OsString; 3] = ["python3".into(), "-c".into(), PROGRAM.into()];
    let mut command = hetckpt::command(sandbox, ["run", "--device", "cpu", "--"]);
    command.args(program).env("PYTHONPATH", &folder);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let outcome = Running::run(command, PATIENCE)?.success("python3")?;
    let missing = "hetckpt has Numba link by the driver, which keeps the PTX of its kernels";
    let lines = ["True", "nvJitLink", "nvvm", missing, "0"];
    ensure!(outcome.stdout.lines().eq(lines), "{}", outcome.text());
    Ok(())
}
