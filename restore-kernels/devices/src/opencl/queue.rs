//! Launches in order.

use std::sync::Arc;

use parking_lot::Mutex;

use super::arguments::{self, Values};
use super::buffers::DeviceBuffer;
use super::failure::{ClFailure, Result as ClResult};
use super::flight::{Continuation, Flight, Held};
use super::handles::{CommandQueue, Event, Mem};
use super::module::{Built, LoadedOpenCl, OpenClKernel};
use super::plan::Plan;
use super::pool::LaunchWords;
use super::{OpenClInner, host_clock};
use crate::control::{fill_slot, listed_blocks};
use crate::device::{Launch, Queue, RunningLaunch};
use crate::error::DeviceError;

/// A command queue with the launches given to it.
pub(super) struct OpenClQueue {
    pub device: Arc<OpenClInner>,
    pub id: u64,
    pub commands: Arc<CommandQueue>,
    /// Held while a launch is given.
    pub area: Mutex<Option<Area>>,
}

/// Where what stops is put. Launches of one queue run one after another, so only one of them runs when a pause is asked
/// for, and what comes behind it finds the word set before it begins: until the pause has ended, the area is that
/// one's.
pub(super) struct Area {
    /// Pauses that had ended when it was made.
    pause: u64,
    buffer: Arc<DeviceBuffer>,
}

/// The end of a launch.
struct Started {
    kernel: Arc<Event>,
    end: Arc<Event>,
}

impl Queue for OpenClQueue {
    fn check(&self, launch: &Launch) -> Result<(), DeviceError> {
        let kernel = own_kernel(launch)?;
        let plan = Plan::new(&kernel, launch, &self.device.limits);
        plan.map(drop)
            .map_err(|error| refusal(&kernel.request.name, error.to_string()))
    }

    fn launch(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        let kernel = own_kernel(&launch)?;
        let name = &kernel.request.name;
        let refused = |e: ClFailure| refusal(name, e.to_string());
        let device = &self.device;
        device.builder.fit(&device.context, &kernel, &device.arena)?;
        let plan = Plan::new(&kernel, &launch, &device.limits).map_err(|error| refusal(name, error.to_string()))?;
        if plan.num_groups == 0 {
            return Ok(Arc::new(Held::new(None)));
        }
        device.take_back_ended();
        let mut area = self.area.lock();
        let num_ended = device.pausing.enter();
        if device.pausing.is_paused() {
            return Ok(Arc::new(Held::new(Some(plan.untouched()))));
        }
        let continuation = self.send_given(&plan).map_err(refused)?;
        let giving = device.pausing.give(name).map_err(refused)?;
        let words = device.words.take(
            &device.context,
            device.arena.is_shared(),
            plan.num_groups as usize,
            &self.commands,
        );
        let words = words.map_err(refused)?;
        let (stopped, num_places) = self.places(&kernel, &plan, *num_ended, &mut area).map_err(refused)?;
        let arena: Vec<&Mem> = device.arena.buffers().collect();
        let values = Values {
            launch: &launch,
            shape: &plan.shape,
            arena: &arena,
            counts: &words.counts.mem,
            pause: device.pausing.word.mem(),
            look_price: giving.look_price,
            clock: device.clock.mem(),
            num_resumed: plan.given.as_ref().map_or(0, |given| given.paused.len() as u32),
            resumed: continuation.as_ref().map(|c| &c.list.mem),
            resumed_slots: continuation
                .as_ref()
                .and_then(|c| c.slots.as_ref())
                .map(|slots| &slots.mem),
            turned_away: &words.turned_away.mem,
            stopped: stopped.as_deref().map(|buffer| &buffer.mem),
            num_stopped: num_places,
        };
        let reads_clock = kernel.program.reads_clock();
        if reads_clock {
            device.clock.set().map_err(refused)?;
        }
        let started = self.start(&kernel, &plan, &words, &values).map_err(refused)?;
        if reads_clock {
            host_clock::tick_until(device, started.end.clone());
        }
        device.pausing.note(self.id, started.end.clone());
        Ok(Arc::new(Flight {
            device: device.clone(),
            commands: self.commands.clone(),
            kernel: kernel.clone(),
            plan,
            event: started.kernel,
            end: started.end,
            words: Mutex::new(Some(words)),
            stopped,
            num_places,
            continuation: Mutex::new(continuation),
            is_taken: Mutex::new(false),
        }))
    }
}

