//! Reads from CRIU's images what a restore needs of the machine. Images of memory are not looked at. The bytes are
//! hostile.
//!
//! # Source
//! CRIU, `images/*.proto`; what is compared at a restore: `criu/files-reg.c`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::image_error::ImageError;
use crate::image_messages::{
    Area, Core, FileEntry, Fs, IS_OF_HUGE_PAGES, IS_OF_PLUGIN, IS_OUTSIDE, IS_PRIVATE, IS_PRIVATE_FILE, InetSocket,
    Inventory, Mm, PstreeEntry, Regular, Remap, TerminalInfo, UnixSocket,
};
use crate::images::{CORE_MAGIC, FILES_MAGIC, INVENTORY_IMAGE, INVENTORY_MAGIC, Images, MM_MAGIC, PSTREE_MAGIC, first};
use crate::terminals::Terminals;

const REMAP_MAGIC: u32 = 0x5913_3954;

const FS_MAGIC: u32 = 0x5140_3912;

const TERMINALS_MAGIC: u32 = 0x5945_3036;

/// Terminals, if there are any.
const TERMINALS_IMAGE: &str = "tty-info.img";

/// Files whose paths did not lead to them.
const REMAP_IMAGE: &str = "remap-fpath.img";

/// What a restore needs of the machine.
#[derive(Debug, Default)]
pub struct Needs {
    /// Ids of processes and threads.
    pub pids: BTreeSet<u32>,
    /// Ids of processes that had not ended.
    pub processes: BTreeSet<u32>,
    /// The root of the tree leads its session.
    pub leads_session: bool,
    /// Files with a path.
    pub files: Vec<NeededFile>,
    /// Terminals.
    pub terminals: Terminals,
    /// The users, by number, whose processes they were.
    pub users: BTreeSet<u32>,
    /// Their capabilities, those of all together, by number of the bit.
    pub permitted: u64,
    /// Those that they hand on to certain programs, likewise.
    pub inheritable: u64,
    /// TCP connections.
    pub connections: BTreeSet<Connection>,
    /// Names of unix sockets of processes outside of the tree that it has connected sockets of its own to: paths, or
    /// after a zero byte abstract names.
    pub outside_sockets: BTreeSet<Vec<u8>>,
    /// `criu cpuinfo check` can compare the processor with that of the dump.
    pub names_processor: bool,
    /// CRIU is to be told that processes have had probes in their code (uprobes).
    pub has_had_uprobes: bool,
    /// Some have memory of their own in huge pages.
    pub has_huge_pages: bool,
}

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// The program's end.
    pub local: SocketAddr,
    /// The other.
    pub peer: SocketAddr,
}

impl Connection {
    /// Addresses of IPv4 are that, however a socket has them.
    #[must_use]
    pub fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            local: canonical(local),
            peer: canonical(peer),
        }
    }
}

/// True if both ends of each connection are among them.
#[must_use]
pub fn are_inner(connections: &BTreeSet<Connection>) -> bool {
    connections.iter().all(|&Connection { local, peer }| {
        connections.contains(&Connection {
            local: peer,
            peer: local,
        })
    })
}

/// A file, open or mapped or stood in.
#[derive(Clone, Debug)]
pub struct NeededFile {
    /// As the images have it.
    pub regular: Regular,
    /// What for.
    pub role: Role,
}

/// What processes had a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Mapped, privately, and not written to: a program or library, as a rule.
    Mapped,
    /// A working folder.
    WorkingFolder,
    /// A folder, open.
    Folder,
    /// Open for writing.
    Output,
    /// Open for reading; or a device.
    Other,
}

impl NeededFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.regular.name))
    }
}

