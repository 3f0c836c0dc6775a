//! What each fuzz target does with its bytes. Whatever they are, it returns: no panic, no endless loop, no memory
//! beyond what the input justifies. `make fuzz` runs the targets, the tests replay the inputs kept in `corpus`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a claim that does not hold is to end the target"
)]

mod borrowed_members;
mod page_server;
mod served_bytes;

use std::convert::Infallible;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hetckpt_archive::chunk::{Origin, read_memory};
use hetckpt_archive::manifest::{Encoding, FORMAT, FORMAT_VERSION, Header, Index, MemberEntry, Part, part_name};
use hetckpt_archive::member::{tar_header, tar_padding};
use hetckpt_archive::memory_source::MemorySource;
use hetckpt_archive::packed_state;
use hetckpt_archive::reader::Archive;
use hetckpt_criu::parsers;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::{parse, print};
use hetckpt_move::check::build_id;
use hetckpt_move::migration::channel::{Channel, Frame, Transport};
use hetckpt_move::migration::message::{MAX_DATA_BYTES, Message};
use hetckpt_ring::command::{Command, Envelope};
use hetckpt_ring::graph_part;
use hetckpt_ring::launch_record;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::reply::ModuleDescription;
use hetckpt_state::allocation::Mapping;
use hetckpt_state::memory_index::{ChunkRef, MemoryIndex, Piece};
use hetckpt_state::summary::Summary;

pub use borrowed_members::borrowed_members;
pub use page_server::page_server;
pub use served_bytes::served_bytes;

/// A target: its name, which is its corpus's and its program's, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 20] = [
    ("archive", archive),
    ("forged_archive", forged_archive),
    ("borrowed_members", borrowed_members),
    ("packed_state", packed_state),
    ("device_memory", device_memory),
    ("manifest", manifest),
    ("process_state", process_state),
    ("ring_command", ring_command),
    ("launch_record", launch_record),
    ("graph_part", graph_part),
    ("control_message", control_message),
    ("fatbin", fatbin),
    ("ptx", ptx),
    ("hetir", hetir),
    ("migration_frames", migration_frames),
    ("criu_images", criu_images),
    ("page_protocol", page_protocol),
    ("page_server", page_server),
    ("served_bytes", served_bytes),
    ("build_id", build_id),
];

/// Kernels larger than this are not probed here: it takes too long for a fuzzer.
const MAX_INSTS: usize = 2000;

/// Most files of a folder of images.
const MAX_IMAGES: usize = 64;
/// Stands for zeros in the length of an image.
const ZEROS: u32 = 1 << 31;

