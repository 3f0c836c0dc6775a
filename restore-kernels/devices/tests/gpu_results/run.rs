//! Results of a kernel of the instruction tests: the GPU's that is there, or those that were recorded.

use hetckpt_abi::program::Program;

use crate::{gpu, recorded};

/// A GPU says how many warps a multiprocessor holds; elsewhere it is the block's number.
pub const NWARPID_IS_OF_BLOCK: bool = false;
/// Relative error of functions that PTX only bounds (PTX ISA, `tanh.approx`: 2^-11).
pub const APPROXIMATION: f64 = 5e-4;
/// Below this magnitude the error is relative to it: `sin.approx`, `cos.approx` and `lg2.approx` have absolute errors.
pub const NEAR_ZERO: f64 = 1e-3;

/// True if what is not a number has PTX's bits in all formats but `f64`.
pub const HAS_CANONICAL_NANS: bool = true;

/// True if the result of this name is the same everywhere. Where warps are is the GPU's affair.
pub fn is_defined(name: &str) -> bool {
    name != "WarpId"
}

/// As a GPU computes it: a block on operands, results to `output`.
pub fn run_compiled(program: &Program, dimensions: [u32; 3], operands: &[u64], output: &mut [u64]) {
    let key = recorded::key(program, dimensions, operands);
    let Some(device) = gpu::wanted() else {
        recorded::read(&key, output);
        return;
    };
    gpu::run(device, program, dimensions, operands, output);
    if let Some(folder) = std::env::var_os("HETCKPT_RECORD") {
        recorded::write(folder.as_ref(), &key, output);
    }
}
