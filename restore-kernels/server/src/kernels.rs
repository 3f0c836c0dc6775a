//! Kernels of an application: probed and built for the device when first needed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hetckpt_abi::paused_block::PausedGrid;
use hetckpt_abi::thread_state::{FINISHED, ThreadStateLayout};
use hetckpt_devices::device::{Device, KernelAttributes, LoadedKernel, OpaqueKernel};
use hetckpt_ir::kernel::Kernel;
use hetckpt_probes::options::Options;

use crate::generate::{Generator, Start};

/// What kernels are built with.
#[derive(Clone)]
pub struct Builder {
    /// The device.
    pub device: Arc<dyn Device>,
    /// What code it takes.
    pub generator: Generator,
}

/// Why a kernel cannot be built, in words.
pub type BuildResult<T> = Result<T, String>;

/// A probed kernel and what has been built of it.
pub struct ProbedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Where its threads' registers are saved.
    pub layout: ThreadStateLayout,
    builder: Builder,
    built: Mutex<Built>,
}

/// The ordinary program under `None`; continuations by their resume points.
type Built = HashMap<Option<Vec<u32>>, BuildResult<Arc<dyn LoadedKernel>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resume points at which the blocks of `grid` start, ascending; `None` if it is the whole grid from the start.
#[must_use]
pub fn start_points(grid: &PausedGrid, num_blocks: u64) -> Option<Vec<u32>> {
    if grid.paused.is_empty() && grid.num_not_started() == num_blocks {
        return None;
    }
    let mut points: BTreeSet<u32> = grid.paused.iter().flat_map(|b| &b.resume_points).copied().collect();
    points.remove(&FINISHED);
    if !grid.not_started.is_empty() || points.is_empty() {
        points.insert(0);
    }
    Some(points.into_iter().collect())
}

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
        }
    }

    /// True if building for `points` would return at once.
    #[must_use]
    pub fn is_built(&self, points: Option<&[u32]>) -> bool {
        lock(&self.built).contains_key(&points.map(<[u32]>::to_vec))
    }

    /// The program that starts at `points` (`None`: the ordinary one), built now if it has not been.
    ///
    /// # Errors
    /// In words.
    pub fn build(&self, points: Option<&[u32]>) -> BuildResult<Arc<dyn LoadedKernel>> {
        let key = points.map(<[u32]>::to_vec);
        if let Some(known) = lock(&self.built).get(&key) {
            return known.clone();
        }
        let started = std::time::Instant::now();
        let start = points.map_or(Start::Whole, Start::Listed);
        let result = self
            .builder
            .generator
            .request(&self.kernel, &self.layout, start)
            .and_then(|request| self.builder.device.load(&request).map_err(|e| e.to_string()));
        let name = &self.kernel.name;
        match &result {
            Ok(_) => tracing::debug!(kernel = %name, ?points, elapsed = ?started.elapsed(), "built"),
            Err(reason) => tracing::error!(kernel = %name, ?points, %reason, "cannot be built"),
        }
        lock(&self.built).entry(key).or_insert(result).clone()
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
    Refused(String),
}

/// A kernel of a module.
pub struct KernelCode {
    /// Mangled name.
    pub name: String,
    source: Source,
    builder: Builder,
    probed: OnceLock<BuildResult<Arc<ProbedKernel>>>,
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
        }
    }

    /// Size of the parameter buffer, or why the kernel cannot be run.
    ///
    /// # Errors
    /// In words.
    pub fn param_bytes(&self) -> Result<u32, &str> {
        match &self.source {
            Source::HetIr(kernel) => Ok(kernel.param_bytes()),
            Source::Opaque(kernel) => Ok(kernel.params.iter().map(|&(at, size)| at + size).max().unwrap_or(0)),
            Source::Refused(reason) => Err(reason),
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
            let probed = hetckpt_probes::probe(kernel, &Options::default()).map_err(|e| e.to_string())?;
            Ok(Arc::new(ProbedKernel::new(probed, self.builder.clone())))
        };
        self.probed.get_or_init(probe).clone()
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
    /// In words.
    pub fn build(&self) -> BuildResult<BuiltProgram> {
        match &self.source {
            Source::HetIr(kernel) => {
                let probed = self.probed(kernel)?;
                let loaded = probed.build(None)?;
                Ok((Some(probed), loaded))
            }
            Source::Opaque(kernel) => Ok((None, Arc::clone(&kernel.kernel))),
            Source::Refused(reason) => Err(reason.clone()),
        }
    }

    /// Attributes once built.
    ///
    /// # Errors
    /// In words.
    pub fn attributes(&self) -> BuildResult<KernelAttributes> {
        Ok(self.build()?.1.attributes())
    }
}
