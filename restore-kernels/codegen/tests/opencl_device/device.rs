//! An OpenCL device, its memory in one buffer or several.

#![allow(unsafe_code, reason = "calls the OpenCL driver")]

use std::ptr;
use std::sync::OnceLock;

use hetckpt_abi::opencl_program::{Argument, OpenClProgram, count};
use hetckpt_codegen::spirv::Compiler;
use hetckpt_conformance::Shape;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_device_data};
use opencl3::kernel::{Kernel, set_kernel_arg};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, cl_mem};

/// Where the arena starts, as the kernels see it.
pub const ARENA_BASE: u64 = 0x2000_0000_0000;

/// `CL_DEVICE_SUB_GROUP_SIZES_INTEL`
const SUB_GROUP_SIZES_INTEL: u32 = 0x4108;

/// How a kernel is started.
#[derive(Clone, Copy)]
pub struct LaunchShape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
}

impl LaunchShape {
    /// A launch of `kernel` without dynamic shared memory.
    pub fn of(kernel: &hetckpt_ir::kernel::Kernel, shape: Shape) -> Self {
        Self {
            grid: shape.grid,
            block: shape.block,
            shared_bytes: kernel.shared.static_bytes,
            dynamic_shared_bytes: 0,
        }
    }
}

/// The device that tests use, if there is one.
pub fn device() -> Option<&'static Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    DEVICE.get_or_init(find).as_ref()
}

fn find() -> Option<Device> {
    let wanted = std::env::var("HETCKPT_TEST_OPENCL");
    let (platform, device) = match &wanted {
        Ok(text) => text.split_once(':').unwrap(),
        Err(_) => ("0", "0"),
    };
    let (platform, device): (usize, usize) = (platform.parse().unwrap(), device.parse().unwrap());
    let found = get_platforms()
        .ok()
        .and_then(|platforms| platforms.get(platform)?.get_devices(CL_DEVICE_TYPE_ALL).ok())
        .and_then(|devices| devices.get(device).copied());
    let is_required = wanted.is_ok() || std::env::var("HETCKPT_TEST_REQUIRE_OPENCL").is_ok_and(|value| value == "1");
    assert!(
        found.is_some() || !is_required,
        "there is no OpenCL device {platform}:{device}"
    );
    found.map(Device::new)
}

/// True if sub-groups of 32 can be asked for and vote, in programs from source, and are more than loops, as on devices
/// where they can be of one work-item.
pub fn has_votes_of_sub_groups(device: &Device) -> bool {
    let extensions = device.extensions().unwrap();
    let has = |name: &str| extensions.split_whitespace().any(|e| e == name);
    if !has("cl_intel_required_subgroup_size") || !has("cl_khr_subgroup_ballot") || spirv().is_some() {
        return false;
    }
    let sizes = get_device_data(device.id(), SUB_GROUP_SIZES_INTEL).unwrap();
    let one = 1_usize.to_ne_bytes();
    sizes.chunks_exact(one.len()).all(|size| size != one)
}

/// The compiler of SPIR-V, if the device is to be given that.
fn spirv() -> Option<&'static Compiler> {
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    let find = || std::env::var_os("HETCKPT_TEST_OPENCL_IL").map(|_| Compiler::find().unwrap());
    COMPILER.get_or_init(find).as_ref()
}

/// Runs `kernel` on memory that starts at [`ARENA_BASE`], in one buffer; true if it trapped.
pub fn run(device: &Device, kernel: &OpenClProgram, shape: LaunchShape, params: &[u8], memory: &mut [u8]) -> bool {
    run_in(1, device, kernel, shape, params, memory)
}

