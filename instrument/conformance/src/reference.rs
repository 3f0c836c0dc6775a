//! What results should be: the reference interpreter's.

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_interp::{GlobalMemory, Launch, run};
use hetckpt_ir::types::Dim3;

use crate::implementation::Shape;

/// Addresses of the operands and of the output, with room for what kernels of tests have.
const INPUT: u64 = 0x10_0000;
const OUTPUT: u64 = 0x100_0000;

/// What `output` holds after the reference interpreter has run `program`, whose two parameters are the addresses of
/// `operands` and of `output`.
pub fn interpret(program: &Program, shape: Shape, operands: &[u64], output: &[u64]) -> Vec<u64> {
    let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let mut memory = GlobalMemory::new();
    memory.map(INPUT, bytes(operands));
    memory.map(OUTPUT, bytes(output));
    let params = bytes(&[INPUT, OUTPUT]);
    let layout = ThreadStateLayout::new(&program.kernel);
    let [grid, block] = [shape.grid, shape.block].map(|[x, y, z]| Dim3 { x, y, z });
    let launch = Launch::new(program, &layout, grid, block, &params);
    run(launch, &mut memory).unwrap_or_else(|e| panic!("{e}"));
    let after = memory.range(OUTPUT).unwrap().chunks(8);
    after.map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}
