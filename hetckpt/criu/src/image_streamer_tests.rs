//! Tests of the image streamer, with the test in the part of CRIU.

use std::fs;
use std::io::{IoSlice, Seek, SeekFrom};

use nix::fcntl::OFlag;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::pipe2;
use proptest::prelude::*;
use tempfile::TempDir;

use hetckpt_archive::manifest::{Encoding, FORMAT, FORMAT_VERSION, Header, Index, Manifest};
use hetckpt_archive::writer::{self, Options, Source};

use super::*;

/// More than a pipe has room for, and more than one part.
const MEMORY_BYTES: usize = (9 << 20) + 5;

fn memory() -> Vec<u8> {
    (0..MEMORY_BYTES).map(|at| (at % 251) as u8).collect()
}

/// Images in a folder, and an archive with `pages-1.img`.
struct Snapshot {
    folder: TempDir,
    archive: PathBuf,
}

impl Snapshot {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("small.img"), "small").unwrap();
        fs::write(folder.path().join("large.img"), vec![7; 300_000]).unwrap();
        let (path, archive) = (folder.path().join("memory"), folder.path().join("x.hetsnap"));
        fs::write(&path, memory()).unwrap();
        let header = Header {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            written_by: String::new(),
            criu_version: String::new(),
            created_unix: 0,
            root_pid: 1,
            command: vec![],
            stdio: vec![],
        };
        let (name, encoding) = ("criu/pages-1.img".to_owned(), Encoding::Stored);
        writer::write_to(
            &mut File::create(&archive).unwrap(),
            &archive,
            Manifest {
                header,
                index: Index::default(),
            },
            &[Source { name, path, encoding }],
            Options::default(),
            &mut |_| (),
        )
        .unwrap();
        Self { folder, archive }
    }

    fn serve(&self) -> ImageStreamer {
        let archive = Arc::new(Archive::open(&self.archive).unwrap());
        let members = BTreeMap::from([("pages-1.img".to_owned(), "criu/pages-1.img".to_owned())]);
        ImageStreamer::start(self.folder.path(), archive, members, |_| ()).unwrap()
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join(SOCKET)).unwrap()
    }
}

/// The end to read an image from, if there is one.
fn open(mut criu: &UnixStream, name: &str) -> Option<File> {
    let filename = name.to_owned();
    criu.write_all(&encoded(&Request { filename })).unwrap();
    let mut length = [0; 4];
    criu.read_exact(&mut length).unwrap();
    let mut reply = vec![0; u32::from_ne_bytes(length) as usize];
    criu.read_exact(&mut reply).unwrap();
    if !Reply::decode(&*reply).unwrap().exists {
        return None;
    }
    let (read_end, write_end) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let fds = [write_end.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(
        criu.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &message,
        MsgFlags::empty(),
        None,
    )
    .unwrap();
    Some(read_end.into())
}

fn read(mut image: File) -> Vec<u8> {
    let mut bytes = vec![];
    image.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn images_come_from_the_folder_and_the_archive_in_whatever_order_they_are_read() {
    let snapshot = Snapshot::new();
    let streamer = snapshot.serve();
    let criu = snapshot.connect();
    let [pages, large, small] = ["pages-1.img", "large.img", "small.img"].map(|name| open(&criu, name).unwrap());
    let outside = snapshot.archive.to_str().unwrap();
    for missing in ["missing.img", "", ".", "..", "./small.img", outside] {
        assert!(open(&criu, missing).is_none(), "{missing}");
    }
    assert_eq!(read(small), b"small");
    assert_eq!(read(large), vec![7; 300_000]);
    assert!(read(pages) == memory());
    assert!(streamer.failure().is_none());
    drop(streamer);
    assert!(!snapshot.folder.path().join(SOCKET).exists());
}

#[test]
fn nobody_waits_for_a_criu_that_does_not_read() {
    let snapshot = Snapshot::new();
    let streamer = snapshot.serve();
    let criu = snapshot.connect();
    let pages = open(&criu, "pages-1.img").unwrap();
    drop(streamer);
    drop(pages);
    // Nor for one that never comes.
    drop(snapshot.serve());
}

#[test]
fn damage_ends_an_image_early_and_is_told() {
    let snapshot = Snapshot::new();
    let streamer = snapshot.serve();
    let mut archive = fs::OpenOptions::new().write(true).open(&snapshot.archive).unwrap();
    archive.seek(SeekFrom::Start((MEMORY_BYTES - 1000) as u64)).unwrap();
    archive.write_all(&[255; 8]).unwrap();
    let criu = snapshot.connect();
    let pages = read(open(&criu, "pages-1.img").unwrap());
    assert!(pages.len() < MEMORY_BYTES && pages == memory()[..pages.len()]);
    let failure = streamer.failure();
    assert!(matches!(failure, Some(ArchiveError::Damaged { .. })), "{failure:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut input = bytes.as_slice();
        while let Ok(Some(name)) = read_request(&mut input) {
            prop_assert!(name.len() <= bytes.len());
        }
    }

    #[test]
    fn what_criu_asks_for_is_understood(names in prop::collection::vec("[a-z0-9.-]{0,40}", 0..5)) {
        let requests = names.iter().map(|name| encoded(&Request { filename: name.clone() }));
        let bytes = requests.collect::<Vec<_>>().concat();
        let mut input = bytes.as_slice();
        for name in names {
            prop_assert_eq!(read_request(&mut input).unwrap(), Some(name));
        }
        prop_assert_eq!(read_request(&mut input).unwrap(), None);
    }
}
