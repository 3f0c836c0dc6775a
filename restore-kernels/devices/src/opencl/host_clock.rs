//! The host's clock, for kernels: OpenCL C has none. While launches that look at it run, a thread writes the time into
//! a word of device memory again and again. Kernels that do not see the host's writes see it go on from slice to slice.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::OpenClInner;
use super::buffers::DeviceBuffer;
use super::failure::Result;
use super::handles::{CommandQueue, Context, Event, Mem};

/// Between two writes: kernels that wait for a time to come have it about as exactly, and the thread takes little of a
/// core.
const PERIOD: Duration = Duration::from_micros(20);

/// The word, and who looks at it.
pub(super) struct HostClock {
    buffer: DeviceBuffer,
    /// Of its own, so that neither a kernel nor a pause waits for the time.
    queue: CommandQueue,
    /// Nanoseconds since 1970 at an instant: it never goes back, as the host's wall clock may.
    origin: (u64, Instant),
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    launches: Vec<Arc<Event>>,
    is_ticking: bool,
}

impl HostClock {
    pub fn new(context: &Context, is_shared: bool) -> Result<Self> {
        let queue = context.queue()?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            buffer: DeviceBuffer::zeroed(context, is_shared, 8, &queue)?,
            queue,
            origin: (nanoseconds(since_1970), Instant::now()),
            running: Mutex::default(),
        })
    }

    /// The buffer that holds the word.
    pub fn mem(&self) -> &Mem {
        &self.buffer.mem
    }

    /// Writes the time.
    pub fn set(&self) -> Result<()> {
        let (at, instant) = self.origin;
        let now = at.saturating_add(nanoseconds(instant.elapsed()));
        if let Some(host) = self.buffer.host() {
            host.set_first_double_word(now);
            return Ok(());
        }
        self.queue.write(self.mem(), 0, &now.to_ne_bytes())
    }

    /// A launch that looks at it, until none is left.
    fn next_looking(&self) -> Option<Arc<Event>> {
        let mut running = self.running.lock();
        let next = running.launches.pop();
        running.is_ticking = next.is_some();
        next
    }

    /// Writes the time until the other end is dropped.
    fn tick(&self, until: &Receiver<()>) {
        while until.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = self.set() {
                tracing::debug!(call = error.call, reason = error.reason(), "the time cannot be written");
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the time until the launch has ended. Without another thread it stays what it was when the launch was given.
pub(super) fn tick_until(device: &Arc<OpenClInner>, launch: Arc<Event>) {
    let mut running = device.clock.running.lock();
    running.launches.push(launch);
    if running.is_ticking {
        return;
    }
    match spawn_both(device) {
        Ok(()) => running.is_ticking = true,
        Err(error) => tracing::warn!(%error, "no thread for the clock: kernels see it stand still"),
    }
}

/// One thread writes the time, another waits for the launches: drivers keep who asks how a launch fares waiting until
/// it has ended (rusticl), and the time must not stand still meanwhile.
fn spawn_both(device: &Arc<OpenClInner>) -> std::io::Result<()> {
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let (over, until) = channel();
    let (writer, waiter) = (device.clone(), device.clone());
    named("hetckpt-clock").spawn(move || writer.clock.tick(&until))?;
    named("hetckpt-clock-end").spawn(move || {
        while let Some(launch) = waiter.clock.next_looking() {
            // A failure is told by the launch.
            let _ = launch.wait();
        }
        drop(over);
    })?;
    Ok(())
}
