//! A device of a few lines: every kernel counts. Block `b` of a launch adds 1 to the word `out[b]` as often as the
//! second parameter says, with a short sleep each time, and can be paused between two additions.
//!
//! The state it saves is honest: the number of additions done lies in a register that is live at the resume point.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use hetckpt_abi::array::{ArrayShape, BoxCopy, BoxPlace, BoxSize};
use hetckpt_abi::image_object::{ImageHandle, ImageObject};
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::paused_block::{PausedBlock, PausedGrid};
use hetckpt_abi::thread_state::FINISHED;
use hetckpt_devices::device::*;
use hetckpt_devices::error::DeviceError;
use hetckpt_ir::entity::{RegId, ResumePointId};

use super::fake_graph::{FakeGraph, RunningSteps};

#[derive(Default)]
pub struct Shared {
    memory: Mutex<BTreeMap<u64, Vec<u8>>>,
    pause: AtomicBool,
    /// Launches that have not ended.
    running: Mutex<usize>,
    ended: Condvar,
    /// The driver loads no code while kernels run.
    loads_alone: bool,
    /// Additions after which everything stops of its own accord; 0: never.
    slice: u64,
    /// Additions since the last pause.
    spent: AtomicU64,
    /// Held while it waits for that: a pause cannot be requested then either.
    pub driver: Mutex<()>,
    /// Threads that a block may have; 0: as many as anywhere.
    max_threads: u32,
    /// Threads that a block of a probed and of an original kernel may have for want of registers; 0: as many as
    /// anywhere.
    registers_for: (u32, u32),
    /// Programs built with fewer registers.
    pub tight_programs: AtomicU64,
    /// It takes no machine code.
    needs_ptx: bool,
    /// Its kernels are taken to end soon.
    ends_soon: bool,
    /// Where it places variables of machine code.
    variables_at: u64,
    /// Texture and surface objects count from here; 0: it has no arrays.
    first_image: u64,
    /// Arrays of one level, by number.
    arrays: Mutex<BTreeMap<u64, (ArrayShape, Vec<u8>)>>,
    /// Values of objects that have not been freed.
    pub images: Mutex<BTreeSet<u64>>,
    /// Additions made, for tests that wait for progress.
    pub additions: AtomicU64,
    /// Graphs launched.
    pub graphs: AtomicU64,
}

/// Size of each variable of machine code.
const VARIABLE_BYTES: usize = 64;

pub struct FakeDevice(pub Arc<Shared>);

fn driver(reason: &str) -> DeviceError {
    DeviceError::Driver {
        call: "fake",
        reason: reason.to_owned(),
    }
}

impl Shared {
    pub fn new(loads_alone: bool) -> Self {
        Self {
            loads_alone,
            ..Self::default()
        }
    }

    /// One that nothing the host says reaches while a kernel runs.
    pub fn blind(slice: u64) -> Self {
        Self {
            slice,
            ..Self::default()
        }
    }

    /// One whose blocks have no more threads than these.
    pub fn narrow(max_threads: u32) -> Self {
        Self {
            max_threads,
            ..Self::default()
        }
    }

    /// One on which probes cost registers, so that blocks can have only so many threads: probed and original.
    pub fn with_registers(probed: u32, original: u32) -> Self {
        Self {
            registers_for: (probed, original),
            ..Self::default()
        }
    }

    /// The same, whose driver loads no code while kernels run.
    pub fn with_registers_loading_alone(probed: u32, original: u32) -> Self {
        Self {
            loads_alone: true,
            ..Self::with_registers(probed, original)
        }
    }

    /// One whose launches a pause can as well wait for.
    pub fn quick() -> Self {
        Self {
            ends_soon: true,
            ..Self::default()
        }
    }

    /// One that places variables of machine code from `addr` on.
    pub fn with_variables_at(addr: u64) -> Self {
        Self {
            variables_at: addr,
            ..Self::default()
        }
    }

    /// One that has arrays, and gives texture and surface objects the least value that is free from `first` on.
    pub fn with_arrays(first: u64) -> Self {
        Self {
            first_image: first,
            ..Self::default()
        }
    }

    fn refuse_without_arrays(&self) -> Result<(), DeviceError> {
        match self.first_image {
            0 => Err(DeviceError::Refused {
                what: "an array".to_owned(),
                reason: "there are none".to_owned(),
                cuda_result: 801,
            }),
            _ => Ok(()),
        }
    }

