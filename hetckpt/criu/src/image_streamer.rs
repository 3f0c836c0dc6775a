//! The sending end of a restore's images: CRIU, told that images are streamed, asks for each by its name and reads it
//! from a pipe.
//!
//! So the memory of processes comes straight from an archive, unpacked while CRIU takes it, and needs no room on a
//! disk. All other images are small, and lie in a folder.
//!
//! # Source
//! CRIU, `criu/img-streamer.c` and `images/img-streamer.proto`: a request has the name, the reply says whether there is
//! such an image; if so, CRIU sends the end of a pipe to write it to. Each message is a length of four bytes, the
//! machine's own, and a protobuf message.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nix::sys::socket::{self, Shutdown as ShutdownListener};
use parking_lot::Mutex;
use prost::Message;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use hetckpt_archive::error::ArchiveError;
use hetckpt_archive::read_ahead::ReadAhead;
use hetckpt_archive::reader::Archive;
use hetckpt_archive::served_bytes::listen;

/// Where CRIU looks for whoever has the images, in their folder.
const SOCKET: &str = "streamer-serve.sock";
/// Longest request.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Room in a pipe for memory. More may be had by root alone.
const PIPE_BYTES: usize = 1 << 20;

/// What CRIU asks for.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, required, tag = "1")]
    filename: String,
}

/// What it is told.
#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(bool, required, tag = "1")]
    exists: bool,
}

/// Has images for the CRIU that asks, until this is dropped.
pub struct ImageStreamer {
    socket: PathBuf,
    listener: Arc<UnixListener>,
    serving: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    folder: PathBuf,
    archive: Arc<Archive>,
    /// Members of the archive that are images, by the image's name.
    members: BTreeMap<String, String>,
    ahead: ReadAhead,
    /// The connection, once there is one.
    stream: Mutex<Option<UnixStream>>,
    /// Why something could not be had.
    failure: Mutex<Option<ArchiveError>>,
    progress: Mutex<Progress>,
}

/// Bytes of memory that CRIU has taken, and who is told of them.
struct Progress {
    done: u64,
    tell: Box<dyn FnMut(u64) + Send>,
}

impl ImageStreamer {
    /// Serves the images in `folder`, and beside them the `members` of `archive`, by their images' names. `tell` is
    /// told how many of the members' bytes have been taken. Threads have the signal mask of the caller.
    ///
    /// # Errors
    /// What the system says of the socket in `folder`.
    pub fn start(
        folder: &Path,
        archive: Arc<Archive>,
        members: BTreeMap<String, String>,
        tell: impl FnMut(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let socket = folder.join(SOCKET);
        let listener = Arc::new(listen(&socket)?);
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            archive,
            members,
            ahead: ReadAhead::default(),
            stream: Mutex::default(),
            failure: Mutex::default(),
            progress: Mutex::new(Progress {
                done: 0,
                tell: Box::new(tell),
            }),
        });
        let (serving_on, for_stream) = (Arc::clone(&listener), Arc::clone(&shared));
        let serving = thread::spawn(move || {
            // CRIU and all that it starts share one connection.
            if let Ok((stream, _)) = serving_on.accept() {
                *for_stream.stream.lock() = stream.try_clone().ok();
                // CRIU says in its own words that its images have come to an end.
                let _ = serve(&for_stream, &stream);
            }
        });
        Ok(Self {
            socket,
            listener,
            serving: Some(serving),
            shared,
        })
    }

    /// Why something could not be taken from the archive, if that has happened.
    pub fn failure(&self) -> Option<ArchiveError> {
        self.shared.failure.lock().take()
    }
}

impl Drop for ImageStreamer {
    fn drop(&mut self) {
        // It makes `accept` end.
        let _ = socket::shutdown(self.listener.as_raw_fd(), ShutdownListener::Both);
        if let Some(stream) = self.shared.stream.lock().as_ref() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Where an image is.
enum Image {
    File(File),
    Member(String),
}

impl Image {
    /// The image called `name`, if there is one.
    fn find(shared: &Shared, name: &str) -> Option<Self> {
        if let Some(member) = shared.members.get(name) {
            return Some(Self::Member(member.clone()));
        }
        // Only what is in the folder itself.
        let is_plain = Path::new(name).file_name().is_some_and(|last| last == name);
        let path = is_plain.then(|| shared.folder.join(name))?;
        File::open(path).ok().map(Self::File)
    }
}

/// Answers what is asked on `stream` until the other end is gone.
fn serve(shared: &Arc<Shared>, mut stream: &UnixStream) -> io::Result<()> {
    while let Some(name) = read_request(&mut stream)? {
        let image = Image::find(shared, &name);
        stream.write_all(&encoded(&Reply {
            exists: image.is_some(),
        }))?;
        let Some(image) = image else { continue };
        let pipe = File::from(receive_pipe(stream)?);
        match image {
            // It does not wait for CRIU, which may ask for another one before it reads this.
            Image::File(mut file) if fits(&file, &pipe) => drop(io::copy(&mut file, &mut &pipe)),
            Image::File(mut file) => drop(thread::spawn(move || io::copy(&mut file, &mut &pipe))),
            Image::Member(member) => {
                let shared = Arc::clone(shared);
                thread::spawn(move || shared.write_member(&member, pipe));
            }
        }
    }
    Ok(())
}

/// True if a pipe that is empty has room for all of `file`.
fn fits(file: &File, pipe: &File) -> bool {
    let room = fcntl_getpipe_size(pipe).unwrap_or(0);
    file.metadata().is_ok_and(|found| found.len() <= room as u64)
}

impl Shared {
    fn write_member(&self, member: &str, pipe: File) {
        // With less room it takes longer.
        let _ = fcntl_setpipe_size(&pipe, PIPE_BYTES);
        // Closed when what has failed is known: whoever sees the image end can ask why.
        let mut out = Told { shared: self, pipe };
        let written = self
            .archive
            .locate(member)
            .and_then(|member| self.ahead.extract(&self.archive, member, &mut out));
        match written {
            // CRIU has had enough, whose fault that may be.
            Ok(()) | Err(ArchiveError::Io { action: "write", .. }) => {}
            Err(error) => drop(self.failure.lock().get_or_insert(error)),
        }
    }
}

/// A pipe, and who is told of what comes there.
struct Told<'a> {
    shared: &'a Shared,
    pipe: File,
}

impl Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.pipe.write(bytes)?;
        let mut progress = self.shared.progress.lock();
        progress.done += count as u64;
        let done = progress.done;
        (progress.tell)(done);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The name that is asked for next; `None` if nothing more is asked for.
fn read_request(input: &mut impl Read) -> io::Result<Option<String>> {
    let mut length = [0; 4];
    if let Err(error) = input.read_exact(&mut length) {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(error),
        };
    }
    let length = u32::from_ne_bytes(length) as usize;
    if length > MAX_REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    let request = Request::decode(&*bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok(Some(request.filename))
}

fn encoded(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_ne_bytes(), &*bytes].concat()
}

/// The end of a pipe that CRIU sends.
fn receive_pipe(stream: &UnixStream) -> io::Result<OwnedFd> {
    // One word goes with it.
    let mut word = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            stream.as_fd(),
            &mut [IoSliceMut::new(&mut word)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let mut pipes = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let pipe = pipes.next().and_then(|mut fds| fds.next());
    match pipe {
        Some(pipe) if !received.flags.contains(ReturnFlags::CTRUNC) => Ok(pipe),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
#[path = "image_streamer_tests.rs"]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
