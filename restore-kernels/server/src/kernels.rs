//! Kernels of an application: probed and built for the device when first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_devices::device::{Device, KernelAttributes, LoadedKernel, OpaqueKernel};
use hetckpt_ir::kernel::Kernel;
use hetckpt_probes::options::Options;

use crate::generate::{Generator, Start};
use crate::start_points::StartPoints;

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
type Built = HashMap<Option<StartPoints>, BuildResult<Arc<dyn LoadedKernel>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub fn is_built(&self, points: Option<&StartPoints>) -> bool {
        self.known(&lock(&self.built), points).is_some()
    }

    /// The program that starts at `points` (`None`: the ordinary one), built now if it has not been.
    ///
    /// # Errors
    /// In words.
    pub fn build(&self, points: Option<&StartPoints>) -> BuildResult<Arc<dyn LoadedKernel>> {
        if let Some(known) = self.known(&lock(&self.built), points) {
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
        lock(&self.built).entry(points.cloned()).or_insert(result).clone()
    }

    /// What has been built for `points`, or for more than these. A device that stops every so often does so at other points
    /// each time, and compilers take seconds.
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
