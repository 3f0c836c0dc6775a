//! A loaded program.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hetckpt_abi::cpu_codegen::Entry;
use hetckpt_abi::cpu_tables::{BarrierTable, WarpTable};
use hetckpt_abi::thread_state::ThreadStateLayout;

use super::MAX_THREADS_PER_BLOCK;
use super::code_generator::CodeGenerator;
use super::object::Regions;
use crate::device::{Code, KernelAttributes, LoadRequest, LoadedKernel};
use crate::error::DeviceError;

/// What a thread at a resume point waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    No,
    /// The barrier with this index in the tables.
    Barrier(usize),
    /// The warp-level operation with this index.
    WarpOp(usize),
}

/// A program on the CPU.
pub struct CpuKernel {
    /// Name.
    pub name: String,
    /// Static shared memory.
    pub static_shared_bytes: u32,
    /// Local frame of a thread.
    pub local_bytes: u32,
    /// Parameter buffer.
    pub param_bytes: u32,
    /// Where registers are saved.
    pub layout: ThreadStateLayout,
    regions: Regions,
    waits: Vec<Waits>,
    source: Source,
    resumable: Arc<OnceLock<Option<Regions>>>,
}

struct Source {
    generator: Arc<CodeGenerator>,
    cache_dir: Option<PathBuf>,
    text: Arc<str>,
}

impl CpuKernel {
    /// Compiles and loads.
    pub fn load(
        generator: &Arc<CodeGenerator>,
        cache_dir: Option<&Path>,
        request: &LoadRequest,
    ) -> Result<Self, DeviceError> {
        let failed = |log: String| DeviceError::Build {
            kernel: request.name.clone(),
            device: "cpu".to_owned(),
            log,
        };
        let Code::HetIr { text, entries } = &request.code else {
            return Err(failed("the CPU takes hetIR".to_owned()));
        };
        let entries: Vec<Entry> = entries
            .iter()
            .map(|&(resume_point, block)| Entry { resume_point, block })
            .collect();
        let regions = Regions::build(generator, cache_dir, text, &entries).map_err(|e| failed(e.to_string()))?;
        if regions.tables.bytes_per_thread != request.layout.bytes_per_thread {
            return Err(failed(
                "the compiled code saves registers elsewhere than the layout says".to_owned(),
            ));
        }
        let waits = waits_by_point(&regions);
        Ok(Self {
            name: request.name.clone(),
            static_shared_bytes: request.static_shared_bytes,
            local_bytes: request.local_bytes,
            param_bytes: request.param_bytes,
            layout: request.layout.clone(),
            regions,
            waits,
            source: Source {
                generator: generator.clone(),
                cache_dir: cache_dir.map(Path::to_owned),
                text: text.as_str().into(),
            },
            resumable: Arc::new(OnceLock::new()),
        })
    }

    /// The function for threads at a resume point, if they can go on there.
    pub fn region(&self, point: u32) -> Option<hetckpt_abi::cpu_block::CpuRegion> {
        self.regions
            .function(point)
            .or_else(|| self.resumable.get()?.as_ref()?.function(point))
    }

    /// What threads at a resume point wait for.
    pub fn waits(&self, point: u32) -> Waits {
        self.waits.get(point as usize).copied().unwrap_or(Waits::No)
    }

    /// Barriers.
    pub fn barriers(&self) -> &[BarrierTable] {
        &self.regions.tables.barriers
    }

    /// Warp-level operations.
    pub fn warp_ops(&self) -> &[WarpTable] {
        &self.regions.tables.warp_ops
    }

    /// Bytes of saved registers a thread.
    pub fn bytes_per_thread(&self) -> u32 {
        self.regions.tables.bytes_per_thread
    }

    /// True once threads can be started at every resume point, loop probes included.
    pub fn is_resumable(&self) -> bool {
        matches!(self.resumable.get(), Some(Some(_)))
    }

    /// True if nobody has tried to make it so yet.
    pub fn wants_resumable(&self) -> bool {
        self.resumable.get().is_none()
    }

    /// Compiles what [`CpuKernel::is_resumable`] needs.
    pub fn make_resumable(&self) {
        self.resumable.get_or_init(|| {
            let Source {
                generator,
                cache_dir,
                text,
            } = &self.source;
            Regions::build(generator, cache_dir.as_deref(), text, &[])
                .inspect_err(|error| tracing::warn!(kernel = self.name, %error, "blocks of it cannot take turns"))
                .ok()
        });
    }
}

fn waits_by_point(regions: &Regions) -> Vec<Waits> {
    let tables = &regions.tables;
    let barriers = tables
        .barriers
        .iter()
        .enumerate()
        .map(|(i, b)| (b.arrive, Waits::Barrier(i)));
    let warp_ops = tables
        .warp_ops
        .iter()
        .enumerate()
        .map(|(i, o)| (o.arrive, Waits::WarpOp(i)));
    let all: Vec<(u32, Waits)> = barriers.chain(warp_ops).collect();
    let mut waits = vec![Waits::No; all.iter().map(|(point, _)| *point as usize + 1).max().unwrap_or(0)];
    for (point, wait) in all {
        waits[point as usize] = wait;
    }
    waits
}

impl LoadedKernel for CpuKernel {
    fn attributes(&self) -> KernelAttributes {
        KernelAttributes {
            max_threads_per_block: MAX_THREADS_PER_BLOCK,
            // There is no such number; this one lets occupancy computations come out as usual.
            num_registers: 32,
            static_shared_bytes: self.static_shared_bytes,
            local_bytes: self.local_bytes,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
