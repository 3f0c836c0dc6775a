//! Eventfds that `hetckpt dump` has left to this plugin, because CRIU would make them without their flag
//! `EFD_SEMAPHORE`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::PluginError;
use crate::host;

/// The list among the images: a line for each, `ID FLAGS COUNT` (`hetckpt/criu/src/eventfds.rs`).
const LIST: &str = "hetgpu-eventfds";

/// An eventfd as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    /// Status flags of the open file (`O_*`).
    flags: i32,
    count: u64,
}

/// The eventfd that the images call `id`; `None` if there is none.
pub fn make(id: u32) -> Result<Option<OwnedFd>, PluginError> {
    let path = host::image_dir()?.join(LIST);
    let list = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PluginError::Eventfds { path, source }),
    };
    let Some(noted) = find(&list, id)? else {
        return Ok(None);
    };
    made(noted)
        .map(Some)
        .map_err(|source| PluginError::MakeEventfd { id, path, source })
}

fn find(list: &str, id: u32) -> Result<Option<Noted>, PluginError> {
    for line in list.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or(PluginError::LineCutOff { list: LIST });
        let (found, flags, count) = (word()?, word()?, word()?);
        if found.parse() == Ok(id) {
            let bad = |_| PluginError::SenselessLine { list: LIST };
            let (flags, count) = (flags.parse().map_err(bad)?, count.parse().map_err(bad)?);
            return Ok(Some(Noted { flags, count }));
        }
    }
    Ok(None)
}

fn made(noted: Noted) -> std::io::Result<OwnedFd> {
    let eventfd = OwnedFd::from(EventFd::from_flags(EfdFlags::EFD_SEMAPHORE)?);
    if noted.count > 0 {
        File::from(eventfd.try_clone()?).write_all(&noted.count.to_ne_bytes())?;
    }
    fcntl(&eventfd, FcntlArg::F_SETFL(OFlag::from_bits_truncate(noted.flags)))?;
    Ok(eventfd)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_semaphore_counts_down_by_one_from_where_it_was() {
        let list = "7 2 18446744073709551614\n8 2050 2\n";
        let noted = find(list, 8).unwrap().unwrap();
        assert_eq!(noted, Noted { flags: 2050, count: 2 });
        let mut file = File::from(made(noted).unwrap());
        let mut take = || {
            let mut taken = [0; 8];
            file.read_exact(&mut taken).map(|()| u64::from_ne_bytes(taken))
        };
        assert_eq!((take().unwrap(), take().unwrap()), (1, 1));
        assert_eq!(take().unwrap_err().kind(), ErrorKind::WouldBlock);
        made(find(list, 7).unwrap().unwrap()).unwrap();
        assert!(find(list, 9).unwrap().is_none());
        for bad in ["8", "8 2", "8 x 2", "8 2 -1"] {
            assert!(find(bad, 8).is_err(), "{bad}");
        }
    }
}
