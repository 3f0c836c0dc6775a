//! All modules of the application: loaded ones, and those that are on their way.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use hetckpt_ring::command::DeviceIndex;
use hetckpt_state::module::{ArrivingPart, GlobalState, ModuleState};
use hetckpt_state::native_code::{MAX_KERNEL_NAME_BYTES, MAX_NAMED_KERNELS, NativeCode};
use hetckpt_state::summary::MAX_NATIVE_CODES;

use crate::kernels::KernelCode;
use crate::load_failure::LoadFailure;
use crate::loaded_module::LoadedModule;
use crate::managed_places::Places;

/// Most different refusals that are logged.
const MAX_TOLD: usize = 1000;

/// All modules of the application.
#[derive(Default)]
pub struct Modules {
    loaded: BTreeMap<u64, LoadedModule>,
    arriving: HashMap<u64, BTreeMap<u32, Vec<u8>>>,
    /// Where the application has placed variables of modules that are on their way. A snapshot has none of it: the
    /// application is asked again.
    places: HashMap<u64, Places>,
    /// Refusals that have been logged.
    told: HashSet<String>,
    /// What a module that is no longer loaded has left where no capture reaches, and its number.
    left_behind: Option<(u64, String)>,
}

impl Modules {
    /// Takes in a piece of a module's part.
    pub fn add_data(&mut self, module: u64, part: u32, bytes: &[u8]) {
        self.arriving
            .entry(module)
            .or_default()
            .entry(part)
            .or_default()
            .extend_from_slice(bytes);
    }

    /// Notes where a variable of a module lies.
    pub fn place(&mut self, module: u64, name: String, addr: u64) {
        self.places.entry(module).or_default().insert(name, addr);
    }

    /// The parts that have arrived, in order, and where variables lie.
    #[must_use]
    pub fn take_parts(&mut self, module: u64) -> (Vec<Vec<u8>>, Places) {
        let parts = self.arriving.remove(&module).unwrap_or_default();
        let places = self.places.remove(&module).unwrap_or_default();
        (parts.into_values().collect(), places)
    }

    /// Gives back what [`Self::take_parts`] took, for another try.
    pub fn keep_parts(&mut self, module: u64, parts: Vec<Vec<u8>>, places: Places) {
        self.arriving.insert(module, (0..).zip(parts).collect());
        self.places.insert(module, places);
    }

    /// Parts of modules that are on their way, as the state keeps them.
    #[must_use]
    pub fn arriving(&self) -> Vec<ArrivingPart> {
        let parts = self
            .arriving
            .iter()
            .flat_map(|(&module, parts)| parts.iter().map(move |(&p, b)| (module, p, b)));
        parts
            .map(|(module, part, bytes)| ArrivingPart {
                module,
                part,
                bytes: bytes.clone(),
            })
            .collect()
    }

    /// Logs a refusal, once.
    pub fn tell(&mut self, failure: &LoadFailure) {
        if self.told.len() < MAX_TOLD && self.told.insert(failure.log.clone()) {
            tracing::warn!(result = failure.result, log = %failure.log, "module refused");
        }
    }

    /// A loaded module.
    #[must_use]
    pub fn get(&self, module: u64) -> Option<&LoadedModule> {
        self.loaded.get(&module)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, module: u64) -> Option<&mut LoadedModule> {
        self.loaded.get_mut(&module)
    }

    /// A kernel by its place in the description.
    #[must_use]
    pub fn kernel(&self, module: u64, index: u32) -> Option<Arc<KernelCode>> {
        self.loaded
            .get(&module)?
            .kernels
            .get(usize::try_from(index).ok()?)
            .cloned()
    }

    /// The workspace is a stopped launch's.
    pub fn keep_grid_workspace(&self, addr: u64) {
        let workspaces = self
            .loaded
            .values()
            .filter_map(|module| module.grid_workspaces.as_ref());
        workspaces.for_each(|workspaces| workspaces.keep(addr));
    }

    /// Kernels of a module that are not built yet.
    #[must_use]
    pub fn unbuilt(&self, module: u64) -> Vec<Arc<KernelCode>> {
        let kernels = self.loaded.get(&module).map_or(&[][..], |m| &m.kernels);
        kernels.iter().filter(|k| !k.is_built()).cloned().collect()
    }

    /// Enters a loaded module.
    pub fn insert(&mut self, module: u64, loaded: LoadedModule) {
        self.loaded.insert(module, loaded);
    }

    /// Forgets a module; false if there is none.
    pub fn remove(&mut self, module: u64) -> bool {
        self.arriving.remove(&module);
        let Some(removed) = self.loaded.remove(&module) else {
            return false;
        };
        // The heap, for one, outlives it.
        if let Some(what) = removed.unreachable() {
            self.left_behind.get_or_insert_with(|| (module, what.to_owned()));
        }
        true
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.loaded.clear();
        self.arriving.clear();
        self.left_behind = None;
    }

    /// What a capture cannot reach, and its module's number.
    #[must_use]
    pub fn unreachable(&self) -> Option<(u64, String)> {
        let mut loaded = self.loaded.iter();
        let found = loaded.find_map(|(&id, module)| Some((id, module.unreachable()?.to_owned())));
        found.or_else(|| self.left_behind.clone())
    }

    /// Variables that the device has placed, and their modules' numbers.
    pub fn placed_variables(&self) -> impl Iterator<Item = (u64, &GlobalState)> {
        let placed = self.loaded.iter().filter(|(_, module)| module.is_placed_by_device);
        placed.flat_map(|(&id, module)| module.globals.iter().map(move |variable| (id, variable)))
    }

    /// Kernels that are run as they came, together where they were compiled for the same.
    #[must_use]
    pub fn native_code(&self) -> Vec<NativeCode> {
        let mut by_target: BTreeMap<&BTreeSet<String>, BTreeSet<&str>> = BTreeMap::new();
        for module in self.loaded.values().filter(|m| !m.machine_code.is_empty()) {
            let native = module.kernels.iter().filter(|kernel| kernel.is_opaque());
            let kernels = by_target.entry(&module.compiled_for).or_default();
            kernels.extend(native.map(|kernel| kernel.name.as_str()));
        }
        let code = |(compiled_for, kernels): (&BTreeSet<String>, BTreeSet<&str>)| NativeCode {
            compiled_for: compiled_for.iter().cloned().collect(),
            num_kernels: kernels.len() as u64,
            kernels: kernels
                .into_iter()
                .filter(|name| name.len() <= MAX_KERNEL_NAME_BYTES)
                .take(MAX_NAMED_KERNELS)
                .map(str::to_owned)
                .collect(),
        };
        by_target.into_iter().map(code).take(MAX_NATIVE_CODES).collect()
    }

    /// As the state keeps them.
    #[must_use]
    pub fn to_state(&self) -> Vec<ModuleState> {
        let module = |(&id, m): (&u64, &LoadedModule)| ModuleState {
            id,
            device: DeviceIndex::FIRST.0,
            ptx: m.ptx.clone(),
            machine_code: m.machine_code.clone(),
            globals: m.globals.clone(),
            kernels: m.kernels.iter().map(|k| k.name.clone()).collect(),
        };
        self.loaded.iter().map(module).collect()
    }
}
