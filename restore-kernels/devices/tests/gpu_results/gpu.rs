//! Runs a kernel on an NVIDIA GPU.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::ptx::{PtxOptions, generate};
use hetckpt_devices::cuda::{CudaDevice, CudaOptions};
use hetckpt_devices::device::{Blocks, Code, DEVICE_BASE, Device, GRANULARITY, Launch, LoadRequest, Outcome};
use hetckpt_devices::error::DeviceError;

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
    let kernel = &program.kernel;
    let options = {
        let device = device.lock();
        PtxOptions {
            sm: device.sm(),
            shared_base: device.shared_base(),
            ..PtxOptions::default()
        }
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
    run_request(device, &request, dimensions, operands, output).unwrap_or_else(|e| panic!("{e}"));
}

/// Runs one block of a PTX text's kernel `k` as it is: its parameters are addresses of operands and results.
pub fn run_text(
    device: &Mutex<CudaDevice>,
    text: &str,
    dimensions: [u32; 3],
    operands: &[u64],
    output: &mut [u64],
) -> Result<(), DeviceError> {
    let module = hetckpt_ptx::lower_module(&empty(text)).unwrap();
    let request = LoadRequest {
        name: "k".to_owned(),
        code: Code::Ptx(text.to_owned()),
        entries: vec![0],
        layout: ThreadStateLayout::new(&module.kernels[0]),
        param_bytes: 16,
        params: vec![(0, 8), (8, 8)],
        static_shared_bytes: 0,
        local_bytes: 0,
    };
    run_request(device, &request, dimensions, operands, output)
}

/// The text with a kernel that does nothing: the layout of what it saves.
fn empty(text: &str) -> String {
    let (head, _) = text.split_once('{').unwrap();
    format!("{head}{{\nret;\n}}\n")
}

fn run_request(
    device: &Mutex<CudaDevice>,
    request: &LoadRequest,
    dimensions: [u32; 3],
    operands: &[u64],
    output: &mut [u64],
) -> Result<(), DeviceError> {
    let device = device.lock();
    let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let (input, mut results) = (bytes(operands), bytes(output));
    let output_at = DEVICE_BASE + (input.len() as u64).next_multiple_of(256);
    assert!(output_at + results.len() as u64 <= DEVICE_BASE + MEMORY_BYTES);
    device.write(DEVICE_BASE, &input)?;
    device.write(output_at, &results)?;
    let launch = Launch {
        kernel: device.load(request)?,
        shape: LaunchShape::new([1; 3], dimensions),
        params: Arc::from(bytes(&[DEVICE_BASE, output_at])),
        blocks: Blocks::All,
    };
    let outcome = device.create_queue(0)?.launch(launch)?.wait();
    match outcome {
        Outcome::Finished => {}
        Outcome::Failed(error) => return Err(error),
        other => panic!("{other:?}"),
    }
    device.read(output_at, &mut results)?;
    for (value, bytes) in output.iter_mut().zip(results.chunks_exact(8)) {
        *value = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    Ok(())
}
