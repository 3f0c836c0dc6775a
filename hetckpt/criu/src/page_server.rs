//! The receiving end of a dump's memory: CRIU, told that there is a page server, sends pages to it instead of writing
//! `pages-N.img`.
//!
//! So they need no room on disk: whoever takes them has them as they come, and CRIU, with the program standing still,
//! waits while they are not taken. What CRIU would have written beside them, a list of the rows in each image, is
//! small, and written by us. The images are then those of any other dump.
//!
//! CRIU has one end of a pair of sockets. If ours closes, be it that we are killed, CRIU fails (it ignores SIGPIPE) and
//! lets the program go.
//!
//! # Source
//! CRIU, `criu/page-xfer.c`: `page_server_serve` (what is answered), `open_page_local_xfer` and `write_pagemap_loc`
//! (what is written).

use hetckpt_ring::failure_code::Code;
#[cfg(doc)]
use hetckpt_ring::message::GO_AHEAD_ENV;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prost::Message;

use hetckpt_archive::part_pipeline::PART_BYTES;
use hetckpt_report::failure::Failure;

use crate::device_streams::DeviceStreams;
use crate::image_messages::{PagemapEntry, PagemapHead};
use crate::images::{COMMON_MAGIC, PAGEMAP_MAGIC};
use crate::memory_sink::{Broken, MemorySink, MemorySource, Sizes, hand_over};
use crate::page_protocol::{self, Command, Form, Image, Row};

/// Bytes that are read ahead: commands and single pages come together then.
const BUFFER_BYTES: usize = 128 << 10;

/// CRIU's ends of sockets that it has with us, open for programs that are started.
pub struct ForCriu {
    /// Where it sends pages.
    pub pages: UnixStream,
    /// Where the plugin asks whether the dump may begin ([`GO_AHEAD_ENV`]).
    pub go_ahead: UnixStream,
}

/// Runs `criu`, calls `begin` when it has made itself ready, and has `taker` take the memory that it dumps, that of the
/// devices that `begin` gives first. The images in which CRIU looks up processes' memory come into the folder `images`.
/// Gives what is known of the devices' then.
pub fn while_serving(
    images: &Path,
    begin: impl FnOnce(&mut dyn MemorySink) -> Result<DeviceStreams, Failure>,
    taker: &mut dyn MemorySink,
    criu: impl FnOnce(&ForCriu) -> Result<(), Failure> + Send,
) -> Result<Sizes, Failure> {
    let (pages, their_pages) = socket()?;
    let (go_ahead, their_go_ahead) = socket()?;
    let theirs = ForCriu {
        pages: their_pages,
        go_ahead: their_go_ahead,
    };
    let (ran, served) = std::thread::scope(|scope| {
        let (pages, go_ahead) = (&pages, &go_ahead);
        let close = move || {
            let _ = go_ahead.shutdown(Shutdown::Both);
            let _ = pages.shutdown(Shutdown::Both);
        };
        let run = scope.spawn(move || {
            let ran = criu(&theirs);
            // What it has left running may hold its ends.
            close();
            ran
        });
        let served = wait_for_plugin(go_ahead, pages)
            .and_then(|()| begin(taker).map_err(Broken::Failed))
            .and_then(|devices| {
                let mut answers = go_ahead;
                answers.write_all(b".").map_err(broken)?;
                devices.take_all(pages.as_fd(), taker)
            })
            .and_then(|mut sizes| {
                sizes.extend(taker.devices_done(images).map_err(Broken::Failed)?);
                Ok(sizes)
            })
            .and_then(|sizes| serve(pages, images, taker).map(|()| sizes));
        if served.is_err() {
            close();
        }
        (run.join(), served)
    });
    let ran = ran.unwrap_or_else(|_| {
        Err(Failure::new(
            Code::StandIn,
            "a thread of hetckpt's own died (a bug in hetckpt)",
        ))
    });
    match (ran, served) {
        (_, Err(Broken::Failed(failure))) => Err(failure),
        (Err(failure), _) => Err(failure),
        (Ok(()), Err(Broken::Ended)) => Err(not_understood("it ended before it had given all memory")),
        (Ok(()), Ok(sizes)) => Ok(sizes),
    }
}

