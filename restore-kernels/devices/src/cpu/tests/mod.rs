//! Tests of the CPU device with the real pipeline: PTX → hetIR → probes → native code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;
mod barriers_and_warps;
mod pausing;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::text::print;
use hetckpt_probes::options::Options;

use super::{CpuDevice, CpuOptions};
use crate::device::{Blocks, Code, Device, Launch, LoadRequest, LoadedKernel};

/// Tests use fixed device addresses, so only one at a time can have them mapped.
static ADDRESSES: Mutex<()> = Mutex::new(());

fn device() -> CpuDevice {
    CpuDevice::open(&options()).unwrap()
}

fn device_with(cache_dir: Option<PathBuf>) -> CpuDevice {
    CpuDevice::open(&CpuOptions { cache_dir, ..options() }).unwrap()
}

/// One that makes quick code of all kernels.
fn quick_device() -> CpuDevice {
    let quick_from_bytes = 0;
    CpuDevice::open(&CpuOptions {
        quick_from_bytes,
        ..options()
    })
    .unwrap()
}

fn options() -> CpuOptions {
    // Cargo builds the shared object of a dev-dependency beside the test.
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    CpuOptions {
        code_generator: Some(folder.join("libhetckpt_cpu_codegen.so")),
        num_workers: Some(3),
        ..CpuOptions::default()
    }
}

fn load(device: &CpuDevice, program: &Program) -> Arc<dyn LoadedKernel> {
    let kernel = &program.kernel;
    device
        .load(&LoadRequest {
            name: kernel.name.clone(),
            code: Code::HetIr {
                text: print::kernel(kernel),
                entries: program
                    .entries
                    .iter()
                    .map(|(point, block)| (point.0, block.0))
                    .collect(),
            },
            entries: program.entries.iter().map(|(point, _)| point.0).collect(),
            layout: ThreadStateLayout::new(kernel),
            param_bytes: kernel.param_bytes(),
            params: kernel.params.iter().map(|p| (p.offset, p.size_bytes)).collect(),
            static_shared_bytes: kernel.shared.static_bytes,
            local_bytes: kernel.local.size_bytes,
        })
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The only kernel of a PTX text, probed.
fn probe_ptx(ptx: &str, options: &Options) -> Kernel {
    let module = hetckpt_ptx::lower_module(ptx).unwrap_or_else(|e| panic!("{e}"));
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    hetckpt_probes::probe(&module.kernels[0], options).unwrap()
}

/// A one-dimensional launch.
fn linear(kernel: Arc<dyn LoadedKernel>, blocks: u32, threads: u32, params: &[u64]) -> Launch {
    Launch {
        kernel,
        shape: LaunchShape::new([blocks, 1, 1], [threads, 1, 1]),
        params: params.iter().flat_map(|p| p.to_le_bytes()).collect(),
        blocks: Blocks::All,
    }
}
