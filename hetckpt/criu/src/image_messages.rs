//! The messages in CRIU's images, with those of their fields that are read.
//!
//! # Source
//! CRIU, `images/*.proto`.

use prost::Message;

/// Size of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Flag of a pagemap entry whose pages lie in the pages file.
pub const IS_PRESENT: u32 = 4;

/// Flag of an area that is mapped privately (`MAP_PRIVATE`).
pub const IS_PRIVATE: u32 = 2;

/// Flag of an area of huge pages (`MAP_HUGETLB`).
pub const IS_OF_HUGE_PAGES: u32 = 0x4_0000;

/// Status of an area where a file is mapped privately.
pub const IS_PRIVATE_FILE: u32 = 1 << 6;

/// The same, shared.
pub const IS_SHARED_FILE: u32 = 1 << 7;

/// Status of an area of memory that has no file and is shared.
pub const IS_SHARED_MEMORY: u32 = 1 << 8;

/// The same, of System V.
pub const IS_SYSV: u32 = 1 << 10;

/// Status of an area where the file is a memfd.
pub const IS_MEMFD: u32 = 1 << 14;

/// Flag of a unix socket that a process outside of the tree has.
pub const IS_OUTSIDE: u32 = 1;

/// Flag of a unix socket that a plugin connects again.
pub const IS_OF_PLUGIN: u32 = 4;

/// What the dump as a whole was; written last.
#[derive(Clone, PartialEq, Message)]
pub struct Inventory {
    /// Plugins, if any.
    #[prost(message, optional, tag = "12")]
    pub plugins: Option<Plugins>,
    /// Processes have had probes in their code (uprobes): a restore must be told so too.
    #[prost(bool, tag = "14")]
    pub allow_uprobes: bool,
}

/// Plugins that a restore needs.
#[derive(Clone, PartialEq, Message)]
pub struct Plugins {
    /// Their names.
    #[prost(string, repeated, tag = "12")]
    pub names: Vec<String>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct PstreeEntry {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// Its session's.
    #[prost(uint32, tag = "4")]
    pub sid: u32,
    /// The ids of its threads.
    #[prost(uint32, repeated, packed = "false", tag = "5")]
    pub threads: Vec<u32>,
}

/// A process or thread.
#[derive(Clone, PartialEq, Message)]
pub struct Core {
    /// If it is a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<CoreProcess>,
    /// What every thread has.
    #[prost(message, optional, tag = "5")]
    pub thread: Option<CoreThread>,
}

/// What every thread has.
#[derive(Clone, PartialEq, Message)]
pub struct CoreThread {
    /// What it may do.
    #[prost(message, optional, tag = "10")]
    pub credentials: Option<Credentials>,
}

/// What a thread may do.
#[derive(Clone, PartialEq, Message)]
pub struct Credentials {
    /// Its user.
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    /// Capabilities that programs of certain files get, in words of 32 bits, the lowest first.
    #[prost(uint32, repeated, packed = "false", tag = "9")]
    pub inheritable: Vec<u32>,
    /// Capabilities that it may use, likewise.
    #[prost(uint32, repeated, packed = "false", tag = "10")]
    pub permitted: Vec<u32>,
}

/// What only processes have.
#[derive(Clone, PartialEq, Message)]
pub struct CoreProcess {
    /// What it was doing.
    #[prost(uint32, tag = "1")]
    pub state: u32,
}

/// What a process shares with others.
#[derive(Clone, PartialEq, Message)]
pub struct Ids {
    /// Number of its table of descriptors.
    #[prost(uint32, tag = "2")]
    pub files_id: u32,
}

/// Where a process stands among folders.
#[derive(Clone, PartialEq, Message)]
pub struct Fs {
    /// Its working folder, a [`Regular`].
    #[prost(uint32, tag = "1")]
    pub cwd_id: u32,
    /// Its root, likewise.
    #[prost(uint32, tag = "2")]
    pub root_id: u32,
}

/// A file descriptor of a process.
#[derive(Clone, PartialEq, Message)]
pub struct Descriptor {
    /// The open file.
    #[prost(uint32, tag = "1")]
    pub file_id: u32,
    /// Its number.
    #[prost(uint32, tag = "4")]
    pub fd: u32,
}

/// An open file.
#[derive(Clone, PartialEq, Message)]
pub struct FileEntry {
    /// Its id in the images.
    #[prost(uint32, tag = "2")]
    pub id: u32,
    /// If it has a path.
    #[prost(message, optional, tag = "3")]
    pub regular: Option<Regular>,
    /// If it is a socket of IP.
    #[prost(message, optional, tag = "4")]
    pub inet: Option<InetSocket>,
    /// If it is an eventfd.
    #[prost(message, optional, tag = "8")]
    pub eventfd: Option<EventFd>,
    /// If it is a unix socket.
    #[prost(message, optional, tag = "16")]
    pub unix: Option<UnixSocket>,
    /// If it is a pipe.
    #[prost(message, optional, tag = "18")]
    pub pipe: Option<Pipe>,
    /// If it is a terminal.
    #[prost(message, optional, tag = "19")]
    pub terminal: Option<Terminal>,
    /// If it is a memfd.
    #[prost(message, optional, tag = "20")]
    pub memfd: Option<Memfd>,
}

/// An open socket of IP.
#[derive(Clone, PartialEq, Message)]
pub struct InetSocket {
    /// Its inode at the dump.
    #[prost(uint32, tag = "2")]
    pub inode: u32,
    /// `AF_INET`, `AF_INET6`.
    #[prost(uint32, tag = "3")]
    pub family: u32,
    /// `IPPROTO_*`.
    #[prost(uint32, tag = "5")]
    pub protocol: u32,
    /// Its own port.
    #[prost(uint32, tag = "7")]
    pub port: u32,
    /// The peer's; 0 if it has none.
    #[prost(uint32, tag = "8")]
    pub peer_port: u32,
    /// Its own address: words, each in the order of the network.
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    pub address: Vec<u32>,
    /// The peer's.
    #[prost(uint32, repeated, packed = "false", tag = "12")]
    pub peer_address: Vec<u32>,
    /// Its options.
    #[prost(message, optional, tag = "14")]
    pub options: Option<SocketOptions>,
}

/// The options of a socket.
#[derive(Clone, PartialEq, Message)]
pub struct SocketOptions {
    /// `SO_REUSEADDR`.
    #[prost(bool, tag = "7")]
    pub reuses_address: bool,
}

/// A unix socket; also one that a process outside of the tree has.
#[derive(Clone, PartialEq, Message)]
pub struct UnixSocket {
    /// Its inode at the dump.
    #[prost(uint32, tag = "2")]
    pub inode: u32,
    /// Whose it is ([`IS_OUTSIDE`], [`IS_OF_PLUGIN`]).
    #[prost(uint32, tag = "6")]
    pub flags: u32,
    /// Inode of its peer; 0 if it has none.
    #[prost(uint32, tag = "8")]
    pub peer: u32,
    /// Its path, or after a zero byte its abstract name, with a zero byte behind it.
    #[prost(bytes = "vec", tag = "11")]
    pub name: Vec<u8>,
}

/// An open eventfd.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct EventFd {
    /// How it was opened (`O_*`).
    #[prost(uint32, tag = "2")]
    pub flags: u32,
    /// What a reader would find.
    #[prost(uint64, tag = "4")]
    pub count: u64,
}