/// An archive: opened, verified and taken out of.
pub fn archive(data: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.hetsnap");
    fs::write(&file, data).unwrap();
    let _ = hetckpt_archive::verify::verify(&file);
    if let Ok(archive) = Archive::open(&file) {
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        let _ = archive.extract_all("", &out);
        // Nothing may appear beside the folder.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

/// An archive whose hashes and headers are right, whatever its members are: what is verified is what can be taken out.
pub fn forged_archive(data: &[u8]) {
    const NAMES: [&str; 8] = [
        "criu/a.img.zst",
        "criu/a.img",
        "criu/b.zst",
        "device/m",
        "device/m.zst.zst",
        "files/f.zst",
        ".zst",
        "x/.zst",
    ];
    let mut data = Bytes(data);
    let mut members = vec![];
    let mut bytes = vec![];
    while let (Some([name, encoding]), Some(raw), Some(size), true) =
        (data.take(), data.take(), data.take(), members.len() < 8)
    {
        let stored = data.rest(usize::from(u16::from_le_bytes(size)));
        let name = NAMES[usize::from(name) % NAMES.len()];
        let (encoding, raw_bytes) = match encoding % 3 {
            0 => (Encoding::Stored, stored.len() as u64),
            1 => (Encoding::Stored, u64::from(u16::from_le_bytes(raw))),
            _ => (Encoding::Zstd, u64::from(u16::from_le_bytes(raw))),
        };
        // A part behind that of the same name, or a member of its own.
        let part = Part {
            stored_bytes: stored.len() as u64,
            raw_bytes,
            blake3: blake3::hash(stored),
        };
        let number = match members.last_mut() {
            Some(MemberEntry {
                name: last,
                encoding: kind,
                parts,
                ..
            }) if *last == name && *kind == encoding => {
                parts.push(part);
                parts.len() - 1
            }
            _ => {
                members.push(MemberEntry {
                    name: name.to_owned(),
                    encoding,
                    parts: vec![part],
                    borrowed: vec![],
                });
                0
            }
        };
        put_member(&mut bytes, &part_name(name, number), stored);
    }
    let index = Index {
        members,
        ..Index::default()
    };
    let (archive, _) = sealed(&forged_header(FORMAT_VERSION), &bytes, &index);

    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("a.hetsnap"), folder.path().join("out"));
    fs::write(&file, archive).unwrap();
    let verified = hetckpt_archive::verify::verify(&file).map(drop);
    let taken_out = Archive::open(&file).and_then(|archive| archive.extract_all("", &out));
    assert_eq!(verified.is_ok(), taken_out.is_ok(), "{verified:?}, {taken_out:?}");
    if let Ok(total) = taken_out {
        let sizes = index.members.iter().map(|member| {
            let size = fs::metadata(out.join(member.raw_name())).unwrap().len();
            assert_eq!(size, member.raw_bytes(), "{}", member.name);
            size
        });
        assert_eq!(sizes.sum::<u64>(), total);
    }
}

fn forged_header(format_version: u32) -> Header {
    Header {
        format: FORMAT.to_owned(),
        format_version,
        written_by: String::new(),
        criu_version: String::new(),
        created_unix: 0,
        root_pid: 1,
        command: vec![],
        stdio: vec![],
    }
}

/// An archive of `members`, as they stand in the file, and the hash of its header and index.
fn sealed(header: &Header, members: &[u8], index: &Index) -> (Vec<u8>, blake3::Hash) {
    let header = serde_json::to_vec(header).unwrap();
    let text = serde_json::to_vec(index).unwrap();
    let mut archive = vec![];
    put_member(&mut archive, "header.json", &header);
    archive.extend(members);
    let (hash, index_at) = (blake3::hash(&[&header[..], &text].concat()), archive.len());
    put_member(&mut archive, "index.json", &text);
    put_member(
        &mut archive,
        "index.blake3",
        format!("{} {index_at:020}\n", hash.to_hex()).as_bytes(),
    );
    archive.resize(archive.len() + 1024, 0);
    (archive, hash)
}

fn put_member(archive: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let size = bytes.len() as u64;
    archive.extend(tar_header(name, size).unwrap().as_bytes());
    archive.extend(bytes);
    archive.resize(archive.len() + tar_padding(size), 0);
}

/// The file of a process's state.
pub fn packed_state(data: &[u8]) {
    if let Ok(state) = packed_state::unpack(data) {
        let packed = packed_state::pack(&state).unwrap();
        assert_eq!(packed_state::unpack(&packed).unwrap(), state);
    }
}

/// Device memory: an index of chunks and pieces, and behind it the memory file. Nothing is written twice, or elsewhere
/// than where memory is mapped.
pub fn device_memory(data: &[u8]) {
    const BASE: u64 = 0x2000_0000_0000;
    const MAPPING: Mapping = Mapping {
        addr: BASE,
        size_bytes: 1 << 20,
        device: 0,
    };
    let mut data = Bytes(data);
    let [num_chunks, num_pieces] = data.take().unwrap_or_default();
    let mut index = MemoryIndex::default();
    for _ in 0..num_chunks {
        let Some([a, b, c, piece]) = data.take() else { return };
        index.chunks.push(ChunkRef {
            addr: BASE + u64::from(u32::from_le_bytes([a, b, c, 0])),
            piece: u32::from(piece),
        });
    }
    for _ in 0..num_pieces {
        let (Some(offset), Some(stored), Some(raw)) = (data.take(), data.take(), data.take()) else {
            return;
        };
        index.pieces.push(Piece {
            offset_bytes: u64::from(u16::from_le_bytes(offset)),
            stored_bytes: u32::from(u16::from_le_bytes(stored)),
            raw_bytes: u32::from_le_bytes(raw),
            hash: [0; 32],
        });
    }
    // What is stored as it is has its hash.
    for piece in &mut index.pieces {
        let from = usize::try_from(piece.offset_bytes).unwrap();
        let stored = data.0.get(from..from + piece.stored_bytes as usize);
        piece.hash = *blake3::hash(stored.unwrap_or_default()).as_bytes();
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data.0).unwrap();
    let written = AtomicU64::new(0);
    let file = MemorySource::File(file);
    let _ = read_memory(
        &file,
        &[MAPPING],
        &index,
        Origin::Outside,
        |addr, size, spare, produce| {
            let end = addr + size as u64;
            assert!(addr >= BASE && end <= BASE + MAPPING.size_bytes);
            spare.resize(size, 0);
            if produce(spare) {
                written.fetch_add(size as u64, Ordering::Relaxed);
            }
            Ok::<(), Infallible>(())
        },
    );
    assert!(written.into_inner() <= MAPPING.size_bytes);
}

/// What is left of a target's bytes.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A length of two bytes, and as many of these as there are.
    fn part(&mut self) -> Option<&'a [u8]> {
        let size = self.take().map(u16::from_le_bytes)?;
        Some(self.rest(usize::from(size)))
    }

    /// So many, or as many as there are.
    fn rest(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// An archive's header and its index.
pub fn manifest(data: &[u8]) {
    if let Ok(header) = serde_json::from_slice::<Header>(data) {
        let text = serde_json::to_vec(&header).unwrap();
        assert_eq!(serde_json::from_slice::<Header>(&text).unwrap(), header);
    }
    if let Ok(index) = serde_json::from_slice::<Index>(data) {
        let text = serde_json::to_vec(&index).unwrap();
        assert_eq!(serde_json::from_slice::<Index>(&text).unwrap(), index);
    }
}

/// The binary state of a process: threads, queues, allocations.
pub fn process_state(data: &[u8]) {
    if let Ok(state) = hetckpt_state::codec::decode(data) {
        let summary = Summary::of(&state);
        assert!(summary.requires.threads_per_block <= 1024);
    }
}

/// A command from the ring, and the description of a module that is an answer.
pub fn ring_command(data: &[u8]) {
    let _ = Envelope::decode(data);
    let _ = ModuleDescription::decode(data);
}

/// A launch from the ring: what is taken is what was said.
pub fn launch_record(data: &[u8]) {
    if let Ok(envelope) = launch_record::decode(data)
        && let Command::Launch(launch) = &envelope.command
    {
        let mut again = vec![];
        launch_record::encode(envelope.reply, launch, &mut again);
        assert_eq!(again, data);
    }
}

/// A part of a graph from the ring: the record is what was said, and its steps can be sent again.
pub fn graph_part(data: &[u8]) {
    let Ok(envelope) = graph_part::decode_record(data) else {
        return;
    };
    let Command::GraphPart {
        stream,
        graph,
        part,
        steps,
    } = envelope.command
    else {
        panic!("it is another command");
    };
    let mut again = vec![];
    graph_part::encode_record(stream, (graph, part), &steps, &mut again);
    assert_eq!(again, data);
    if let Ok(steps) = graph_part::decode(&steps, stream) {
        let parts = graph_part::encode(steps.clone()).unwrap();
        let sent = parts.iter().flat_map(|part| graph_part::decode(part, stream).unwrap());
        let sent: Vec<graph_part::Step> = sent.collect();
        if parts.len() == 1 {
            assert_eq!(sent, steps);
        }
        let commands = |steps: Vec<graph_part::Step>| steps.into_iter().map(|step| step.command).collect::<Vec<_>>();
        assert_eq!(commands(sent), commands(steps));
    }
}

/// A message of the control socket.
pub fn control_message(data: &[u8]) {
    let _ = serde_json::from_slice::<Request>(data);
    let _ = serde_json::from_slice::<Response>(data);
}

/// A fat binary or another module image.
pub fn fatbin(data: &[u8]) {
    let _ = hetckpt_fatbin::locate::image_kind(data);
    if let Ok(found) = hetckpt_fatbin::locate::find_ptx(data, 90) {
        let _ = found;
    }
}

/// PTX: what is lowered is valid hetIR that survives its text form, and probing it breaks no rule.
pub fn ptx(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(module) = hetckpt_ptx::lower_module(text) {
        module.kernels.iter().for_each(of_kernel);
    }
}

/// hetIR's text form, which archives hold.
pub fn hetir(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(kernel) = parse::kernel(text) {
        of_kernel(&kernel);
    }
}

/// What a peer sends during a migration: greeted, and taken frame by frame.
pub fn migration_frames(data: &[u8]) {
    let _ = heard(data).agree();
    let mut channel = heard(data);
    while let Ok(message) = channel.receive_frame(message_of) {
        let Some(message) = message else { continue };
        let text = serde_json::to_vec(&message).unwrap();
        assert_eq!(serde_json::from_slice::<Message>(&text).unwrap(), message);
        if let Message::Refused(report) | Message::NotRunning { reason: report, .. } = &message {
            let failure = report.failure("peer");
            let mut texts = failure.notes.iter().chain([&failure.message]).chain(&failure.help);
            assert!(texts.all(|text| !text.contains(char::is_control)));
        }
    }
}

/// A folder of CRIU's images: for each file its name, which has its length before it as a byte, then its length and its
/// bytes. The highest bit of that length stands for so many zeros, which take no bytes.
pub fn criu_images(data: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let mut rest = data;
    for _ in 0..MAX_IMAGES {
        let Some(tail) = put_image(folder.path(), rest) else {
            break;
        };
        rest = tail;
    }
    parsers::criu_images(folder.path()).unwrap();
}

/// Writes the first image of `data`; gives what is behind it.
fn put_image<'a>(folder: &Path, data: &'a [u8]) -> Option<&'a [u8]> {
    let (&name_size, rest) = data.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(name_size))?;
    let (size, rest) = rest.split_first_chunk()?;
    let is_name = name
        .iter()
        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| is_name && name.ends_with(".img"))?;
    let size = u32::from_le_bytes(*size);
    let file = fs::File::create(folder.join(name)).unwrap();
    if size & ZEROS != 0 {
        file.set_len(u64::from(size & !ZEROS)).unwrap();
        return Some(rest);
    }
    let (content, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
    (&file).write_all(content).unwrap();
    Some(rest)
}

