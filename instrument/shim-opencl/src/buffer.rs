//! Buffers and sub-buffers. A buffer is device memory; what the program has of it on the host is a copy, made where it
//! maps.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::context::Context;
use crate::cuda;
use crate::device::{self, ALIGNMENT_BYTES};
use crate::handles::{self, Handle, Identity, Object};
use crate::info::{Query, bytes};
use crate::pointers::{Callback, In, ObjectFn, Out};
use crate::status::{Outcome, Status};

entry_points! {
    object clCreateBuffer(context: Handle, flags: u64, size_bytes: usize, host: In<u8>) => create;
    object clCreateSubBuffer(buffer: Handle, flags: u64, kind: u32, region: In<Region>) => create_sub_buffer;
    status clRetainMemObject(memory: Handle) => handles::retain::<Memory>;
    status clReleaseMemObject(memory: Handle) => handles::release::<Memory>;
    status clGetMemObjectInfo(memory: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) => info;
    status clSetMemObjectDestructorCallback
        (memory: Handle, function: Option<ObjectFn>, data: usize) => set_destructor_callback;
}

/// Numbers of `cl_mem_flags`.
pub mod flag {
    /// Kernels read and write.
    pub const READ_WRITE: u64 = 1;
    /// Kernels only write.
    pub const WRITE_ONLY: u64 = 2;
    /// Kernels only read.
    pub const READ_ONLY: u64 = 4;
    /// The program's memory is the host's copy.
    pub const USE_HOST_PTR: u64 = 8;
    /// Memory that the host can map; all can.
    pub const ALLOC_HOST_PTR: u64 = 16;
    /// The program's memory is the first content.
    pub const COPY_HOST_PTR: u64 = 32;
    /// The host only writes.
    pub const HOST_WRITE_ONLY: u64 = 128;
    /// The host only reads.
    pub const HOST_READ_ONLY: u64 = 256;
    /// The host does neither.
    pub const HOST_NO_ACCESS: u64 = 512;
    /// What kernels may do.
    pub const KERNEL_ACCESS: u64 = READ_WRITE | WRITE_ONLY | READ_ONLY;
    /// What the host may do.
    pub const HOST_ACCESS: u64 = HOST_WRITE_ONLY | HOST_READ_ONLY | HOST_NO_ACCESS;
    /// Where the host's copy is.
    pub const HOST_PTR: u64 = USE_HOST_PTR | ALLOC_HOST_PTR | COPY_HOST_PTR;
}

/// `CL_BUFFER_CREATE_TYPE_REGION`.
const CREATE_REGION: u32 = 0x1220;
/// `CL_MEM_OBJECT_BUFFER`.
const TYPE_BUFFER: u32 = 0x10F0;

mod name {
    pub const TYPE: u32 = 0x1100;
    pub const FLAGS: u32 = 0x1101;
    pub const SIZE: u32 = 0x1102;
    pub const HOST_PTR: u32 = 0x1103;
    pub const MAP_COUNT: u32 = 0x1104;
    pub const REFERENCE_COUNT: u32 = 0x1105;
    pub const CONTEXT: u32 = 0x1106;
    pub const ASSOCIATED_MEMORY: u32 = 0x1107;
    pub const OFFSET: u32 = 0x1108;
}

/// `cl_buffer_region`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Region {
    origin: usize,
    size_bytes: usize,
}

/// As aligned as any vector type.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u8; ALIGNMENT_BYTES]);

/// Device memory, with the host's copy of it if there is one.
pub struct Storage {
    /// Where it is on the device.
    pub addr: u64,
    size_bytes: usize,
    /// Address of the host's copy: the program's own, or the one of `lines`.
    host: OnceLock<usize>,
    lines: OnceLock<Box<[Line]>>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({:#x}, {})", self.addr, self.size_bytes)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Ok(driver) = cuda::driver() {
            // A lost device has lost its memory too.
            let _ = driver.free(self.addr);
        }
    }
}

/// A region that the program has mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Where the program sees it.
    pub host: usize,
    /// From the start of the storage.
    pub offset: usize,
    /// Its length.
    pub size_bytes: usize,
    /// True if the program may have written there.
    pub is_written: bool,
}

/// A buffer or sub-buffer.
#[derive(Debug)]
pub struct Memory {
    identity: Identity,
    /// Its context.
    pub context: Arc<Context>,
    /// Its flags, a sub-buffer's with those of its buffer.
    pub flags: u64,
    /// Its length.
    pub size_bytes: usize,
    /// From the start of the storage.
    pub offset: usize,
    /// Of a sub-buffer: its buffer.
    parent: Option<Arc<Memory>>,
    /// The memory.
    pub storage: Arc<Storage>,
    given_host: usize,
    mappings: Mutex<Vec<Mapping>>,
    at_end: Mutex<Vec<Callback<ObjectFn>>>,
}

handles::object!(Memory, INVALID_MEM_OBJECT);

impl Drop for Memory {
    fn drop(&mut self) {
        let callbacks = std::mem::take(self.at_end.get_mut());
        for callback in callbacks.into_iter().rev() {
            callback.call(self.handle().0);
        }
    }
}

