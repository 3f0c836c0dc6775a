//! Copies between host and device that never wait for kernels, as fast as the bus for large ones.
//!
//! Ordinary host memory goes through pinned buffers: a *lane* has a stream and two of them, so that the bus fills one
//! while the processor empties the other. One processor core moves less than the bus does, so large copies are shared
//! out, piece by piece, to several lanes, each with a thread.
//!
//! A lane may share a queue of the hardware with a stream in which a copy waits for a kernel. What it was to fetch is
//! fetched by another one then, and it is set aside until its copies have come.
#![allow(unsafe_code, reason = "driver FFI")]

use std::time::Duration;

use cudarc::driver::sys::CUdeviceptr;
use parking_lot::{Condvar, Mutex};

use super::driver::{self, Result};
use super::handles::{Context, Event, Pinned, Stream};

/// Size of a pinned buffer.
pub(super) const PIECE_BYTES: usize = 4 << 20;
/// Lanes that share a large copy, and lanes that fetch at the same time, at most. With 16 on an H100, where the driver
/// uses 8 queues, some waited for the program's kernels.
const MAX_LANES: usize = 4;

/// Lanes whose buffers are on their way while others are being filled.
const SPARE_LANES: usize = 4;

/// So many may be set aside.
const MAX_STUCK: usize = 24;
/// A piece that has not come after this is stuck: by itself it takes a few milliseconds at most.
const STUCK_AFTER: Duration = Duration::from_millis(100);

/// One way across the bus.
struct Lane {
    stream: Stream,
    buffers: [Buffer; 2],
    done: [Event; 2],
    /// The first buffer may be on its way to the device still.
    is_sending: bool,
}

/// A pinned buffer that is made when it is needed: the driver pins some 2 MiB in a millisecond, for however many
/// threads at once.
#[derive(Default)]
struct Buffer(Option<Pinned>);

impl Buffer {
    fn get(&mut self) -> Result<&mut Pinned> {
        match self.0 {
            Some(ref mut made) => Ok(made),
            None => Ok(self.0.insert(Pinned::new(PIECE_BYTES)?)),
        }
    }
}

impl Lane {
    fn new(priority: i32) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(priority)?,
            buffers: Default::default(),
            done: [Event::new(false, true)?, Event::new(false, true)?],
            is_sending: false,
        })
    }

    /// Fetches pieces until there are none. If one has not come after `limit`, what has not come is given back.
    fn fetch(&mut self, src: CUdeviceptr, pieces: &Pieces<'_>, limit: Option<Duration>) -> Result<Fetched> {
        let mut before: Option<(usize, Piece<'_>)> = None;
        let mut turn = 0;
        loop {
            let now = match pieces.next() {
                Some(piece) => {
                    self.begin_fetch(turn, src + piece.offset, piece.bytes.len())?;
                    Some((turn, piece))
                }
                None => None,
            };
            if let Some((turn, piece)) = before.take() {
                if !self.end_fetch(turn, limit)? {
                    pieces.give_back([piece].into_iter().chain(now.map(|(_, piece)| piece)));
                    return Ok(Fetched::UntilStuck);
                }
                self.copy_out(turn, piece.bytes)?;
            }
            if now.is_none() {
                return Ok(Fetched::All);
            }
            before = now;
            turn = 1 - turn;
        }
    }

    fn begin_fetch(&mut self, turn: usize, src: CUdeviceptr, size: usize) -> Result<()> {
        self.buffers[turn].get()?.receive(src, size, &self.stream)?;
        self.done[turn].record(&self.stream)
    }

    /// False if it has not come after `limit`.
    fn end_fetch(&self, turn: usize, limit: Option<Duration>) -> Result<bool> {
        let done = &self.done[turn];
        limit.map_or_else(|| done.wait().map(|()| true), |limit| done.comes_within(limit))
    }

    fn copy_out(&mut self, turn: usize, dst: &mut [u8]) -> Result<()> {
        dst.copy_from_slice(&self.buffers[turn].get()?.bytes()[..dst.len()]);
        Ok(())
    }

    /// True unless the device is yet to copy something.
    fn is_free(&self) -> bool {
        self.done.iter().all(|done| done.query().is_ok())
    }

    /// Sends pieces until there are none.
    fn send<'a>(&mut self, dst: CUdeviceptr, mut next: impl FnMut() -> Option<(u64, &'a [u8])>) -> Result<()> {
        let (mut turn, mut is_busy) = (0, [std::mem::take(&mut self.is_sending), false]);
        while let Some((offset, piece)) = next() {
            if is_busy[turn] {
                self.done[turn].wait()?;
            }
            let buffer = self.buffers[turn].get()?;
            buffer.bytes_mut()[..piece.len()].copy_from_slice(piece);
            buffer.send(dst + offset, piece.len(), &self.stream)?;
            self.done[turn].record(&self.stream)?;
            is_busy[turn] = true;
            turn = 1 - turn;
        }
        self.stream.wait()
    }

    /// Starts sending what `produce` puts into the first buffer; nothing if it says false.
    fn begin_send(&mut self, dst: CUdeviceptr, size: usize, produce: &mut dyn FnMut(&mut [u8]) -> bool) -> Result<()> {
        if std::mem::take(&mut self.is_sending) {
            self.done[0].wait()?;
        }
        let buffer = self.buffers[0].get()?;
        if produce(&mut buffer.bytes_mut()[..size]) {
            buffer.send(dst, size, &self.stream)?;
            self.done[0].record(&self.stream)?;
            self.is_sending = true;
        }
        Ok(())
    }

    /// Waits until all has been sent.
    fn end_send(&mut self) -> Result<()> {
        match std::mem::take(&mut self.is_sending) {
            true => self.done[0].wait(),
            false => Ok(()),
        }
    }
}

