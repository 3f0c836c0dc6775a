//! Runs a kernel on an NVIDIA GPU.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::ptx::{PtxOptions, generate};
use hetckpt_devices::cuda::{CudaDevice, CudaOptions};
use hetckpt_devices::device::{Blocks, Code, DEVICE_BASE, Device, GRANULARITY, Launch, LoadRequest, Outcome};

/// Device memory: operands first, results behind.
const MEMORY_BYTES: u64 = 32 << 20;

/// The GPU whose results are wanted, if any.
pub fn wanted() -> Option<&'static Mutex<CudaDevice>> {
    static DEVICE: OnceLock<Option<Mutex<CudaDevice>>> = OnceLock::new();
    let open = || {
        let number = std::env::var("HETCKPT_TEST_CUDA").ok()?;
        let device =
            CudaDevice::open(number.parse().unwrap(), &CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        device
            .map(DEVICE_BASE, MEMORY_BYTES.next_multiple_of(GRANULARITY))
            .unwrap_or_else(|e| panic!("{e}"));
        Some(Mutex::new(device))
    };
    DEVICE.get_or_init(open).as_ref()
}

/// Runs one block.
pub fn run(device: &Mutex<CudaDevice>, program: &Program, dimensions: [u32; 3], operands: &[u64], output: &mut [u64]) {
    let device = device.lock();
    let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let (input, results) = (bytes(operands), bytes(output));
    let output_at = DEVICE_BASE + (input.len() as u64).next_multiple_of(256);
    assert!(output_at + results.len() as u64 <= DEVICE_BASE + MEMORY_BYTES);
    device.write(DEVICE_BASE, &input).unwrap();
    device.write(output_at, &results).unwrap();
    let kernel = &program.kernel;
    let options = PtxOptions {
        sm: device.sm(),
        shared_base: device.shared_base(),
        ..PtxOptions::default()
    };
    let layout = ThreadStateLayout::new(kernel);
    let request = LoadRequest {
        name: kernel.name.clone(),
        code: Code::Ptx(generate(program, &layout, &options).unwrap().text),
        entries: vec![0],
        layout,
        param_bytes: kernel.param_bytes(),
        params: kernel.params.iter().map(|p| (p.offset, p.size_bytes)).collect(),
        static_shared_bytes: kernel.shared.static_bytes,
        local_bytes: kernel.local.size_bytes,
    };
    let loaded = device.load(&request).unwrap_or_else(|e| panic!("{e}"));
    let launch = Launch {
        kernel: loaded,
        shape: LaunchShape::new([1; 3], dimensions),
        params: Arc::from(bytes(&[DEVICE_BASE, output_at])),
        blocks: Blocks::All,
    };
    let outcome = device.create_queue(0).unwrap().launch(launch).unwrap().wait();
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    let mut results = results;
    device.read(output_at, &mut results).unwrap();
    for (value, bytes) in output.iter_mut().zip(results.chunks_exact(8)) {
        *value = u64::from_le_bytes(bytes.try_into().unwrap());
    }
}
