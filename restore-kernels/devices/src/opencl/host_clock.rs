//! The host's clock, for kernels: OpenCL C has none. While launches that look at it run, a thread writes the time into a word
//! of device memory again and again. Kernels that do not see the host's writes see it go on from slice to slice.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::buffers::DeviceBuffer;
use super::failure::Result;
use super::handles::{CommandQueue, Context, Event, Mem};
use super::{OpenClInner, lock};

/// Between two writes: kernels that wait for a time to come have it about as exactly, and the thread takes little of a core.
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

    /// True while it is to be written.
    fn is_looked_at(&self) -> bool {
        let mut running = lock(&self.running);
        // What does not say how it fares has failed.
        running
            .launches
            .retain(|event| event.status().is_ok() && !event.is_over());
        running.is_ticking = !running.launches.is_empty();
        running.is_ticking
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the time until the launch has ended. Without another thread it stays what it was when the launch was given.
pub(super) fn tick_until(device: &Arc<OpenClInner>, launch: Arc<Event>) {
    let mut running = lock(&device.clock.running);
    running.launches.push(launch);
    if running.is_ticking {
        return;
    }
    let of_thread = device.clone();
    let thread = std::thread::Builder::new().name("hetckpt-clock".into());
    let thread = thread.spawn(move || {
        while of_thread.clock.is_looked_at() {
            if let Err(error) = of_thread.clock.set() {
                tracing::debug!(call = error.call, reason = error.reason(), "the time cannot be written");
            }
            std::thread::sleep(PERIOD);
        }
    });
    match thread {
        Ok(_) => running.is_ticking = true,
        Err(error) => tracing::warn!(%error, "no thread for the clock: kernels see it stand still"),
    }
}
