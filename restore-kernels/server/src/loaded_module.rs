//! One module: from the images that the application hands over to bound hetIR kernels and variables in device memory,
//! or to what the device runs as it came.

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hetckpt_abi::device_heap;
use hetckpt_codegen::ptx::has_room_for_control;
use hetckpt_devices::device::{Device, Fill, OpaqueKernel, OpaqueModule};
use hetckpt_devices::error::DeviceError;
use hetckpt_fatbin::error::FatbinError;
use hetckpt_fatbin::hidden::{Hidden, HiddenSince};
use hetckpt_fatbin::host_files::{fat_binaries, is_host_file};
use hetckpt_fatbin::image_contents::{Contents, contents};
use hetckpt_fatbin::locate::{FoundPtx, find_newer_ptx, find_ptx, has_cubin, has_cubin_newer_than_ptx};
use hetckpt_fatbin::targets::{target_of_ptx, targets};
use hetckpt_ir::grid_workspace;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::{Global, Module as IrModule, RejectedKernel, bind_globals};
use hetckpt_ring::reply::{GlobalDescription, KernelDescription, KernelParam, ModuleDescription};
use hetckpt_state::allocation::Owner;
use hetckpt_state::module::{GlobalState, ModuleState};
use parking_lot::Mutex;

use crate::cuda_result;
use crate::generate::Generator;
use crate::grid_workspaces::{GridWorkspaces, WorkspaceParam};
use crate::kernels::{Builder, KernelCode, Refusal, Source};
use crate::load_failure::{LoadFailure, NotLoaded};
use crate::managed_places::{Places, check_places, first_managed};
use crate::memory::DeviceMemory;

/// A loaded module.
pub struct LoadedModule {
    /// The PTX texts.
    pub ptx: Vec<String>,
    /// Images of kernels that are run as they came.
    pub machine_code: Vec<Vec<u8>>,
    /// What these were compiled for.
    pub compiled_for: BTreeSet<String>,
    /// Kernels, in the order of the description.
    pub kernels: Vec<Arc<KernelCode>>,
    /// Variables.
    pub globals: Vec<GlobalState>,
    /// The device has placed the variables.
    pub is_placed_by_device: bool,
    /// What keeps images loaded that are run as they came.
    pub keeps: Vec<Arc<dyn Any + Send + Sync>>,
    /// What a capture cannot reach of images that are run as they came.
    pub hidden: Vec<Hidden>,
    /// Where blocks of its launches meet, if they do.
    pub grid_workspaces: Option<Arc<GridWorkspaces>>,
    /// The description, encoded.
    pub description: Vec<u8>,
}

/// The PTX texts of a module's parts, each found by `find`; or, if there is none, why.
fn choose_ptx(
    parts: &[Vec<u8>],
    find: impl Fn(&[u8]) -> Result<FoundPtx, FatbinError>,
) -> Result<Vec<String>, LoadFailure> {
    let mut texts = Vec::new();
    let mut lacking = LoadFailure::new(cuda_result::INVALID_IMAGE, "the module is empty");
    for part in parts {
        match find(part) {
            Ok(found) => texts.push(found.text),
            // Device-linked programs bring libraries along that they do not use.
            Err(error @ FatbinError::NoPtx { .. }) => {
                lacking = LoadFailure::new(cuda_result::NO_BINARY_FOR_GPU, error);
            }
            Err(error) => return Err(LoadFailure::new(cuda_result::INVALID_IMAGE, error)),
        }
    }
    if texts.is_empty() { Err(lacking) } else { Ok(texts) }
}

/// `.target` of a PTX text, times ten plus minor.
fn target_of(ptx: &str) -> u32 {
    let name = target_of_ptx(ptx).unwrap_or_default();
    name.trim_end_matches(['a', 'f']).parse().unwrap_or(0)
}

