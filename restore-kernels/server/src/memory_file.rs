//! The file that takes a process's device memory. Where a named pipe has its name, whoever reads that gets the memory
//! as it is captured.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Opens it for writing.
///
/// # Errors
/// Also if nobody reads the pipe (any more): whoever made it is gone.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_fifo() => open_pipe(path),
        _ => File::create(path),
    }
}

fn open_pipe(path: &Path) -> io::Result<File> {
    // Else this would wait for a reader.
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path);
    let pipe = opened.map_err(|e| match Errno::from_raw(e.raw_os_error().unwrap_or_default()) {
        Errno::ENXIO => io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes device memory from this pipe"),
        _ => e,
    })?;
    let flags = OFlag::from_bits_retain(fcntl(&pipe, FcntlArg::F_GETFL)?);
    fcntl(&pipe, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(pipe)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{Read, Write};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_pipe_is_written_where_there_is_one_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut options = OpenOptions::new();
        let mut reader = options
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&path)
            .unwrap();
        let mut pipe = create(&path).unwrap();
        // More than it holds: this waits until somebody reads.
        let writing = std::thread::spawn(move || pipe.write_all(&[7; 1 << 20]));
        let mut taken = 0;
        while !writing.is_finished() {
            taken += reader.read(&mut [0; 4096]).unwrap_or(0);
        }
        writing.join().unwrap().unwrap();
        taken += reader.read_to_end(&mut vec![]).unwrap();
        assert_eq!(taken, 1 << 20);
    }

    #[test]
    fn anything_else_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        for text in ["longer", "short"] {
            create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
