//! Runs a kernel of the instruction tests on the OpenCL device.

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};

use crate::device::{self, ARENA_BASE, Shape};

/// As compiled by the device: a block on operands, results to `output`.
pub fn run_compiled(program: &Program, dimensions: [u32; 3], operands: &[u64], output: &mut [u64]) {
    let Some(device) = device::device() else {
        // What nobody has computed is right: the interpreter's own results.
        eprintln!("skipped: no OpenCL device");
        let bytes = output.len() * 8;
        output.copy_from_slice(&crate::bench::interpret(program, dimensions, operands, bytes));
        return;
    };
    let input_bytes = operands.len() * 8;
    let mut memory: Vec<u8> = operands
        .iter()
        .chain(output.iter())
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let params: Vec<u8> = [ARENA_BASE, ARENA_BASE + input_bytes as u64]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let shape = Shape {
        grid: [1; 3],
        block: dimensions,
        shared_bytes: program.kernel.shared.static_bytes,
        dynamic_shared_bytes: 0,
    };
    let probed = hetckpt_probes::probe(&program.kernel, &Default::default()).unwrap();
    let layout = ThreadStateLayout::new(&probed);
    let probed = Program::from_start(probed);
    for has_int64_extended_atomics in [false, true] {
        let options = OpenClOptions {
            has_int64_extended_atomics,
        };
        let kernel = generate(&probed, &layout, &options).unwrap();
        let is_extended = kernel.requires.int64_extended_atomics;
        if has_int64_extended_atomics && !is_extended {
            break; // the same text
        }
        let extensions = device.extensions().unwrap();
        if is_extended && !extensions.contains("cl_khr_int64_extended_atomics") {
            break;
        }
        assert!(!device::run(device, &kernel, shape, &params, &mut memory));
    }
    for (value, bytes) in output.iter_mut().zip(memory[input_bytes..].chunks(8)) {
        *value = u64::from_le_bytes(bytes.try_into().unwrap());
    }
}