impl LoadedModule {
    /// Loads a module from its parts; its variables are allocated, but for those that the application has placed, and
    /// filled.
    ///
    /// # Errors
    /// [`NotLoaded`].
    pub fn from_parts(
        id: u64,
        parts: &[Vec<u8>],
        places: &Places,
        capability: u32,
        builder: &Builder,
        memory: &Mutex<DeviceMemory>,
    ) -> Result<Self, NotLoaded> {
        let parts = &*without_host_files(parts)?;
        let images: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let is_newer = |image: &&[u8]| has_cubin_newer_than_ptx(image, capability).unwrap_or(false);
        if builder.device.takes_images_for().is_some()
            && images.iter().any(is_newer)
            && let Some(module) = Self::opaque_linked(id, &images, &[], builder, memory)
        {
            return Ok(module);
        }
        let (ptx, modules) = match choose_ptx(parts, |part| find_ptx(part, capability)) {
            Ok(ptx) => match lower(&ptx).map(|modules| match builder.device.takes_images_for() {
                Some(_) => set_unstoppable_ones_aside(modules, builder.has_software_images),
                None => modules,
            }) {
                Ok(modules) if is_all_modelled(&modules) || builder.device.takes_images_for().is_none() => {
                    (ptx, modules)
                }
                // Variables are shared by all kernels of a module: all of it is the driver's then.
                Ok(modules) if modules.iter().all(|module| module.globals.is_empty()) => {
                    let linked = linked(&images, builder);
                    let images = linked.as_deref().map_or(images, |one| vec![one]);
                    return Ok(Self::mixed(ptx, modules, &images, builder));
                }
                Ok(modules) if let Some(name) = first_managed(&modules) => {
                    let why = format!(
                        "variable `{name}` is managed, and a kernel of its module can only run as it came, with \
                         variables where the driver places them"
                    );
                    return Err(LoadFailure::new(cuda_result::NOT_SUPPORTED, why).into());
                }
                Ok(modules) => match Self::opaque_linked(id, &images, &names_of(&modules), builder, memory) {
                    Some(module) => return Ok(module),
                    None => (ptx, modules),
                },
                Err(failure) => {
                    let native = || Self::opaque_linked(id, &images, &[], builder, memory);
                    let native = builder.device.takes_images_for().is_some().then(native).flatten();
                    return native.ok_or(failure.into());
                }
            },
            Err(lacking) if lacking.result == cuda_result::NO_BINARY_FOR_GPU => {
                // As the driver would: machine code that fits rather than nothing.
                let fits = |part: &&Vec<u8>| has_cubin(part, capability).unwrap_or(false);
                let machine_code: Vec<&[u8]> = parts.iter().filter(fits).map(Vec::as_slice).collect();
                if let Some(module) = Self::opaque_linked(id, &machine_code, &[], builder, memory) {
                    return Ok(module);
                }
                // What a program has for newer GPUs only does the same on a device that is none of NVIDIA's, or whose
                // driver does not take the machine code: our own generator writes its code. The driver would refuse.
                let ptx =
                    choose_ptx(parts, |part| find_newer_ptx(part, capability)).map_err(|_| lacking.naming(parts))?;
                let modules = lower(&ptx)?;
                (ptx, modules)
            }
            Err(failure) => return Err(failure.naming(parts).into()),
        };
        check_places(&modules, places, &*builder.device)?;
        let mut addresses = BTreeMap::new();
        let mut globals = Vec::new();
        let defined = defined(&modules);
        let mut memory = memory.lock();
        let placed = defined.iter().try_for_each(|global| -> Result<(), DeviceError> {
            let placed = places.get(&global.name).copied().filter(|_| global.is_managed);
            let addr = match placed {
                Some(addr) => addr,
                None => memory.allocate(global.size_bytes, Owner::Module(id))?,
            };
            addresses.insert(global.name.clone(), addr);
            globals.push(GlobalState {
                name: global.name.clone(),
                addr,
                size_bytes: global.size_bytes,
            });
            Ok(())
        });
        let filled = placed.and_then(|()| defined.iter().try_for_each(|g| fill(g, &addresses, &*builder.device)));
        if let Err(error) = filled {
            if let Err(second) = memory.free_owned_by(Owner::Module(id)) {
                tracing::warn!(error = %second, "variables of a failed module cannot be freed");
            }
            return Err(error.into());
        }
        drop(memory);
        Ok(Self::assemble(
            ptx,
            modules,
            globals,
            &addresses,
            HashMap::new(),
            builder,
        ))
    }

    /// A module without variables, some of whose kernels are not modelled: these are run as they came, if they can be.
    fn mixed(ptx: Vec<String>, modules: Vec<IrModule>, images: &[&[u8]], builder: &Builder) -> Self {
        let loaded = images
            .iter()
            .filter_map(|image| match builder.device.load_opaque(image, &[]) {
                Ok(loaded) => Some((image.to_vec(), loaded)),
                Err(error) => {
                    tracing::warn!(%error, "not loaded as it came");
                    None
                }
            });
        let (images, loaded): (Vec<Vec<u8>>, Vec<OpaqueModule>) = loaded.unzip();
        let hidden = images.iter().flat_map(|image| look_into(image, &[], builder).hidden);
        let hidden = hidden.collect();
        let keeps = loaded.iter().filter_map(|module| module.loaded.clone()).collect();
        let kernels = loaded.into_iter().flat_map(|module| module.kernels);
        let native = kernels.map(|kernel| (kernel.name.clone(), kernel)).collect();
        let module = Self::assemble(ptx, modules, Vec::new(), &BTreeMap::new(), native, builder);
        Self {
            compiled_for: images.iter().flat_map(|image| targets(image)).collect(),
            machine_code: images,
            keeps,
            hidden,
            ..module
        }
    }

