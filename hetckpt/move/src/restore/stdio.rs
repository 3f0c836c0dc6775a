//! The restored program's stdin, stdout and stderr.

use hetckpt_ring::failure_code::Code;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use hetckpt_archive::manifest::Manifest;
use hetckpt_report::failure::Failure;
use hetckpt_supervise::namespaces::{self, descriptors};
use hetckpt_supervise::relay::{self, Relay};

/// What the program gets in place of the pipes it had as stdin, stdout and stderr, and of files that are to be
/// replaced.
pub struct Stdio {
    /// CRIU's name of the old pipe or file and our descriptor for it.
    pub inherited: Vec<(OsString, OwnedFd)>,
    relays: Vec<Relay>,
}

impl Stdio {
    /// Opens what the program of `manifest` gets; `replaced` are files that it had as these streams.
    pub fn for_program(
        manifest: &Manifest,
        replaced: &BTreeMap<usize, PathBuf>,
        detach: bool,
    ) -> Result<Self, Failure> {
        let mut result = Self {
            inherited: vec![],
            relays: vec![],
        };
        for (fd, name) in manifest.header.stdio.iter().enumerate().take(3) {
            let name = match replaced.get(&fd) {
                // CRIU calls a file by its path from the root.
                Some(path) => path.strip_prefix("/").unwrap_or(path).as_os_str().to_owned(),
                None if name.starts_with("pipe:[") => name.into(),
                None => continue,
            };
            if result.inherited.iter().any(|(inherited, _)| *inherited == name) {
                continue;
            }
            let ours = result.replacement(fd, detach)?;
            // CRIU, a program we start, needs it open.
            fcntl(&ours, FcntlArg::F_SETFD(FdFlag::empty()))
                .map_err(|e| Failure::new(Code::CriuRestore, "cannot hand over a descriptor").note(e.to_string()))?;
            result.inherited.push((name, ours));
        }
        Ok(result)
    }

    /// Our own stream number `fd`; a pipe that is copied to it where it is a terminal, or /dev/null when nobody stays
    /// to copy.
    fn replacement(&mut self, fd: usize, detach: bool) -> Result<OwnedFd, Failure> {
        let is_terminal = match fd {
            0 => std::io::stdin().is_terminal(),
            1 => std::io::stdout().is_terminal(),
            _ => std::io::stderr().is_terminal(),
        };
        let cannot =
            |e: std::io::Error| Failure::new(Code::CriuRestore, "cannot hand over a descriptor").note(e.to_string());
        if is_terminal && (detach || fd == 0) {
            return Ok(fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .map_err(cannot)?
                .into());
        }
        let needs_copy = is_terminal || (fd > 0 && !detach && relay::is_foreign(fd));
        if let Some((pipe, relay)) = relay::copied_pipe(needs_copy, fd == 2)? {
            self.relays.push(relay);
            return Ok(pipe);
        }
        let own = match fd {
            0 => std::io::stdin().as_fd().try_clone_to_owned(),
            1 => std::io::stdout().as_fd().try_clone_to_owned(),
            _ => std::io::stderr().as_fd().try_clone_to_owned(),
        };
        let own = own.map_err(cannot)?;
        let reopened = match namespaces::is_inside() {
            true => descriptors::reopen(own.as_fd()).map_err(cannot)?,
            false => None,
        };
        Ok(reopened.unwrap_or(own))
    }

    /// Closes our ends; what is left copies until the program is gone.
    pub fn into_relays(self) -> Vec<Relay> {
        self.relays
    }
}
