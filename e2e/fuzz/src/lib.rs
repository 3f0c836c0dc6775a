//! What each fuzz target does with its bytes. Whatever they are, it returns: no panic, no endless loop, no memory beyond what
//! the input justifies. `make fuzz` runs the targets, the tests replay the inputs kept in `corpus`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a claim that does not hold is to end the target"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use hetckpt::parsers::{self, Channel, Frame, MAX_DATA_BYTES, Message, Transport};
use hetckpt_archive::manifest::Manifest;
use hetckpt_archive::reader::Archive;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::{parse, print};
use hetckpt_ring::command::Envelope;
use hetckpt_ring::message::{Request, Response};
use hetckpt_ring::reply::ModuleDescription;
use hetckpt_state::summary::Summary;

/// A target: its name, which is its corpus's and its program's, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("archive", archive),
    ("manifest", manifest),
    ("process_state", process_state),
    ("ring_command", ring_command),
    ("control_message", control_message),
    ("fatbin", fatbin),
    ("ptx", ptx),
    ("hetir", hetir),
    ("migration_frames", migration_frames),
    ("criu_images", criu_images),
    ("page_protocol", page_protocol),
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

/// An archive's manifest.
pub fn manifest(data: &[u8]) {
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(data) {
        let text = serde_json::to_vec(&manifest).unwrap();
        let again = serde_json::from_slice::<Manifest>(&text).unwrap();
        assert_eq!(again, manifest);
        for described in &manifest.processes {
            let _ = described.parse();
        }
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
            assert!(failure.code.len() == 6 && failure.code.is_ascii());
        }
    }
}

/// A folder of CRIU's images: for each file its name, which has its length before it as a byte, then its length and its bytes. The highest
/// bit of that length stands for so many zeros, which take no bytes.
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
    parsers::build_id(file.path());
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
