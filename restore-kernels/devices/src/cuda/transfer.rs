//! Copies between host and device that never wait for kernels, as fast as the bus for large ones.
//!
//! Ordinary host memory goes through pinned buffers: a *lane* has a stream and two of them, so that the bus fills one
//! while the processor empties the other. One processor core moves less than the bus does, so large copies are shared
//! out, piece by piece, to several lanes, each with a thread.
#![allow(unsafe_code, reason = "driver FFI")]

use cudarc::driver::sys::CUdeviceptr;
use parking_lot::{Condvar, Mutex};

use super::driver::{self, Result};
use super::handles::{Context, Event, Pinned, Stream};

/// Size of a pinned buffer.
const PIECE_BYTES: usize = 4 << 20;
/// Lanes of a device. More would share queues of the hardware with the program's streams, so that copies would wait for
/// its kernels (seen with 16 on an H100, where the driver uses 8 queues).
const MAX_LANES: usize = 4;

/// One way across the bus.
struct Lane {
    stream: Stream,
    buffers: [Pinned; 2],
    done: [Event; 2],
}

impl Lane {
    fn new(priority: i32) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(priority)?,
            buffers: [Pinned::new(PIECE_BYTES)?, Pinned::new(PIECE_BYTES)?],
            done: [Event::new(false, true)?, Event::new(false, true)?],
        })
    }

    /// Fetches pieces until there are none.
    fn fetch<'a>(&mut self, src: CUdeviceptr, mut next: impl FnMut() -> Option<(u64, &'a mut [u8])>) -> Result<()> {
        let mut before: Option<(usize, &mut [u8])> = None;
        let mut turn = 0;
        loop {
            let piece = next();
            let now = match piece {
                Some((offset, piece)) => {
                    self.buffers[turn].receive(src + offset, piece.len(), &self.stream)?;
                    self.done[turn].record(&self.stream)?;
                    Some((turn, piece))
                }
                None => None,
            };
            if let Some((turn, piece)) = before.take() {
                self.done[turn].wait()?;
                piece.copy_from_slice(&self.buffers[turn].bytes()[..piece.len()]);
            }
            if now.is_none() {
                return Ok(());
            }
            before = now;
            turn = 1 - turn;
        }
    }

    /// Sends pieces until there are none.
    fn send<'a>(&mut self, dst: CUdeviceptr, mut next: impl FnMut() -> Option<(u64, &'a [u8])>) -> Result<()> {
        let (mut turn, mut is_busy) = (0, [false; 2]);
        while let Some((offset, piece)) = next() {
            if is_busy[turn] {
                self.done[turn].wait()?;
            }
            self.buffers[turn].bytes_mut()[..piece.len()].copy_from_slice(piece);
            self.buffers[turn].send(dst + offset, piece.len(), &self.stream)?;
            self.done[turn].record(&self.stream)?;
            is_busy[turn] = true;
            turn = 1 - turn;
        }
        self.stream.wait()
    }
}

/// The lanes of a device.
pub(super) struct Transfers {
    priority: i32,
    lanes: Mutex<Lanes>,
    /// A lane has become idle, or there may be another.
    returned: Condvar,
}

#[derive(Default)]
struct Lanes {
    idle: Vec<Lane>,
    /// Those too that are not idle.
    count: usize,
}

impl Transfers {
    pub fn new(priority: i32) -> Self {
        Self {
            priority,
            lanes: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    fn with_lane<T>(&self, work: impl FnOnce(&mut Lane) -> Result<T>) -> Result<T> {
        let mut lane = self.take()?;
        let result = work(&mut lane);
        let mut lanes = self.lanes.lock();
        match &result {
            Ok(_) => lanes.idle.push(lane),
            // It may still be written to by the device; it is given up, not reused.
            Err(_) => {
                std::mem::forget(lane);
                lanes.count -= 1;
            }
        }
        self.returned.notify_one();
        result
    }

    /// A lane that is idle, or a new one, or the first that becomes idle.
    fn take(&self) -> Result<Lane> {
        let mut lanes = self.lanes.lock();
        loop {
            if let Some(lane) = lanes.idle.pop() {
                return Ok(lane);
            }
            if lanes.count < MAX_LANES {
                break;
            }
            self.returned.wait(&mut lanes);
        }
        lanes.count += 1;
        drop(lanes);
        Lane::new(self.priority).inspect_err(|_| {
            self.lanes.lock().count -= 1;
            self.returned.notify_one();
        })
    }

    /// Device to host.
    pub fn read(&self, context: &Context, src: CUdeviceptr, dst: &mut [u8]) -> Result<()> {
        let size = dst.len();
        let pieces = Mutex::new((0u64..).step_by(PIECE_BYTES).zip(dst.chunks_mut(PIECE_BYTES)));
        self.share(context, size, &|lane| lane.fetch(src, || pieces.lock().next()))
    }

    /// Host to device.
    pub fn write(&self, context: &Context, dst: CUdeviceptr, src: &[u8]) -> Result<()> {
        let pieces = Mutex::new((0u64..).step_by(PIECE_BYTES).zip(src.chunks(PIECE_BYTES)));
        self.share(context, src.len(), &|lane| lane.send(dst, || pieces.lock().next()))
    }

    fn share(&self, context: &Context, size: usize, work: &(dyn Fn(&mut Lane) -> Result<()> + Sync)) -> Result<()> {
        context.enter()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let lanes = (size / (2 * PIECE_BYTES)).clamp(1, MAX_LANES.min(cores));
        if lanes == 1 {
            return self.with_lane(work);
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..lanes)
                .map(|_| {
                    scope.spawn(|| {
                        context.enter()?;
                        self.with_lane(work)
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
            lane.buffers[0].bytes_mut().fill(0);
            let mut at = 0;
            while at < size {
                let piece = usize::try_from((size - at).min(PIECE_BYTES as u64)).unwrap_or(PIECE_BYTES);
                lane.buffers[0].send(dst + at, piece, &lane.stream)?;
                at += piece as u64;
            }
            lane.stream.wait()
        })
    }
}