/// An open memfd.
#[derive(Clone, PartialEq, Message)]
pub struct Memfd {
    /// How it was opened (`O_*`).
    #[prost(uint32, tag = "2")]
    pub flags: u32,
    /// The [`MemfdInode`].
    #[prost(uint32, tag = "5")]
    pub inode_id: u32,
}

/// The memory of memfds.
#[derive(Clone, PartialEq, Message)]
pub struct MemfdInode {
    /// Number of its pages, which is that of its inode at the dump.
    #[prost(uint32, tag = "5")]
    pub shmid: u32,
    /// Its id in the images.
    #[prost(uint64, tag = "7")]
    pub id: u64,
}

/// An open terminal.
#[derive(Clone, PartialEq, Message)]
pub struct Terminal {
    /// Its [`TerminalInfo`].
    #[prost(uint32, tag = "2")]
    pub info_id: u32,
    /// The [`Regular`] that it was at the dump.
    #[prost(uint32, optional, tag = "6")]
    pub file_id: Option<u32>,
}

/// An end of a terminal.
#[derive(Clone, PartialEq, Message)]
pub struct TerminalInfo {
    /// Its id in the images.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// What it is.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Session whose terminal it is.
    #[prost(uint32, tag = "6")]
    pub sid: u32,
    /// Number of its device at the dump.
    #[prost(uint32, tag = "8")]
    pub device: u32,
    /// If it is of a pseudo-terminal.
    #[prost(message, optional, tag = "12")]
    pub pseudo: Option<PseudoTerminal>,
}

/// A pseudo-terminal.
#[derive(Clone, PartialEq, Message)]
pub struct PseudoTerminal {
    /// `N` in `/dev/pts/N`.
    #[prost(uint32, tag = "1")]
    pub number: u32,
}

