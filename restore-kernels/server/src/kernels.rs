//! Kernels of an application: probed and built for the device when first needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use hetckpt_abi::cluster_query::ClusterQuery;
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_devices::device::{Device, KernelAttributes, LoadRequest, LoadedKernel, OpaqueKernel, Room};
use hetckpt_devices::error::DeviceError;
use hetckpt_ir::analysis::definitions::Location;
use hetckpt_ir::analysis::unsynchronized;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::UndefinedGlobal;
use hetckpt_ir::types::Space;
use hetckpt_probes::options::Options;

use crate::counters::{Activity, Counters};
use crate::generate::{Generator, RequestError, Start};
use crate::grid_workspaces::WorkspaceParam;
use crate::start_points::StartPoints;

/// What kernels are built with.
#[derive(Clone)]
pub struct Builder {
    /// The device.
    pub device: Arc<dyn Device>,
    /// What code it takes.
    pub generator: Generator,
    /// Kernels find images as those of devices without texture units do ([`hetckpt_abi::software_image`]).
    pub has_software_images: bool,
    /// Counts what is built.
    pub counters: Arc<Counters>,
}

/// Why a kernel cannot be built.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BuildError {
    /// It cannot be run at all.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be probed.
    #[error(transparent)]
    Probe(#[from] hetckpt_probes::error::Error),
    /// There is no code for it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The device does not take its code.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Why a kernel of a module cannot be run. Both are the program's limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It uses a variable that no module has.
    #[error("{0}")]
    Undefined(UndefinedGlobal),
    /// It uses what is not supported: the reasons of the parser.
    #[error("{}", reasons.join("; "))]
    NotSupported {
        /// One for each place.
        reasons: Vec<String>,
    },
}

/// What building makes, or why it makes nothing.
pub type BuildResult<T> = Result<T, BuildError>;

/// A probed kernel and what has been built of it.
pub struct ProbedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Where its threads' registers are saved.
    pub layout: ThreadStateLayout,
    builder: Builder,
    built: Mutex<Built>,
    roomy: Mutex<Roomy>,
}

/// Programs with fewer registers than their compiler would take, by their resume points and what they leave room for.
/// Where there can be none, the other one, which the device then refuses to launch.
type Roomy = HashMap<(Option<StartPoints>, Room), Arc<dyn LoadedKernel>>;

/// The ordinary program under `None`; continuations by their resume points.
type Built = HashMap<Option<StartPoints>, BuildResult<Arc<dyn LoadedKernel>>>;

impl ProbedKernel {
    /// A kernel that has been probed.
    #[must_use]
    pub fn new(kernel: Kernel, builder: Builder) -> Self {
        let layout = ThreadStateLayout::new(&kernel);
        Self {
            kernel,
            layout,
            builder,
            built: Mutex::new(HashMap::new()),
            roomy: Mutex::new(HashMap::new()),
        }
    }

