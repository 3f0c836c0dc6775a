//! One application's server: everything its threads share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use hetckpt_devices::device::Device;
use hetckpt_order::order::Order;
use hetckpt_ring::command::SlotId;
use hetckpt_ring::message::VirtualDevice;
use hetckpt_ring::reply::Reply;
use hetckpt_ring::server_side::ServerSide;
use hetckpt_ring::version::Readable;
use hetckpt_state::virtual_device::VirtualDevice as StateVirtualDevice;

use crate::arrays::Arrays;
use crate::counters::Counters;
use crate::cuda_result as cu;
use crate::generate::Generator;
use crate::graph_parts::GraphParts;
use crate::kernels::Builder;
use crate::managed_pages::ManagedPages;
use crate::memory::DeviceMemory;
use crate::modules::Modules;
use crate::moved_variables::MovedVariables;
use crate::pinned::Pinned;
use crate::printed::Printed;
use crate::queues::{Queues, loading};
use crate::state_output::ArchiveEnd;

/// How long kernels have to stop, unless the request or `HETCKPT_PAUSE_TIMEOUT` (seconds) says otherwise.
const PAUSE_DEADLINE: Duration = Duration::from_secs(5);

/// What the server's threads share. Locks are taken in this order: holds, modules, arrays,
/// memory, queues, parts of graphs, what was printed. That of managed memory comes behind the queues, and the areas of
/// pinned memory behind it; the loading of a module alone takes memory behind it, and then no queues.
pub struct Session {
    /// The application's process id as the server sees it.
    pub app_pid: u32,
    /// The device.
    pub device: Arc<dyn Device>,
    /// With what kernels are built.
    pub builder: Builder,
    /// The device that the application sees.
    pub virtual_device: VirtualDevice,
    /// Versions of the ring that are read.
    pub readable_rings: Readable,
    /// The ring, once the application has said hello (again).
    pub side: OnceLock<ServerSide>,
    /// Chunks have been pinned, or cannot be.
    pub pinned_chunks: OnceLock<()>,
    /// Modules.
    pub modules: Mutex<Modules>,
    /// Variables that lie elsewhere than where the application has their addresses from.
    pub moved: RwLock<MovedVariables>,
    /// Arrays, and texture and surface objects.
    pub arrays: Mutex<Arrays>,
    /// Device memory.
    pub memory: Mutex<DeviceMemory>,
    /// Pinned host memory.
    pub pinned: Pinned,
    /// The part of it that lies on the device by turns.
    pub managed: ManagedPages,
    /// What kernels of machine code have printed.
    pub printed: Printed,
    /// Streams and all that is queued.
    pub queues: Mutex<Queues>,
    /// Parts of graphs that have been launched.
    pub graph_parts: Mutex<GraphParts>,
    /// The program wants all kernels of a module to be there once one of them is launched: they may wait for one
    /// another on the device, which one that is loaded only when nothing runs could not.
    pub loads_eagerly: bool,
    /// The reader of the ring is to stop between two commands, not only when it has read all.
    pub stops_at_once: AtomicBool,
    /// Notified whenever something of `queues` has ended.
    pub changed: Condvar,
    /// Notified when streams' threads may have something to do.
    pub work: Condvar,
    /// How long kernels have to stop where a request sets no limit.
    pub pause_deadline: Duration,
    /// Where the next capture is to write device memory, if that is an archive.
    pub archive: Mutex<Option<ArchiveEnd>>,
    /// Connections that hold the pause. Its lock is taken before that of the queues, never behind it.
    pub holds: Mutex<Holds>,
    /// Duration of the last pause's request until nothing ran, in microseconds.
    pub last_pause_us: AtomicU64,
    /// Duration of the last capture in microseconds.
    pub last_capture_us: AtomicU64,
}

/// Who holds the pause.
#[derive(Default)]
pub struct Holds {
    /// Connections by number.
    pub holders: Vec<u64>,
    /// Since when.
    pub since: Option<Instant>,
}

impl Session {
    /// A session without an application yet.
    #[must_use]
    pub fn new(app_pid: u32, device: Arc<dyn Device>, generator: Generator, virtual_device: VirtualDevice) -> Self {
        let builder = Builder {
            device: Arc::clone(&device),
            generator,
            has_software_images: virtual_device.is_emulated(),
            counters: Arc::default(),
        };
        let limit = virtual_device.total_bytes;
        Self {
            app_pid,
            builder,
            virtual_device,
            readable_rings: Readable::HERE,
            side: OnceLock::new(),
            pinned_chunks: OnceLock::new(),
            moved: RwLock::default(),
            modules: Mutex::default(),
            arrays: Mutex::default(),
            memory: Mutex::new(DeviceMemory::new(Arc::clone(&device), limit)),
            pinned: Pinned::new(Arc::clone(&device)),
            managed: ManagedPages::new(Arc::clone(&device)),
            printed: Printed::default(),
            queues: Mutex::new(Queues::new(Order::new(loading(&*device)), Duration::ZERO)),
            graph_parts: Mutex::default(),
            loads_eagerly: loads_eagerly() && !device.loads_while_running(),
            stops_at_once: AtomicBool::new(false),
            changed: Condvar::new(),
            work: Condvar::new(),
            pause_deadline: pause_deadline(),
            archive: Mutex::default(),
            holds: Mutex::default(),
            last_pause_us: AtomicU64::new(0),
            last_capture_us: AtomicU64::new(0),
            device,
        }
    }

