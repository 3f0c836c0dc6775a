//! Driver objects that free themselves.
#![allow(unsafe_code, reason = "driver FFI")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUmodule, CUstream};

use super::driver::{self, DriverError, NOT_READY, Result};
use crate::device::{Fill, Transfer};

/// How long a wait looks before it sleeps: longer than a short copy takes, shorter than anybody minds.
pub(super) const LOOK_BEFORE_SLEEP: Duration = Duration::from_micros(40);

/// A context of a device.
#[derive(Debug)]
pub(super) struct Context {
    pub device: CUdevice,
    handle: CUcontext,
    /// Tells contexts apart: a later one may have the same handle.
    number: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The one that the runtime API works in.
    Primary,
    /// One beside it, which has queues of the hardware of its own.
    Further,
}

/// Waits sleep.
const BLOCKING_SYNC: u32 = 4;

thread_local! {
    /// Number of the calling thread's context.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: a context may be used from any thread; each makes it current first.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Context {}

impl Context {
    /// The device's primary context.
    pub fn retain(device: CUdevice) -> Result<Self> {
        // Refused where the context is in use already; then waits merely cost more. Launches and graphs cost the same.
        let _ = driver::cuDevicePrimaryCtxSetFlags(device, BLOCKING_SYNC);
        Self::of(device, driver::cuDevicePrimaryCtxRetain(device)?, Kind::Primary)
    }

    /// Another context of this one's device, in which this one's memory has the same addresses.
    pub fn beside(&self) -> Result<Self> {
        Self::of(
            self.device,
            driver::cuCtxCreate(BLOCKING_SYNC, self.device)?,
            Kind::Further,
        )
    }

    fn of(device: CUdevice, handle: CUcontext, kind: Kind) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let context = Self {
            device,
            handle,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            kind,
        };
        context.enter()?;
        Ok(context)
    }

    /// Makes the context the calling thread's, if it is not.
    pub fn enter(&self) -> Result<()> {
        if CURRENT.get() != self.number {
            driver::cuCtxSetCurrent(self.handle)?;
            CURRENT.set(self.number);
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = match self.kind {
            Kind::Primary => driver::cuDevicePrimaryCtxRelease(self.device),
            Kind::Further => driver::cuCtxDestroy(self.handle),
        };
    }
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream(pub CUstream);

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(priority: i32) -> Result<Self> {
        driver::cuStreamCreateWithPriority(priority).map(Self)
    }

    /// Starts filling `rows` rows of `width` elements, `pitch_bytes` apart.
    pub fn fill(&self, dst: CUdeviceptr, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<()> {
        let pitch = match rows {
            0 | 1 => width * value.element_bytes(),
            _ => pitch_bytes,
        };
        let (pitch, width, rows) = (pitch as usize, width as usize, rows as usize);
        match value {
            Fill::U8(v) => driver::cuMemsetD2D8Async(dst, pitch, v, width, rows, self.0),
            Fill::U16(v) => driver::cuMemsetD2D16Async(dst, pitch, v, width, rows, self.0),
            Fill::U32(v) => driver::cuMemsetD2D32Async(dst, pitch, v, width, rows, self.0),
        }
    }

    /// Starts a copy or a fill.
    pub fn transfer(&self, transfer: &Transfer) -> Result<()> {
        match *transfer {
            Transfer::Copy { dst, src, size_bytes } => driver::cuMemcpyAsync(dst, src, size_bytes as usize, self.0),
            Transfer::Fill {
                dst,
                pitch_bytes,
                value,
                width,
                rows,
            } => self.fill(dst, pitch_bytes, value, width, rows),
        }
    }

    /// Waits for all that was given to the stream.
    pub fn wait(&self) -> Result<()> {
        wait(|| driver::cuStreamQuery(self.0), || driver::cuStreamSynchronize(self.0))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = driver::cuStreamDestroy(self.0);
    }
}

/// An event.
#[derive(Debug)]
pub(super) struct Event(CUevent);

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Event {}

impl Event {
    pub fn new(has_time: bool, wakes: bool) -> Result<Self> {
        driver::cuEventCreate(has_time, wakes).map(Self)
    }

    pub fn handle(&self) -> CUevent {
        self.0
    }

    /// [`NOT_READY`] as long as it has not come.
    pub fn query(&self) -> Result<()> {
        driver::cuEventQuery(self.0)
    }

    pub fn record(&self, stream: &Stream) -> Result<()> {
        driver::cuEventRecord(self.0, stream.0)
    }

    /// Sleeps until it has come, if it wakes.
    pub fn sleep(&self) -> Result<()> {
        driver::cuEventSynchronize(self.0)
    }

    pub fn wait(&self) -> Result<()> {
        wait(|| driver::cuEventQuery(self.0), || driver::cuEventSynchronize(self.0))
    }

    /// Waits until it has come, or `limit` has passed; true if it has come.
    pub fn comes_within(&self, limit: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            match self.query() {
                Err(DriverError { code: NOT_READY, .. }) => {}
                done => return done.map(|()| true),
            }
            match start.elapsed() {
                passed if passed >= limit => return Ok(false),
                passed if passed < LOOK_BEFORE_SLEEP => std::hint::spin_loop(),
                _ => std::thread::sleep(LOOK_BEFORE_SLEEP),
            }
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = driver::cuEventDestroy(self.0);
    }
}

/// Looks for a short time, then sleeps.
fn wait(query: impl Fn() -> Result<()>, sleep: impl Fn() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < LOOK_BEFORE_SLEEP {
        match query() {
            Err(DriverError { code: NOT_READY, .. }) => std::hint::spin_loop(),
            done => return done,
        }
    }
    sleep()
}

/// A module.
#[derive(Debug)]
pub(super) struct Module(pub CUmodule);

// SAFETY: modules may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = driver::cuModuleUnload(self.0);
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub(super) struct Pinned {
    start: *mut u8,
    size: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pinned {}
// SAFETY: who shares it only reads, but for the first word, which is used as an atomic then.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub fn new(size: usize) -> Result<Self> {
        let pinned = Self {
            start: driver::cuMemHostAlloc(size)?,
            size,
        };
        // SAFETY: the whole of a fresh allocation, which the driver need not have cleared.
        unsafe { std::ptr::write_bytes(pinned.start, 0, size) };
        Ok(pinned)
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: an allocation of this size, initialised when it was made.
        unsafe { std::slice::from_raw_parts(self.start, self.size) }
    }

    /// The first eight bytes, to which the device may write meanwhile; nobody changes them as `bytes_mut`.
    pub fn first_word(&self) -> &AtomicU64 {
        assert!(self.size >= size_of::<u64>());
        // SAFETY: within the allocation, which is aligned to pages and lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.start.cast()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: an allocation of this size, initialised when it was made, borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size) }
    }

    /// Starts copying the first `size` bytes to the device; they must stay as they are until the stream has done it.
    pub fn send(&self, dst: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
        self.send_part(0, dst, size, stream)
    }

    /// Starts copying `size` bytes from `offset` on to the device; they must stay as they are until the stream has done
    /// it.
    pub fn send_part(&self, offset: usize, dst: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
        let src = self.bytes()[offset..offset + size].as_ptr();
        // SAFETY: the memory lives as long as `self`; the owners of pinned memory wait for the stream before they drop
        // it.
        unsafe { driver::cuMemcpyHtoDAsync(dst, src, size, stream.0) }
    }

    /// Starts copying `size` bytes from the device.
    pub fn receive(&mut self, src: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
        let dst = self.bytes_mut()[..size].as_mut_ptr();
        // SAFETY: as for `send`.
        unsafe { driver::cuMemcpyDtoHAsync(dst, src, size, stream.0) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: came from `cuMemHostAlloc`; nobody refers to it any more.
        let _ = unsafe { driver::cuMemFreeHost(self.start) };
    }
}

/// Device memory that the driver places. Freed in a stream's order, since `cuMemFree` would wait for running kernels.
#[derive(Debug)]
pub(super) struct DeviceBuffer {
    pub addr: CUdeviceptr,
    stream: Arc<Stream>,
}

impl DeviceBuffer {
    pub fn new(size: usize, stream: &Arc<Stream>) -> Result<Self> {
        let addr = driver::cuMemAllocAsync(size.max(1), stream.0)?;
        let buffer = Self {
            addr,
            stream: stream.clone(),
        };
        stream.wait()?;
        Ok(buffer)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let _ = driver::cuMemFreeAsync(self.addr, self.stream.0);
    }
}
