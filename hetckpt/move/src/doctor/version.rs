//! Are all parts of one version? Others understand neither each other's messages nor each other's snapshots.
//!
//! Nothing is loaded: a library is another program's code, and one of another version may do anything as it starts.

use object::Object;
use object::ObjectSection;
use object::ObjectSymbol;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use object::read::ReadCache;

use hetckpt_criu::plugin_option;
use hetckpt_report::finding::Finding;
use hetckpt_report::installation::Installation;
use hetckpt_ring::version::{PART_SYMBOL, PART_VERSION_BYTES};

/// Version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");

/// What gets the version out of the file at a path.
type Asked = fn(&Path) -> Option<String>;

/// Compares the parts' versions with ours. The CPU's code generator has none: its interface's is looked at when it is
/// loaded.
pub fn compare(installation: &Installation) -> Finding {
    let plugin = installation.plugin_folder.join(plugin_option::FILE);
    let parts: [(_, _, Asked); 3] = [
        ("server", installation.server.clone(), of_server),
        ("shim", installation.shim(), of_library),
        ("plugin", plugin, of_library),
    ];
    // That one is missing is a problem of its own.
    let there = parts.into_iter().filter(|(_, path, _)| path.exists());
    let said: Vec<_> = there.map(|(part, path, version)| (part, version(&path))).collect();
    judge(&said)
}

/// What comes of parts that say these versions.
fn judge(parts: &[(&str, Option<String>)]) -> Finding {
    const CHECK: &str = "versions";
    let say = |(part, version): &(&str, Option<String>)| match version {
        Some(version) => format!("{part} {}", version.escape_debug()),
        None => format!("{part} of a version that it does not say"),
    };
    let others: Vec<String> = parts
        .iter()
        .filter(|(_, version)| version.as_deref() != Some(OURS))
        .map(say)
        .collect();
    match others.is_empty() {
        true => Finding::ok(CHECK, format!("all parts are {OURS}")),
        false => Finding::problem(
            CHECK,
            format!("hetckpt is {OURS}, and there are: {}", others.join(", ")),
            "install hetckpt again, all of it: parts of different versions do not understand each other",
        ),
    }
}

/// The version that the library at `path` says.
fn of_library(path: &Path) -> Option<String> {
    symbol(path, PART_SYMBOL, PART_VERSION_BYTES)
}

/// The version that the device server at `path` says.
fn of_server(path: &Path) -> Option<String> {
    let mut command = Command::new(path);
    command
        .arg("--version")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD");
    let output = command.stdin(Stdio::null()).output().ok()?;
    let is_said = output.status.success();
    is_said.then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The text that the exported symbol `name` of the library at `path` stands for, of `size` bytes at most.
fn symbol(path: &Path, name: &str, size: usize) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    let symbol = object.dynamic_symbols().find(|symbol| symbol.name() == Ok(name))?;
    let section = object.section_by_index(symbol.section_index()?).ok()?;
    let bytes = section.data_range(symbol.address(), u64::try_from(size).ok()?).ok()??;
    let text = bytes.split(|&byte| byte == 0).next()?;
    String::from_utf8(text.to_owned()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use procfs::process::{MMapPath, Process};

    use super::*;
    use hetckpt_report::finding::Verdict;

    #[test]
    fn only_the_same_version_will_do() {
        let ours = || Some(OURS.to_owned());
        let good = judge(&[("server", ours()), ("shim", ours())]);
        assert_eq!(good.verdict, Verdict::Ok);
        for other in [None, Some(""), Some("0.0.0"), Some("x\u{1b}[31m")] {
            let found = judge(&[("server", ours()), ("shim", other.map(str::to_owned))]);
            assert_eq!(found.verdict, Verdict::Problem);
            let is_named = found.found.contains("shim") && !found.found.contains("server");
            assert!(is_named && !found.found.contains('\u{1b}'), "{}", found.found);
        }
    }

    /// The C library exports a text, its own short name.
    #[test]
    fn symbols_are_read_from_the_file() {
        let maps = Process::myself().unwrap().maps().unwrap();
        let mut paths = maps.into_iter().filter_map(|map| match map.pathname {
            MMapPath::Path(path) => Some(path),
            _ => None,
        });
        let library = paths.find(|path| path.to_string_lossy().contains("libc.so")).unwrap();
        assert_eq!(symbol(&library, "_libc_intl_domainname", 5).unwrap(), "libc");
        assert_eq!(of_library(&library), None);
        assert_eq!(of_library(Path::new("/proc/self/status")), None);
        assert_eq!(of_library(Path::new("/nonexistent")), None);
        assert_eq!(of_server(Path::new("/bin/false")), None);
    }
}
