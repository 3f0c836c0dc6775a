//! A loaded program.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hetckpt_abi::cpu_codegen::{Entry, Tier};
use hetckpt_abi::cpu_tables::{BarrierTable, StepTable, WarpTable};
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_cache::folder::CacheFolder;

use super::code_generator::CodeGenerator;
use super::object::{Regions, Source};
use super::{CpuOptions, MAX_THREADS_PER_BLOCK};
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
    /// The others of its block; then it goes on at this resume point.
    Step(u32),
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
    source: Source,
    entries: Vec<Entry>,
    waits: Vec<Waits>,
    /// What it starts with.
    regions: Regions,
    tier: Tier,
    /// How long it has run in code of the quick tier, all workers together.
    run_ns: AtomicU64,
    /// In the full tier, once it has turned hot; `None` if that failed.
    optimized: OnceLock<Option<Regions>>,
    /// With functions for all resume points; `None` if that failed.
    resumable: OnceLock<Option<Regions>>,
}

/// About what full code costs, for a byte of hetIR. A kernel that has run in quick code for as long as that is hot: it
/// is likely to run for as long again.
const FULL_NS_PER_BYTE: u64 = 10_000;

impl CpuKernel {
    /// Compiles and loads.
    pub fn load(
        generator: &Arc<CodeGenerator>,
        options: &CpuOptions,
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
        let source = Source {
            generator: generator.clone(),
            cache: options.cache_dir.clone().map(CacheFolder::new),
            text: text.as_str().into(),
        };
        let is_long = text.len() >= options.quick_from_bytes;
        let full = match is_long {
            true => Regions::cached(&source, &entries, Tier::Full),
            false => None,
        };
        let (tier, regions) = match (full, is_long) {
            (Some(regions), _) => (Tier::Full, Ok(regions)),
            (None, true) => (Tier::Quick, Regions::build(&source, &entries, Tier::Quick)),
            (None, false) => (Tier::Full, Regions::build(&source, &entries, Tier::Full)),
        };
        let regions = regions.map_err(|e| failed(e.to_string()))?;
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
            source,
            entries,
            waits,
            regions,
            tier,
            run_ns: AtomicU64::new(0),
            optimized: OnceLock::new(),
            resumable: OnceLock::new(),
        })
    }

    /// The function for threads at a resume point, if they can go on there. Between two calls it may become a faster
    /// one: what a thread has is in its saved registers, which all of them have at the same places.
    pub fn region(&self, point: u32) -> Option<hetckpt_abi::cpu_block::CpuRegion> {
        let present = |regions: &OnceLock<Option<Regions>>| regions.get()?.as_ref()?.function(point);
        present(&self.optimized)
            .or_else(|| self.regions.function(point))
            .or_else(|| present(&self.resumable))
    }

    /// Counts time that a worker has run it; true if it has turned hot by that, so that [`CpuKernel::optimize`] pays.
    pub fn count_run(&self, time: Duration) -> bool {
        if self.tier == Tier::Full {
            return false;
        }
        let (hot, time) = (self.source.text.len() as u64 * FULL_NS_PER_BYTE, time.as_nanos() as u64);
        let before = self.run_ns.fetch_add(time, Ordering::Relaxed);
        before < hot && before.saturating_add(time) >= hot
    }

    /// Compiles it in the full tier; takes as long as that does.
    pub fn optimize(&self) {
        self.optimized
            .get_or_init(|| self.build_again(&self.entries, Tier::Full, "it stays as slow as it is"));
    }

    fn build_again(&self, entries: &[Entry], tier: Tier, otherwise: &str) -> Option<Regions> {
        Regions::build(&self.source, entries, tier)
            .inspect_err(|error| tracing::warn!(kernel = self.name, %error, "{otherwise}"))
            .ok()
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

    /// Places where threads run in step.
    pub fn steps(&self) -> &[StepTable] {
        &self.regions.tables.steps
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
        self.resumable
            .get_or_init(|| self.build_again(&[], self.tier, "blocks of it cannot take turns"));
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
    let steps = tables.steps.iter().map(|step| (step.arrive, Waits::Step(step.leave)));
    let all: Vec<(u32, Waits)> = barriers.chain(warp_ops).chain(steps).collect();
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