impl Memory {
    /// Its address on the device.
    pub fn addr(&self) -> u64 {
        self.storage.addr + self.offset as u64
    }

    /// Refuses ranges that do not lie in it, and empty ones.
    pub fn check_range(&self, offset: usize, size_bytes: usize) -> Outcome {
        let end = offset.checked_add(size_bytes).ok_or(Status::INVALID_VALUE)?;
        if size_bytes == 0 || end > self.size_bytes {
            return Err(Status::INVALID_VALUE);
        }
        Ok(())
    }

    /// Notes a mapping of a range and gives it.
    pub fn map(&self, offset: usize, size_bytes: usize, is_written: bool) -> Outcome<Mapping> {
        let offset = self.offset + offset;
        let host = self.storage.host()? + offset;
        let mapping = Mapping {
            host,
            offset,
            size_bytes,
            is_written,
        };
        self.mappings.lock().push(mapping);
        Ok(mapping)
    }

    /// Takes out the mapping that begins at `host`.
    pub fn unmap(&self, host: usize) -> Outcome<Mapping> {
        let mut mappings = self.mappings.lock();
        let at = mappings.iter().position(|mapping| mapping.host == host);
        at.map(|at| mappings.remove(at)).ok_or(Status::INVALID_VALUE)
    }
}

impl Storage {
    fn new(size_bytes: usize) -> Outcome<Self> {
        let addr = cuda::driver()?.alloc(size_bytes as u64);
        Ok(Self {
            addr: addr.map_err(|_| Status::MEM_OBJECT_ALLOCATION_FAILURE)?,
            size_bytes,
            host: OnceLock::new(),
            lines: OnceLock::new(),
        })
    }

    /// The host's copy; made when first wanted.
    fn host(&self) -> Outcome<usize> {
        if let Some(host) = self.host.get() {
            return Ok(*host);
        }
        let count = self.size_bytes.div_ceil(ALIGNMENT_BYTES);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
        lines.resize(count, Line([0; ALIGNMENT_BYTES]));
        // Another thread's may have come first; then that one counts.
        let lines = self.lines.get_or_init(|| lines.into_boxed_slice());
        Ok(*self.host.get_or_init(|| lines.as_ptr().expose_provenance()))
    }
}

/// Refuses flags that contradict each other or do not exist.
fn check_flags(flags: u64) -> Outcome {
    let known = flag::KERNEL_ACCESS | flag::HOST_ACCESS | flag::HOST_PTR;
    let is_contradiction = (flags & flag::KERNEL_ACCESS).count_ones() > 1
        || (flags & flag::HOST_ACCESS).count_ones() > 1
        || (flags & flag::USE_HOST_PTR != 0 && flags & (flag::ALLOC_HOST_PTR | flag::COPY_HOST_PTR) != 0);
    if flags & !known != 0 || is_contradiction {
        return Err(Status::INVALID_VALUE);
    }
    Ok(())
}

fn create(context: Handle, flags: u64, size_bytes: usize, host: In<u8>) -> Outcome<Handle> {
    let context = handles::get::<Context>(context)?;
    check_flags(flags)?;
    let driver = cuda::driver()?;
    if size_bytes == 0 || size_bytes as u64 > device::max_buffer_bytes(driver) {
        return Err(Status::INVALID_BUFFER_SIZE);
    }
    let has_content = flags & (flag::USE_HOST_PTR | flag::COPY_HOST_PTR) != 0;
    if has_content == host.is_null() {
        return Err(Status::INVALID_HOST_PTR);
    }
    let storage = Storage::new(size_bytes)?;
    if has_content {
        let stream = driver.stream().map_err(|_| Status::OUT_OF_RESOURCES)?;
        let copied = driver
            .copy(storage.addr, host.addr() as u64, size_bytes as u64, stream)
            .and_then(|()| driver.synchronize(stream));
        let ended = driver.destroy_stream(stream);
        copied.and(ended).map_err(|_| Status::OUT_OF_RESOURCES)?;
    }
    let given_host = if flags & flag::USE_HOST_PTR != 0 {
        host.addr()
    } else {
        0
    };
    if given_host != 0 {
        let _ = storage.host.set(given_host);
    }
    let default = if flags & flag::KERNEL_ACCESS == 0 {
        flag::READ_WRITE
    } else {
        0
    };
    let memory = handles::add(1, |identity| Memory {
        identity,
        context,
        flags: flags | default,
        size_bytes,
        offset: 0,
        parent: None,
        storage: Arc::new(storage),
        given_host,
        mappings: Mutex::default(),
        at_end: Mutex::default(),
    });
    Ok(memory.handle())
}