    /// Rebuilds a module whose variables are in device memory already.
    ///
    /// # Errors
    /// [`LoadFailure`].
    pub fn from_state(
        state: &ModuleState,
        builder: &Builder,
        memory: &Mutex<DeviceMemory>,
    ) -> Result<Self, LoadFailure> {
        let machine_code: Vec<&[u8]> = state.machine_code.iter().map(Vec::as_slice).collect();
        if state.ptx.is_empty() {
            let names: Vec<String> = state.globals.iter().map(|v| v.name.clone()).collect();
            let refuse = || {
                let log = "a module without PTX runs only on the kind of device that it was captured on";
                LoadFailure::new(cuda_result::NO_BINARY_FOR_GPU, log)
            };
            let module = Self::opaque(state.id, &machine_code, &names, builder, memory).ok_or_else(refuse)?;
            return module.checked(state);
        }
        let modules = lower(&state.ptx)?;
        let has_workspaces = state
            .globals
            .iter()
            .any(|global| global.name == grid_workspace::VARIABLE);
        let modules = if has_workspaces {
            modules
        } else {
            without_grid_workspaces(modules)
        };
        if !machine_code.is_empty() {
            // As where it was loaded, whatever this device is: that decides the order of the kernels.
            let modules = set_unstoppable_ones_aside(modules, builder.has_software_images);
            let module = Self::mixed(state.ptx.clone(), modules, &machine_code, builder);
            return module.checked(state);
        }
        let addresses = state.globals.iter().map(|g| (g.name.clone(), g.addr)).collect();
        let native = HashMap::new();
        let module = Self::assemble(
            state.ptx.clone(),
            modules,
            state.globals.clone(),
            &addresses,
            native,
            builder,
        );
        module.checked(state)
    }

    /// The process knows kernels by their place in the list. Those that an older version could not run stood last.
    fn checked(mut self, state: &ModuleState) -> Result<Self, LoadFailure> {
        if self.kernels.iter().map(|k| &k.name).eq(state.kernels.iter()) {
            return Ok(self);
        }
        let found: HashMap<&str, &Arc<KernelCode>> = self.kernels.iter().map(|k| (k.name.as_str(), k)).collect();
        let named = state
            .kernels
            .iter()
            .map(|name| found.get(name.as_str()).copied().cloned());
        match named.collect::<Option<Vec<_>>>() {
            Some(kernels) if kernels.len() == self.kernels.len() => {
                self.kernels = kernels;
                Ok(self)
            }
            _ => Err(LoadFailure::new(
                cuda_result::INVALID_IMAGE,
                "the module's kernels are not those of the snapshot",
            )),
        }
    }

    /// What is there now that a capture cannot reach, in words, if there is something.
    #[must_use]
    pub fn unreachable(&self) -> Option<&str> {
        let names = || self.kernels.iter().map(|kernel| kernel.name.as_str());
        let has_run = |name: &str| {
            self.kernels
                .iter()
                .any(|kernel| kernel.name == name && kernel.has_run())
        };
        let mut there = self
            .hidden
            .iter()
            .filter(|hidden| hidden.since.is_there(names(), has_run));
        there.next().map(|hidden| hidden.what.as_str())
    }

    /// As [`Self::opaque`], of images that may need one another.
    fn opaque_linked(
        id: u64,
        parts: &[&[u8]],
        more_variables: &[String],
        builder: &Builder,
        memory: &Mutex<DeviceMemory>,
    ) -> Option<Self> {
        match linked(parts, builder) {
            Some(one) => Self::opaque(id, &[&one], more_variables, builder, memory),
            None => Self::opaque(id, parts, more_variables, builder, memory),
        }
    }

