//! OpenCL objects that release themselves. A release that fails is passed over: there is nothing left to save.
#![allow(unsafe_code, reason = "OpenCL FFI")]

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use opencl3::command_queue as queue_api;
use opencl3::context::context as context_api;
use opencl3::event as event_api;
use opencl3::kernel as kernel_api;
use opencl3::memory as memory_api;
use opencl3::program as program_api;
use opencl3::types::{cl_device_id, cl_event, cl_mem};

use super::failure::{ClFailure, Named as _, Result};

/// `CL_TRUE` and `CL_FALSE` of a transfer.
const BLOCKING: u32 = 1;
const NON_BLOCKING: u32 = 0;
/// Status of an event whose command has ended.
const COMPLETE: i32 = 0;
/// `clWaitForEvents`: a command failed; its event says how.
const COMMAND_FAILED: i32 = -14;

/// Offsets up to which a fill is trusted: NVIDIA's driver 580 goes astray with one of 4 GiB.
const FILL_WINDOW: usize = 1 << 30;

/// A device. It belongs to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceId(pub cl_device_id);

// SAFETY: a name that the driver knows in every thread.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $release:path) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(*mut c_void);

        // SAFETY: OpenCL objects may be used from any thread (OpenCL 1.2, A.2; for kernels' arguments see `Kernel`).
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the one reference that this object holds.
                let _ = unsafe { $release(self.0) };
            }
        }
    };
}

owned!(
    /// A context of one device.
    RawContext, context_api::release_context
);
owned!(
    /// Commands in order.
    CommandQueue, queue_api::release_command_queue
);
owned!(
    /// Device memory.
    Mem, memory_api::release_mem_object
);
owned!(
    /// A program.
    Program, program_api::release_program
);
owned!(
    /// A kernel with its arguments. Setting them is not safe from several threads, so it takes `&mut`.
    Kernel, kernel_api::release_kernel
);
owned!(
    /// The end of a command.
    Event, event_api::release_event
);

impl Mem {
    /// Part of a buffer; it keeps the whole for as long as commands use it.
    fn part(&self, origin: usize, size: usize) -> Result<Self> {
        let region = memory_api::cl_buffer_region { origin, size };
        // SAFETY: the region is what the kind asks for; the driver compares it with the buffer's size.
        let part = unsafe {
            memory_api::create_sub_buffer(
                self.0,
                memory_api::CL_MEM_READ_WRITE,
                memory_api::CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const region).cast(),
            )
        };
        part.named("clCreateSubBuffer").map(Self)
    }
}

/// A context of one device.
#[derive(Debug)]
pub(super) struct Context {
    raw: RawContext,
    pub device: DeviceId,
}

impl Context {
    pub fn new(device: DeviceId) -> Result<Self> {
        let raw = context_api::create_context(&[device.0], ptr::null(), None, ptr::null_mut());
        Ok(Self {
            raw: RawContext(raw.named("clCreateContext")?),
            device,
        })
    }

    /// A queue that carries out its commands in order.
    pub fn queue(&self) -> Result<CommandQueue> {
        // SAFETY: the context's own device.
        let queue = unsafe { queue_api::create_command_queue(self.raw.0, self.device.0, 0) };
        Ok(CommandQueue(queue.named("clCreateCommandQueue")?))
    }

    /// Memory of the device.
    pub fn buffer(&self, size: usize) -> Result<Mem> {
        // SAFETY: the flag asks for no host memory.
        let mem =
            unsafe { memory_api::create_buffer(self.raw.0, memory_api::CL_MEM_READ_WRITE, size, ptr::null_mut()) };
        Ok(Mem(mem.named("clCreateBuffer")?))
    }

    /// A buffer that is the host's memory.
    ///
    /// # Safety
    /// The memory stays reserved for as long as any command may use the buffer.
    pub unsafe fn buffer_over(&self, at: *mut u8, size: usize) -> Result<Mem> {
        let flags = memory_api::CL_MEM_READ_WRITE | memory_api::CL_MEM_USE_HOST_PTR;
        // SAFETY: by contract.
        let mem = unsafe { memory_api::create_buffer(self.raw.0, flags, size, at.cast()) };
        Ok(Mem(mem.named("clCreateBuffer")?))
    }

    /// A program, not built yet.
    pub fn program_from_source(&self, text: &str) -> Result<Program> {
        let program = program_api::create_program_with_source(self.raw.0, &[text]);
        Ok(Program(program.named("clCreateProgramWithSource")?))
    }

    /// A program from an intermediate language, not built yet.
    pub fn program_from_il(&self, module: &[u8]) -> Result<Program> {
        let program = program_api::create_program_with_il(self.raw.0, module);
        Ok(Program(program.named("clCreateProgramWithIL")?))
    }

    /// A program from what [`Program::binary`] gave, not built yet.
    pub fn program_from_binary(&self, binary: &[u8]) -> Result<Program> {
        // SAFETY: the context's own device; one binary for it.
        let program = unsafe { program_api::create_program_with_binary(self.raw.0, &[self.device.0], &[binary]) };
        Ok(Program(program.named("clCreateProgramWithBinary")?))
    }
}

