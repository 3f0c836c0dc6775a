//! Runs a kernel of the instruction tests on the OpenCL device.

use std::collections::BTreeSet;

use hetckpt_abi::opencl_program::Stops;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_conformance::{Implementation, Shape};

use crate::device::{self, ARENA_BASE, LaunchShape};

/// The device that tests use.
pub struct FirstDevice;

impl Implementation for FirstDevice {
    fn run(&self, program: &Program, shape: Shape, operands: &[u64], output: &mut [u64]) -> bool {
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
        let shape = LaunchShape::of(&program.kernel, shape);
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

    /// `sin.approx` and `cos.approx` are of the argument itself up to 100π, where the interpreter has it in turns, as
    /// GPUs do: of 128 that is 1.7e-5 elsewhere.
    fn approximation(&self) -> f64 {
        2e-5
    }

    fn near_zero(&self) -> f64 {
        1.0
    }

    fn has_canonical_nans(&self) -> bool {
        false
    }

    fn has_numbered_barriers(&self) -> bool {
        false
    }
}
