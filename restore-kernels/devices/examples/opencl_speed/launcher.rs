//! An OpenCL device, programs on it, and the time that a launch takes.

use std::ptr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use hetckpt_abi::opencl_program::{Argument, OpenClProgram, count};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{Kernel, set_kernel_arg};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, ClMem, svm_alloc};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use crate::cases::{Arg, Case};

/// Where generated code finds the arena.
const ARENA_BASE: u64 = 0x2000_0000_0000;

/// Room for the arena of any case.
const SHARED_BYTES: usize = 256 << 20;
/// How kernels access memory that lies at the same addresses for them and for the host.
const BY_ADDRESS: &str = "#define MORE_ARENAS\n#define GLOBAL(type, address) (*(__global type *)(address))\n";

/// A device with a queue.
pub struct Launcher {
    context: Context,
    queue: CommandQueue,
    pub name: String,
    /// Shared virtual memory for the arenas of generated kernels, which then take addresses as they are.
    shared: Option<*mut u8>,
}

/// A kernel with its memory, ready to be started any number of times.
pub struct Prepared {
    kernel: Kernel,
    /// Where each buffer of the case lies: which of `memory`, and from which byte on.
    places: Vec<(usize, usize)>,
    memory: Vec<Buffer<u8>>,
    /// Words that the launch needs beside the case's.
    _words: Vec<Buffer<u8>>,
    global: [usize; 3],
    local: [usize; 3],
}

enum Value {
    Bytes(Vec<u8>),
    Local(usize),
}

impl Launcher {
    /// Opens a device: its platform's number and its own.
    pub fn open(platform: usize, device: usize) -> Result<Self> {
        let platforms = get_platforms().map_err(|e| anyhow!("{e}"))?;
        let platform = platforms.get(platform).context("no such platform")?;
        let devices = platform.get_devices(CL_DEVICE_TYPE_ALL).map_err(|e| anyhow!("{e}"))?;
        let device = Device::new(*devices.get(device).context("no such device")?);
        let context = Context::from_device(&device)?;
        #[allow(deprecated, reason = "the function that came after is not in OpenCL 1.2")]
        let queue = CommandQueue::create_default(&context, 0)?;
        let name = device.name()?;
        Ok(Self {
            context,
            queue,
            name,
            shared: None,
        })
    }

    /// From now on arenas lie in shared virtual memory (OpenCL 2.0).
    pub fn share_memory(&mut self) -> Result<()> {
        // SAFETY: the memory is never freed.
        let at = unsafe { svm_alloc(self.context.get(), CL_MEM_READ_WRITE, SHARED_BYTES, 0) };
        self.shared = Some(at.map_err(|e| anyhow!("no shared virtual memory: error {e}"))?.cast());
        Ok(())
    }

    /// Where generated code finds the arena.
    fn base(&self) -> u64 {
        self.shared.map_or(ARENA_BASE, |at| at as u64)
    }

    fn arena(&self, bytes: usize) -> Result<Buffer<u8>> {
        match self.shared {
            None => self.buffer(bytes),
            Some(at) if bytes <= SHARED_BYTES => {
                let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
                // SAFETY: there is as much memory, for ever; forms of a kernel run one after another.
                Ok(unsafe { Buffer::create(&self.context, flags, bytes, at.cast()) }?)
            }
            Some(_) => Err(anyhow!("the case's memory is larger than what is shared")),
        }
    }

    /// Address of a case's buffer as generated code counts.
    pub fn address(&self, case: &Case, buffer: usize) -> u64 {
        self.base() + offsets(case)[buffer] as u64
    }

