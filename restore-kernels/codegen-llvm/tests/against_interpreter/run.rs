//! Runs a kernel compiled for the CPU.

#![allow(unsafe_code, reason = "calls compiled code")]

use hetckpt_abi::cpu_block::{CpuBlock, CpuRegion, region_symbol};
use hetckpt_abi::program::Program;
use hetckpt_cpu_codegen::compile::compile;
use hetckpt_cpu_codegen::loaded::LoadedObject;

use crate::bench::NUM_THREADS;

/// A GPU says how many warps a multiprocessor holds; elsewhere it is the block's number.
pub const NWARPID_IS_OF_BLOCK: bool = true;
/// Relative error of functions that PTX only bounds: they are computed more precisely than it asks.
pub const APPROXIMATION: f64 = 1e-6;
/// Below this magnitude the error is relative to it.
pub const NEAR_ZERO: f64 = 1e-6;

/// True if what is not a number has PTX's bits in all formats but `f64`.
pub const HAS_CANONICAL_NANS: bool = true;

/// True if the result of this name is the same on every device of this kind.
pub const fn is_defined(_name: &str) -> bool {
    true
}

pub fn run_compiled(program: &Program, dimensions: [u32; 3], operands: &[u64], output: &mut [u64]) {
    let compiled = compile(program).unwrap_or_else(|e| panic!("{e}"));
    let object = LoadedObject::new(&compiled.object).unwrap();
    let symbol = object.symbol(&region_symbol(0)).unwrap();
    // SAFETY: region functions have this signature.
    let region = unsafe { std::mem::transmute::<*const std::ffi::c_void, CpuRegion>(symbol) };
    let params = [operands.as_ptr() as u64, output.as_mut_ptr() as u64];
    let mut points = vec![0u32; NUM_THREADS as usize];
    let mut shared = vec![0u128; program.kernel.shared.static_bytes as usize / 16];
    let mut local = vec![0u128; program.kernel.local.size_bytes as usize / 16 * NUM_THREADS as usize];
    let (mut trapped, pause) = (0u32, 0u32);
    let block = CpuBlock {
        global: std::ptr::null_mut(),
        pause: &raw const pause,
        params: params.as_ptr().cast(),
        resume_points: points.as_mut_ptr(),
        registers: std::ptr::null_mut(),
        shared: shared.as_mut_ptr().cast(),
        local: local.as_mut_ptr().cast(),
        trapped: &raw mut trapped,
        num_threads: NUM_THREADS,
        dynamic_shared_bytes: 0,
        block_dim: dimensions,
        grid_dim: [1; 3],
        block_index: [0; 3],
        reserved: 0,
    };
    // SAFETY: the kernel reads and writes the operands and the output only.
    unsafe { region(&raw const block, 0, NUM_THREADS) };
    assert!(points.iter().all(|&p| p == u32::MAX));
}
