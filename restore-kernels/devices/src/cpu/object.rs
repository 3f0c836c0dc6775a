#![allow(unsafe_code, reason = "addresses of generated functions")]
//! A compiled program in memory: its region functions and tables.

use std::path::Path;
use std::sync::Arc;

use hetckpt_abi::cpu_block::{CpuRegion, region_symbol};
use hetckpt_abi::cpu_codegen::Entry;
use hetckpt_abi::cpu_tables::{CpuTables, DecodeError};

use super::cache;
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
    pub fn build(
        generator: &Arc<CodeGenerator>,
        cache_dir: Option<&Path>,
        text: &str,
        entries: &[Entry],
    ) -> Result<Self, RegionsError> {
        let file = cache_dir.map(|dir| cache::path(dir, generator.identity(), text, entries));
        if let Some(compiled) = file.as_deref().and_then(cache::read)
            && let Ok(regions) = Self::load(generator, &compiled)
        {
            return Ok(regions);
        }
        let compiled = generator.compile(text, entries)?;
        if let Some(file) = file {
            cache::write(&file, &compiled);
        }
        Self::load(generator, &compiled)
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