impl Program {
    pub fn build(&self, device: DeviceId, options: &str) -> Result<()> {
        const CALL: &str = "clBuildProgram";
        let options = CString::new(options).map_err(|_| ClFailure { call: CALL, code: -43 })?;
        program_api::build_program(self.0, &[device.0], &options, None, ptr::null_mut()).named(CALL)
    }

    /// What the compiler said.
    pub fn log(&self, device: DeviceId) -> String {
        let log = program_api::get_program_build_data(self.0, device.0, program_api::CL_PROGRAM_BUILD_LOG);
        let log = log.unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }

    /// The built code, if the driver gives it away.
    pub fn binary(&self) -> Option<Vec<u8>> {
        let binaries = program_api::get_program_info(self.0, program_api::CL_PROGRAM_BINARIES).ok()?;
        let mut binaries: Vec<Vec<u8>> = binaries.into();
        binaries.pop().filter(|code| !code.is_empty())
    }

    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        const CALL: &str = "clCreateKernel";
        let name = CString::new(name).map_err(|_| ClFailure { call: CALL, code: -46 })?;
        kernel_api::create_kernel(self.0, &name).named(CALL).map(Kernel)
    }
}

impl Kernel {
    /// A number about the kernel on a device (`CL_KERNEL_WORK_GROUP_SIZE`, …).
    pub fn work_group_number(&self, device: DeviceId, what: u32) -> Result<u64> {
        let bytes = kernel_api::get_kernel_work_group_data(self.0, device.0, what);
        bytes.named("clGetKernelWorkGroupInfo").map(|b| number(&b))
    }

    /// Sets an argument that is passed by value.
    pub fn set_value(&mut self, index: u32, value: &[u8]) -> Result<()> {
        // SAFETY: as many bytes as said, copied before the call returns; the driver compares the size with the
        // argument's.
        unsafe { kernel_api::set_kernel_arg(self.0, index, value.len(), value.as_ptr().cast()) }.named("clSetKernelArg")
    }

    /// Sets the size of local memory.
    pub fn set_local(&mut self, index: u32, size: usize) -> Result<()> {
        // SAFETY: local memory has a size and no value.
        unsafe { kernel_api::set_kernel_arg(self.0, index, size, ptr::null()) }.named("clSetKernelArg")
    }

    /// Sets a buffer, or null. The caller keeps the buffer until the launches with it have ended.
    pub fn set_buffer(&mut self, index: u32, mem: Option<&Mem>) -> Result<()> {
        let raw: cl_mem = mem.map_or(ptr::null_mut(), |mem| mem.0);
        // SAFETY: the value is the name of a buffer, or null, in a variable of this function.
        unsafe { kernel_api::set_kernel_arg(self.0, index, size_of::<cl_mem>(), (&raw const raw).cast()) }
            .named("clSetKernelArg")
    }
}

impl CommandQueue {
    /// Lets the device begin.
    pub fn flush(&self) -> Result<()> {
        queue_api::flush(self.0).named("clFlush")
    }

