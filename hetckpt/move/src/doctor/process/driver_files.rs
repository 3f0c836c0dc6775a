//! Drivers in a process: libraries that it maps, device files that it has open or mapped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use procfs::process::{FDTarget, MMapPath, Process};

use hetckpt_report::finding::{Finding, listed};

use super::shim_functions::Shim;

/// How names of files begin that lead to a device, and whose it is. hetckpt has no device file in the program.
const DEVICES: [(&str, &str); 9] = [
    ("/dev/nvidia", "NVIDIA's driver"),
    ("/dev/kfd", "AMD's driver"),
    ("/dev/dri/", "a graphics driver"),
    ("/dev/accel/", "an accelerator's driver"),
    ("/dev/infiniband/", "RDMA"),
    ("/dev/vfio/", "a device given to the program (VFIO)"),
    ("/dev/dxg", "a GPU of Windows (WSL)"),
    ("/dev/mali", "Arm's driver"),
    ("/dev/habanalabs", "an accelerator's driver"),
];

/// File names, up to `.so`, of drivers in the program.
const DRIVERS: [&str; 13] = [
    "libcuda",
    "libnvidia-ml",
    "libnvidia-opencl",
    "libnvidia-ptxjitcompiler",
    "libamdhip64",
    "libamdocl64",
    "libhsa-runtime64",
    "libze_intel_gpu",
    "libigdrcl",
    "libMesaOpenCL",
    "libRusticlOpenCL",
    "libintelocl",
    "libibverbs",
];

/// The same of implementations of OpenCL for CPUs, which are ordinary memory and threads.
const ON_CPUS: [&str; 2] = ["libpocl", "libintelocl"];

/// Looks at the processes `tree`.
pub fn examine(tree: &[i32]) -> [Finding; 2] {
    let (mut libraries, mut files) = (BTreeSet::new(), BTreeSet::new());
    for process in tree.iter().filter_map(|&pid| Process::new(pid).ok()) {
        for map in process.maps().into_iter().flatten() {
            if let MMapPath::Path(path) = map.pathname {
                note(path, process.pid, &mut libraries, &mut files);
            }
        }
        for open in process.fd().into_iter().flatten().flatten() {
            if let FDTarget::Path(path) = open.target {
                note(path, process.pid, &mut libraries, &mut files);
            }
        }
    }
    [of_libraries(&libraries), of_files(&files)]
}

fn note(
    path: PathBuf,
    pid: i32,
    libraries: &mut BTreeSet<PathBuf>,
    files: &mut BTreeSet<(PathBuf, &'static str, i32)>,
) {
    let device = DEVICES
        .iter()
        .find(|(start, _)| path.to_string_lossy().starts_with(start));
    if let Some(&(_, whose)) = device {
        files.insert((path, whose, pid));
    } else if is_named(&path, &DRIVERS) || is_named(&path, &ON_CPUS) {
        libraries.insert(path);
    }
}

/// True if the file's name is one of `names` up to `.so`.
fn is_named(path: &Path, names: &[&str]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once(".so").is_some_and(|(stem, _)| names.contains(&stem))
}

fn of_libraries(libraries: &BTreeSet<PathBuf>) -> Finding {
    const CHECK: &str = "driver-libraries";
    let (on_cpus, drivers): (Vec<&PathBuf>, Vec<&PathBuf>) = libraries
        .iter()
        .filter(|path| !Shim::is_at(path))
        .partition(|path| is_named(path, &ON_CPUS));
    let names = |paths: &[&PathBuf]| {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        listed(names.into_iter())
    };
    match (drivers.is_empty(), on_cpus.is_empty()) {
        (false, _) => Finding::problem(
            CHECK,
            format!("a driver is in the process: {}", names(&drivers)),
            "start the program with `hetckpt run`: then the driver is in the device server",
        ),
        (true, false) => Finding::warning(
            CHECK,
            format!("OpenCL for CPUs is in the process: {}", names(&on_cpus)),
            "CRIU alone may dump such a program, to go on with the same device; under `hetckpt run` it may go on with others",
        ),
        (true, true) => Finding::ok(CHECK, "no driver is in the process"),
    }
}

fn of_files(files: &BTreeSet<(PathBuf, &'static str, i32)>) -> Finding {
    const CHECK: &str = "device-files";
    if files.is_empty() {
        return Finding::ok(CHECK, "no device file is open or mapped");
    }
    let names: Vec<String> = files
        .iter()
        .map(|(path, whose, pid)| format!("{} ({whose}, process {pid})", path.display()))
        .collect();
    Finding::problem(
        CHECK,
        format!("open or mapped: {}", listed(names.into_iter())),
        "start the program with `hetckpt run`, where it has none of a GPU; do without the others",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetckpt_report::finding::Verdict;

    #[test]
    fn drivers_and_device_files_are_problems() {
        let (mut libraries, mut files) = (BTreeSet::new(), BTreeSet::new());
        for path in [
            "/usr/lib/libc.so.6",
            "/usr/lib/libcudart.so.12",
            "/dev/null",
            "/usr/lib/libOpenCL.so.1",
        ] {
            note(PathBuf::from(path), 1, &mut libraries, &mut files);
        }
        assert_eq!(of_libraries(&libraries).verdict, Verdict::Ok);
        assert_eq!(of_files(&files).verdict, Verdict::Ok);
        note(PathBuf::from("/usr/lib/libpocl.so.2"), 1, &mut libraries, &mut files);
        assert_eq!(of_libraries(&libraries).verdict, Verdict::Warning);
        for path in ["/usr/lib/libcuda.so.535.1", "/dev/nvidiactl"] {
            note(PathBuf::from(path), 1, &mut libraries, &mut files);
        }
        assert_eq!(of_libraries(&libraries).verdict, Verdict::Problem);
        let found = of_files(&files);
        assert!(
            found.verdict == Verdict::Problem && found.found.contains("/dev/nvidiactl (NVIDIA's driver, process 1)")
        );
    }
}
