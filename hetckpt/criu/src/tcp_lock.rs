//! Gives a tree its TCP connections back after a dump that leaves it stopped.
//!
//! For the time between dump and restore CRIU has Linux drop the packets of each connection (an nftables table of its
//! own), so that nobody answers the peer that there is none, and leaves the sockets in repair mode, so that they close
//! without a word. It undoes that only where itself lets the tree run on, not where it leaves the tree stopped, nor
//! when it is killed.
//!
//! # Source
//! CRIU, `criu/netfilter.c` (the table), `criu/sk-tcp.c` (`tcp_unlock_one`); Linux, `uapi/linux/netfilter/nf_tables.h`,
//! tcp(7).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::sockopt::{ReuseAddr, TcpRepair};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, getsockopt, recv, send, setsockopt, socket,
};
use procfs::process::{FDTarget, Process};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::image_messages::FileEntry;
use crate::images::{FILES_MAGIC, Images};
use crate::needs::{are_inner, connections};

/// How far into its log CRIU says what it calls itself.
const LOG_LINES: usize = 50;

/// Bytes of `inet NAME` that CRIU up to 4.2.1 keeps.
const KEPT_BYTES: usize = 31;

/// What CRIU calls the table in which it drops packets is this and its own name.
const FAMILY: &str = "inet ";

const PREFIX: &str = "CRIU-";

/// What could not be undone (host).
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// Connections stay silent.
    #[error("the rules that drop packets stay ({source}); `nft delete table {table}` takes them away")]
    Rules {
        /// Family and name of their table.
        table: String,
        /// Cause.
        source: io::Error,
    },
    /// Sockets stay in repair mode.
    #[error("the TCP sockets of process {pid}: {source}")]
    Sockets {
        /// The process.
        pid: i32,
        /// Cause.
        source: io::Error,
    },
}

/// Undoes what a CRIU that worked in the folder `images` has done to the connections of `processes`, which are stopped.
/// Says what could not be undone.
pub fn undo(images: &Path, processes: &[i32]) -> Result<(), UndoError> {
    let unlocked = match run_id(images) {
        Some(id) => delete_tables(&id),
        // It did not come to lock anything.
        None => Ok(()),
    };
    let reused = reused(images);
    for &pid in processes {
        repair(pid, &reused).map_err(|source| UndoError::Sockets { pid, source })?;
    }
    unlocked
}

/// When a program has been ended that was dumped into `images`: packets of connections with itself are dropped no more,
/// since nobody sends any. Gives what to tell of others: for how long theirs are dropped here.
pub fn leave(images: &Path) -> Option<String> {
    let files: Vec<FileEntry> = Images(images).entries("files.img", FILES_MAGIC).ok()?;
    let connections = connections(&files).ok()?;
    if connections.is_empty() || are_inner(&connections) && delete_tables(&run_id(images)?).is_ok() {
        return None;
    }
    let name = format!("{PREFIX}{}", run_id(images)?);
    Some(format!(
        "Linux drops the packets of the program's TCP connections here until the program is restored here, or until \
         `nft delete table {FAMILY}{}` (`nft list tables` has newer CRIUs' longer name)",
        &name[..KEPT_BYTES - FAMILY.len()]
    ))
}

/// What the CRIU that has dumped into `images` called itself.
fn run_id(images: &Path) -> Option<String> {
    let lines = BufReader::new(File::open(images.join("dump.log")).ok()?).lines();
    // `(00.000000) CRIU run id = f2c8e306-7d3c-4e4f-bcde-651b26c5e12f`
    let id = lines
        .take(LOG_LINES)
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("CRIU run id = ")?.1.trim().to_owned()))?;
    let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (is_id && id.len() == 36).then_some(id)
}

fn delete_tables(id: &str) -> Result<(), UndoError> {
    let name = format!("{PREFIX}{id}");
    for name in [&name[..KEPT_BYTES - FAMILY.len()], &name] {
        delete_table(name).map_err(|source| UndoError::Rules {
            table: format!("{FAMILY}{name}"),
            source,
        })?;
    }
    Ok(())
}