/// Two ends of a socket; programs that are started get the second one.
fn socket() -> Result<(UnixStream, UnixStream), Failure> {
    let cannot = |e: io::Error| Failure::new(Code::StandIn, "cannot make a socket for CRIU").note(e.to_string());
    let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| cannot(e.into()))?;
    Ok((ours, theirs))
}

/// Waits until the plugin asks whether the dump may begin.
fn wait_for_plugin(go_ahead: &UnixStream, pages: &UnixStream) -> Result<(), Broken> {
    loop {
        let mut awaited = [go_ahead, pages].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        match poll(&mut awaited, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(broken(e.into())),
        }
        let [asks, sends] = awaited.map(|socket| socket.any() == Some(true));
        if asks {
            let (mut question, mut asking) = ([0], go_ahead);
            return asking.read_exact(&mut question).map_err(broken);
        }
        if sends {
            return Err(Broken::Failed(not_understood("it begins without our plugin")));
        }
    }
}

fn not_understood(what: impl Into<String>) -> Failure {
    Failure::new(
        Code::CriuDump,
        "criu dump failed: the memory that it gives is not understood",
    )
    .note(what)
}

/// Takes images until CRIU says that there are no more.
fn serve(socket: &UnixStream, images: &Path, taker: &mut dyn MemorySink) -> Result<(), Broken> {
    let mut connection = Connection {
        input: BufReader::with_capacity(BUFFER_BYTES, socket),
        output: socket,
        form: None,
    };
    let mut next = connection.command().map_err(broken)?;
    let mut taken_bytes = 0;
    for pages_id in 1.. {
        let image = match next {
            Command::Open(image) => image,
            Command::Close => break,
            Command::Add(_) | Command::HasParent => {
                return Err(Broken::Failed(not_understood("it sends pages of no image")));
            }
        };
        connection.answer(&[0]).map_err(broken)?;
        let pages = Pages {
            connection: &mut connection,
            image,
            rows: RowList::create(images.join(image.name()), pages_id).map_err(Broken::Failed)?,
            at: Place::default(),
            section: None,
            taken_bytes,
            next: None,
        };
        (next, taken_bytes) = take_image(pages, pages_id, taker)?;
    }
    connection.answer(&0i32.to_ne_bytes()).map_err(broken)
}

/// Takes one image; gives the command that follows it, and how many bytes have been taken since the first image.
fn take_image(mut pages: Pages<'_, '_>, pages_id: u32, taker: &mut dyn MemorySink) -> Result<(Command, u64), Broken> {
    hand_over(taker, &format!("pages-{pages_id}.img"), &mut pages)?;
    pages.rows.finish().map_err(Broken::Failed)?;
    let next = pages.next.ok_or_else(|| {
        Broken::Failed(not_understood(
            "not all pages of an image were taken (a bug in hetckpt)",
        ))
    })?;
    Ok((next, pages.taken_bytes))
}

fn broken(error: io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Broken::Ended,
        _ => Broken::Failed(not_understood(error.to_string())),
    }
}

/// CRIU, as we hear it.
struct Connection<'a> {
    input: BufReader<&'a UnixStream>,
    output: &'a UnixStream,
    form: Option<Form>,
}

impl Connection<'_> {
    /// The next command that is not answered at once.
    fn command(&mut self) -> io::Result<Command> {
        loop {
            match page_protocol::read(&mut self.input, &mut self.form)? {
                // There never was an earlier dump.
                Command::HasParent => self.answer(&0i32.to_ne_bytes())?,
                command => return Ok(command),
            }
        }
    }

    fn answer(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)
    }
}

/// Memory is cut into sections where its address is a multiple of this: what grows or moves in one place leaves those
/// of others as they were, which then need not be stored again. Less would be more parts; each takes some 0.7 KiB.
const SECTION_BYTES: u64 = 1 << 20;

/// Bytes of a dump from which on they are larger: an archive has at most [`hetckpt_archive::limits::MAX_PARTS`].
const MANY_BYTES: u64 = 32 << 30;