    /// Rows of a box: where each lies in memory, or in an array's content.
    fn rows(&self, place: &BoxPlace, size: &BoxSize) -> Vec<(Option<u64>, u64)> {
        let all = (0..size.slices).flat_map(|z| (0..size.rows).map(move |y| (z, y)));
        let row = |(slice, row)| match *place {
            BoxPlace::Array {
                array, x_bytes, y, z, ..
            } => {
                let level = self.arrays.lock()[&array].0.level(0).unwrap();
                let offset = ((z + slice) * level.rows + y + row) * level.width_bytes + x_bytes;
                (Some(array), offset)
            }
            BoxPlace::Memory {
                addr,
                pitch,
                slice_rows,
            } => (None, addr + (slice * slice_rows + row) * pitch),
        };
        all.map(row).collect()
    }

    fn with_row<T>(
        &self,
        (array, at): (Option<u64>, u64),
        size: usize,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, DeviceError> {
        match array {
            None => self.with(at, size, f),
            Some(number) => {
                let at = usize::try_from(at).unwrap();
                let mut arrays = self.arrays.lock();
                Ok(f(&mut arrays.get_mut(&number).unwrap().1[at..at + size]))
            }
        }
    }

    /// One that runs only what has PTX.
    pub fn without_machine_code() -> Self {
        Self {
            needs_ptx: true,
            ..Self::default()
        }
    }

    /// True if kernels are to stop.
    fn says_stop(&self) -> bool {
        if self.slice > 0 {
            self.spent.load(Ordering::SeqCst) >= self.slice
        } else {
            self.pause.load(Ordering::SeqCst)
        }
    }

    fn with<T>(&self, addr: u64, size: usize, f: impl FnOnce(&mut [u8]) -> T) -> Result<T, DeviceError> {
        let mut memory = self.memory.lock();
        // A range may reach from one mapping into the next.
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let at = addr + bytes.len() as u64;
            let (&start, mapping) = memory.range(..=at).next_back().ok_or_else(|| driver("not mapped"))?;
            let rest = mapping.get(usize::try_from(at - start).unwrap()..).unwrap_or(&[]);
            if rest.is_empty() {
                return Err(driver("beyond the mapping"));
            }
            bytes.extend_from_slice(&rest[..rest.len().min(size - bytes.len())]);
        }
        let result = f(&mut bytes);
        let mut done = 0;
        while done < size {
            let at = addr + done as u64;
            let (&start, mapping) = memory.range_mut(..=at).next_back().unwrap();
            let rest = &mut mapping[usize::try_from(at - start).unwrap()..];
            let length = rest.len().min(size - done);
            rest[..length].copy_from_slice(&bytes[done..done + length]);
            done += length;
        }
        Ok(result)
    }