/// What CRIU says to a page server, behind a byte that chooses the form of its commands.
pub fn page_protocol(data: &[u8]) {
    parsers::page_protocol(data).unwrap();
}

/// A program or library, for its build id.
pub fn build_id(data: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(data).unwrap();
    let _ = build_id::read(file.path());
}

fn message_of(frame: Frame<'_>) -> Option<Message> {
    match frame {
        Frame::Message(message) => Some(message),
        Frame::Data(_, bytes) => {
            assert!(bytes.len() <= MAX_DATA_BYTES);
            None
        }
    }
}

/// A channel whose other end has said `data` and no more.
fn heard(data: &[u8]) -> Channel {
    Channel::new(Box::new(Said(io::Cursor::new(data.to_vec()))), "peer")
}

/// What the other end has said; it hears nothing.
struct Said(io::Cursor<Vec<u8>>);

impl Read for Said {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Said {
    fn set_limit(&mut self, _: Instant) {}

    fn has_something_to_say(&self) -> bool {
        self.0.position() < self.0.get_ref().len() as u64
    }
}

fn of_kernel(kernel: &Kernel) {
    let text = print::kernel(kernel);
    let again = parse::kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(print::kernel(&again), text);
    let num_insts: usize = kernel.blocks.iter().map(|block| block.insts.len() + 1).sum();
    if num_insts <= MAX_INSTS {
        let _ = hetckpt_probes::probe(kernel, &hetckpt_probes::options::Options::default());
    }
}
