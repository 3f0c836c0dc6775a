//! Runs a kernel compiled for the CPU.

#![allow(unsafe_code, reason = "calls compiled code")]

use hetckpt_abi::cpu_block::{CpuBlock, CpuRegion, region_symbol};
use hetckpt_abi::cpu_codegen::Tier;
use hetckpt_abi::program::Program;
use hetckpt_conformance::{Implementation, Shape};
use hetckpt_cpu_codegen::compile::compile;
use hetckpt_cpu_codegen::loaded::LoadedObject;

/// Compiled code, called as it is: one block, without probes.
pub struct CompiledBlock;

impl Implementation for CompiledBlock {
    fn run(&self, program: &Program, shape: Shape, operands: &[u64], output: &mut [u64]) -> bool {
        assert_eq!(shape.grid, [1; 3]);
        let num_threads: u32 = shape.block.iter().product();
        let compiled = compile(program, Tier::Full).unwrap_or_else(|e| panic!("{e}"));
        let object = LoadedObject::new(&compiled.object).unwrap();
        let symbol = object.symbol(&region_symbol(0)).unwrap();
        // SAFETY: region functions have this signature.
        let region = unsafe { std::mem::transmute::<*const std::ffi::c_void, CpuRegion>(symbol) };
        let params = [operands.as_ptr() as u64, output.as_mut_ptr() as u64];
        let mut points = vec![0u32; num_threads as usize];
        let mut shared = vec![0u128; program.kernel.shared.static_bytes as usize / 16];
        let mut local = vec![0u128; program.kernel.local.size_bytes as usize / 16 * num_threads as usize];
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
            num_threads,
            dynamic_shared_bytes: 0,
            block_dim: shape.block,
            grid_dim: [1; 3],
            block_index: [0; 3],
            reserved: 0,
        };
        // SAFETY: the kernel reads and writes the operands and the output only.
        unsafe { region(&raw const block, 0, num_threads) };
        assert!(points.iter().all(|&p| p == u32::MAX));
        true
    }
}
