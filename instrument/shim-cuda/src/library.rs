//! Libraries and modules (one and the same here) and their kernels.
//!
//! A library outlives a device reset: its image is kept, or kept reachable, and sent again when it is next needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use hetckpt_ring::command::{Command, DeviceIndex, KernelId, ModuleId};
use hetckpt_ring::layout::CHUNK_BYTES;
use hetckpt_ring::producer::Answer;
use hetckpt_ring::reply::{BuiltKernel, KernelDescription, ModuleDescription, Reply};

use crate::device::Device;
use crate::driver_addresses;
use crate::handles::Handle;
use crate::image::{self, Part};
use crate::log;
use crate::memory_map::RangeKind;
use crate::placed_variables::PlacedVariables;
use crate::result::{CuResult, Outcome};
use crate::{device_heap, device_output};

/// Where the image lies.
#[derive(Debug)]
enum Image {
    /// The program promises to keep it.
    Preserved(Vec<Part>),
    /// Our copy.
    Copied(Vec<Box<[u8]>>),
}

/// A library as loaded on the device.
#[derive(Debug)]
pub struct Loaded {
    /// Generation of the device state it belongs to.
    generation: u64,
    /// Number in the ring.
    pub module: ModuleId,
    /// What it holds.
    pub description: ModuleDescription,
    /// Variables that lie where the program has something of its own.
    hidden: Vec<String>,
    placed: PlacedVariables,
    kernels_by_name: HashMap<String, u32>,
}

/// A library.
#[derive(Debug)]
pub struct Library {
    image: Image,
    loaded: Mutex<Option<Arc<Loaded>>>,
    /// Handles given out for its kernels.
    pub kernels: Mutex<HashMap<String, Handle>>,
}

impl Library {
    /// A library whose image lies at `addr`.
    pub fn new(addr: u64, is_preserved: bool) -> Outcome<Self> {
        let parts = image::parts(addr)?;
        if parts.is_empty() {
            return Err(CuResult::INVALID_IMAGE);
        }
        let image = if is_preserved {
            Image::Preserved(parts)
        } else {
            Image::Copied(parts.iter().map(|p| p.bytes().into()).collect())
        };
        Ok(Self {
            image,
            loaded: Mutex::default(),
            kernels: Mutex::default(),
        })
    }

    /// A library from the bytes of a file.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let image = Image::Copied(vec![bytes.into_boxed_slice()]);
        Self {
            image,
            loaded: Mutex::default(),
            kernels: Mutex::default(),
        }
    }

    /// The library on the device, loaded if need be. A refusal's reason goes to `log`.
    pub fn load(&self, device: &Device, refusal: &mut String) -> Outcome<Arc<Loaded>> {
        let mut place = self.loaded.lock();
        let generation = device.generation();
        if let Some(loaded) = place.as_ref().filter(|loaded| loaded.generation == generation) {
            return Ok(Arc::clone(loaded));
        }
        let module = ModuleId(device.next_id());
        let parts: Vec<Part> = match &self.image {
            Image::Preserved(parts) => parts.clone(),
            Image::Copied(copies) => copies.iter().flat_map(|bytes| image::whole(bytes)).collect(),
        };
        for (part, number) in parts.iter().zip(0_u32..) {
            for piece in part.bytes().chunks(CHUNK_BYTES) {
                let data = device.payload(piece)?;
                device.send(Command::ModuleData {
                    module,
                    part: number,
                    data,
                })?;
            }
        }
        let mut placed = PlacedVariables::default();
        let answer = load_placed(device, module, &mut placed).inspect_err(|_| placed.give_back(device))?;
        let Reply::ModuleLoaded {
            description_bytes,
            log: reason,
        } = answer.reply
        else {
            return Err(CuResult(answer.result.max(1)));
        };
        if answer.result != 0 {
            log::note(&format!("a module was refused with {}: {reason}", answer.result));
            *refusal = reason;
            placed.give_back(device);
            return Err(CuResult(answer.result));
        }
        let description = fetch_description(device, module, description_bytes)?;
        let hidden = note_variables(device, &description, &placed);
        let loaded = Arc::new(Loaded::new(generation, module, description, hidden, placed));
        *place = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// As [`Self::load`], without interest in the reason.
    pub fn loaded(&self, device: &Device) -> Outcome<Arc<Loaded>> {
        self.load(device, &mut String::new())
    }

    /// Unloads it from the device.
    pub fn unload(&self, device: &Device) -> Outcome {
        let loaded = self.loaded.lock().take();
        match loaded.filter(|loaded| loaded.generation == device.generation()) {
            None => Ok(()),
            Some(loaded) => {
                device_output::print(device);
                forget_variables(device, &loaded.description);
                device.send(Command::ModuleUnload { module: loaded.module })?;
                loaded.placed.give_back(device);
                Ok(())
            }
        }
    }
}

