//! Runs a kernel of the instruction tests on the CPU device.

use std::sync::Arc;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_conformance::{Implementation, Shape};
use hetckpt_devices::cpu::{CpuDevice, CpuOptions};
use hetckpt_devices::device::{Blocks, Code, Device, Launch, LoadRequest, Outcome};
use hetckpt_ir::text::print;

const MAX_WORKERS: u32 = 4;

/// The CPU device, with as many workers as a launch has blocks, up to [`MAX_WORKERS`].
pub struct Cpu;

/// The same, in quickly made code.
pub struct QuickCpu;

impl Implementation for Cpu {
    fn run(&self, program: &Program, shape: Shape, operands: &[u64], output: &mut [u64]) -> bool {
        run(usize::MAX, program, shape, operands, output)
    }
}

impl Implementation for QuickCpu {
    fn run(&self, program: &Program, shape: Shape, operands: &[u64], output: &mut [u64]) -> bool {
        run(0, program, shape, operands, output)
    }
}

fn run(quick_from_bytes: usize, program: &Program, shape: Shape, operands: &[u64], output: &mut [u64]) -> bool {
    // Cargo builds the shared object of a dev-dependency beside the test.
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let device = CpuDevice::open(&CpuOptions {
        code_generator: Some(folder.join("libhetckpt_cpu_codegen.so")),
        num_workers: Some(shape.grid.iter().product::<u32>().min(MAX_WORKERS) as usize),
        quick_from_bytes,
        ..CpuOptions::default()
    })
    .unwrap();
    let kernel = hetckpt_probes::probe(&program.kernel, &Default::default()).unwrap();
    let program = Program::from_start(kernel);
    let kernel = &program.kernel;
    let entries = program.entries.iter();
    let request = LoadRequest {
        name: kernel.name.clone(),
        code: Code::HetIr {
            text: print::kernel(kernel),
            entries: entries.clone().map(|(point, block)| (point.0, block.0)).collect(),
        },
        entries: entries.map(|(point, _)| point.0).collect(),
        layout: ThreadStateLayout::new(kernel),
        param_bytes: kernel.param_bytes(),
        params: kernel.params.iter().map(|p| (p.offset, p.size_bytes)).collect(),
        static_shared_bytes: kernel.shared.static_bytes,
        local_bytes: kernel.local.size_bytes,
    };
    // The CPU device's addresses are the process's.
    let params = [operands.as_ptr() as u64, output.as_mut_ptr() as u64];
    let launch = Launch {
        kernel: device.load(&request).unwrap_or_else(|e| panic!("{e}")),
        shape: LaunchShape::new(shape.grid, shape.block),
        params: Arc::from(params.map(u64::to_le_bytes).concat()),
        blocks: Blocks::All,
    };
    let outcome = device.create_queue(0).unwrap().launch(launch).unwrap().wait();
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    true
}
