//! Tests of device memory's way, with threads in the parts of device servers.

use hetckpt_ring::failure_code::Code;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;
use crate::memory_sink::sinks::{Full, Shelf};

/// The pipes of processes 1, 2 and 3, and what becomes of them while `others` does something with the folder and with
/// CRIU's socket.
fn taken(taker: &mut dyn MemorySink, others: impl FnOnce(&Path, UnixStream) + Send) -> Result<Sizes, Broken> {
    let folder = tempfile::tempdir().unwrap();
    let streams = DeviceStreams::create(folder.path(), [1, 2, 3]).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let taken = thread::scope(|scope| {
        scope.spawn(|| others(folder.path(), theirs));
        streams.take_all(ours.as_fd(), taker)
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "all pipes are gone");
    taken
}

fn write(folder: &Path, pid: u32, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .open(folder.join(memory_file(pid)))?
        .write_all(bytes)
}

#[test]
fn what_servers_write_is_taken_until_criu_goes_on() {
    for _ in 0..20 {
        let mut shelf = Shelf::default();
        let sizes = taken(&mut shelf, |folder, mut criu| {
            write(folder, 3, &vec![3; 3 << 20]).unwrap();
            // No device memory at all.
            write(folder, 1, &[]).unwrap();
            criu.write_all(b"open").unwrap();
        });
        let expected = [(memory_file(1), vec![]), (memory_file(3), vec![3; 3 << 20])];
        let sections = expected.clone().map(|(name, bytes)| (name, vec![bytes]));
        assert_eq!(shelf.0, sections.into());
        let lengths = expected.map(|(name, bytes)| (name, bytes.len() as u64));
        assert!(sizes.is_ok_and(|sizes| sizes == lengths.into()));
    }
}

#[test]
fn without_servers_criu_goes_on_at_once() {
    let sizes = taken(&mut Shelf::default(), |_, criu| drop(criu));
    assert!(sizes.is_ok_and(|sizes| sizes.is_empty()));
}

#[test]
fn criu_that_ends_amid_the_memory_is_not_waited_with() {
    let result = taken(&mut Shelf::default(), |folder, criu| {
        let path = folder.join(memory_file(2));
        let mut server = OpenOptions::new().write(true).open(path).unwrap();
        server.write_all(&[2; 100]).unwrap();
        drop(criu);
        // Until it is let go.
        while server.write_all(&[2; 100]).is_ok() {}
    });
    assert!(matches!(result, Err(Broken::Ended)));
}

#[test]
fn what_cannot_be_taken_is_the_reason_and_ends_the_server() {
    let result = taken(&mut Full, |folder, criu| {
        let written = write(folder, 1, &vec![1; 10 << 20]);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        drop(criu);
    });
    assert!(matches!(result, Err(Broken::Failed(failure)) if failure.code == Code::ConnectionBroke));
}