/// What a restore of the images in `folder` needs of the machine.
pub fn read(folder: &Path) -> Result<Needs, ImageError> {
    let images = Images(folder);
    let tree: Vec<PstreeEntry> = images.entries("pstree.img", PSTREE_MAGIC)?;
    let remapped: Vec<Remap> = match images.has(REMAP_IMAGE) {
        true => images.entries(REMAP_IMAGE, REMAP_MAGIC)?,
        false => vec![],
    };
    let inventory: Inventory = first(&images, INVENTORY_IMAGE, INVENTORY_MAGIC)?;
    let mut needs = Needs {
        has_had_uprobes: inventory.allow_uprobes,
        leads_session: tree.first().is_none_or(|root| root.sid == root.pid),
        names_processor: images.has("cpuinfo.img"),
        ..Needs::default()
    };
    let (mut mapped, mut stood_in, mut roots) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for process in tree {
        let pid = process.pid;
        if !needs.pids.insert(pid) {
            return Err(ImageError::ProcessTwice { pid });
        }
        let core: Core = first(&images, &format!("core-{pid}.img"), CORE_MAGIC)?;
        if core.has_ended() {
            continue;
        }
        needs.processes.insert(pid);
        needs.pids.extend(process.threads);
        let credentials = core.thread.and_then(|thread| thread.credentials);
        if let Some(credentials) = credentials {
            needs.users.insert(credentials.uid);
            needs.permitted |= capabilities(&credentials.permitted);
            needs.inheritable |= capabilities(&credentials.inheritable);
        }
        let mm: Mm = first(&images, &format!("mm-{pid}.img"), MM_MAGIC)?;
        mapped.insert(u64::from(mm.exe_file_id));
        let is_huge = |area: &Area| area.flags & IS_OF_HUGE_PAGES != 0 && area.flags & IS_PRIVATE != 0;
        needs.has_huge_pages |= mm.areas.iter().any(is_huge);
        let private = mm.areas.iter().filter(|area| area.status & IS_PRIVATE_FILE != 0);
        mapped.extend(private.map(|area| area.file_id));
        let fs: Fs = first(&images, &format!("fs-{pid}.img"), FS_MAGIC)?;
        stood_in.insert(fs.cwd_id);
        roots.insert(fs.root_id);
    }
    // One entry stands for both where they are the same; a root is not to become another folder.
    stood_in.retain(|id| !roots.contains(id));
    let files: Vec<FileEntry> = images.entries("files.img", FILES_MAGIC)?;
    let described: Vec<TerminalInfo> = match images.has(TERMINALS_IMAGE) {
        true => images.entries(TERMINALS_IMAGE, TERMINALS_MAGIC)?,
        false => vec![],
    };
    needs.terminals = Terminals::among(&files, &described);
    needs.connections = connections(&files)?;
    needs.outside_sockets = outside_sockets(&files);
    // A terminal is not opened by the name that it had.
    let terminals = files.iter().filter_map(|file| file.terminal.as_ref());
    let terminals: BTreeSet<u32> = terminals.filter_map(|terminal| terminal.file_id).collect();
    let remapped: BTreeSet<u32> = remapped.into_iter().map(|remap| remap.id).collect();
    let is_needed = |file: &Regular| {
        let is_elsewhere = terminals.contains(&file.id) || remapped.contains(&file.id);
        !file.is_external() && !is_elsewhere
    };
    for regular in files.into_iter().filter_map(|file| file.regular).filter(is_needed) {
        let role = role(&regular, mapped.contains(&u64::from(regular.id)), &stood_in);
        needs.files.push(NeededFile { regular, role });
    }
    Ok(needs)
}

/// Bits in words, the lowest word first.
fn capabilities(words: &[u32]) -> u64 {
    let both = words.iter().take(2).rev();
    both.fold(0, |bits, &word| bits << 32 | u64::from(word))
}

/// The TCP connections among `files`: what CRIU takes for such.
pub(super) fn connections(files: &[FileEntry]) -> Result<BTreeSet<Connection>, ImageError> {
    const TCP: u32 = 6;
    let sockets = files.iter().filter_map(|file| file.inet.as_ref());
    let connected = sockets.filter(|socket| socket.protocol == TCP && socket.peer_port != 0);
    connected
        .map(|socket| connection(socket).ok_or(ImageError::NoAddress))
        .collect()
}

fn connection(socket: &InetSocket) -> Option<Connection> {
    Some(Connection {
        local: address(&socket.address, socket.port)?,
        peer: address(&socket.peer_address, socket.peer_port)?,
    })
}

fn address(words: &[u32], port: u32) -> Option<SocketAddr> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::try_from(port).ok()?))
}

/// Those that CRIU connects to again, which is not what a plugin does.
fn outside_sockets(files: &[FileEntry]) -> BTreeSet<Vec<u8>> {
    let sockets = || files.iter().filter_map(|file| file.unix.as_ref());
    let is_own = |socket: &&UnixSocket| socket.flags & (IS_OUTSIDE | IS_OF_PLUGIN) == 0;
    let wanted: BTreeSet<u32> = sockets().filter(is_own).map(|socket| socket.peer).collect();
    let outside = sockets().filter(|socket| socket.flags & IS_OUTSIDE != 0 && wanted.contains(&socket.inode));
    outside
        .map(|socket| match socket.name.split_first() {
            // An abstract name may have zero bytes anywhere.
            Some((0, _)) | None => socket.name.clone(),
            Some(_) => socket.name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec(),
        })
        .collect()
}

fn role(file: &Regular, is_mapped: bool, stood_in: &BTreeSet<u32>) -> Role {
    const O_ACCMODE: u32 = 0o3;
    const S_IFMT: u32 = 0o170_000;
    const S_IFDIR: u32 = 0o040_000;
    const S_IFREG: u32 = 0o100_000;
    let kind = file.mode.map(|mode| mode & S_IFMT);
    match kind {
        _ if stood_in.contains(&file.id) => Role::WorkingFolder,
        Some(S_IFDIR) => Role::Folder,
        Some(S_IFREG) if file.flags & O_ACCMODE != 0 => Role::Output,
        Some(S_IFREG) if is_mapped => Role::Mapped,
        _ => Role::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_it_was_used_for() {
        let file = |flags, mode| Regular {
            id: 7,
            flags,
            mode: Some(mode),
            ..Regular::default()
        };
        let none = BTreeSet::new();
        assert_eq!(role(&file(0, 0o100_755), true, &none), Role::Mapped);
        assert_eq!(role(&file(2, 0o100_755), true, &none), Role::Output);
        assert_eq!(role(&file(0o2001, 0o100_644), false, &none), Role::Output);
        assert_eq!(role(&file(0, 0o100_644), false, &none), Role::Other);
        assert_eq!(role(&file(2, 0o020_666), false, &none), Role::Other);
        assert_eq!(role(&file(0, 0o040_755), false, &none), Role::Folder);
        assert_eq!(
            role(&file(0, 0o040_755), false, &BTreeSet::from([7])),
            Role::WorkingFolder
        );
    }
}