impl TerminalInfo {
    /// Kind of an end of a pseudo-terminal.
    pub const PSEUDO: u32 = 1;
    /// Kind of `/dev/tty`.
    pub const OF_SESSION: u32 = 4;

    /// The pseudo-terminal's number, if it is of one.
    pub fn number(&self) -> Option<u32> {
        self.pseudo
            .as_ref()
            .filter(|_| self.kind == Self::PSEUDO)
            .map(|pseudo| pseudo.number)
    }

    /// True of the end that was had by opening `/dev/ptmx`.
    pub fn is_master(&self) -> bool {
        const PTMX: (u32, u32) = (5, 2);
        let (major, minor) = (
            (self.device >> 8) & 0xfff,
            (self.device & 0xff) | ((self.device >> 12) & 0xfff00),
        );
        self.kind == Self::PSEUDO && (major, minor) == PTMX
    }
}

/// An open or mapped file that has a path.
#[derive(Clone, PartialEq, Message)]
pub struct Regular {
    /// Its id in the images.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// How it was opened (`O_*`).
    #[prost(uint32, tag = "2")]
    pub flags: u32,
    /// A path: any bytes.
    #[prost(bytes = "vec", tag = "6")]
    pub name: Vec<u8>,
    /// Its size, bytes.
    #[prost(uint64, optional, tag = "8")]
    pub size: Option<u64>,
    /// It is given by the caller of a restore.
    #[prost(bool, optional, tag = "9")]
    pub is_external: Option<bool>,
    /// Its kind and permissions (`st_mode`).
    #[prost(uint32, optional, tag = "10")]
    pub mode: Option<u32>,
    /// The first words of its build id, if it has one.
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    pub build_id: Vec<u32>,
}

/// A file whose path did not lead to it when it was dumped: the images have it.
#[derive(Clone, PartialEq, Message)]
pub struct Remap {
    /// Its id in the images.
    #[prost(uint32, tag = "1")]
    pub id: u32,
}

/// An open pipe.
#[derive(Clone, PartialEq, Message)]
pub struct Pipe {
    /// Its inode at the dump.
    #[prost(uint32, tag = "2")]
    pub inode: u32,
}

/// A process's memory, as the system sees it.
#[derive(Clone, PartialEq, Message)]
pub struct Mm {
    /// Where its command line begins.
    #[prost(uint64, tag = "8")]
    pub arg_start: u64,
    /// Where that ends.
    #[prost(uint64, tag = "9")]
    pub arg_end: u64,
    /// Its program, a [`Regular`].
    #[prost(uint32, tag = "12")]
    pub exe_file_id: u32,
    /// Its areas of memory.
    #[prost(message, repeated, tag = "14")]
    pub areas: Vec<Area>,
}

/// An area of memory.
#[derive(Clone, PartialEq, Message)]
pub struct Area {
    /// If a file is mapped there: the [`Regular`]. Of shared memory that has no file, number of its pages.
    #[prost(uint64, tag = "4")]
    pub file_id: u64,
    /// How it is mapped (`MAP_*`).
    #[prost(uint32, tag = "6")]
    pub flags: u32,
    /// What is there ([`IS_PRIVATE_FILE`], among others).
    #[prost(uint32, tag = "7")]
    pub status: u32,
}

/// The head of the list of a process's pages.
#[derive(Clone, PartialEq, Message)]
pub struct PagemapHead {
    /// Number of the file with its pages.
    #[prost(uint32, required, tag = "1")]
    pub pages_id: u32,
}

/// A row of pages.
#[derive(Clone, PartialEq, Message)]
pub struct PagemapEntry {
    /// Where they are mapped; of shared memory, where in it.
    #[prost(uint64, required, tag = "1")]
    pub address: u64,
    /// CRIU before 4.2 counts here.
    #[prost(uint32, required, tag = "2")]
    pub short_count: u32,
    /// [`IS_PRESENT`], among others.
    #[prost(uint32, tag = "4")]
    pub flags: u32,
    /// How many they are.
    #[prost(uint64, tag = "5")]
    pub count: u64,
}

impl Core {
    /// True if there was nothing left of the process but its exit status: it has neither threads nor memory.
    pub fn has_ended(&self) -> bool {
        const DEAD: u32 = 2;
        const ZOMBIE: u32 = 6;
        let state = self.process.as_ref().map(|process| process.state);
        matches!(state, Some(DEAD | ZOMBIE))
    }
}

impl PagemapEntry {
    /// Bytes in the pages file.
    pub fn stored_bytes(&self) -> u64 {
        let pages = self.count.max(u64::from(self.short_count));
        match self.flags & IS_PRESENT {
            0 => 0,
            _ => pages.saturating_mul(PAGE_BYTES),
        }
    }
}
