//! Where the user's cache is.

use std::path::PathBuf;

/// The folder for what can be made again: `$HETCKPT_CACHE_DIR` (`off`: none), else the user's cache folder.
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    match variable("HETCKPT_CACHE_DIR") {
        Some(dir) if dir.as_os_str() == "off" => None,
        Some(dir) => Some(dir),
        None => variable("XDG_CACHE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".cache")))
            .map(|dir| dir.join("hetckpt")),
    }
}
