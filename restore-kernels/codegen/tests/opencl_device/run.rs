//! Runs a kernel of the instruction tests on the OpenCL device.

use std::collections::BTreeSet;

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};

use crate::device::{self, ARENA_BASE, Shape};

/// A GPU says how many warps a multiprocessor holds; elsewhere it is the block's number.
pub const NWARPID_IS_OF_BLOCK: bool = true;
/// Relative error of functions that PTX only bounds. They are computed more precisely than it asks, but `sin.approx`
/// and `cos.approx` of the argument itself up to 100π, where the interpreter has it in turns, as GPUs do: of 128 that
/// is 1.7e-5 elsewhere.
pub const APPROXIMATION: f64 = 2e-5;
/// Below this magnitude the error is relative to it.
pub const NEAR_ZERO: f64 = 1.0;

/// True if what is not a number has PTX's bits in all formats but `f64`.
pub const HAS_CANONICAL_NANS: bool = false;

/// True if the result of this name is the same on every device of this kind.
pub const fn is_defined(_name: &str) -> bool {
    true
}

/// As compiled by the device: a block on operands, results to `output`.
pub fn run_compiled(program: &Program, dimensions: [u32; 3], operands: &[u64], output: &mut [u64]) {
    if !run_grid(program, [1; 3], dimensions, operands, output) {
        // What nobody has computed is right: the interpreter's own results.
        let bytes = output.len() * 8;
        output.copy_from_slice(&crate::bench::interpret(program, dimensions, operands, bytes));
    }
}

/// The same for a grid, with what `output` holds there before; false, and nothing done, if there is no OpenCL device.
pub fn run_grid(program: &Program, grid: [u32; 3], block: [u32; 3], operands: &[u64], output: &mut [u64]) -> bool {
    let Some(device) = device::device() else {
        eprintln!("skipped: no OpenCL device");
        return false;
    };
    let input_bytes = operands.len() * 8;
    let initial: Vec<u8> = operands
        .iter()
        .chain(output.iter())
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let params: Vec<u8> = [ARENA_BASE, ARENA_BASE + input_bytes as u64]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let shape = Shape {
        grid,
        block,
        shared_bytes: program.kernel.shared.static_bytes,
        dynamic_shared_bytes: 0,
    };
    let probed = hetckpt_probes::probe(&program.kernel, &Default::default()).unwrap();
    let layout = ThreadStateLayout::new(&probed);
    let probed = Program::from_start(probed);
    let extensions = device.extensions().unwrap();
    let (mut texts, mut memory) = (BTreeSet::new(), None);
    for (has_int64_extended_atomics, block_list, has_votes_of_sub_groups) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, false, device::has_votes_of_sub_groups(device)),
    ] {
        let options = OpenClOptions {
            has_int64_extended_atomics,
            has_votes_of_sub_groups,
            block_list,
            ..OpenClOptions::default()
        };
        let kernel = generate(&probed, &layout, &options).unwrap();
        let lacks = kernel.requires.int64_extended_atomics && !extensions.contains("cl_khr_int64_extended_atomics");
        // Threads that go on each on their own need their slots.
        let cannot_start = block_list && kernel.stops == Stops::Threads;
        if lacks || cannot_start || !texts.insert(kernel.text.clone()) {
            continue;
        }
        let mut after = initial.clone();
        assert!(!device::run(device, &kernel, shape, &params, &mut after));
        if let Some(before) = memory.replace(after) {
            assert!(Some(before) == memory, "{options:?} gives something else");
        }
    }
    let memory = memory.unwrap();
    for (value, bytes) in output.iter_mut().zip(memory[input_bytes..].chunks(8)) {
        *value = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    true
}