/// What a lane has fetched.
enum Fetched {
    All,
    UntilStuck,
}

/// A part of a large copy.
struct Piece<'a> {
    offset: u64,
    bytes: &'a mut [u8],
}

/// Those that are yet to be fetched.
struct Pieces<'a>(Mutex<PiecesLeft<'a>>);

struct PiecesLeft<'a> {
    /// In their order, from here on.
    rest: std::slice::ChunksMut<'a, u8>,
    next_offset: u64,
    given_back: Vec<Piece<'a>>,
}

impl<'a> Pieces<'a> {
    fn of(bytes: &'a mut [u8]) -> Self {
        Self(Mutex::new(PiecesLeft {
            rest: bytes.chunks_mut(PIECE_BYTES),
            next_offset: 0,
            given_back: vec![],
        }))
    }

    fn next(&self) -> Option<Piece<'a>> {
        let mut left = self.0.lock();
        if let Some(piece) = left.given_back.pop() {
            return Some(piece);
        }
        let bytes = left.rest.next()?;
        let offset = left.next_offset;
        left.next_offset += bytes.len() as u64;
        Some(Piece { offset, bytes })
    }

    fn give_back(&self, pieces: impl Iterator<Item = Piece<'a>>) {
        self.0.lock().given_back.extend(pieces);
    }
}

/// The lanes of a device.
pub(super) struct Transfers {
    priority: i32,
    lanes: Mutex<Lanes>,
    /// One fetches less.
    has_fetched: Condvar,
}

#[derive(Default)]
struct Lanes {
    idle: Vec<Lane>,
    num_fetching: usize,
    /// What these were to fetch is yet to come.
    stuck: Vec<Lane>,
}

impl Lanes {
    /// The one whose buffer has been on its way for the longest time. None if there are few: then one is to be made, so
    /// that whoever has bytes to send need not wait for those of others.
    fn longest_idle(&mut self) -> Option<Lane> {
        (self.idle.len() >= SPARE_LANES).then(|| self.idle.remove(0))
    }

    /// Looks for one to be used. None if one is to be made.
    fn next(&mut self) -> Option<Lane> {
        let (free, stuck): (Vec<_>, Vec<_>) = std::mem::take(&mut self.stuck).into_iter().partition(Lane::is_free);
        self.stuck = stuck;
        self.idle.extend(free);
        self.idle.pop()
    }
}

/// A lane whose copies have failed may still be written to by the device.
fn give_up(lane: Lane) {
    std::mem::forget(lane);
}

impl Transfers {
    pub fn new(priority: i32) -> Self {
        Self {
            priority,
            lanes: Mutex::default(),
            has_fetched: Condvar::new(),
        }
    }

    /// Never waits for a lane, as pausing must not.
    fn with_lane<T>(&self, work: impl FnOnce(&mut Lane) -> Result<T>) -> Result<T> {
        let mut lane = self.take()?;
        let result = work(&mut lane);
        match &result {
            Ok(_) => self.lanes.lock().idle.push(lane),
            Err(_) => give_up(lane),
        }
        result
    }

    fn take(&self) -> Result<Lane> {
        let found = self.lanes.lock().next();
        found.map_or_else(|| Lane::new(self.priority), Ok)
    }

    /// Device to host.
    pub fn read(&self, context: &Context, src: CUdeviceptr, dst: &mut [u8]) -> Result<()> {
        if dst.len() <= PIECE_BYTES {
            context.enter()?;
            return self.fetch_piece(src, dst);
        }
        let size = dst.len();
        let pieces = Pieces::of(dst);
        self.share(context, size, &|| {
            let lane = self.fetch_by(|lane, limit| lane.fetch(src, &pieces, limit))?;
            self.lanes.lock().idle.push(lane);
            Ok(())
        })
    }

    /// Fetches what fits into one buffer. While it is copied out of there, others fetch.
    fn fetch_piece(&self, src: CUdeviceptr, dst: &mut [u8]) -> Result<()> {
        let mut lane = self.fetch_by(|lane, limit| {
            lane.begin_fetch(0, src, dst.len())?;
            Ok(match lane.end_fetch(0, limit)? {
                true => Fetched::All,
                false => Fetched::UntilStuck,
            })
        })?;
        let copied = lane.copy_out(0, dst);
        self.lanes.lock().idle.push(lane);
        copied
    }