    /// The module from images as they came, if the device takes any; `more_variables` are names of some that it may
    /// have beside those that machine code names.
    fn opaque(
        id: u64,
        parts: &[&[u8]],
        more_variables: &[String],
        builder: &Builder,
        memory: &Mutex<DeviceMemory>,
    ) -> Option<Self> {
        let mut module = Self {
            ptx: Vec::new(),
            machine_code: Vec::new(),
            compiled_for: BTreeSet::new(),
            kernels: Vec::new(),
            globals: Vec::new(),
            is_placed_by_device: true,
            keeps: Vec::new(),
            hidden: Vec::new(),
            grid_workspaces: None,
            description: Vec::new(),
        };
        let mut description = ModuleDescription::default();
        for &part in parts {
            let contents = look_into(part, more_variables, builder);
            let names: Vec<String> = contents.variables.iter().map(|v| v.name.clone()).collect();
            let loaded = match builder.device.load_opaque(part, &names) {
                Ok(loaded) => loaded,
                Err(error) => {
                    tracing::warn!(%error, "machine code not loaded");
                    continue;
                }
            };
            let is_found = |name: &str| loaded.globals.iter().any(|(found, ..)| found == name);
            let lost = contents.variables.iter().find(|v| v.is_writable && !is_found(&v.name));
            let lost = lost.map(|v| Hidden {
                what: format!("variable `{}`, of which the driver does not say where it is", v.name),
                since: HiddenSince::Loading,
            });
            module.hidden.extend(contents.hidden.into_iter().chain(lost));
            module.keeps.extend(loaded.loaded);
            module.machine_code.push(part.to_vec());
            module.compiled_for.extend(targets(part));
            for kernel in loaded.kernels {
                description.kernels.push(describe_opaque(&kernel));
                module.kernels.push(opaque_code(kernel, builder));
            }
            for (name, addr, size_bytes) in loaded.globals {
                memory.lock().note_placed(addr, size_bytes, Owner::Module(id));
                description.globals.push(GlobalDescription {
                    name: name.clone(),
                    addr,
                    size_bytes,
                });
                module.globals.push(GlobalState { name, addr, size_bytes });
            }
        }
        module.description = encoded(&description);
        (!module.machine_code.is_empty()).then_some(module)
    }

    fn assemble(
        ptx: Vec<String>,
        modules: Vec<IrModule>,
        globals: Vec<GlobalState>,
        addresses: &BTreeMap<String, u64>,
        mut native: HashMap<String, OpaqueKernel>,
        builder: &Builder,
    ) -> Self {
        let mut kernels = Vec::new();
        let mut description = ModuleDescription {
            globals: globals
                .iter()
                .map(|g| GlobalDescription {
                    name: g.name.clone(),
                    addr: g.addr,
                    size_bytes: g.size_bytes,
                })
                .collect(),
            ..ModuleDescription::default()
        };
        let workspaces = addresses.get(grid_workspace::VARIABLE);
        let workspaces = workspaces.map(|&addr| Arc::new(GridWorkspaces::at(addr)));
        for (module, text) in modules.into_iter().zip(&ptx) {
            let target = target_of(text);
            let const_bytes = const_bytes(&module.globals);
            for mut kernel in module.kernels {
                let bound = bind_globals(&mut kernel, addresses).map_err(Refusal::Undefined);
                let refused = bound.and_then(|_| can_be_probed(&kernel, builder.generator)).err();
                description.kernels.push(describe(&kernel, target, refused.as_ref()));
                let name = kernel.name.clone();
                let workspace = WorkspaceParam::of(&kernel, workspaces.as_ref());
                let source = refused.map_or_else(|| Source::HetIr(kernel), Source::Refused);
                let code = KernelCode::new(name, source, builder.clone());
                let code = code.with_grid_workspace(workspace).with_const_bytes(const_bytes);
                kernels.push(Arc::new(code));
            }
            for rejected in module.rejected {
                if let Some(kernel) = native.remove(&rejected.name) {
                    description.kernels.push(describe_opaque(&kernel));
                    kernels.push(opaque_code(kernel, builder));
                    continue;
                }
                let refusal = Refusal::NotSupported {
                    reasons: rejected.reasons,
                };
                tracing::warn!(kernel = %rejected.name, reason = %refusal, "kernel is not supported; launching it fails");
                description.kernels.push(KernelDescription {
                    name: rejected.name.clone(),
                    params: Vec::new(),
                    static_shared_bytes: 0,
                    local_bytes: 0,
                    max_threads_per_block: 1024,
                    num_registers: 0,
                    ptx_version: target,
                    refused: Some(refusal.to_string()),
                });
                kernels.push(Arc::new(KernelCode::new(
                    rejected.name,
                    Source::Refused(refusal),
                    builder.clone(),
                )));
            }
        }
        let description = encoded(&description);
        Self {
            ptx,
            machine_code: Vec::new(),
            compiled_for: BTreeSet::new(),
            kernels,
            globals,
            is_placed_by_device: false,
            keeps: Vec::new(),
            hidden: Vec::new(),
            grid_workspaces: workspaces,
            description,
        }
    }
}

