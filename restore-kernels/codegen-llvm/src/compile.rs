//! LLVM IR text → optimised native object.

use std::num::NonZero;
use std::sync::{Arc, Once};

use hetckpt_abi::cpu_codegen::Tier;
use hetckpt_abi::program::Program;
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine};

use crate::emit;
use crate::error::CodegenError;
use crate::objects;
use crate::tables;

/// Version of the code this generator makes; part of the key of cached objects, so every change of output raises it.
pub const GENERATOR_VERSION: u32 = 11;

/// LLVM IR from which on a kernel is worth a second thread.
const LEAST_PART_BYTES: usize = 256 << 10;

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Relocatable objects ([`crate::objects`]).
    pub object: Vec<u8>,
    /// Barriers and warp-level operations, encoded.
    pub tables: Vec<u8>,
}

/// What objects depend on beside the program: generator, LLVM, host CPU.
#[must_use]
pub fn identity() -> String {
    initialize();
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!(
        "hetckpt {GENERATOR_VERSION} LLVM {major}.{minor}.{patch} {} {} {}",
        TargetMachine::get_default_triple().as_str().to_string_lossy(),
        TargetMachine::get_host_cpu_name().to_string_lossy(),
        TargetMachine::get_host_cpu_features().to_string_lossy(),
    )
}

/// Compiles a program for this host.
///
/// # Errors
/// Any [`CodegenError`].
pub fn compile(program: &Program, tier: Tier) -> Result<Compiled, CodegenError> {
    let module = emit::module(program)?;
    let tables = tables::build(&program.kernel, &module.layout, &module.regions)?;
    Ok(Compiled {
        object: objects::join(&all(&module.texts(LEAST_PART_BYTES, processors()), tier)?),
        tables: tables.encode().map_err(|e| CodegenError::Tables(Arc::new(e)))?,
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Optimises and assembles modules, each on a thread.
fn all(texts: &[String], tier: Tier) -> Result<Vec<Vec<u8>>, CodegenError> {
    if let [text] = texts {
        return Ok(vec![object(text, tier)?]);
    }
    let lost = || CodegenError::Llvm {
        step: "compile a part",
        message: "its thread was lost".to_owned(),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = texts
            .iter()
            .map(|text| scope.spawn(move || object(text, tier)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|result| result.unwrap_or_else(|_| Err(lost()))).collect()
    })
}

/// Optimises and assembles a module.
///
/// # Errors
/// [`CodegenError::Llvm`].
fn object(llvm_ir: &str, tier: Tier) -> Result<Vec<u8>, CodegenError> {
    let is_full = tier == Tier::Full;
    let machine = host_machine(tier)?;
    let context = Context::create();
    let module = parse(&context, llvm_ir)?;
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let options = PassBuilderOptions::create();
    options.set_loop_vectorization(is_full);
    options.set_loop_slp_vectorization(is_full);
    options.set_loop_interleaving(is_full);
    options.set_loop_unrolling(is_full);
    let passes = if is_full { "default<O3>" } else { "default<O1>" };
    module
        .run_passes(passes, &machine, options)
        .map_err(failure("optimise"))?;
    let object = machine
        .write_to_memory_buffer(&module, FileType::Object)
        .map_err(failure("emit the object"))?;
    Ok(object.as_slice().to_vec())
}

fn parse<'c>(context: &'c Context, llvm_ir: &str) -> Result<inkwell::module::Module<'c>, CodegenError> {
    let mut bytes = llvm_ir.as_bytes().to_vec();
    bytes.push(0);
    let buffer = MemoryBuffer::create_from_memory_range_copy(&bytes, "kernel.ll");
    let module = context.create_module_from_ir(buffer).map_err(failure("parse"))?;
    module.verify().map_err(failure("verify"))?;
    Ok(module)
}

fn host_machine(tier: Tier) -> Result<TargetMachine, CodegenError> {
    initialize();
    let triple = TargetMachine::get_default_triple();
    let target = Target::from_triple(&triple).map_err(failure("find this host's target"))?;
    target
        .create_target_machine(
            &triple,
            &TargetMachine::get_host_cpu_name().to_string_lossy(),
            &TargetMachine::get_host_cpu_features().to_string_lossy(),
            match tier {
                Tier::Quick => OptimizationLevel::Less,
                Tier::Full => OptimizationLevel::Aggressive,
            },
            RelocMode::PIC,
            CodeModel::Small,
        )
        .ok_or(CodegenError::Llvm {
            step: "make a target machine",
            message: "none for this host".to_owned(),
        })
}

pub(crate) fn initialize() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| Target::initialize_x86(&InitializationConfig::default()));
}

fn failure(step: &'static str) -> impl Fn(inkwell::support::LLVMString) -> CodegenError {
    move |message| CodegenError::Llvm {
        step,
        message: message.to_string_lossy().into_owned(),
    }
}