    /// True if building for `points` so that it leaves `room` would return at once.
    #[must_use]
    pub fn is_built_leaving(&self, points: Option<&StartPoints>, room: Room) -> bool {
        match self.known(&self.built.lock(), points) {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(loaded)) => {
                self.builder.device.leaves_room(&**loaded, room)
                    || self.roomy.lock().contains_key(&(points.cloned(), room))
            }
        }
    }

    /// As [`Self::build`]; if registers do not leave `room` for what is to be launched, and `is_wanted` says that they
    /// should, with fewer.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_leaving(
        &self,
        points: Option<&StartPoints>,
        room: Room,
        is_wanted: impl FnOnce() -> bool,
    ) -> BuildResult<Arc<dyn LoadedKernel>> {
        let ordinary = self.build(points)?;
        let device = &self.builder.device;
        if device.leaves_room(&*ordinary, room) {
            return Ok(ordinary);
        }
        let key = (points.cloned(), room);
        if let Some(known) = self.roomy.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let load = |request: LoadRequest| device.load_leaving_room(&request, room).map_err(BuildError::from);
        let built = if is_wanted() {
            self.request(points).and_then(load)
        } else {
            Ok(Arc::clone(&ordinary))
        };
        let loaded = built.unwrap_or_else(|error| {
            tracing::warn!(kernel = %self.kernel.name, ?room, reason = %error, "cannot be built with fewer registers");
            ordinary
        });
        tracing::debug!(kernel = %self.kernel.name, ?room, attributes = ?loaded.attributes(), "built to leave room");
        Ok(Arc::clone(self.roomy.lock().entry(key).or_insert(loaded)))
    }

    fn request(&self, points: Option<&StartPoints>) -> BuildResult<LoadRequest> {
        let start = points.map_or(Start::Whole, Start::Listed);
        Ok(self.builder.generator.request(&self.kernel, &self.layout, start)?)
    }

    /// True if building for `points` would return at once.
    #[must_use]
    pub fn is_built(&self, points: Option<&StartPoints>) -> bool {
        self.known(&self.built.lock(), points).is_some()
    }

    /// The program that starts at `points` (`None`: the ordinary one), built now if it has not been.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(&self, points: Option<&StartPoints>) -> BuildResult<Arc<dyn LoadedKernel>> {
        if let Some(known) = self.known(&self.built.lock(), points) {
            return known.clone();
        }
        let started = std::time::Instant::now();
        let load = |request: LoadRequest| self.builder.device.load(&request).map_err(BuildError::from);
        let result = self.request(points).and_then(load);
        self.builder.counters.add(Activity::Build, 0, started.elapsed());
        let name = &self.kernel.name;
        match &result {
            Ok(_) => {
                tracing::debug!(kernel = %name, ?points, elapsed = ?started.elapsed(), "built");
                if points.is_none() && !self.builder.generator.keeps_in_step() {
                    self.warn_of_races();
                }
            }
            Err(reason) => tracing::error!(kernel = %name, ?points, %reason, "cannot be built"),
        }
        self.built.lock().entry(points.cloned()).or_insert(result).clone()
    }

    /// Names a kernel that may get on a GPU what it counts on, and here not.
    fn warn_of_races(&self) {
        let kernel = &self.kernel;
        let line = |at: Location| at.inst(kernel).map(|inst| inst.span.line);
        let found = unsynchronized::find(kernel);
        if let Some(read) = found.iter().find(|read| read.space == Space::Shared) {
            tracing::warn!(
                kernel = %kernel.name,
                stored_in_ptx_line = line(read.store),
                loaded_in_ptx_line = line(read.load),
                "it may read shared memory that another thread has written, with no barrier between; that depends on the \
                 order of threads, which is not a GPU's here"
            );
        }
    }

    /// What has been built for `points`, or for more than these. A device that stops every so often does so at other
    /// points each time, and compilers take seconds.
    fn known<'a>(
        &self,
        built: &'a Built,
        points: Option<&StartPoints>,
    ) -> Option<&'a BuildResult<Arc<dyn LoadedKernel>>> {
        let exact = built.get(&points.cloned());
        exact.or_else(|| {
            let wanted = points?;
            let serves = |start: &StartPoints| self.builder.generator.serves(&self.kernel, start, wanted);
            let mut others = built.iter().filter(|(_, result)| result.is_ok());
            let (_, found) = others.find(|(start, _)| start.as_ref().is_some_and(serves))?;
            Some(found)
        })
    }
}

/// A loaded program and the probed kernel it comes from; `None` for machine code.
pub type BuiltProgram = (Option<Arc<ProbedKernel>>, Arc<dyn LoadedKernel>);

/// What there is of a kernel.
pub enum Source {
    /// The kernel with its module variables bound.
    HetIr(Kernel),
    /// Machine code, loaded on the device.
    Opaque(OpaqueKernel),
    /// Nothing that can be run: why.
    Refused(Refusal),
}

