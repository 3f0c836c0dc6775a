//! Libraries and modules (one and the same here) and their kernels.
//!
//! A library outlives a device reset: its image is kept, or kept reachable, and sent again when it is next needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hetckpt_ring::command::{Command, KernelId, ModuleId};
use hetckpt_ring::layout::CHUNK_BYTES;
use hetckpt_ring::reply::{BuiltKernel, KernelDescription, ModuleDescription, Reply};

use crate::handles::Handle;
use crate::image::{self, Part};
use crate::log;
use crate::memory_map::RangeKind;
use crate::result::{CuResult, Outcome};
use crate::session::Session;

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
    pub fn load(&self, session: &Session, refusal: &mut String) -> Outcome<Arc<Loaded>> {
        let mut place = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = session.generation();
        if let Some(loaded) = place.as_ref().filter(|loaded| loaded.generation == generation) {
            return Ok(Arc::clone(loaded));
        }
        let module = ModuleId(session.next_id());
        let parts: Vec<Part> = match &self.image {
            Image::Preserved(parts) => parts.clone(),
            Image::Copied(copies) => copies.iter().flat_map(|bytes| image::whole(bytes)).collect(),
        };
        for (part, number) in parts.iter().zip(0_u32..) {
            for piece in part.bytes().chunks(CHUNK_BYTES) {
                let data = session.payload(piece)?;
                session.send(Command::ModuleData {
                    module,
                    part: number,
                    data,
                })?;
            }
        }
        let answer = session.call_raw(Command::ModuleLoad { module })?;
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
            return Err(CuResult(answer.result));
        }
        let description = fetch_description(session, module, description_bytes)?;
        let loaded = Arc::new(Loaded::new(generation, module, description));
        session.note_variables(&loaded.description);
        *place = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// As [`Self::load`], without interest in the reason.
    pub fn loaded(&self, session: &Session) -> Outcome<Arc<Loaded>> {
        self.load(session, &mut String::new())
    }

    /// Unloads it from the device.
    pub fn unload(&self, session: &Session) -> Outcome {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        match loaded.filter(|loaded| loaded.generation == session.generation()) {
            None => Ok(()),
            Some(loaded) => {
                session.output.print(session);
                session.forget_variables(&loaded.description);
                session.send(Command::ModuleUnload { module: loaded.module })
            }
        }
    }

    /// The handle of kernel `name`, made at its first use.
    pub fn kernel(self: &Arc<Self>, session: &Session, name: &str) -> Outcome<Handle> {
        let loaded = self.loaded(session)?;
        if !loaded.kernels_by_name.contains_key(name) {
            return Err(CuResult::NOT_FOUND);
        }
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&handle) = kernels.get(name) {
            return Ok(handle);
        }
        let handle = session
            .kernels
            .insert(Arc::new(Kernel::new(Arc::clone(self), name.to_owned())));
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

impl Loaded {
    fn new(generation: u64, module: ModuleId, description: ModuleDescription) -> Self {
        let names = description.kernels.iter().map(|kernel| kernel.name.clone());
        let kernels_by_name = names.zip(0_u32..).collect();
        Self {
            generation,
            module,
            description,
            kernels_by_name,
        }
    }

    /// A variable's address and size.
    pub fn variable(&self, name: &str) -> Outcome<(u64, u64)> {
        let found = self.description.globals.iter().find(|global| global.name == name);
        found
            .map(|global| (global.addr, global.size_bytes))
            .ok_or(CuResult::NOT_FOUND)
    }
}

fn fetch_description(session: &Session, module: ModuleId, total: u64) -> Outcome<ModuleDescription> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < total {
        let offset = bytes.len() as u64;
        let length = CHUNK_BYTES.min(usize::try_from(total - offset).unwrap_or(usize::MAX));
        let chunk = session.take_chunk()?;
        session.call(Command::ModuleDescribe {
            module,
            offset,
            chunk: chunk.first(length),
        })?;
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
    resolved: Mutex<Option<(Arc<Loaded>, u32)>>,
    built: OnceLock<BuiltKernel>,
}

impl Kernel {
    fn new(library: Arc<Library>, name: String) -> Self {
        let (max_dynamic_shared, carveout) = (AtomicU32::new(u32::MAX), AtomicU32::new(u32::MAX));
        Self {
            library,
            name,
            max_dynamic_shared,
            carveout,
            resolved: Mutex::default(),
            built: OnceLock::new(),
        }
    }

    /// The kernel on the device: its id, and what its module says of it.
    pub fn resolve(&self, session: &Session) -> Outcome<ResolvedKernel> {
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((loaded, index)) = resolved.as_ref()
            && loaded.generation == session.generation()
        {
            return Ok(ResolvedKernel {
                loaded: Arc::clone(loaded),
                index: *index,
            });
        }
        let loaded = self.library.loaded(session)?;
        let index = *loaded.kernels_by_name.get(&self.name).ok_or(CuResult::NOT_FOUND)?;
        *resolved = Some((Arc::clone(&loaded), index));
        Ok(ResolvedKernel { loaded, index })
    }

    /// What the kernel needs once built for the device; what its PTX says if it cannot be built.
    pub fn built(&self, session: &Session) -> Outcome<BuiltKernel> {
        if let Some(built) = self.built.get() {
            return Ok(*built);
        }
        let resolved = self.resolve(session)?;
        let answer = session.call_raw(Command::KernelAttributes { kernel: resolved.id() })?;
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
    pub fn max_dynamic_shared(&self, session: &Session, static_bytes: u32) -> u32 {
        match self.max_dynamic_shared.load(Ordering::Relaxed) {
            u32::MAX => session.attribute_u32(8).saturating_sub(static_bytes),
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

/// The kind of range that module variables are.
pub const VARIABLE: RangeKind = RangeKind::Variable;