/// Deletes a table of the family `inet`, if there is one of that name.
fn delete_table(name: &str) -> io::Result<()> {
    let request = deletion(name)?;
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    send(netlink.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let size = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match error_of(&answer[..size]) {
        Some(0) => Ok(()),
        Some(error) if error == -nix::libc::ENOENT => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the answer of Linux cannot be read")),
    }
}

/// The error in an answer of netlink; 0 if there was none.
fn error_of(answer: &[u8]) -> Option<i32> {
    const NLMSG_ERROR: u16 = 2;
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let error = answer.get(16..)?.first_chunk()?;
    (kind == NLMSG_ERROR).then(|| i32::from_ne_bytes(*error))
}

/// The messages to netlink that delete a table, in a transaction as nftables wants it.
fn deletion(name: &str) -> io::Result<Vec<u8>> {
    const BATCH_BEGIN: u16 = 0x10;
    const BATCH_END: u16 = 0x11;
    const NFTABLES: u16 = 10;
    const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
    const INET: u8 = 1;
    const TABLE_NAME: u16 = 1;
    let too_long = |_| io::Error::other("the name is too long");
    let mut attribute = u16::try_from(4 + name.len() + 1)
        .map_err(too_long)?
        .to_ne_bytes()
        .to_vec();
    attribute.extend(TABLE_NAME.to_ne_bytes());
    attribute.extend(name.as_bytes());
    // The name's end, and what fills the last word.
    attribute.push(0);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    let mut messages = vec![];
    for (kind, family, resource, attributes) in [
        (BATCH_BEGIN, 0, NFTABLES, &[][..]),
        (DELETE_TABLE, INET, 0, &attribute),
        (BATCH_END, 0, NFTABLES, &[]),
    ] {
        const REQUEST: u16 = 1;
        const ACKNOWLEDGE: u16 = 4;
        let flags = if kind == DELETE_TABLE {
            REQUEST | ACKNOWLEDGE
        } else {
            REQUEST
        };
        messages.extend(u32::try_from(20 + attributes.len()).map_err(too_long)?.to_ne_bytes());
        messages.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        // Its number among ours, and ours: both are for whoever has several.
        messages.extend([0; 8]);
        messages.extend([family, 0]);
        messages.extend(resource.to_be_bytes());
        messages.extend(attributes);
    }
    Ok(messages)
}

/// The sockets, by inode, whose address others could reuse: repair mode makes Linux forget that.
fn reused(images: &Path) -> BTreeMap<u64, bool> {
    let files: Vec<FileEntry> = Images(images).entries("files.img", FILES_MAGIC).unwrap_or_default();
    let sockets = files.into_iter().filter_map(|file| file.inet);
    let reused =
        |options: Option<super::image_messages::SocketOptions>| options.is_some_and(|options| options.reuses_address);
    sockets
        .map(|socket| (socket.inode.into(), reused(socket.options)))
        .collect()
}

/// Takes the sockets of process `pid` out of repair mode.
fn repair(pid: i32, reused: &BTreeMap<u64, bool>) -> io::Result<()> {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        // It has ended.
        return Ok(());
    };
    let descriptors = Process::new(pid).and_then(|process| process.fd());
    for descriptor in descriptors.into_iter().flatten().flatten() {
        let FDTarget::Socket(inode) = descriptor.target else {
            continue;
        };
        let socket: OwnedFd = pidfd_getfd(&process, descriptor.fd, PidfdGetfdFlags::empty())?;
        // Of other sockets than those of TCP nobody knows the like.
        if getsockopt(&socket, TcpRepair).is_ok_and(|mode| mode != 0) {
            setsockopt(&socket, TcpRepair, &0)?;
            let reuses = reused.get(&inode).copied().unwrap_or_default();
            setsockopt(&socket, ReuseAddr, &reuses)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_tells_what_criu_called_itself() {
        let folder = tempfile::tempdir().unwrap();
        let log = |text: &str| {
            fs::write(folder.path().join("dump.log"), text).unwrap();
            run_id(folder.path())
        };
        let id = "f2c8e306-7d3c-4e4f-bcde-651b26c5e12f";
        assert_eq!(
            log(&format!("(00.1) CRIU run id = {id}\n(00.2) more\n")).as_deref(),
            Some(id)
        );
        assert_eq!(log("(00.1) CRIU run id = x; flush ruleset\n"), None);
        assert_eq!(log(""), None);
    }

    #[test]
    fn messages_are_whole_words_and_say_how_long_they_are() {
        let messages = deletion("CRIU-f2c8e306-7d3c-4e4f-bc").unwrap();
        let (mut rest, mut kinds) = (messages.as_slice(), vec![]);
        while let Some(size) = rest.first_chunk() {
            let size = usize::try_from(u32::from_ne_bytes(*size)).unwrap();
            assert!(size.is_multiple_of(4));
            kinds.push(u16::from_ne_bytes([rest[4], rest[5]]));
            rest = &rest[size..];
        }
        assert_eq!(kinds, [0x10, 0xa02, 0x11]);
    }
}