/// The parts, with the device code of objects and libraries of the host in their places.
fn without_host_files(parts: &[Vec<u8>]) -> Result<Cow<'_, [Vec<u8>]>, LoadFailure> {
    if !parts.iter().any(|part| is_host_file(part)) {
        return Ok(Cow::Borrowed(parts));
    }
    let mut all = Vec::new();
    for part in parts {
        if !is_host_file(part) {
            all.push(part.clone());
            continue;
        }
        let found = fat_binaries(part).map_err(|error| LoadFailure::new(cuda_result::INVALID_IMAGE, error))?;
        all.extend(found.into_iter().map(<[u8]>::to_vec));
    }
    Ok(Cow::Owned(all))
}

/// One image of several, if the device's linker makes one.
fn linked(images: &[&[u8]], builder: &Builder) -> Option<Vec<u8>> {
    if images.len() < 2 || builder.device.takes_images_for().is_none() {
        return None;
    }
    let linked = builder.device.link(images);
    linked
        .inspect_err(|error| tracing::warn!(%error, "not linked, so each is loaded by itself"))
        .ok()
}

/// What an image that is run as it came has; the device is told if it prints.
fn look_into(image: &[u8], more_variables: &[String], builder: &Builder) -> Contents {
    let capability = builder.device.takes_images_for().unwrap_or(0);
    let contents = contents(image, capability, more_variables);
    if contents.prints {
        builder.device.expect_output();
    }
    contents
}

/// Rejects kernels whose blocks meet: the module was loaded by a version that set no memory aside for it.
fn without_grid_workspaces(mut modules: Vec<IrModule>) -> Vec<IrModule> {
    for module in &mut modules {
        let meets = |kernel: &mut Kernel| kernel.grid_workspace().is_some();
        let rejected = module.kernels.extract_if(.., meets).map(|kernel| RejectedKernel {
            name: kernel.name,
            reasons: vec!["it was loaded by a version without barriers of the whole grid".to_owned()],
        });
        module.rejected.extend(rejected);
    }
    modules
}

/// Rejects kernels to which no probes can be added, so that they run as they came; and those that read images, unless
/// these are software's. A module that has such kernels and a heap is rejected whole, as what one kernel takes another
/// may give back; and so is one with addresses of functions, which are others for code that runs as it came.
fn set_unstoppable_ones_aside(mut modules: Vec<IrModule>, has_software_images: bool) -> Vec<IrModule> {
    for module in &mut modules {
        let has_heap = module.globals.iter().any(|global| global.name == device_heap::NAME);
        let has_functions = module.kernels.iter().any(|kernel| kernel.holds_functions);
        for kernel in std::mem::take(&mut module.kernels) {
            let reason = match hetckpt_probes::check_input(&kernel) {
                Err(error) => error.to_string(),
                Ok(()) if kernel.partial_barrier().is_some() => PARTIAL_BARRIER.to_owned(),
                Ok(()) if kernel.multiplies_matrices => MATRICES.to_owned(),
                Ok(()) if kernel.reads_images && !has_software_images => IMAGES.to_owned(),
                Ok(()) if kernel.has_call_stack => CALL_STACK.to_owned(),
                Ok(()) if !has_room_for_control(&kernel) => "its parameters leave no room for one of ours".to_owned(),
                Ok(()) => {
                    module.kernels.push(kernel);
                    continue;
                }
            };
            module.rejected.push(RejectedKernel {
                name: kernel.name,
                reasons: vec![reason],
            });
        }
        if (has_heap || has_functions) && !module.rejected.is_empty() {
            let reason = match has_heap {
                true => "its module takes memory from the driver's heap",
                false => "its module has addresses of the driver's functions",
            };
            let others = std::mem::take(&mut module.kernels).into_iter();
            module.rejected.extend(others.map(|kernel| RejectedKernel {
                name: kernel.name,
                reasons: vec![reason.to_owned()],
            }));
        }
    }
    modules
}

/// Our own code takes far longer than the device's tensor cores.
const MATRICES: &str = "it uses tensor cores";

