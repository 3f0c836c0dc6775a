//! What kernels of machine code print. The driver writes it to this process's stdout (`printf`) and stderr (failed
//! assertions); the application is to print it. Kernels that we have generated do not come here
//! ([`hetckpt_abi::device_output`]).
//!
//! Stdout is a file in memory, from which text is handed on before the application is told that what it waits for has
//! ended, and before a pause begins, so that a snapshot has it. Stderr is the log; assertions are looked for there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hetckpt_devices::device::Device;
use hetckpt_ring::printed::{Output, PrintedFifo};
use hetckpt_ring::server_side::ServerSide;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use parking_lot::Mutex;

/// What is read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Once so much has been handed on, its memory is given back.
const KEPT_BYTES: u64 = 1 << 20;
/// What a failed assertion's line has in it, as the driver writes it.
const ASSERTION: [&str; 3] = [": block: [", "], thread: [", "Assertion `"];

/// Both.
#[derive(Default)]
pub struct Printed(Mutex<Files>);

#[derive(Default)]
struct Files {
    stdout: Option<Tail>,
    stderr: Option<Tail>,
    has_warned: bool,
}

/// A file, and how far it has been read.
struct Tail {
    file: File,
    read: u64,
    given_back: u64,
}

impl Printed {
    /// Has stdout go to memory from now on, and looks at stderr from here on.
    pub fn begin(&self) {
        let mut files = self.0.lock();
        match collect_stdout() {
            Ok(file) => files.stdout = Some(Tail::new(file, 0)),
            Err(error) => tracing::warn!(%error, "what kernels of machine code print will be lost"),
        }
        // Opened anew: the log may be open for writing only.
        let log = File::open("/proc/self/fd/2").and_then(|file| Ok((file.metadata()?, file)));
        files.stderr = match log {
            Ok((metadata, file)) if metadata.is_file() => Some(Tail::new(file, metadata.len())),
            _ => None,
        };
    }

    /// Hands on what has been printed by kernels of `device` that have ended.
    pub fn hand_over(&self, device: &dyn Device, side: Option<&ServerSide>) {
        if !device.flush_output() {
            return;
        }
        let mut files = self.0.lock();
        let Some(side) = side else { return };
        let Files { stdout, has_warned, .. } = &mut *files;
        let Some(stdout) = stdout else { return };
        match side.printed() {
            Some(fifo) => stdout.move_to(&fifo),
            None if !*has_warned && stdout.has_more() => {
                *has_warned = true;
                tracing::warn!("a kernel of machine code prints, which this program's driver library cannot take");
            }
            None => {}
        }
    }

    /// Hands on what the driver has said of failed assertions.
    pub fn hand_over_assertions(&self, side: Option<&ServerSide>) {
        let mut files = self.0.lock();
        let Some(fifo) = side.and_then(ServerSide::printed) else {
            return;
        };
        let Some(stderr) = &mut files.stderr else { return };
        let mut text = Vec::new();
        while let Some(piece) = stderr.next(PIECE_BYTES) {
            text.extend(piece);
        }
        for line in String::from_utf8_lossy(&text).lines() {
            if ASSERTION.iter().all(|part| line.contains(part)) {
                fifo.append(Output::Stderr, format!("{line}\n").as_bytes());
            }
        }
    }
}

impl Tail {
    fn new(file: File, read: u64) -> Self {
        Self {
            file,
            read,
            given_back: read,
        }
    }

    fn has_more(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() > self.read)
    }

    /// At most `length` bytes more, if there are any.
    fn next(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut piece = vec![0; length];
        let read = self.file.read_at(&mut piece, self.read).unwrap_or(0);
        piece.truncate(read);
        self.read += read as u64;
        (read > 0).then_some(piece)
    }

    fn move_to(&mut self, fifo: &PrintedFifo<'_>) {
        while self.has_more() {
            let room = fifo.room().min(PIECE_BYTES);
            let Some(piece) = (room > 0).then(|| self.next(room)).flatten() else {
                break;
            };
            fifo.append(Output::Stdout, &piece);
        }
        fifo.set_more(self.has_more());
        let length = self.read - self.given_back;
        if length >= KEPT_BYTES {
            let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            // Otherwise it stays until the end.
            let _ = fallocate(&self.file, hole, self.given_back.cast_signed(), length.cast_signed());
            self.given_back = self.read;
        }
    }
}

/// Makes stdout a file in memory.
fn collect_stdout() -> io::Result<File> {
    let os = |error: Errno| io::Error::from_raw_os_error(error as i32);
    let memory = memfd_create(c"hetckpt-printed", MFdFlags::MFD_CLOEXEC).map_err(os)?;
    nix::unistd::dup2_stdout(&memory).map_err(os)?;
    Ok(File::from(memory))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_end_and_no_further() {
        let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
        let mut tail = Tail::new(file.try_clone().unwrap(), 0);
        assert!(!tail.has_more() && tail.next(8).is_none());
        file.write_all_at(b"hello, world", 0).unwrap();
        assert_eq!(tail.next(5).as_deref(), Some(&b"hello"[..]));
        assert!(tail.has_more());
        assert_eq!(tail.next(64).as_deref(), Some(&b", world"[..]));
        assert!(!tail.has_more());
    }
}
