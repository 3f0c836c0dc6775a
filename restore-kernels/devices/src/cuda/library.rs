//! Finding NVIDIA's driver library. The server may run beside our own `libcuda.so.1`, so the real one is loaded by
//! path, before cudarc looks for it by name: the dynamic linker then gives cudarc what is loaded already.
#![allow(unsafe_code, reason = "loading a library")]

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use libloading::Library;

use crate::error::DeviceError;

/// Overrides where the driver library is looked for.
pub const DRIVER_VARIABLE: &str = "HETCKPT_CUDA_DRIVER";

const NAME: &str = "libcuda.so.1";

/// Where distributions, containers and WSL keep it.
const FOLDERS: [&str; 10] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Prepares the environment that the driver reads. It keeps the kernels that it builds in `kernels`, filed by text,
/// options, device and its own version, unless the user has said where. And it has no fewer queues of the hardware than
/// it has by itself, whatever the program wants for its own streams: streams that share one wait for each other, and
/// ours must not wait for kernels. (More than that would make a context take longer to create, 0.4 s for 32.)
pub(super) fn prepare_environment(kernels: Option<&Path>) {
    const CACHE: &str = "CUDA_CACHE_PATH";
    const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    const DEFAULT_QUEUES: u32 = 8;
    if let Some(folder) = kernels
        && std::env::var_os(CACHE).is_none()
    {
        // SAFETY: `CudaDevice::open` asks its callers that no other thread read the environment meanwhile.
        unsafe { std::env::set_var(CACHE, folder.join("cuda")) };
    }
    let wanted = std::env::var(QUEUES).ok().and_then(|text| text.parse::<u32>().ok());
    if wanted.is_some_and(|wanted| wanted < DEFAULT_QUEUES) {
        // SAFETY: as above.
        unsafe { std::env::remove_var(QUEUES) };
    }
}

/// Why there is no driver library. All of it is the host's fault.
#[derive(Clone, Debug, thiserror::Error)]
enum LibraryError {
    /// No such file anywhere.
    #[error("no {NAME} in the usual folders (set {DRIVER_VARIABLE} to its path)")]
    Absent,
    /// Files that cannot be loaded, and why.
    #[error("{}", .0.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect::<Vec<_>>().join("; "))]
    NotLoaded(Vec<(PathBuf, Arc<libloading::Error>)>),
    /// The loader does not give it to who asks for its name.
    #[error("the driver is loaded but not found by its name")]
    NotByName,
    /// What is found lacks the first function that every driver has.
    #[error("{0}")]
    NoFunction(Arc<libloading::Error>),
    /// Our own library is found in its place.
    #[error("{} answers to the name {NAME} instead of the driver (see LD_LIBRARY_PATH)", .0.display())]
    NotTheDriver(PathBuf),
}

/// Loads the driver library, once for the process.
///
/// # Errors
/// [`DeviceError::NotPresent`] with the places that were tried.
pub(super) fn load() -> Result<(), DeviceError> {
    static LOADED: OnceLock<Result<(), LibraryError>> = OnceLock::new();
    LOADED
        .get_or_init(find_and_load)
        .clone()
        .map_err(|error| DeviceError::NotPresent {
            device: "cuda".into(),
            reason: error.to_string(),
        })
}

fn find_and_load() -> Result<(), LibraryError> {
    let mut tried = Vec::new();
    for path in candidates() {
        if !path.exists() {
            continue;
        }
        // SAFETY: the file is the installed driver (or what the user names as such); its initialisers are meant to run.
        match unsafe { Library::new(&path) } {
            Ok(library) => return adopt(library),
            Err(error) => tried.push((path, Arc::new(error))),
        }
    }
    Err(match tried.is_empty() {
        true => LibraryError::Absent,
        false => LibraryError::NotLoaded(tried),
    })
}

/// Keeps `library` loaded and makes sure that cudarc does not find our own one. (It may find a third: profilers put
/// themselves in between.)
fn adopt(library: Library) -> Result<(), LibraryError> {
    // The handle stays open for the life of the process.
    std::mem::forget(library);
    // SAFETY: looks for the library by name; loading the driver has no precondition.
    if !unsafe { sys::is_culib_present() } {
        return Err(LibraryError::NotByName);
    }
    // SAFETY: the library is present, so this does not panic.
    let found = unsafe { sys::culib() };
    // SAFETY: only the symbol's address is looked at.
    let symbol = unsafe { found.get::<fn()>(b"cuInit") }.map_err(|e| LibraryError::NoFunction(Arc::new(e)))?;
    let path = path_of(*symbol as *const c_void).unwrap_or_default();
    if path.components().any(|part| part.as_os_str() == "hetckpt") {
        return Err(LibraryError::NotTheDriver(path));
    }
    Ok(())
}

/// The file that the code at `address` was loaded from.
fn path_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: a place for the answer; any address may be asked about.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed at first, which is a valid value, and filled by now.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's own copy of the name, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os(DRIVER_VARIABLE) {
        return vec![PathBuf::from(path)];
    }
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    folders.extend(configured_folders());
    folders.into_iter().map(|folder| folder.join(NAME)).collect()
}

/// Folders that `/etc/ld.so.conf.d` adds (containers mount the driver there).
fn configured_folders() -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir("/etc/ld.so.conf.d") else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    let texts = paths.into_iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let is_folder = |line: &str| line.starts_with('/');
    texts
        .flat_map(|text| {
            text.lines()
                .map(str::trim)
                .filter(|l| is_folder(l))
                .map(PathBuf::from)
                .collect::<Vec<_>>()
        })
        .collect()
}
