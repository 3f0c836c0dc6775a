//! `nvidia-smi` looks at the node, with more of NVIDIA's library than is here: it is started again without this one.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "nvidia-smi";
const VARIABLE: &str = "LD_LIBRARY_PATH";
/// The folder that our library lies in, in every installation.
const OWN_FOLDER: &str = "hetckpt";

/// Runs when the library is loaded.
#[unsafe(link_section = ".init_array")]
#[used]
static AT_LOAD: extern "C" fn() = step_aside;

extern "C" fn step_aside() {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else {
        return;
    };
    let Some(path) = without_own_folder(std::env::var_os(VARIABLE).as_deref()) else {
        return;
    };
    if program.file_name() != Some(OsStr::new(PROGRAM)) {
        return;
    }
    let environment = std::env::vars_os().map(|(name, value)| match name == VARIABLE {
        true => pair(&name, &path),
        false => pair(&name, &value),
    });
    let environment: Vec<CString> = environment.flatten().collect();
    // The standard library need not know them yet.
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = line.split_inclusive(|&byte| byte == 0);
    let arguments = arguments.filter_map(|argument| CStr::from_bytes_with_nul(argument).ok());
    let arguments: Vec<CString> = arguments.map(CStr::to_owned).collect();
    if let Ok(program) = CString::new(program.into_os_string().into_vec()) {
        // If it fails, the program goes on with this library.
        let _ = nix::unistd::execve(&program, &arguments, &environment);
    }
}

fn pair(name: &OsStr, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}

/// The search path without folders of ours; `None` if it has none.
fn without_own_folder(path: Option<&OsStr>) -> Option<OsString> {
    let is_own = |folder: &PathBuf| folder.file_name() == Some(OsStr::new(OWN_FOLDER));
    let folders: Vec<PathBuf> = std::env::split_paths(path?).collect();
    if !folders.iter().any(is_own) {
        return None;
    }
    let others = folders.iter().filter(|folder| !is_own(folder)).map(Path::new);
    std::env::join_paths(others).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_folder_is_taken_off_the_path() {
        let without = |path: &str| without_own_folder(Some(OsStr::new(path)));
        assert_eq!(without("/opt/lib/hetckpt:/usr/lib"), Some("/usr/lib".into()));
        assert_eq!(without("/usr/lib:/opt/hetckpt/lib"), None);
        assert_eq!(without_own_folder(None), None);
    }
}