    /// Prepares the kernel by hand.
    pub fn by_hand(&self, case: &Case) -> Result<Prepared> {
        let program = self.build(case.by_hand, "-cl-std=CL1.2")?;
        let kernel = Kernel::create(&program, case.name)?;
        let memory: Result<Vec<_>> = case.buffers.iter().map(|bytes| self.buffer(bytes.len())).collect();
        let memory = memory?;
        let globals = case.globals.iter().map(|(_, buffer)| Arg::Buffer(*buffer));
        let mut values: Vec<Value> = case
            .args
            .iter()
            .copied()
            .chain(globals)
            .map(|arg| {
                Value::Bytes(match arg {
                    Arg::Buffer(i) => handle(&memory[i]),
                    Arg::U32(v) => v.to_ne_bytes().to_vec(),
                    Arg::F32(v) => v.to_ne_bytes().to_vec(),
                })
            })
            .collect();
        if case.dynamic_shared_bytes > 0 {
            values.push(Value::Local(case.dynamic_shared_bytes as usize));
        }
        set_values(&kernel, &values)?;
        let places = (0..memory.len()).map(|i| (i, 0)).collect();
        Ok(Prepared {
            kernel,
            places,
            memory,
            _words: vec![],
            global: [case.grid[0] * case.block[0], case.grid[1] * case.block[1], 1].map(|n| n as usize),
            local: [case.block[0], case.block[1], 1].map(|n| n as usize),
        })
    }

    /// Prepares a generated kernel.
    pub fn generated(&self, case: &Case, program: &OpenClProgram, static_shared_bytes: u32) -> Result<Prepared> {
        let options = if program.requires.correctly_rounded_divide_sqrt {
            "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
        } else {
            "-cl-std=CL1.2"
        };
        let text = self.shared.map_or_else(String::new, |_| BY_ADDRESS.to_owned()) + &program.text;
        let built = self.build(&text, options)?;
        let kernel = Kernel::create(&built, &program.entry)?;
        let offsets = offsets(case);
        let end = offsets.last().copied().unwrap_or_default() + case.buffers.last().map_or(0, Vec::len);
        let arena = self.arena(end)?;
        let num_blocks = case.grid.iter().product::<u32>() as usize;
        let words = [count::NUM * 4, 8, num_blocks * 4].map(|bytes| self.buffer(bytes));
        let [counts, pause, turned_away] = words;
        let mut words = [counts?, pause?, turned_away?];
        for buffer in &mut words {
            let zeros = vec![0; buffer.size()?];
            self.fill(buffer, 0, &zeros)?;
        }
        let shared = (static_shared_bytes + case.dynamic_shared_bytes)
            .next_multiple_of(16)
            .max(16);
        let threads = case.block.iter().product::<u32>();
        let value = |argument: &Argument| match argument {
            Argument::Arena => Value::Bytes(handle(&arena)),
            Argument::ArenaBase => Value::Bytes(self.base().to_ne_bytes().to_vec()),
            Argument::Params { size_bytes } => Value::Bytes(parameters(case, self.base(), &offsets, *size_bytes)),
            Argument::Shared => Value::Local(shared as usize),
            Argument::DynamicSharedBytes => Value::Bytes(case.dynamic_shared_bytes.to_ne_bytes().to_vec()),
            Argument::Lanes { bytes_per_thread } => Value::Local((threads * bytes_per_thread) as usize),
            Argument::Counts => Value::Bytes(handle(&words[0])),
            Argument::HostClock | Argument::Pause => Value::Bytes(handle(&words[1])),
            Argument::TurnedAway => Value::Bytes(handle(&words[2])),
            Argument::Grid => {
                let grid = [case.grid[0], case.grid[1], 1, 0].map(u32::to_ne_bytes);
                Value::Bytes(grid.as_flattened().to_vec())
            }
            Argument::Resumed | Argument::ResumedSlots | Argument::Stopped => Value::Bytes(vec![0; 8]),
            Argument::NumStopped | Argument::LookPrice => Value::Bytes(vec![0; 4]),
        };
        let values: Vec<Value> = program.arguments.iter().map(value).collect();
        set_values(&kernel, &values)?;
        Ok(Prepared {
            kernel,
            places: offsets.iter().map(|offset| (0, *offset)).collect(),
            memory: vec![arena],
            _words: words.into(),
            global: [case.grid[0] * case.block[0], case.grid[1] * case.block[1], 1].map(|n| n as usize),
            local: [case.block[0], case.block[1], 1].map(|n| n as usize),
        })
    }