/// Flags of a sub-buffer of a buffer with `inherited` flags.
fn sub_buffer_flags(flags: u64, inherited: u64) -> Outcome<u64> {
    check_flags(flags)?;
    let (kernel, host) = (flags & flag::KERNEL_ACCESS, flags & flag::HOST_ACCESS);
    let widens_kernel = kernel != 0 && inherited & flag::READ_WRITE == 0 && kernel != inherited & flag::KERNEL_ACCESS;
    let inherited_host = inherited & flag::HOST_ACCESS;
    let widens_host = host != 0 && inherited_host != 0 && host != inherited_host && host != flag::HOST_NO_ACCESS;
    if flags & flag::HOST_PTR != 0 || widens_kernel || widens_host {
        return Err(Status::INVALID_VALUE);
    }
    let or_inherited = |own: u64, mask: u64| if own == 0 { inherited & mask } else { own };
    Ok(or_inherited(kernel, flag::KERNEL_ACCESS) | or_inherited(host, flag::HOST_ACCESS) | inherited & flag::HOST_PTR)
}

fn create_sub_buffer(buffer: Handle, flags: u64, kind: u32, region: In<Region>) -> Outcome<Handle> {
    let parent = handles::get::<Memory>(buffer)?;
    if parent.parent.is_some() {
        return Err(Status::INVALID_MEM_OBJECT);
    }
    let flags = sub_buffer_flags(flags, parent.flags)?;
    if kind != CREATE_REGION {
        return Err(Status::INVALID_VALUE);
    }
    let region = region.nth(0)?;
    if region.size_bytes == 0 {
        return Err(Status::INVALID_BUFFER_SIZE);
    }
    parent.check_range(region.origin, region.size_bytes)?;
    if !region.origin.is_multiple_of(ALIGNMENT_BYTES) {
        return Err(Status::MISALIGNED_SUB_BUFFER_OFFSET);
    }
    let given_host = match parent.given_host {
        0 => 0,
        host => host + region.origin,
    };
    let memory = handles::add(1, |identity| Memory {
        identity,
        context: parent.context.clone(),
        flags,
        size_bytes: region.size_bytes,
        offset: region.origin,
        storage: parent.storage.clone(),
        parent: Some(parent),
        given_host,
        mappings: Mutex::default(),
        at_end: Mutex::default(),
    });
    Ok(memory.handle())
}

fn info(memory: Handle, name: u32, room: usize, value: Out<u8>, size: Out<usize>) -> Outcome {
    let memory = handles::get::<Memory>(memory)?;
    let num_mappings = || memory.mappings.lock().len();
    let found = match name {
        name::TYPE => bytes(TYPE_BUFFER),
        name::FLAGS => bytes(memory.flags),
        name::SIZE => bytes(memory.size_bytes),
        name::HOST_PTR => bytes(memory.given_host),
        name::MAP_COUNT => bytes(u32::try_from(num_mappings()).map_err(|_| Status::OUT_OF_RESOURCES)?),
        name::REFERENCE_COUNT => bytes(handles::count::<Memory>(memory.handle())),
        name::CONTEXT => bytes(memory.context.handle()),
        name::ASSOCIATED_MEMORY => bytes(memory.parent.as_ref().map_or(Handle::NULL, |parent| parent.handle())),
        name::OFFSET => bytes(memory.offset),
        _ => return Err(Status::INVALID_VALUE),
    };
    Query { room, value, size }.give(found)
}

fn set_destructor_callback(memory: Handle, function: Option<ObjectFn>, data: usize) -> Outcome {
    let memory = handles::get::<Memory>(memory)?;
    let function = function.ok_or(Status::INVALID_VALUE)?;
    let mut at_end = memory.at_end.lock();
    at_end.push(Callback { function, data });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_flags_are_refused() {
        assert_eq!(check_flags(0), Ok(()));
        assert_eq!(
            check_flags(flag::READ_ONLY | flag::ALLOC_HOST_PTR | flag::COPY_HOST_PTR),
            Ok(())
        );
        for flags in [
            flag::READ_ONLY | flag::WRITE_ONLY,
            flag::USE_HOST_PTR | flag::COPY_HOST_PTR,
            flag::HOST_READ_ONLY | flag::HOST_NO_ACCESS,
            1 << 20,
        ] {
            assert_eq!(check_flags(flags), Err(Status::INVALID_VALUE), "{flags:#x}");
        }
    }

    #[test]
    fn a_sub_buffer_may_do_less_but_not_more() {
        let inherited = flag::READ_ONLY | flag::HOST_READ_ONLY | flag::USE_HOST_PTR;
        assert_eq!(sub_buffer_flags(0, inherited), Ok(inherited));
        assert_eq!(
            sub_buffer_flags(flag::READ_WRITE, inherited),
            Err(Status::INVALID_VALUE)
        );
        assert_eq!(
            sub_buffer_flags(flag::HOST_WRITE_ONLY, inherited),
            Err(Status::INVALID_VALUE)
        );
        assert_eq!(
            sub_buffer_flags(flag::USE_HOST_PTR, inherited),
            Err(Status::INVALID_VALUE)
        );
        let less = flag::READ_ONLY | flag::HOST_NO_ACCESS;
        assert_eq!(sub_buffer_flags(less, flag::READ_WRITE), Ok(less));
    }
}