    /// Forgets the archive that connection `number` has named, if it has.
    pub fn forget_archive(&self, number: u64) {
        let mut archive = self.archive.lock();
        if archive.as_ref().is_some_and(|archive| archive.of == number) {
            *archive = None;
        }
    }

    /// The virtual device as the state keeps it.
    #[must_use]
    pub fn state_virtual_device(&self) -> StateVirtualDevice {
        crate::virtual_device::to_state(&self.virtual_device)
    }

    /// What the application calls its state; empty if it says nothing.
    #[must_use]
    pub fn label(&self) -> String {
        let side = self.side.get();
        side.map_or_else(String::new, |side| side.checkpoint_words().label())
    }

    /// Compute capability of the virtual device, times ten plus minor.
    #[must_use]
    pub fn capability(&self) -> u32 {
        let value = |number| u32::try_from(self.virtual_device.attribute(number)).unwrap_or(0);
        value(75) * 10 + value(76)
    }

    /// Counts of what the server does.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.builder.counters
    }

    /// Says in the ring whether the application is to offer its faults of managed memory.
    pub fn ask_for_managed_faults(&self) {
        if let Some(side) = self.side.get() {
            side.want_managed_faults(self.managed.is_awaited());
        }
    }

    /// Makes copies through chunks as fast as the device can, from the first large one on.
    pub fn pin_chunks(&self, side: &ServerSide) {
        self.pinned_chunks.get_or_init(|| {
            let (addr, size_bytes) = side.chunks();
            if let Err(error) = self.device.pin_for_copies(addr, size_bytes) {
                tracing::debug!(%error, "copies through chunks are slower");
            }
        });
    }

    /// Answers a command, if an answer is wanted.
    pub fn answer(&self, slot: Option<SlotId>, result: u32, reply: &Reply) {
        let (Some(slot), Some(side)) = (slot, self.side.get()) else {
            return;
        };
        if let Err(error) = side.answer(slot, result, reply) {
            tracing::error!(%error, "an answer cannot be given");
        }
    }

    /// Answers a command that has waited for kernels, if an answer is wanted.
    pub fn answer_behind_kernels(&self, slot: Option<SlotId>, result: u32, reply: &Reply) {
        if slot.is_some() {
            self.hand_over_printed();
        }
        self.answer(slot, result, reply);
    }

    /// Answers with a result, or makes it the sticky one if nobody waits for it.
    pub fn answer_or_fault(&self, slot: Option<SlotId>, result: u32) {
        if slot.is_some() {
            self.answer(slot, result, &Reply::Nothing);
        } else if result != 0 {
            self.set_fault(result);
        }
    }

    /// Makes `result` what every later call of the application returns.
    pub fn set_fault(&self, result: u32) {
        self.queues.lock().order.fail(result);
        self.note_assertions(result);
        if let Some(side) = self.side.get() {
            side.set_fault(result);
        }
        self.changed.notify_all();
        self.work.notify_all();
    }

    /// Has the application print what kernels of machine code have printed.
    pub fn hand_over_printed(&self) {
        self.printed.hand_over(&*self.device, self.side.get());
    }

    /// Has the application say which assertions have failed, if `result` is that some have.
    pub fn note_assertions(&self, result: u32) {
        if result == cu::ASSERT {
            self.printed.hand_over_assertions(self.side.get());
        }
    }

    /// Puts the microseconds since `started` into `word`.
    pub fn note_duration(word: &AtomicU64, started: Instant) {
        let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        word.store(us, Ordering::Relaxed);
    }
}

/// Whether the user has chosen that, in the words of NVIDIA's driver.
fn loads_eagerly() -> bool {
    std::env::var("CUDA_MODULE_LOADING").is_ok_and(|value| value.eq_ignore_ascii_case("EAGER"))
}

/// How long kernels have to stop where a request sets no limit.
fn pause_deadline() -> Duration {
    let seconds = std::env::var("HETCKPT_PAUSE_TIMEOUT")
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    seconds
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .unwrap_or(PAUSE_DEADLINE)
}