/// Ours is longer than the device's, and every thread that there may be has one.
const CALL_STACK: &str = "it has functions that may call themselves";

/// What its textures and surfaces are, only the driver knows.
const IMAGES: &str = "it uses textures or surfaces";

/// Only the CPU device stops at such barriers.
const PARTIAL_BARRIER: &str =
    "it has a barrier that is not barrier 0, or not for the whole block, or a memory barrier object";

/// Where kernels do not run as they came, those do not run that `generator` has no code for with probes.
fn can_be_probed(kernel: &Kernel, generator: Generator) -> Result<(), Refusal> {
    let reason = match hetckpt_probes::check_input(kernel) {
        Err(error) => error.to_string(),
        Ok(()) if kernel.partial_barrier().is_some() && !generator.stops_at_partial_barriers() => {
            PARTIAL_BARRIER.to_owned()
        }
        Ok(()) => return Ok(()),
    };
    Err(Refusal::NotSupported { reasons: vec![reason] })
}

/// True if each kernel can be run in our own code.
fn is_all_modelled(modules: &[IrModule]) -> bool {
    modules.iter().all(|module| module.rejected.is_empty())
}

/// Variables that are defined, each name once: of several texts that are one program, each may define a common or weak
/// one, and those that are supplied to it.
fn defined(modules: &[IrModule]) -> Vec<&Global> {
    let mut defined: Vec<&Global> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for global in modules.iter().flat_map(|m| &m.globals).filter(|g| !g.is_extern) {
        let place = *places.entry(&global.name).or_insert(defined.len());
        match defined.get_mut(place) {
            None => defined.push(global),
            Some(known)
                if (global.size_bytes, !global.init.is_empty()) > (known.size_bytes, !known.init.is_empty()) =>
            {
                *known = global;
            }
            Some(_) => {}
        }
    }
    defined
}

/// Names of all variables of the program's.
fn names_of(modules: &[IrModule]) -> Vec<String> {
    let globals = modules.iter().flat_map(|module| &module.globals);
    // The driver's own code has workspaces of the driver's.
    let globals = globals.filter(|global| global.name != grid_workspace::VARIABLE);
    globals.map(|global| global.name.clone()).collect()
}

fn describe_opaque(kernel: &OpaqueKernel) -> KernelDescription {
    let attributes = kernel.kernel.attributes();
    let params = kernel.params.iter();
    KernelDescription {
        name: kernel.name.clone(),
        params: params.map(|&(offset, size)| KernelParam { offset, size }).collect(),
        static_shared_bytes: attributes.static_shared_bytes,
        local_bytes: attributes.local_bytes,
        max_threads_per_block: attributes.max_threads_per_block,
        num_registers: attributes.num_registers,
        ptx_version: kernel.ptx_version,
        refused: None,
    }
}

fn opaque_code(kernel: OpaqueKernel, builder: &Builder) -> Arc<KernelCode> {
    tracing::info!(kernel = %kernel.name, "is run as it came: it can be stopped only at its end");
    let name = kernel.name.clone();
    Arc::new(KernelCode::new(name, Source::Opaque(kernel), builder.clone()))
}

fn encoded(description: &ModuleDescription) -> Vec<u8> {
    description.encode().unwrap_or_else(|error| {
        tracing::error!(%error, "a module's description cannot be encoded");
        Vec::new()
    })
}

fn lower(ptx: &[String]) -> Result<Vec<IrModule>, LoadFailure> {
    let texts: Vec<&str> = ptx.iter().map(String::as_str).collect();
    let mut modules =
        hetckpt_ptx::lower_linked(&texts).map_err(|error| LoadFailure::new(cuda_result::INVALID_PTX, error))?;
    if modules.len() > 1 {
        // What two texts define may be either's: whoever takes it from both is refused for want of it.
        let mut places: BTreeMap<String, Option<usize>> = BTreeMap::new();
        for (number, module) in modules.iter().enumerate() {
            for name in module.strings() {
                let place = places.entry(name.to_owned());
                place.and_modify(|place| *place = None).or_insert(Some(number));
            }
        }
        let elsewhere = places
            .into_iter()
            .filter_map(|(name, place)| place.map(|number| (name.clone(), format!("{name}@{number}"))))
            .collect();
        for (own, module) in modules.iter_mut().enumerate() {
            module.name_strings_apart(&format!("@{own}"), &elsewhere);
        }
    }
    Ok(modules)
}