/// The content of an image of pages, as it comes. Over when another command than [`Command::Add`] has come.
struct Pages<'a, 'b> {
    connection: &'a mut Connection<'b>,
    image: Image,
    rows: RowList,
    at: Place,
    /// The section that is read; none at the beginning.
    section: Option<u64>,
    /// Since the first image.
    taken_bytes: u64,
    next: Option<Command>,
}

/// What is left of a row.
#[derive(Clone, Copy, Default)]
struct Place {
    address: u64,
    left_bytes: u64,
}

impl Pages<'_, '_> {
    /// Goes on to the next row with pages, if the current one is over.
    fn find_row(&mut self) -> Result<(), Broken> {
        while self.at.left_bytes == 0 && self.next.is_none() {
            match self.connection.command().map_err(broken)? {
                Command::Add(row) if row.image == self.image => {
                    self.rows.add(&row).map_err(Broken::Failed)?;
                    self.at = Place {
                        address: row.address,
                        left_bytes: row.stored_bytes(),
                    };
                }
                Command::Add(_) => return Err(Broken::Failed(not_understood("it sends pages of another image"))),
                other => self.next = Some(other),
            }
        }
        Ok(())
    }

    /// The section of what comes next, if anything comes, and how many bytes it may have up to its end.
    fn next_in(&self) -> Option<(u64, u64)> {
        let size = match self.taken_bytes < MANY_BYTES {
            true => SECTION_BYTES,
            false => PART_BYTES as u64,
        };
        let start = self.at.address - self.at.address % size;
        let up_to_end = size - self.at.address % size;
        (self.at.left_bytes > 0).then_some((start, up_to_end))
    }
}

impl MemorySource for Pages<'_, '_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        self.find_row()?;
        let Some((start, up_to_end)) = self.next_in() else {
            return Ok(0);
        };
        if *self.section.get_or_insert(start) != start {
            return Ok(0);
        }
        let most = self.at.left_bytes.min(up_to_end);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
        match self.connection.input.read(&mut buffer[..most]).map_err(broken)? {
            0 if most > 0 => Err(Broken::Ended),
            size => {
                self.at.address += size as u64;
                self.at.left_bytes -= size as u64;
                self.taken_bytes += size as u64;
                Ok(size)
            }
        }
    }

    fn next_section(&mut self) -> Result<bool, Broken> {
        self.find_row()?;
        self.section = self.next_in().map(|(start, _)| start);
        Ok(self.section.is_some())
    }
}

/// The image that lists the rows of an image of pages.
struct RowList {
    path: PathBuf,
    file: BufWriter<File>,
}

impl RowList {
    fn create(path: PathBuf, pages_id: u32) -> Result<Self, Failure> {
        let file = File::create(&path).map_err(|e| cannot_write(&path, &e))?;
        let mut list = Self {
            path,
            file: BufWriter::new(file),
        };
        let magic = [COMMON_MAGIC.to_ne_bytes(), PAGEMAP_MAGIC.to_ne_bytes()].concat();
        list.put(&magic)?;
        list.put_message(&PagemapHead { pages_id })?;
        Ok(list)
    }

    fn add(&mut self, row: &Row) -> Result<(), Failure> {
        self.put_message(&PagemapEntry {
            address: row.address,
            // CRIU has either; one of the other version may restore it.
            short_count: u32::try_from(row.count).unwrap_or(0),
            flags: row.flags,
            count: row.count,
        })
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|e| cannot_write(&self.path, &e))
    }

    fn put_message(&mut self, message: &impl Message) -> Result<(), Failure> {
        let bytes = message.encode_to_vec();
        let size = u32::try_from(bytes.len()).map_err(|e| cannot_write(&self.path, &io::Error::other(e)))?;
        self.put(&size.to_ne_bytes())?;
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|e| cannot_write(&self.path, &e))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::CannotWrite, format!("cannot write {}", path.display())).note(error.to_string())
}

#[cfg(test)]
#[path = "page_server_tests.rs"]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