/// A kernel of a module.
pub struct KernelCode {
    /// Mangled name.
    pub name: String,
    source: Source,
    builder: Builder,
    probed: OnceLock<BuildResult<Arc<ProbedKernel>>>,
    original: OnceLock<BuildResult<Arc<dyn LoadedKernel>>>,
    /// What was built for the latest launch: the next one mostly has the same room.
    latest: Mutex<Option<(Room, BuiltProgram)>>,
    has_run: AtomicBool,
    /// Where blocks of its cooperative launches meet, if they do.
    grid_workspace: Option<WorkspaceParam>,
    /// Constant memory that its module has, bytes.
    const_bytes: u32,
}

impl KernelCode {
    /// A kernel of which nothing has been built.
    #[must_use]
    pub fn new(name: String, source: Source, builder: Builder) -> Self {
        Self {
            name,
            source,
            builder,
            probed: OnceLock::new(),
            original: OnceLock::new(),
            latest: Mutex::default(),
            has_run: AtomicBool::new(false),
            grid_workspace: None,
            const_bytes: 0,
        }
    }

    /// Of a module with so much constant memory.
    #[must_use]
    pub fn with_const_bytes(mut self, const_bytes: u32) -> Self {
        self.const_bytes = const_bytes;
        self
    }

    /// Constant memory that its module has, bytes.
    #[must_use]
    pub const fn const_bytes(&self) -> u32 {
        self.const_bytes
    }

    /// With a parameter for one of its module's workspaces.
    #[must_use]
    pub fn with_grid_workspace(mut self, param: Option<WorkspaceParam>) -> Self {
        self.grid_workspace = param;
        self
    }

    /// The parameter buffer of a launch: the program's, and behind it what it does not know of.
    #[must_use]
    pub fn complete_params(&self, params: Arc<[u8]>, shape: &LaunchShape) -> Arc<[u8]> {
        match &self.grid_workspace {
            Some(param) => param.append(&params, shape.cooperative),
            None => params,
        }
    }

    /// Notes that it is launched.
    pub fn note_run(&self) {
        // A store would take the line from other threads each time.
        if !self.has_run() {
            self.has_run.store(true, Ordering::Relaxed);
        }
    }

    /// True if it has been launched, here and not before a restore.
    #[must_use]
    pub fn has_run(&self) -> bool {
        self.has_run.load(Ordering::Relaxed)
    }

    /// The kernel without probes, as the program would have it: only to be asked what it needs.
    ///
    /// It is made from hetIR too, and not from the program's own PTX, whose whole module would have to be compiled for
    /// it.
    fn original(&self, kernel: &Kernel) -> BuildResult<Arc<dyn LoadedKernel>> {
        let build = || {
            let layout = ThreadStateLayout::new(kernel);
            let request = self.builder.generator.request(kernel, &layout, Start::Whole)?;
            Ok(self.builder.device.load(&request)?)
        };
        self.original.get_or_init(build).clone()
    }

