//! Streams and events: all is done when it is given.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::output;
use crate::result::{INVALID_VALUE, SUCCESS, put};

static NEXT_STREAM: AtomicU64 = AtomicU64::new(0x1_0000);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When it was recorded, in nanoseconds; 0: not yet.
type Event = AtomicU64;

driver_api! {
    fn cuStreamCreateWithPriority(stream: Option<&mut u64>, _flags: u32, _priority: i32) {
        put(stream, NEXT_STREAM.fetch_add(1, Ordering::Relaxed))
    }
    fn cuStreamDestroy_v2(_stream: u64) {
        SUCCESS
    }
    fn cuStreamQuery(_stream: u64) {
        SUCCESS
    }
    fn cuStreamSynchronize(_stream: u64) {
        output::flush();
        SUCCESS
    }
    fn cuEventCreate(event: Option<&mut *mut Event>, _flags: u32) {
        put(event, Box::into_raw(Box::new(Event::new(0))))
    }
    fn cuEventDestroy_v2(event: *mut Event) {
        // SAFETY: the caller's event, which it uses no more.
        drop(unsafe { Box::from_raw(event) });
        SUCCESS
    }
    fn cuEventRecord(event: Option<&Event>, _stream: u64) {
        let now = u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX);
        event.map_or(INVALID_VALUE, |event| {
            event.store(now.max(1), Ordering::Relaxed);
            SUCCESS
        })
    }
    fn cuEventQuery(_event: Option<&Event>) {
        SUCCESS
    }
    fn cuEventSynchronize(_event: Option<&Event>) {
        SUCCESS
    }
    fn cuEventElapsedTime_v2(milliseconds: Option<&mut f32>, start: Option<&Event>, end: Option<&Event>) {
        let (Some(start), Some(end)) = (start, end) else { return INVALID_VALUE };
        let nanoseconds = end.load(Ordering::Relaxed).saturating_sub(start.load(Ordering::Relaxed));
        put(milliseconds, nanoseconds as f32 / 1e6)
    }
}