impl Loaded {
    fn new(
        generation: u64,
        module: ModuleId,
        description: ModuleDescription,
        hidden: Vec<String>,
        placed: PlacedVariables,
    ) -> Self {
        let names = description.kernels.iter().map(|kernel| kernel.name.clone());
        let kernels_by_name = names.zip(0_u32..).collect();
        Self {
            generation,
            module,
            description,
            hidden,
            placed,
            kernels_by_name,
        }
    }

    /// True if it has a kernel of that name.
    pub fn has_kernel(&self, name: &str) -> bool {
        self.kernels_by_name.contains_key(name)
    }

    /// As [`Self::variable`], of one that the host reaches at the same address.
    pub fn managed_variable(&self, name: &str) -> Outcome<(u64, u64)> {
        let variable = self.variable(name)?;
        if !self.placed.has(name) {
            log::note(&format!(
                "variable `{name}` lies where the driver has placed it, out of the program's reach"
            ));
            return Err(CuResult::NOT_SUPPORTED);
        }
        Ok(variable)
    }

    /// A variable's address and size.
    pub fn variable(&self, name: &str) -> Outcome<(u64, u64)> {
        if self.hidden.iter().any(|hidden| hidden == name) {
            log::note(&format!(
                "variable `{name}` lies at an address at which the program has memory of its own"
            ));
            return Err(CuResult::NOT_SUPPORTED);
        }
        let found = self.description.globals.iter().find(|global| global.name == name);
        found
            .map(|global| (global.addr, global.size_bytes))
            .ok_or(CuResult::NOT_FOUND)
    }
}

/// Loads a module whose images have been sent, and finds places for its variables in managed memory.
fn load_placed(device: &Device, module: ModuleId, placed: &mut PlacedVariables) -> Outcome<Answer> {
    loop {
        let answer = device.call_raw(Command::ModuleLoadPlaced {
            module,
            device: DeviceIndex::FIRST,
        })?;
        let Reply::ManagedVariables(variables) = answer.reply else {
            return Ok(answer);
        };
        variables
            .into_iter()
            .try_for_each(|variable| placed.place(device, module, variable))?;
    }
}

/// Notes where a module's variables lie. Returns the names of those that cannot be told from the program's own memory.
fn note_variables(device: &Device, description: &ModuleDescription, placed: &PlacedVariables) -> Vec<String> {
    let mut hidden = Vec::new();
    let mut memory = device.memory();
    for global in description.globals.iter().filter(|global| global.size_bytes > 0) {
        if placed.has(&global.name) {
            memory.insert(global.addr, global.size_bytes, RangeKind::Managed);
        } else if driver_addresses::reserve(global.addr, global.size_bytes) {
            memory.insert(global.addr, global.size_bytes, RangeKind::Variable);
        } else {
            hidden.push(global.name.clone());
        }
    }
    drop(memory);
    device_output::note(device, description);
    device_heap::note(device, description);
    hidden
}

/// Forgets them.
fn forget_variables(device: &Device, description: &ModuleDescription) {
    let mut memory = device.memory();
    for global in description.globals.iter().filter(|global| global.size_bytes > 0) {
        memory.remove(global.addr);
    }
    drop(memory);
    device_output::forget(device, description);
}