    /// Has a lane fetch, and another one go on if it gets stuck; gives the last one.
    fn fetch_by(&self, fetch: impl FnMut(&mut Lane, Option<Duration>) -> Result<Fetched>) -> Result<Lane> {
        let mut lanes = self.lanes.lock();
        while lanes.num_fetching >= MAX_LANES {
            self.has_fetched.wait(&mut lanes);
        }
        lanes.num_fetching += 1;
        drop(lanes);
        let lane = self.fetch_at_once(fetch);
        self.lanes.lock().num_fetching -= 1;
        self.has_fetched.notify_one();
        lane
    }

    fn fetch_at_once(&self, mut fetch: impl FnMut(&mut Lane, Option<Duration>) -> Result<Fetched>) -> Result<Lane> {
        loop {
            let mut lane = self.take()?;
            // With so many stuck, another one would be too.
            let limit = (self.lanes.lock().stuck.len() < MAX_STUCK).then_some(STUCK_AFTER);
            match fetch(&mut lane, limit) {
                Ok(Fetched::All) => return Ok(lane),
                Ok(Fetched::UntilStuck) => self.lanes.lock().stuck.push(lane),
                Err(error) => {
                    give_up(lane);
                    return Err(error);
                }
            }
        }
    }

    /// Host to device.
    pub fn write(&self, context: &Context, dst: CUdeviceptr, src: &[u8]) -> Result<()> {
        let pieces = Mutex::new((0u64..).step_by(PIECE_BYTES).zip(src.chunks(PIECE_BYTES)));
        self.share(context, src.len(), &|| {
            self.with_lane(|lane| lane.send(dst, || pieces.lock().next()))
        })
    }

    /// Host to device: what `produce` puts into a buffer, at most [`PIECE_BYTES`]; nothing if it says false. It may be
    /// on its way until [`Transfers::end_writes`].
    pub fn begin_write(
        &self,
        context: &Context,
        dst: CUdeviceptr,
        size: usize,
        produce: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<()> {
        context.enter()?;
        let found = self.lanes.lock().longest_idle();
        let mut lane = found.map_or_else(|| Lane::new(self.priority), Ok)?;
        match lane.begin_send(dst, size, produce) {
            Ok(()) => self.lanes.lock().idle.push(lane),
            Err(error) => {
                give_up(lane);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for what [`Transfers::begin_write`] has begun.
    pub fn end_writes(&self, context: &Context) -> Result<()> {
        context.enter()?;
        let mut lanes = self.lanes.lock();
        lanes.idle.iter_mut().map(Lane::end_send).fold(Ok(()), Result::and)
    }

    fn share(&self, context: &Context, size: usize, work: &(dyn Fn() -> Result<()> + Sync)) -> Result<()> {
        context.enter()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let lanes = (size / (2 * PIECE_BYTES)).clamp(1, MAX_LANES.min(cores));
        if lanes == 1 {
            return work();
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..lanes)
                .map(|_| {
                    scope.spawn(|| {
                        context.enter()?;
                        work()
                    })
                })
                .collect();
            let lost = driver::DriverError {
                call: "copy",
                code: driver::UNKNOWN,
            };
            handles
                .into_iter()
                .map(|handle| handle.join().unwrap_or(Err(lost)))
                .fold(Ok(()), Result::and)
        })
    }

    /// Device to host, into memory that the driver has pinned.
    pub fn read_pinned(&self, context: &Context, src: CUdeviceptr, dst: &mut [u8]) -> Result<()> {
        context.enter()?;
        self.with_lane(|lane| {
            // SAFETY: `dst` is borrowed until the stream has been waited for.
            unsafe { driver::cuMemcpyDtoHAsync(dst.as_mut_ptr(), src, dst.len(), lane.stream.0) }?;
            lane.stream.wait()
        })
    }

    /// Host to device, from memory that the driver has pinned.
    pub fn write_pinned(&self, context: &Context, dst: CUdeviceptr, src: &[u8]) -> Result<()> {
        context.enter()?;
        self.with_lane(|lane| {
            // SAFETY: `src` is borrowed until the stream has been waited for.
            unsafe { driver::cuMemcpyHtoDAsync(dst, src.as_ptr(), src.len(), lane.stream.0) }?;
            lane.stream.wait()
        })
    }

    /// Runs `work` on a stream and waits for it.
    pub fn on_stream(&self, context: &Context, work: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        context.enter()?;
        self.with_lane(|lane| {
            work(&lane.stream)?;
            lane.stream.wait()
        })
    }

    /// Fills device memory with zeros by copies, which need no free multiprocessor.
    pub fn zero_by_copies(&self, context: &Context, dst: CUdeviceptr, size: u64) -> Result<()> {
        context.enter()?;
        self.with_lane(|lane| {
            lane.stream.wait()?;
            let zeros = lane.buffers[0].get()?;
            zeros.bytes_mut().fill(0);
            let mut at = 0;
            while at < size {
                let piece = usize::try_from((size - at).min(PIECE_BYTES as u64)).unwrap_or(PIECE_BYTES);
                zeros.send(dst + at, piece, &lane.stream)?;
                at += piece as u64;
            }
            lane.stream.wait()
        })
    }
}