/// As [`run`], with the memory in up to `max_buffers` buffers.
pub fn run_in(
    max_buffers: usize,
    device: &Device,
    kernel: &OpenClProgram,
    shape: LaunchShape,
    params: &[u8],
    memory: &mut [u8],
) -> bool {
    let buffer_bytes = memory.len().div_ceil(max_buffers).max(64).next_power_of_two();
    let num_buffers = memory.len().div_ceil(buffer_bytes);
    let kernel = &kernel.with_memory_in(num_buffers as u32, buffer_bytes.ilog2());
    let context = Context::from_device(device).unwrap();
    #[allow(deprecated, reason = "the function that came after is not in OpenCL 1.2")]
    let queue = CommandQueue::create_default(&context, 0).unwrap();
    let options = if kernel.requires.correctly_rounded_divide_sqrt {
        "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
    } else {
        "-cl-std=CL1.2"
    };
    let program = match spirv() {
        Some(compiler) => {
            let module = compiler.binary(kernel).unwrap();
            Program::create_and_build_from_il(&context, &module, options)
                .unwrap_or_else(|code| panic!("{code}\n{}", kernel.text))
        }
        None => Program::create_and_build_from_source(&context, &kernel.text, options)
            .unwrap_or_else(|log| panic!("{log}\n{}", kernel.text)),
    };
    let entry = Kernel::create(&program, &kernel.entry).unwrap();
    let mut arena: Vec<Buffer<u8>> = memory
        .chunks(buffer_bytes)
        .map(|part| {
            // SAFETY: no host pointer is given.
            let buffer = unsafe { Buffer::create(&context, CL_MEM_READ_WRITE, part.len(), ptr::null_mut()) };
            let mut buffer = buffer.unwrap();
            // SAFETY: the call blocks, and the slice is as long as the buffer.
            unsafe { queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, part, &[]) }.unwrap();
            buffer
        })
        .collect();
    let small = || {
        // SAFETY: as above.
        let buffer = unsafe { Buffer::<u32>::create(&context, CL_MEM_READ_WRITE, count::NUM, ptr::null_mut()) };
        let mut buffer = buffer.unwrap();
        // SAFETY: the call blocks, and the slice is as long as the buffer.
        unsafe { queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, &[0; count::NUM], &[]) }.unwrap();
        buffer
    };
    let (counts, pause) = (small(), small());
    for (index, argument) in (0u32..).zip(&kernel.arguments) {
        let (bytes, local) = argument_bytes(argument, shape, params, [arena[0].get(), counts.get(), pause.get()]);
        let (size, value) = match local {
            Some(size) => (size, ptr::null()),
            None => (bytes.len(), bytes.as_ptr().cast()),
        };
        // SAFETY: the value has the argument's size; it is copied before the call returns.
        unsafe { set_kernel_arg(entry.get(), index, size, value) }.unwrap();
    }
    for (index, buffer) in (kernel.arguments.len() as u32..).zip(&arena[1..]) {
        let handle = buffer.get();
        let (size, value) = (size_of::<cl_mem>(), (&raw const handle).cast());
        // SAFETY: as above.
        unsafe { set_kernel_arg(entry.get(), index, size, value) }.unwrap();
    }
    let local: Vec<usize> = shape.block.iter().map(|n| *n as usize).collect();
    let global: Vec<usize> = shape.grid.iter().zip(&local).map(|(n, l)| *n as usize * l).collect();
    let (offsets, global, local) = (ptr::null(), global.as_ptr(), local.as_ptr());
    // SAFETY: there are as many sizes as dimensions; the kernel stays within the arena.
    let event = unsafe { queue.enqueue_nd_range_kernel(entry.get(), 3, offsets, global, local, &[]) };
    event.unwrap().wait().unwrap();
    for (buffer, part) in arena.iter_mut().zip(memory.chunks_mut(buffer_bytes)) {
        // SAFETY: the call blocks, and the slice is as long as the buffer.
        unsafe { queue.enqueue_read_buffer(buffer, CL_BLOCKING, 0, part, &[]) }.unwrap();
    }
    let mut words = [0u32; count::NUM];
    // SAFETY: as above.
    unsafe { queue.enqueue_read_buffer(&counts, CL_BLOCKING, 0, &mut words, &[]) }.unwrap();
    assert_eq!((words[count::TURNED_AWAY], words[count::STOPPED]), (0, 0));
    words[count::TRAPPED] != 0
}

/// An argument's value, or the size of local memory.
fn argument_bytes(
    argument: &Argument,
    shape: LaunchShape,
    params: &[u8],
    buffers: [cl_mem; 3],
) -> (Vec<u8>, Option<usize>) {
    let threads = shape.block.iter().product::<u32>() as usize;
    let value = |bytes: Vec<u8>| (bytes, None);
    match argument {
        Argument::Arena => value((buffers[0] as usize).to_ne_bytes().to_vec()),
        Argument::ArenaBase => value(ARENA_BASE.to_ne_bytes().to_vec()),
        Argument::Params { size_bytes } => {
            let mut params = params.to_vec();
            params.resize(*size_bytes as usize, 0);
            value(params)
        }
        Argument::Shared => {
            let size = shape.shared_bytes + shape.dynamic_shared_bytes;
            (vec![], Some(size.next_multiple_of(16).max(16) as usize))
        }
        Argument::DynamicSharedBytes => value(shape.dynamic_shared_bytes.to_ne_bytes().to_vec()),
        Argument::Lanes { bytes_per_thread } => (vec![], Some(threads * *bytes_per_thread as usize)),
        Argument::Counts => value((buffers[1] as usize).to_ne_bytes().to_vec()),
        // It stands still.
        Argument::HostClock => value((buffers[2] as usize).to_ne_bytes().to_vec()),
        Argument::Pause => value((buffers[2] as usize).to_ne_bytes().to_vec()),
        Argument::Grid => value(
            [shape.grid.as_slice(), &[0]]
                .concat()
                .iter()
                .flat_map(|n| n.to_ne_bytes())
                .collect(),
        ),
        // Nobody goes on, and nobody stops.
        Argument::Resumed | Argument::ResumedSlots | Argument::TurnedAway | Argument::Stopped => value(vec![0; 8]),
        Argument::NumStopped | Argument::LookPrice => value(vec![0; 4]),
    }
}