fn fetch_description(device: &Device, module: ModuleId, total: u64) -> Outcome<ModuleDescription> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < total {
        let offset = bytes.len() as u64;
        let length = CHUNK_BYTES.min(usize::try_from(total - offset).unwrap_or(usize::MAX));
        let chunk = device.take_chunk()?;
        let answer = device.call_raw(Command::ModuleDescribe {
            module,
            offset,
            chunk: chunk.first(length),
        })?;
        device.outcome(answer)?;
        bytes.resize(bytes.len() + length, 0);
        chunk.read(0, &mut bytes[offset as usize..]);
    }
    ModuleDescription::decode(&bytes).map_err(|_| CuResult::UNKNOWN)
}

/// A kernel (`CUkernel` and `CUfunction` alike).
#[derive(Debug)]
pub struct Kernel {
    /// The library it is in.
    pub library: Arc<Library>,
    /// Its mangled name.
    pub name: String,
    /// Largest dynamic shared memory allowed, bytes.
    pub max_dynamic_shared: AtomicU32,
    /// Preferred shared memory carve-out, as set.
    pub carveout: AtomicU32,
    /// Clusters of more than 8 blocks are allowed, as set.
    pub allows_non_portable_clusters: AtomicBool,
    resolved: Mutex<Option<(Arc<Loaded>, u32)>>,
    built: OnceLock<BuiltKernel>,
}

impl Kernel {
    /// A kernel of `library`; whether it is there, [`Kernel::resolve`] says.
    pub fn new(library: Arc<Library>, name: String) -> Self {
        let (max_dynamic_shared, carveout) = (AtomicU32::new(u32::MAX), AtomicU32::new(u32::MAX));
        Self {
            library,
            name,
            max_dynamic_shared,
            carveout,
            allows_non_portable_clusters: AtomicBool::new(false),
            resolved: Mutex::default(),
            built: OnceLock::new(),
        }
    }

    /// The kernel on the device: its id, and what its module says of it.
    pub fn resolve(&self, device: &Device) -> Outcome<ResolvedKernel> {
        let mut resolved = self.resolved.lock();
        if let Some((loaded, index)) = resolved.as_ref()
            && loaded.generation == device.generation()
        {
            return Ok(ResolvedKernel {
                loaded: Arc::clone(loaded),
                index: *index,
            });
        }
        let loaded = self.library.loaded(device)?;
        let index = *loaded.kernels_by_name.get(&self.name).ok_or(CuResult::NOT_FOUND)?;
        *resolved = Some((Arc::clone(&loaded), index));
        Ok(ResolvedKernel { loaded, index })
    }

    /// What the kernel needs once built for the device; what its PTX says if it cannot be built.
    pub fn built(&self, device: &Device) -> Outcome<BuiltKernel> {
        if let Some(built) = self.built.get() {
            return Ok(*built);
        }
        let resolved = self.resolve(device)?;
        let answer = device.call_raw(Command::KernelAttributes { kernel: resolved.id() })?;
        let description = resolved.description();
        let said = BuiltKernel {
            max_threads_per_block: description.max_threads_per_block,
            num_registers: description.num_registers,
            static_shared_bytes: description.static_shared_bytes,
            local_bytes: description.local_bytes,
            const_bytes: 0,
        };
        let built = match answer.reply {
            // The device does not know `.maxntid`.
            Reply::KernelAttributes(built) if answer.result == 0 => BuiltKernel {
                max_threads_per_block: built.max_threads_per_block.min(said.max_threads_per_block),
                ..built
            },
            _ => said,
        };
        Ok(*self.built.get_or_init(|| built))
    }

    /// Largest dynamic shared memory a launch may ask for, bytes.
    pub fn max_dynamic_shared(&self, device: &Device, static_bytes: u32) -> u32 {
        match self.max_dynamic_shared.load(Ordering::Relaxed) {
            u32::MAX => device.attribute_u32(8).saturating_sub(static_bytes),
            set => set,
        }
    }
}

/// A kernel found on the device.
#[derive(Debug)]
pub struct ResolvedKernel {
    loaded: Arc<Loaded>,
    index: u32,
}

impl ResolvedKernel {
    /// Its id in the ring.
    pub fn id(&self) -> KernelId {
        KernelId {
            module: self.loaded.module,
            index: self.index,
        }
    }

    /// What its module says of it.
    pub fn description(&self) -> &KernelDescription {
        &self.loaded.description.kernels[self.index as usize]
    }
}