fn describe(kernel: &Kernel, target: u32, refused: Option<&Refusal>) -> KernelDescription {
    let bounds = &kernel.bounds;
    let max_threads = bounds
        .req_ntid
        .or(bounds.max_ntid)
        .map_or(1024, |n| n.iter().product::<u32>().min(1024));
    KernelDescription {
        name: kernel.name.clone(),
        params: kernel
            .program_params()
            .iter()
            .map(|p| KernelParam {
                offset: p.offset,
                size: p.size_bytes,
            })
            .collect(),
        static_shared_bytes: kernel.shared.static_bytes,
        local_bytes: kernel.local.size_bytes,
        max_threads_per_block: max_threads,
        num_registers: bounds.max_registers.unwrap_or(32),
        ptx_version: target,
        refused: refused.map(ToString::to_string),
    }
}

/// Bytes of a module's constant memory, as its variables lie in it one behind the other.
fn const_bytes(globals: &[Global]) -> u32 {
    let constants = globals.iter().filter(|global| global.is_constant);
    let end = constants.fold(0u64, |end, global| {
        end.next_multiple_of(u64::from(global.align_bytes.max(1))) + global.size_bytes
    });
    u32::try_from(end).unwrap_or(u32::MAX)
}

/// Writes a variable's initial value.
fn fill(global: &Global, addresses: &BTreeMap<String, u64>, device: &dyn Device) -> Result<(), DeviceError> {
    let addr = addresses.get(&global.name).copied().unwrap_or_default();
    if global.init.is_empty() {
        return device.fill(addr, global.size_bytes, Fill::U8(0), global.size_bytes, 1);
    }
    let mut bytes = global.init.clone();
    let size = usize::try_from(global.size_bytes).map_err(|_| DeviceError::OutOfMemory {
        requested_bytes: global.size_bytes,
        free_bytes: device.describe().free_bytes,
    })?;
    bytes.resize(size.max(bytes.len()), 0);
    for (offset, name, addend) in &global.relocations {
        let value = addresses
            .get(name)
            .copied()
            .unwrap_or_default()
            .wrapping_add_signed(*addend);
        let place = usize::try_from(*offset)
            .ok()
            .and_then(|at| bytes.get_mut(at..)?.first_chunk_mut::<8>());
        match place {
            Some(place) => *place = value.to_le_bytes(),
            None => tracing::warn!(variable = %global.name, offset, "an address in a variable lies outside of it"),
        }
    }
    device.write(addr, &bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use hetckpt_fatbin::entry::FATBIN_MAGIC;

    use super::*;

    #[test]
    fn names_of_texts_that_are_one_program_are_defined_once() {
        let head = ".version 8.0\n.target sm_80\n.address_size 64\n\
                    .extern .func (.param .b64 r) malloc(.param .b64 size);\n";
        let call = "{ .param .b64 a; .param .b64 r; st.param.b64 [a], 8; call.uni (r), malloc, (a); }\n";
        let kernel = format!("{head}.extern .func f();\n.visible .entry k() {{ call.uni f, (); {call} ret; }}\n");
        let function = format!("{head}.weak .global .u32 own = 7;\n.visible .func f() {{ {call} ret; }}\n");
        let modules = lower(&[kernel, function]).unwrap();
        assert!(is_all_modelled(&modules), "{:?}", modules[0].rejected);
        let names: Vec<&str> = defined(&modules).iter().map(|global| global.name.as_str()).collect();
        assert_eq!(names, [device_heap::NAME, "own"]);
    }

    #[test]
    fn constant_memory_is_counted_with_its_gaps() {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.const .b8 byte = 1;\n.global .u32 other;\n\
                    .const .align 8 .b64 word;\n.visible .entry k() { ret; }\n";
        let modules = lower(&[text.to_owned()]).unwrap();
        assert_eq!(const_bytes(&modules[0].globals), 16);
    }

    #[test]
    fn strings_of_other_texts_are_told_apart_or_missed() {
        let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
        let function = |name: &str, string: &str| {
            format!(
                "{head}.global .align 1 .b8 {string}[2] = {{65, 0}};\n.visible .func {name}(.param .b64 p) {{\n\
                 .reg .b64 %rd<3>; ld.param.b64 %rd1, [p]; mov.u64 %rd2, {string}; st.u64 [%rd1], %rd2; ret; }}\n"
            )
        };
        let kernel = format!(
            "{head}.extern .func f(.param .b64 p);\n.extern .func g(.param .b64 p);\n\
             .visible .entry k(.param .u64 p) {{ .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];\n\
             {{ .param .b64 a; st.param.b64 [a], %rd1; call.uni f, (a); }}\n\
             {{ .param .b64 a; st.param.b64 [a], %rd1; call.uni g, (a); }} ret; }}\n"
        );
        for (others, used) in [(["$f", "$g"], vec!["$f@1", "$g@2"]), (["$s", "$s"], vec!["$s"])] {
            let texts = [kernel.clone(), function("f", others[0]), function("g", others[1])];
            let modules = lower(&texts).unwrap();
            let externs = modules[0].globals.iter().filter(|global| global.is_extern);
            let mut names: Vec<&str> = externs.map(|global| global.name.as_str()).collect();
            names.dedup();
            assert_eq!(names, used);
        }
    }

    #[test]
    fn kernels_that_take_no_probes_are_set_aside() {
        let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n\
                   .visible .entry whole() { bar.sync 0; ret; }\n\
                   .visible .entry named() { bar.sync 1, 64; ret; }\n";
        let modules = set_unstoppable_ones_aside(lower(&[ptx.to_owned()]).unwrap(), false);
        let kept: Vec<&str> = modules[0].kernels.iter().map(|kernel| &*kernel.name).collect();
        let aside: Vec<&str> = modules[0].rejected.iter().map(|kernel| &*kernel.name).collect();
        assert_eq!((kept, aside), (vec!["whole"], vec!["named"]));
        assert!(modules[0].rejected[0].reasons[0].contains("barrier 0"));
    }

    #[test]
    fn images_of_the_device_are_for_code_as_it_came() {
        let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n\
                   .visible .entry reads(.param .u64 object) { .reg .b64 %rd; .reg .f32 %f<6>;\n\
                   ld.param.u64 %rd, [object]; mov.f32 %f5, 0f00000000;\n\
                   tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd, {%f5, %f5}]; ret; }\n";
        for (has_software_images, num_aside) in [(false, 1), (true, 0)] {
            let modules = set_unstoppable_ones_aside(lower(&[ptx.to_owned()]).unwrap(), has_software_images);
            assert_eq!(modules[0].rejected.len(), num_aside);
            assert_eq!(modules[0].kernels.len(), 1 - num_aside);
        }
    }

    #[test]
    fn kernels_of_older_versions_have_no_workspace() {
        let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n\
                   .visible .entry meets() { .reg .b32 %r; mov.u32 %r, %envreg1; ret; }\n\
                   .visible .entry other() { ret; }\n";
        let modules = without_grid_workspaces(lower(&[ptx.to_owned()]).unwrap());
        assert_eq!((modules[0].kernels.len(), &*modules[0].rejected[0].name), (1, "meets"));
    }

    #[test]
    fn parts_of_a_host_file_come_in_its_place() {
        use object::write::{Object, StandardSegment};
        let fatbin = [&FATBIN_MAGIC.to_le_bytes()[..], &[1, 0, 16, 0], &[0; 8]].concat();
        let mut file = Object::new(
            object::BinaryFormat::Elf,
            object::Architecture::X86_64,
            object::Endianness::Little,
        );
        let segment = file.segment_name(StandardSegment::Data).to_vec();
        let section = file.add_section(segment, b"__nv_relfatbin".to_vec(), object::SectionKind::Data);
        file.append_section_data(section, &fatbin.repeat(2), 8);
        let parts = [b".version 8.0".to_vec(), file.write().unwrap()];
        assert!(matches!(without_host_files(&parts[..1]).unwrap(), Cow::Borrowed(_)));
        assert_eq!(
            &*without_host_files(&parts).unwrap(),
            [parts[0].clone(), fatbin.clone(), fatbin]
        );
        assert!(without_host_files(&[b"!<arch>\nno member".to_vec()]).is_err());
    }

    #[test]
    fn all_kernels_of_a_module_have_one_heap() {
        let ptx = |barrier: &str| {
            format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func free(.param .b64 pointer);\n\
                 .visible .entry takes(.param .u64 p) {{ .reg .b64 %d; ld.param.u64 %d, [p];\n\
                 {{ .param .b64 a; st.param.b64 [a], %d; call.uni free, (a); }} ret; }}\n\
                 .visible .entry waits() {{ {barrier}; ret; }}\n"
            )
        };
        for (barrier, kept) in [("bar.sync 0", 2), ("bar.sync 1, 64", 0)] {
            let modules = set_unstoppable_ones_aside(lower(&[ptx(barrier)]).unwrap(), false);
            assert_eq!(modules[0].kernels.len(), kept, "{:?}", modules[0].rejected);
        }
    }
}
