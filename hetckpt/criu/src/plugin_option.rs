//! `--plugin NAME` on a command line for CRIU, which has no such option: it knows only the folder that it loads plugins
//! from.

use hetckpt_ring::failure_code::Code;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hetckpt_report::failure::Failure;

/// The plugin that is ours.
const NAME: &str = "hetgpu";

/// Its file.
pub const FILE: &str = "hetgpu_plugin.so";

const OPTION: &str = "--plugin";

/// `arguments` as CRIU takes them: `--plugin hetgpu` has become `--libdir FOLDER`, unless a folder is named anyway,
/// which then must hold the plugin. What follows a `--` is none of CRIU's options.
pub fn translate(arguments: &[OsString], plugin_folder: &Path) -> Result<Vec<OsString>, Failure> {
    let end = arguments
        .iter()
        .position(|word| word == "--")
        .unwrap_or(arguments.len());
    let (options, rest) = arguments.split_at(end);
    let own_folder = named_folder(options);
    let mut translated = vec![];
    let mut is_wanted = false;
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let name = match word.as_bytes().strip_prefix(OPTION.as_bytes()) {
            Some([]) => words.next().map_or(OsStr::new(""), OsString::as_os_str),
            Some([b'=', name @ ..]) => OsStr::from_bytes(name),
            _ => {
                translated.push(word.clone());
                continue;
            }
        };
        if name != NAME {
            return Err(unknown(name));
        }
        if !is_wanted && own_folder.is_none() {
            translated.extend(["--libdir".into(), plugin_folder.as_os_str().to_owned()]);
        }
        is_wanted = true;
    }
    if let (true, Some(folder)) = (is_wanted, own_folder) {
        require_plugin(&folder)?;
    }
    translated.extend_from_slice(rest);
    Ok(translated)
}

/// The folder of the last `--libdir`, which is the one that counts, in all the ways in which CRIU takes it.
fn named_folder(options: &[OsString]) -> Option<PathBuf> {
    let mut folder = None;
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        // Long options may be shortened: nothing else begins with these letters.
        let (option, value) = match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        if option.starts_with(b"--lib") && b"--libdir".starts_with(option) {
            folder = match value {
                Some(value) => Some(value.to_vec()),
                None => words.next().map(|next| next.as_bytes().to_vec()),
            };
        } else if let Some(value) = bytes.strip_prefix(b"-L") {
            folder = match value {
                [] => words.next().map(|next| next.as_bytes().to_vec()),
                value => Some(value.to_vec()),
            };
        }
    }
    folder.map(|bytes| OsString::from_vec(bytes).into())
}

fn require_plugin(folder: &Path) -> Result<(), Failure> {
    let missing = |note: String| {
        Failure::new(
            Code::PluginOption,
            format!("plugin `{NAME}` is not in {}", folder.display()),
        )
        .note(note)
        .help("leave --libdir out, or name the folder in which hetckpt's plugin lies")
    };
    if !folder.is_absolute() {
        return Err(missing(
            "CRIU takes such a path from its work folder: name a whole one".to_owned(),
        ));
    }
    match folder.join(FILE).exists() {
        true => Ok(()),
        false => Err(missing(format!("--libdir names that folder, and it has no {FILE}"))),
    }
}

fn unknown(name: &OsStr) -> Failure {
    let message = match name.is_empty() {
        true => "--plugin is given without a name".to_owned(),
        false => format!("there is no plugin `{}`", name.to_string_lossy()),
    };
    Failure::new(Code::PluginOption, message)
        .note(format!("hetckpt has one: {NAME}"))
        .help(format!(
            "say `--plugin {NAME}`; for plugins of others name their folder with --libdir"
        ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, Failure> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = translate(&words, Path::new("/ours"))?;
        Ok(words.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn plugin_becomes_its_folder_and_all_else_stays() {
        for (given, expected) in [
            ("dump -t 7 --plugin hetgpu -D d", "dump -t 7 --libdir /ours -D d"),
            ("dump --plugin=hetgpu --plugin hetgpu", "dump --libdir /ours"),
            ("restore --plugins --plug x", "restore --plugins --plug x"),
            ("check", "check"),
            (
                "restore --exec-cmd -- a --plugin hetgpu",
                "restore --exec-cmd -- a --plugin hetgpu",
            ),
            (
                "restore --plugin hetgpu -- a --libdir /b",
                "restore --libdir /ours -- a --libdir /b",
            ),
        ] {
            assert_eq!(translated(given).unwrap(), expected);
        }
    }

    #[test]
    fn a_folder_that_is_named_stays_and_must_hold_the_plugin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        for option in ["-L ", "-L", "--libdir ", "--libdir=", "--lib "] {
            let line = format!("dump {option}{path}");
            let refused = translated(&format!("{line} --plugin hetgpu")).unwrap_err();
            assert!(
                refused.code == Code::PluginOption && refused.message.contains(path),
                "{}",
                refused.message
            );
            assert_eq!(
                translated(&line).unwrap(),
                line,
                "without --plugin it is not for us to judge"
            );
            std::fs::write(folder.path().join(FILE), "").unwrap();
            assert_eq!(translated(&format!("{line} --plugin hetgpu")).unwrap(), line);
            std::fs::remove_file(folder.path().join(FILE)).unwrap();
        }
        assert!(translated("dump --plugin hetgpu -L relative").is_err());
    }

    #[test]
    fn other_plugins_are_unknown() {
        for line in [
            "dump --plugin cuda",
            "dump --plugin",
            "dump --plugin=",
            "dump --plugin -D",
        ] {
            assert_eq!(translated(line).unwrap_err().code, Code::PluginOption, "{line}");
        }
    }
}