    /// Size of the program's parameter buffer, or why the kernel cannot be run.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn param_bytes(&self) -> Result<u32, &Refusal> {
        match &self.source {
            Source::HetIr(kernel) => Ok(kernel
                .program_params()
                .iter()
                .map(|param| param.offset + param.size_bytes)
                .max()
                .unwrap_or(0)),
            Source::Opaque(kernel) => Ok(kernel.params.iter().map(|&(at, size)| at + size).max().unwrap_or(0)),
            Source::Refused(refusal) => Err(refusal),
        }
    }

    /// True if there is machine code only: a pause does not stop it.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        matches!(self.source, Source::Opaque(_))
    }

    /// The probed kernel, probed now if it has not been.
    fn probed(&self, kernel: &Kernel) -> BuildResult<Arc<ProbedKernel>> {
        let probe = || {
            let probed = hetckpt_probes::probe(kernel, &Options::default())?;
            Ok(Arc::new(ProbedKernel::new(probed, self.builder.clone())))
        };
        self.probed.get_or_init(probe).clone()
    }

    /// True if [`Self::build_leaving`] would return at once.
    #[must_use]
    pub fn is_built_leaving(&self, room: Room) -> bool {
        if self.latest(room).is_some() {
            return true;
        }
        match (&self.source, self.probed.get()) {
            (Source::HetIr(_), Some(Ok(probed))) => probed.is_built_leaving(None, room),
            _ => self.is_built(),
        }
    }

    /// True if a launch is known to be over so soon that a pause can as well wait for it.
    #[must_use]
    pub fn ends_soon(&self, room: Room, shape: &LaunchShape) -> bool {
        let latest = self.latest.lock();
        let built = latest.as_ref().filter(|(known, _)| *known == room);
        built.is_some_and(|(_, (_, loaded))| loaded.ends_soon(shape))
    }

    /// As [`Self::build`], with registers that leave `room` if those of the original do: a probed kernel is launched
    /// wherever the original would be.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_leaving(&self, room: Room) -> BuildResult<BuiltProgram> {
        let Source::HetIr(kernel) = &self.source else {
            return self.build();
        };
        if let Some(built) = self.latest(room) {
            return Ok(built);
        }
        let probed = self.probed(kernel)?;
        let can_original = || {
            let original = self.original(kernel);
            original.is_ok_and(|original| self.builder.device.leaves_room(&*original, room))
        };
        let loaded = probed.build_leaving(None, room, can_original)?;
        let built = (Some(probed), loaded);
        *self.latest.lock() = Some((room, built.clone()));
        Ok(built)
    }

    fn latest(&self, room: Room) -> Option<BuiltProgram> {
        let latest = self.latest.lock();
        let (known, built) = latest.as_ref()?;
        (*known == room).then(|| built.clone())
    }

    /// True if [`Self::build`] would return at once.
    #[must_use]
    pub fn is_built(&self) -> bool {
        match (&self.source, self.probed.get()) {
            (Source::Opaque(_) | Source::Refused(_), _) | (_, Some(Err(_))) => true,
            (Source::HetIr(_), Some(Ok(probed))) => probed.is_built(None),
            (Source::HetIr(_), None) => false,
        }
    }

    /// The ordinary program, built now if it has not been, and the probed kernel it comes from, if there is one.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(&self) -> BuildResult<BuiltProgram> {
        match &self.source {
            Source::HetIr(kernel) => {
                let probed = self.probed(kernel)?;
                let loaded = probed.build(None)?;
                Ok((Some(probed), loaded))
            }
            Source::Opaque(kernel) => Ok((None, Arc::clone(&kernel.kernel))),
            Source::Refused(refusal) => Err(refusal.clone().into()),
        }
    }

    /// True if [`Self::attributes`] would return at once, whatever may be loaded.
    #[must_use]
    pub fn knows_attributes(&self) -> bool {
        match &self.source {
            Source::HetIr(_) if self.builder.device.has_registers() => self.original.get().is_some(),
            _ => self.is_built(),
        }
    }

    /// Answers a question about the clusters of the kernel as the program has it; `may_load` as for
    /// [`Self::attributes`].
    ///
    /// # Errors
    /// [`BuildError`]; what the driver says is in its [`DeviceError`].
    pub fn query_clusters(&self, query: &ClusterQuery, may_load: bool) -> BuildResult<u32> {
        let device = &self.builder.device;
        let kernel = match &self.source {
            Source::HetIr(kernel) if may_load || self.original.get().is_some() => self.original(kernel)?,
            _ => self.build()?.1,
        };
        Ok(device.query_clusters(&*kernel, query)?)
    }

    /// What the kernel needs and allows, without what probes add: programs reckon with it. Where the original cannot be
    /// loaded now (`may_load`), because that would wait for a running kernel, which perhaps waits for the program, it
    /// is what the probed one needs, if that is loaded.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn attributes(&self, may_load: bool) -> BuildResult<KernelAttributes> {
        match &self.source {
            Source::HetIr(kernel)
                if self.builder.device.has_registers()
                    && (may_load || self.original.get().is_some() || !self.is_built()) =>
            {
                Ok(self.original(kernel)?.attributes())
            }
            _ => Ok(self.build()?.1.attributes()),
        }
    }
}
