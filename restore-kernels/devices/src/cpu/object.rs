#![allow(unsafe_code, reason = "addresses of generated functions")]
//! A compiled program in memory: its region functions and tables.

use std::sync::Arc;
use std::time::Instant;

use hetckpt_abi::cpu_block::{CpuRegion, region_symbol};
use hetckpt_abi::cpu_codegen::{Entry, Tier};
use hetckpt_abi::cpu_tables::{CpuTables, DecodeError};
use hetckpt_cache::folder::{CacheFolder, Key, Kind};

use super::code_generator::{CodeGenerator, Compiled, GeneratorError, LoadedObject};

/// Why there are no region functions.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    /// The code generator refuses the program, or what it has made of it.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    /// Its tables cannot be read (a bug in us, or another version's shared object).
    #[error("the code generator's tables are damaged")]
    DamagedTables(#[from] DecodeError),
}

/// Of what programs are compiled, and with what.
pub struct Source {
    /// The compiler.
    pub generator: Arc<CodeGenerator>,
    /// Keeps objects.
    pub cache: Option<CacheFolder>,
    /// hetIR.
    pub text: Arc<str>,
}

impl Source {
    fn key(&self, entries: &[Entry], tier: Tier) -> Key {
        let numbers = entries.iter().flat_map(|entry| [entry.resume_point, entry.block]);
        let numbers: Vec<u8> = [tier.number()]
            .into_iter()
            .chain(numbers)
            .flat_map(u32::to_le_bytes)
            .collect();
        Key::new(
            Kind::Cpu,
            &[self.generator.identity().as_bytes(), self.text.as_bytes(), &numbers],
        )
    }
}

/// Region functions by resume point.
pub struct Regions {
    functions: Vec<Option<CpuRegion>>,
    /// Barriers and warp-level operations.
    pub tables: CpuTables,
    /// Keeps the functions valid.
    _object: LoadedObject,
}

impl Regions {
    /// Takes a program from the cache or compiles it, and loads it.
    pub fn build(source: &Source, entries: &[Entry], tier: Tier) -> Result<Self, RegionsError> {
        if let Some(regions) = Self::cached(source, entries, tier) {
            return Ok(regions);
        }
        let began = Instant::now();
        let compiled = source.generator.compile(&source.text, entries, tier)?;
        tracing::debug!(bytes = source.text.len(), ?tier, took = ?began.elapsed(), "compiled");
        if let Some(cache) = &source.cache {
            cache.write(&source.key(entries, tier), &compiled.to_bytes());
        }
        Self::load(&source.generator, &compiled)
    }

    /// Takes a program from the cache, if it is there, and loads it.
    pub fn cached(source: &Source, entries: &[Entry], tier: Tier) -> Option<Self> {
        let bytes = source.cache.as_ref()?.read(&source.key(entries, tier))?;
        Self::load(&source.generator, &Compiled::from_bytes(&bytes)?).ok()
    }

    fn load(generator: &Arc<CodeGenerator>, compiled: &Compiled) -> Result<Self, RegionsError> {
        let tables = CpuTables::decode(&compiled.tables)?;
        let object = generator.load(&compiled.object)?;
        let num_points = tables.regions.iter().max().map_or(0, |&last| last as usize + 1);
        let mut functions = vec![None; num_points];
        for &point in &tables.regions {
            let address = object.symbol(&region_symbol(point))?;
            // SAFETY: the generator makes its region symbols with this signature, and the address is not null.
            functions[point as usize] =
                Some(unsafe { std::mem::transmute::<*const std::ffi::c_void, CpuRegion>(address) });
        }
        Ok(Self {
            functions,
            tables,
            _object: object,
        })
    }

    /// The function for threads at a resume point.
    pub fn function(&self, point: u32) -> Option<CpuRegion> {
        self.functions.get(point as usize).copied().flatten()
    }
}