    /// Gives a kernel with its arguments to the queue, also behind the commands `behind`.
    ///
    /// # Safety
    /// The kernel's arguments are such that it stays within their memory.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        global: &[usize; 3],
        local: &[usize; 3],
        behind: &[Arc<Event>],
    ) -> Result<Event> {
        let (offset, global, local) = (ptr::null(), global.as_ptr(), local.as_ptr());
        let behind: Vec<cl_event> = behind.iter().map(|event| event.0).collect();
        // An empty list has no address.
        let first = behind.first().map_or(ptr::null(), ptr::from_ref);
        let num = behind.len() as u32;
        // SAFETY: three sizes each, and as many events as said; the rest is the caller's.
        let event =
            unsafe { queue_api::enqueue_nd_range_kernel(self.0, kernel.0, 3, offset, global, local, num, first) };
        event.named("clEnqueueNDRangeKernel").map(Event)
    }

    /// Reads and waits.
    pub fn read(&self, mem: &Mem, offset: usize, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the call blocks until the slice is filled.
        let event = unsafe { self.enqueue_read(mem, BLOCKING, offset, to.len(), to.as_mut_ptr()) };
        event.map(drop)
    }

    /// Reads behind the commands given before.
    ///
    /// # Safety
    /// `to` has room for `size` bytes and stays until the event has come.
    pub unsafe fn read_later(&self, mem: &Mem, size: usize, to: *mut u8) -> Result<Event> {
        // SAFETY: by contract.
        unsafe { self.enqueue_read(mem, NON_BLOCKING, 0, size, to) }
    }

    /// # Safety
    /// `to` has room for `size` bytes and stays until the event has come.
    unsafe fn enqueue_read(&self, mem: &Mem, blocking: u32, offset: usize, size: usize, to: *mut u8) -> Result<Event> {
        let to = to.cast();
        // SAFETY: by contract; the driver compares the range with the buffer's size.
        let event =
            unsafe { queue_api::enqueue_read_buffer(self.0, mem.0, blocking, offset, size, to, 0, ptr::null()) };
        event.named("clEnqueueReadBuffer").map(Event)
    }

    /// Writes and waits.
    pub fn write(&self, mem: &Mem, offset: usize, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the call blocks until the slice has been read.
        unsafe { self.enqueue_write(mem, BLOCKING, offset, from) }.map(drop)
    }

    /// Writes behind the commands given before.
    pub fn write_later(&self, mem: &Mem, from: &'static [u8]) -> Result<Event> {
        // SAFETY: what is read lives as long as the process.
        unsafe { self.enqueue_write(mem, NON_BLOCKING, 0, from) }
    }

    /// # Safety
    /// `from` stays until the event has come.
    unsafe fn enqueue_write(&self, mem: &Mem, blocking: u32, offset: usize, from: &[u8]) -> Result<Event> {
        let (at, size) = (from.as_ptr().cast(), from.len());
        // SAFETY: by contract; the driver compares the range with the buffer's size.
        let event =
            unsafe { queue_api::enqueue_write_buffer(self.0, mem.0, blocking, offset, size, at, 0, ptr::null()) };
        event.named("clEnqueueWriteBuffer").map(Event)
    }

    /// Copies from buffer to buffer, or within one, at offsets, behind the commands given before.
    pub fn copy(&self, (from, at): (&Mem, usize), (to, to_at): (&Mem, usize), size: usize) -> Result<Event> {
        // SAFETY: the driver compares the ranges with the buffers' sizes and each other.
        let event = unsafe { queue_api::enqueue_copy_buffer(self.0, from.0, to.0, at, to_at, size, 0, ptr::null()) };
        event.named("clEnqueueCopyBuffer").map(Event)
    }

    /// Repeats `pattern` (1, 2 or 4 bytes) over a range, which is not empty, behind the commands given before.
    pub fn fill(&self, mem: &Mem, pattern: &[u8], offset: usize, size: usize) -> Result<Event> {
        if offset.checked_add(size).is_some_and(|end| end <= FILL_WINDOW) {
            return self.fill_window(mem, pattern, offset, size);
        }
        let mut done = 0;
        loop {
            let at = offset + done;
            let origin = at / FILL_WINDOW * FILL_WINDOW;
            let len = (size - done).min(origin + FILL_WINDOW - at);
            let window = mem.part(origin, at - origin + len)?;
            let event = self.fill_window(&window, pattern, at - origin, len)?;
            done += len;
            if done == size {
                return Ok(event);
            }
        }
    }

    fn fill_window(&self, mem: &Mem, pattern: &[u8], offset: usize, size: usize) -> Result<Event> {
        let (at, len) = (pattern.as_ptr().cast(), pattern.len());
        // SAFETY: the pattern is copied before the call returns; the driver compares the range with the buffer's size.
        let event = unsafe { queue_api::enqueue_fill_buffer(self.0, mem.0, at, len, offset, size, 0, ptr::null()) };
        event.named("clEnqueueFillBuffer").map(Event)
    }
}

impl Event {
    /// Waits until the command has ended.
    pub fn wait(&self) -> Result<()> {
        const CALL: &str = "clWaitForEvents";
        match event_api::wait_for_events(&[self.0]) {
            Err(COMMAND_FAILED) => Err(ended_badly(self.status()?)),
            result => result.named(CALL),
        }
    }

    /// Progress (3 queued, 2 submitted, 1 running, 0 complete), or an error code.
    pub fn status(&self) -> Result<i32> {
        let raw: cl_event = self.0;
        let bytes = event_api::get_event_data(raw, event_api::CL_EVENT_COMMAND_EXECUTION_STATUS);
        let bytes = bytes.named("clGetEventInfo")?;
        Ok(bytes.first_chunk().map_or(COMPLETE, |b| i32::from_ne_bytes(*b)))
    }

    /// True once the command has ended, well or badly.
    pub fn is_over(&self) -> bool {
        self.status().is_ok_and(|status| status <= COMPLETE)
    }
}

/// What a command that failed has come to, by its event's status; drivers may leave a status that says nothing of it.
const fn ended_badly(status: i32) -> ClFailure {
    ClFailure {
        call: "the command",
        code: if status < COMPLETE { status } else { COMMAND_FAILED },
    }
}

/// A number of 4 or 8 bytes as the driver wrote it.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    let len = bytes.len().min(8);
    all[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_fails_with_the_status_of_its_event() {
        for status in [-4, -5, -6] {
            let failure = ended_badly(status);
            assert_eq!(failure.code, status);
            assert!(failure.is_lack_of_memory(), "{failure:?}");
        }
        assert_eq!(ended_badly(-9999).code, -9999);
    }

    #[test]
    fn a_status_that_is_no_failure_is_not_taken_for_one() {
        for status in [COMPLETE, 3] {
            let failure = ended_badly(status);
            assert_eq!(failure.code, COMMAND_FAILED);
            assert!(!failure.is_lack_of_memory(), "{failure:?}");
        }
    }
}