impl OpenClQueue {
    /// Puts the list of blocks and their state into device memory.
    fn send_given(&self, plan: &Plan) -> ClResult<Option<Continuation>> {
        let Some(given) = plan.given.as_deref() else {
            return Ok(None);
        };
        let device = &self.device;
        let send =
            |bytes: &[u8]| DeviceBuffer::filled(&device.context, device.arena.is_shared(), bytes, &device.transfers);
        let list: Vec<u8> = listed_blocks(given)
            .iter()
            .flat_map(|&block| (block as u32).to_le_bytes())
            .collect();
        let stride = plan.shape.slot().stride as usize;
        let mut slots = vec![0; stride * given.paused.len()];
        for (block, slot) in given.paused.iter().zip(slots.chunks_exact_mut(stride)) {
            fill_slot(&plan.shape, block, slot);
        }
        Ok(Some(Continuation {
            list: send(&list)?,
            slots: (!slots.is_empty()).then(|| send(&slots)).transpose()?,
        }))
    }

    /// The area for what stops, and the number of places in it for this launch.
    fn places(
        &self,
        kernel: &OpenClKernel,
        plan: &Plan,
        pause: u64,
        area: &mut Option<Area>,
    ) -> ClResult<(Option<Arc<DeviceBuffer>>, u32)> {
        let device = &self.device;
        let (wanted, place_bytes) = plan.places(kernel, &device.limits);
        if wanted == 0 {
            return Ok((None, 0));
        }
        let max = device.limits.max_stopped_bytes.max(place_bytes);
        let bytes = (wanted * place_bytes).min(max) as usize;
        let fits = |area: &Area| area.pause == pause && area.buffer.size() >= bytes;
        let buffer = match area.as_ref().filter(|area| fits(area)) {
            Some(area) => area.buffer.clone(),
            None => {
                let size = bytes.next_power_of_two();
                let shared = device.arena.is_shared();
                let buffer = Arc::new(DeviceBuffer::zeroed(&device.context, shared, size, &self.commands)?);
                *area = Some(Area {
                    pause,
                    buffer: buffer.clone(),
                });
                buffer
            }
        };
        let num = wanted.min(buffer.size() as u64 / place_bytes);
        Ok((Some(buffer), u32::try_from(num).unwrap_or(u32::MAX)))
    }

    fn start(&self, kernel: &OpenClKernel, plan: &Plan, words: &LaunchWords, values: &Values<'_>) -> ClResult<Started> {
        let mut built = kernel.built.lock();
        let Built {
            kernel: handle,
            num_buffers,
            under_way,
        } = &mut *built;
        let values = Values {
            arena: &values.arena[..*num_buffers as usize],
            ..*values
        };
        arguments::set(handle, &kernel.program, &values)?;
        let mixes_grids = self.device.mixes_grids;
        let shape = (plan.global, plan.local);
        let mut under_way = mixes_grids.then(|| under_way.lock());
        let behind = under_way
            .as_mut()
            .map_or_else(Vec::new, |launches| launches.before(shape));
        #[allow(unsafe_code, reason = "starts a kernel")]
        // SAFETY: all arguments are set as the generated kernel expects them; their buffers are kept by the flight.
        // That the program's own accesses stay in its memory is the program's affair, as on any device.
        let event = unsafe { self.commands.launch(handle, &plan.global, &plan.local, &behind) }?;
        let kernel = Arc::new(event);
        if let Some(launches) = &mut under_way {
            launches.note(shape, kernel.clone());
        }
        drop(under_way);
        drop(built);
        let fetched = words.fetch_counts(&self.commands);
        let fetched = fetched.and_then(|fetched| self.commands.flush().map(|()| fetched));
        match fetched {
            Ok(end) => {
                let end = end.map_or_else(|| kernel.clone(), Arc::new);
                Ok(Started { kernel, end })
            }
            Err(error) => {
                // It runs, so its buffers must stay until it has ended.
                let _ = kernel.wait();
                Err(error)
            }
        }
    }
}

fn own_kernel(launch: &Launch) -> Result<Arc<OpenClKernel>, DeviceError> {
    let loaded = launch.kernel.as_any().downcast_ref::<LoadedOpenCl>();
    loaded
        .map(|l| l.0.clone())
        .ok_or_else(|| refusal("?", "it was loaded on another device".into()))
}

fn refusal(kernel: &str, reason: String) -> DeviceError {
    DeviceError::Launch {
        kernel: kernel.to_owned(),
        reason,
    }
}