    fn add(&self, addr: u64) -> Result<(), DeviceError> {
        self.with(addr, 4, |bytes| {
            let value = u32::from_le_bytes(bytes.try_into().unwrap()) + 1;
            bytes.copy_from_slice(&value.to_le_bytes());
        })?;
        self.additions.fetch_add(1, Ordering::SeqCst);
        self.spent.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Loaded {
    /// The resume point blocks stop at, and where its counter lies.
    point: u32,
    counter: usize,
    bytes_per_thread: usize,
    /// Machine code: no pause reaches it.
    is_opaque: bool,
    /// Threads that its registers leave room for.
    max_threads: u32,
    ends_soon: bool,
}

impl LoadedKernel for Loaded {
    fn attributes(&self) -> KernelAttributes {
        KernelAttributes {
            max_threads_per_block: self.max_threads,
            ..KernelAttributes::default()
        }
    }
    fn ends_soon(&self, _: &LaunchShape) -> bool {
        self.ends_soon
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

struct Running {
    outcome: Mutex<Option<Outcome>>,
    done: AtomicBool,
    changed: Condvar,
}

impl RunningLaunch for Running {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
    fn wait(&self) -> Outcome {
        self.wait_stopped();
        self.outcome.lock().take().unwrap_or(Outcome::Finished)
    }
    fn wait_stopped(&self) {
        let mut outcome = self.outcome.lock();
        while !self.is_done() {
            self.changed.wait(&mut outcome);
        }
    }
}

struct Job {
    launch: Launch,
    running: Arc<Running>,
    /// No pause reaches it.
    to_end: bool,
}

struct FakeQueue(mpsc::Sender<Job>, Arc<Shared>);

impl FakeQueue {
    fn give(&self, launch: Launch, to_end: bool) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        let (threads, max) = (
            launch.shape.block.iter().product::<u32>(),
            launch.kernel.attributes().max_threads_per_block,
        );
        if threads > max {
            return Err(DeviceError::Launch {
                kernel: "count".to_owned(),
                reason: format!("{threads} threads; registers are enough for {max}"),
            });
        }
        let running = Running {
            outcome: Mutex::new(None),
            done: AtomicBool::new(false),
            changed: Condvar::new(),
        };
        let running = Arc::new(running);
        *self.1.running.lock() += 1;
        let job = Job {
            launch,
            running: Arc::clone(&running),
            to_end,
        };
        self.0.send(job).unwrap();
        Ok(running)
    }
}

impl Queue for FakeQueue {
    fn check(&self, launch: &Launch) -> Result<(), DeviceError> {
        let (threads, max) = (launch.shape.block.iter().product::<u32>(), self.1.max_threads);
        if max == 0 || threads <= max {
            return Ok(());
        }
        Err(DeviceError::Launch {
            kernel: "count".to_owned(),
            reason: format!("{threads} threads; 1 to {max} are possible"),
        })
    }
    fn launch(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        self.give(launch, false)
    }
    fn launch_to_end(&self, launch: Launch) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        self.give(launch, true)
    }
    fn launch_graph(&self, graph: &Arc<dyn DeviceGraph>, _: bool) -> Result<Arc<dyn RunningLaunch>, DeviceError> {
        self.1.graphs.fetch_add(1, Ordering::SeqCst);
        let FakeGraph { launches, in_pause } = graph.as_any().downcast_ref().unwrap();
        let to_end = *in_pause == InPause::Waits;
        let running = launches.iter().map(|launch| self.give(launch.clone(), to_end));
        Ok(Arc::new(RunningSteps(running.collect::<Result<_, _>>()?)))
    }
}

/// Blocks to run: index, additions already made, and the state they came with.
fn blocks_of(launch: &Launch, kernel: &Loaded) -> Vec<(u64, u32)> {
    match &launch.blocks {
        Blocks::All => (0..u64::from(launch.shape.grid[0])).map(|b| (b, 0)).collect(),
        Blocks::Rest(grid) => {
            let counter = |b: &PausedBlock| {
                assert_eq!(b.resume_points[0], kernel.point);
                let at = kernel.counter * b.resume_points.len();
                u32::from_le_bytes(b.registers[at..at + 4].try_into().unwrap())
            };
            let paused = grid.paused.iter().map(|b| (b.block, counter(b)));
            paused
                .chain(grid.not_started.iter().flat_map(|&(a, z)| (a..z).map(|b| (b, 0))))
                .collect()
        }
    }
}

fn run(shared: &Shared, Job { launch, to_end, .. }: &Job) -> Result<Outcome, DeviceError> {
    let kernel = launch.kernel.as_any().downcast_ref::<Loaded>().unwrap();
    let out = u64::from_le_bytes(launch.params[..8].try_into().unwrap());
    let times = u32::from_le_bytes(launch.params[8..12].try_into().unwrap());
    let threads = launch.shape.block.iter().product::<u32>() as usize;
    let is_paused = || !kernel.is_opaque && !to_end && shared.says_stop();
    let mut left = PausedGrid::default();
    for (block, mut count) in blocks_of(launch, kernel) {
        let started = count > 0 || !is_paused();
        while started && count < times && !(count > 0 && is_paused()) {
            shared.add(out + 4 * block)?;
            count += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        if count == times {
            continue;
        }
        if count == 0 {
            match left.not_started.last_mut() {
                Some((_, end)) if *end == block => *end += 1,
                _ => left.not_started.push((block, block + 1)),
            }
            continue;
        }
        let mut registers = vec![0; kernel.bytes_per_thread * threads];
        let at = kernel.counter * threads;
        registers[at..at + 4].copy_from_slice(&count.to_le_bytes());
        let mut resume_points = vec![FINISHED; threads];
        resume_points[0] = kernel.point;
        left.paused.push(PausedBlock {
            block,
            resume_points,
            registers,
            shared: vec![],
            local: vec![],
        });
    }
    left.not_started.sort_unstable();
    left.paused.sort_by_key(|b| b.block);
    Ok(if left.is_finished() {
        Outcome::Finished
    } else {
        Outcome::Paused(left)
    })
}

impl Device for FakeDevice {
    fn describe(&self) -> DeviceDescription {
        DeviceDescription {
            id: "cpu".into(),
            kind: "cpu",
            name: "fake".into(),
            vendor: String::new(),
            driver: String::new(),
            total_bytes: 1 << 30,
            free_bytes: 1 << 30,
            max_threads_per_block: 1024,
            max_shared_bytes: 49152,
            num_multiprocessors: 1,
            cuda_attributes: vec![],
            uuid: [0; 16],
        }
    }
    fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        self.0
            .memory
            .lock()
            .insert(addr, vec![0; usize::try_from(size_bytes).unwrap()]);
        Ok(())
    }
    fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let removed = self.0.memory.lock().remove(&addr);
        assert_eq!(removed.map(|m| m.len() as u64), Some(size_bytes));
        Ok(())
    }
    fn register_host(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn unregister_host(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn write(&self, dst: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.0.with(dst, src.len(), |bytes| bytes.copy_from_slice(src))
    }
    fn read(&self, src: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.0.with(src, dst.len(), |bytes| dst.copy_from_slice(bytes))
    }
    fn copy(&self, dst: u64, src: u64, size_bytes: u64) -> Result<(), DeviceError> {
        let size = usize::try_from(size_bytes).unwrap();
        let bytes = self.0.with(src, size, |bytes| bytes.to_vec())?;
        self.0.with(dst, size, |to| to.copy_from_slice(&bytes))
    }
    fn fill(&self, dst: u64, pitch_bytes: u64, value: Fill, width: u64, rows: u64) -> Result<(), DeviceError> {
        let element = match value {
            Fill::U8(v) => vec![v],
            Fill::U16(v) => v.to_le_bytes().to_vec(),
            Fill::U32(v) => v.to_le_bytes().to_vec(),
        };
        for row in 0..rows {
            let bytes = element.repeat(usize::try_from(width).unwrap());
            self.0
                .with(dst + row * pitch_bytes, bytes.len(), |to| to.copy_from_slice(&bytes))?;
        }
        Ok(())
    }
    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        let _driver = self.0.driver.lock();
        let mut running = self.0.running.lock();
        while self.0.loads_alone && *running > 0 {
            self.0.ended.wait(&mut running);
        }
        drop(running);
        let or_all = |threads| if threads == 0 { 1024 } else { threads };
        if request.layout.live.is_empty() {
            // The original, which nobody launches.
            return Ok(Arc::new(Loaded {
                point: 0,
                counter: 0,
                bytes_per_thread: 0,
                is_opaque: true,
                max_threads: or_all(self.0.registers_for.1),
                ends_soon: false,
            }));
        }
        // A 32-bit register that is live at the first resume point after the entry: the last column of that width.
        let live = request.layout.live_at(ResumePointId(1));
        let columns = live.iter().filter_map(|r: RegId| request.layout.column(r));
        let counter = columns
            .filter(|c| request.layout.bytes_per_thread - c >= 4)
            .max()
            .unwrap();
        Ok(Arc::new(Loaded {
            point: 1,
            counter: counter as usize,
            bytes_per_thread: request.layout.bytes_per_thread as usize,
            is_opaque: false,
            max_threads: or_all(self.0.registers_for.0),
            ends_soon: self.0.ends_soon,
        }))
    }
    fn has_registers(&self) -> bool {
        self.0.registers_for != (0, 0)
    }
    fn leaves_room(&self, kernel: &dyn LoadedKernel, room: Room) -> bool {
        room.threads * room.blocks <= kernel.attributes().max_threads_per_block
    }
    fn load_leaving_room(&self, request: &LoadRequest, room: Room) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        self.0.tight_programs.fetch_add(1, Ordering::SeqCst);
        let loaded = self.load(request)?;
        let loaded = loaded.as_any().downcast_ref::<Loaded>().unwrap();
        Ok(Arc::new(Loaded {
            max_threads: room.threads * room.blocks,
            ..*loaded
        }))
    }
    fn load_opaque(&self, _: &[u8], variables: &[String]) -> Result<OpaqueModule, DeviceError> {
        if self.0.needs_ptx {
            return Err(driver("no machine code here"));
        }
        let kernel = Loaded {
            point: 0,
            counter: 0,
            bytes_per_thread: 0,
            is_opaque: true,
            max_threads: 1024,
            ends_soon: false,
        };
        let params = vec![(0, 8), (8, 4)];
        let kernel = OpaqueKernel {
            name: "machine".to_owned(),
            params,
            ptx_version: 90,
            kernel: Arc::new(kernel),
        };
        let placed = (self.0.variables_at..).step_by(4096).zip(variables);
        let placed = placed.map(|(addr, name)| {
            self.0.memory.lock().insert(addr, vec![0; VARIABLE_BYTES]);
            (name.clone(), addr, VARIABLE_BYTES as u64)
        });
        Ok(OpaqueModule {
            kernels: vec![kernel],
            globals: placed.collect(),
            loaded: None,
        })
    }
    fn has_arrays(&self) -> bool {
        self.0.first_image > 0
    }
    fn create_array(&self, array: u64, shape: &ArrayShape) -> Result<(), DeviceError> {
        self.0.refuse_without_arrays()?;
        let content = vec![0xee; usize::try_from(shape.content_bytes().unwrap()).unwrap()];
        assert!(self.0.arrays.lock().insert(array, (*shape, content)).is_none());
        Ok(())
    }
    fn destroy_array(&self, array: u64) -> Result<(), DeviceError> {
        let removed = self.0.arrays.lock().remove(&array);
        removed.map(drop).ok_or_else(|| driver("no such array"))
    }
    fn read_array(&self, array: u64, _: u32, dst: &mut [u8]) -> Result<(), DeviceError> {
        dst.copy_from_slice(&self.0.arrays.lock()[&array].1);
        Ok(())
    }
    fn write_array(&self, array: u64, _: u32, src: &[u8]) -> Result<(), DeviceError> {
        self.0.arrays.lock().get_mut(&array).unwrap().1.copy_from_slice(src);
        Ok(())
    }
    fn copy_box(&self, copy: &BoxCopy) -> Result<(), DeviceError> {
        let width = usize::try_from(copy.size.width_bytes).unwrap();
        let from = self.0.rows(&copy.src, &copy.size);
        for (to, from) in self.0.rows(&copy.dst, &copy.size).into_iter().zip(from) {
            let bytes = self.0.with_row(from, width, |bytes| bytes.to_vec())?;
            self.0.with_row(to, width, |to| to.copy_from_slice(&bytes))?;
        }
        Ok(())
    }
    fn create_image(&self, object: &ImageObject) -> Result<u64, DeviceError> {
        let array = object.resource().array();
        self.0.refuse_without_arrays()?;
        assert!(array.is_none_or(|array| self.0.arrays.lock().contains_key(&array)));
        let mut images = self.0.images.lock();
        let first = self.0.first_image;
        let has_gap = images.last().is_some_and(|last| last + 1 - first > images.len() as u64);
        let free = match (images.last(), has_gap) {
            (Some(last), false) => last + 1,
            _ => (first..).find(|value| !images.contains(value)).unwrap(),
        };
        images.insert(free);
        Ok(free)
    }
    fn destroy_image(&self, image: ImageHandle) -> Result<(), DeviceError> {
        assert!(self.0.images.lock().remove(&image.value));
        Ok(())
    }
    fn create_queue(&self, _: i32) -> Result<Box<dyn Queue>, DeviceError> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let shared = Arc::clone(&self.0);
        std::thread::spawn(move || {
            for job in jobs {
                let outcome = run(&shared, &job).unwrap_or_else(Outcome::Failed);
                let running = job.running;
                *shared.running.lock() -= 1;
                shared.ended.notify_all();
                {
                    let mut left = running.outcome.lock();
                    *left = Some(outcome);
                    running.done.store(true, Ordering::SeqCst);
                }
                running.changed.notify_all();
            }
        });
        Ok(Box::new(FakeQueue(sender, Arc::clone(&self.0))))
    }
    fn has_graphs(&self) -> bool {
        true
    }
    fn make_graph(&self, nodes: &[GraphNode], in_pause: InPause) -> Result<Arc<dyn DeviceGraph>, DeviceError> {
        let launches = nodes.iter().map(|node| match &node.step {
            GraphStep::Launch(launch) => launch.clone(),
            GraphStep::Transfer(_) => panic!("its queues take no transfers"),
        });
        let launches = launches.collect();
        Ok(Arc::new(FakeGraph { launches, in_pause }))
    }
    fn loads_while_running(&self) -> bool {
        !self.0.loads_alone
    }
    fn request_pause(&self) -> Result<(), DeviceError> {
        let _driver = self.0.driver.lock();
        self.0.pause.store(true, Ordering::SeqCst);
        Ok(())
    }
    fn cuts_launches(&self) -> bool {
        self.0.slice > 0
    }
    fn end_pause(&self) -> Result<(), DeviceError> {
        let running = *self.0.running.lock();
        assert!(
            self.0.slice == 0 || running == 0,
            "{running} launches would go on in the next slice"
        );
        self.0.spent.store(0, Ordering::SeqCst);
        self.0.pause.store(false, Ordering::SeqCst);
        Ok(())
    }
}