    /// Puts the case's memory in place and runs the kernel once: how long it took.
    pub fn run(&self, case: &Case, prepared: &mut Prepared) -> Result<Duration> {
        for ((memory, offset), bytes) in prepared.places.iter().zip(&case.buffers) {
            self.fill(&mut prepared.memory[*memory], *offset, bytes)?;
        }
        self.queue.finish()?;
        let (global, local) = (prepared.global.as_ptr(), prepared.local.as_ptr());
        let began = Instant::now();
        // SAFETY: there are as many sizes as dimensions; the kernel stays within its buffers.
        let event = unsafe {
            self.queue
                .enqueue_nd_range_kernel(prepared.kernel.get(), 3, ptr::null(), global, local, &[])
        }?;
        event.wait()?;
        Ok(began.elapsed())
    }

    /// What a kernel has left of the case's buffers.
    pub fn memory(&self, case: &Case, prepared: &Prepared) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for ((memory, offset), before) in prepared.places.iter().zip(&case.buffers) {
            let mut bytes = vec![0; before.len()];
            let buffer = &prepared.memory[*memory];
            // SAFETY: the call blocks, and the slice lies within the buffer.
            unsafe {
                self.queue
                    .enqueue_read_buffer(buffer, CL_BLOCKING, *offset, &mut bytes, &[])
            }?;
            all.push(bytes);
        }
        Ok(all)
    }

    fn build(&self, text: &str, options: &str) -> Result<Program> {
        Program::create_and_build_from_source(&self.context, text, options).map_err(|log| anyhow!("{log}\n{text}"))
    }

    fn buffer(&self, bytes: usize) -> Result<Buffer<u8>> {
        // SAFETY: no host pointer is given.
        Ok(unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, bytes, ptr::null_mut()) }?)
    }

    fn fill(&self, buffer: &mut Buffer<u8>, offset: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the call blocks, and the slice lies within the buffer.
        unsafe { self.queue.enqueue_write_buffer(buffer, CL_BLOCKING, offset, bytes, &[]) }?;
        Ok(())
    }
}

/// Where each buffer of a case lies in the arena; bound variables lie at these addresses.
fn offsets(case: &Case) -> Vec<usize> {
    let mut at = 0;
    let lens = case.buffers.iter().map(Vec::len);
    lens.map(|len| {
        let first = at;
        at = (first + len).next_multiple_of(256) + 256;
        first
    })
    .collect()
}

fn parameters(case: &Case, base: u64, offsets: &[usize], size_bytes: u32) -> Vec<u8> {
    let mut params: Vec<u8> = Vec::new();
    for arg in &case.args {
        let bytes = match arg {
            Arg::Buffer(i) => (base + offsets[*i] as u64).to_le_bytes().to_vec(),
            Arg::U32(v) => v.to_le_bytes().to_vec(),
            Arg::F32(v) => v.to_le_bytes().to_vec(),
        };
        params.resize(params.len().next_multiple_of(bytes.len()), 0);
        params.extend(bytes);
    }
    params.resize(size_bytes as usize, 0);
    params
}

fn handle(buffer: &Buffer<u8>) -> Vec<u8> {
    (buffer.get() as usize).to_ne_bytes().to_vec()
}

fn set_values(kernel: &Kernel, values: &[Value]) -> Result<()> {
    for (index, value) in (0u32..).zip(values) {
        let (size, at) = match value {
            Value::Bytes(bytes) => (bytes.len(), bytes.as_ptr().cast()),
            Value::Local(bytes) => (*bytes, ptr::null()),
        };
        // SAFETY: the value has the argument's size; it is copied before the call returns.
        unsafe { set_kernel_arg(kernel.get(), index, size, at) }.map_err(|e| anyhow!("argument {index}: error {e}"))?;
    }
    Ok(())
}
