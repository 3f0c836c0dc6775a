//! NVIDIA's driver API with results: functions of the same names, safe where their arguments cannot do harm.
#![allow(unsafe_code, reason = "driver FFI")]
#![allow(non_snake_case, reason = "the names are the driver's own")]

use std::ffi::{CStr, CString, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUmodule, CUresult, CUstream,
};

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_abi::tensor_map::{TENSOR_MAP_BYTES, TensorMap};

use crate::error::DeviceError;

/// A driver call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriverError {
    /// The call.
    pub call: &'static str,
    /// Its result.
    pub code: u32,
}

pub(super) type Result<T> = std::result::Result<T, DriverError>;

/// Blocks may have this much shared memory without being asked.
const SHARED_WITHOUT_OPT_IN: u32 = 48 << 10;

/// `CUDA_ERROR_INVALID_VALUE`.
pub(super) const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_UNKNOWN`.
pub(super) const UNKNOWN: u32 = 999;
/// `CUDA_ERROR_NOT_READY`.
pub(super) const NOT_READY: u32 = 600;

impl DriverError {
    /// An event that has gone back to its pool (a bug).
    pub const UNKNOWN_EVENT: Self = Self {
        call: "event",
        code: UNKNOWN,
    };

    /// The driver's words for it.
    pub fn reason(&self) -> String {
        if self.code == 0 {
            return "the driver lacks the function".into();
        }
        error_text(self.code).unwrap_or_else(|| format!("CUDA error {}", self.code))
    }

    /// As what the program is told of something that the driver does not make or do for it.
    pub fn refusing(self, what: &str) -> DeviceError {
        DeviceError::Refused {
            what: what.to_owned(),
            reason: self.to_string(),
            cuda_result: self.code,
        }
    }
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.reason())
    }
}

impl std::error::Error for DriverError {}

impl From<DriverError> for DeviceError {
    fn from(error: DriverError) -> Self {
        DeviceError::Driver {
            call: error.call,
            reason: error.reason(),
        }
    }
}

pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    match result as u32 {
        0 => Ok(()),
        code => Err(DriverError { call, code }),
    }
}

/// Name and description of a result code.
fn error_text(code: u32) -> Option<String> {
    type Lookup = unsafe extern "C" fn(u32, *mut *const std::ffi::c_char) -> u32;
    let mut parts = Vec::new();
    for symbol in [&b"cuGetErrorName"[..], b"cuGetErrorString"] {
        // SAFETY: no handle exists before the library is loaded, so it is present here.
        let library = unsafe { sys::culib() };
        // SAFETY: the function's type is the driver's, with the code as a plain number, so that unknown codes may be
        // asked.
        let lookup = unsafe { library.get::<Lookup>(symbol) }.ok()?;
        let mut text = std::ptr::null();
        // SAFETY: `text` is a place for a pointer.
        if unsafe { lookup(code, &raw mut text) } != 0 || text.is_null() {
            return None;
        }
        // SAFETY: the driver returned a static C string.
        parts.push(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    }
    Some(format!("{} ({code}): {}", parts.first()?, parts.last()?))
}

macro_rules! driver_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) => $call:ident;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name($($arg: $ty),*) -> Result<()> {
            // SAFETY: the arguments are plain values, or handles that their owners keep valid; the driver checks ranges
            // of device addresses itself.
            check(stringify!($call), unsafe { sys::$call($($arg),*) })
        }
    )*};
}

driver_calls! {
    fn cuInit(flags: u32) => cuInit;
    fn cuCtxSetCurrent(context: CUcontext) => cuCtxSetCurrent;
    fn cuCtxDestroy(context: CUcontext) => cuCtxDestroy_v2;
    fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: u32) => cuDevicePrimaryCtxSetFlags_v2;
    fn cuDevicePrimaryCtxRelease(device: CUdevice) => cuDevicePrimaryCtxRelease_v2;
    fn cuStreamSynchronize(stream: CUstream) => cuStreamSynchronize;
    fn cuStreamQuery(stream: CUstream) => cuStreamQuery;
    fn cuStreamDestroy(stream: CUstream) => cuStreamDestroy_v2;
    fn cuEventRecord(event: CUevent, stream: CUstream) => cuEventRecord;
    fn cuEventQuery(event: CUevent) => cuEventQuery;
    fn cuEventSynchronize(event: CUevent) => cuEventSynchronize;
    fn cuEventDestroy(event: CUevent) => cuEventDestroy_v2;
    fn cuMemAddressFree(addr: CUdeviceptr, size: usize) => cuMemAddressFree;
    fn cuMemMap(addr: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: u64) => cuMemMap;
    fn cuMemUnmap(addr: CUdeviceptr, size: usize) => cuMemUnmap;
    fn cuMemRelease(handle: u64) => cuMemRelease;
    fn cuMemFreeAsync(addr: CUdeviceptr, stream: CUstream) => cuMemFreeAsync;
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, size: usize, stream: CUstream) => cuMemcpyAsync;
    fn cuMemcpyDtoDAsync(dst: CUdeviceptr, src: CUdeviceptr, size: usize, stream: CUstream) => cuMemcpyDtoDAsync_v2;
    fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) => cuMemsetD8Async;
    fn cuMemsetD2D8Async(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, rows: usize, stream: CUstream)
        => cuMemsetD2D8Async;
    fn cuMemsetD2D16Async(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, rows: usize, stream: CUstream)
        => cuMemsetD2D16Async;
    fn cuMemsetD2D32Async(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, rows: usize, stream: CUstream)
        => cuMemsetD2D32Async;
    fn cuModuleUnload(module: CUmodule) => cuModuleUnload;
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: i32) => cuFuncSetAttribute;
}

/// Number of devices.
pub(super) fn cuDeviceGetCount() -> Result<i32> {
    let mut count = 0;
    // SAFETY: a place for an integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(count)
}

/// Handle of device `ordinal`.
pub(super) fn cuDeviceGet(ordinal: i32) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: a place for a device handle.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
    Ok(device)
}

/// Name of a device.
pub(super) fn cuDeviceGetName(device: CUdevice) -> Result<String> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as said, less the final zero.
    check("cuDeviceGetName", unsafe {
        sys::cuDeviceGetName(name.as_mut_ptr().cast(), 255, device)
    })?;
    Ok(CStr::from_bytes_until_nul(&name)
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default())
}

/// UUID of a device.
pub(super) fn cuDeviceGetUuid(device: CUdevice) -> Result<[u8; 16]> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: a place for a UUID.
    check("cuDeviceGetUuid", unsafe {
        sys::cuDeviceGetUuid_v2(&raw mut uuid, device)
    })?;
    Ok(uuid.bytes.map(i8::cast_unsigned))
}

/// Memory of a device.
pub(super) fn cuDeviceTotalMem(device: CUdevice) -> Result<u64> {
    let mut bytes = 0usize;
    // SAFETY: a place for a size.
    check("cuDeviceTotalMem", unsafe {
        sys::cuDeviceTotalMem_v2(&raw mut bytes, device)
    })?;
    Ok(bytes as u64)
}

/// Attribute by number, also one that this program's headers do not know.
pub(super) fn cuDeviceGetAttribute(attribute: u32, device: CUdevice) -> Result<i32> {
    type Get = unsafe extern "C" fn(*mut i32, u32, CUdevice) -> u32;
    const CALL: &str = "cuDeviceGetAttribute";
    let mut value = 0;
    // SAFETY: a device handle exists, so the library is loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: the function's type is the driver's, with the attribute as a plain number.
    let get = unsafe { library.get::<Get>(CALL.as_bytes()) }.map_err(|_| DriverError { call: CALL, code: 0 })?;
    // SAFETY: a place for an integer.
    match unsafe { get(&raw mut value, attribute, device) } {
        0 => Ok(value),
        code => Err(DriverError { call: CALL, code }),
    }
}

/// `1000 * major + 10 * minor`.
pub(super) fn cuDriverGetVersion() -> Result<i32> {
    let mut version = 0;
    // SAFETY: a place for an integer.
    check("cuDriverGetVersion", unsafe {
        sys::cuDriverGetVersion(&raw mut version)
    })?;
    Ok(version)
}

/// The device's primary context.
pub(super) fn cuDevicePrimaryCtxRetain(device: CUdevice) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    // SAFETY: a place for a handle.
    check("cuDevicePrimaryCtxRetain", unsafe {
        sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
    })?;
    Ok(context)
}

/// A further context of the device; it becomes the calling thread's.
pub(super) fn cuCtxCreate(flags: u32, device: CUdevice) -> Result<CUcontext> {
    // This version of it, which every driver has, is not in the headers of CUDA 13.
    const CALL: &str = "cuCtxCreate_v2";
    type Create = unsafe extern "C" fn(*mut CUcontext, u32, CUdevice) -> u32;
    // SAFETY: devices come from the library, so it is present.
    let library = unsafe { sys::culib() };
    // SAFETY: the function's type is the driver's, with the result as a plain number.
    let create = unsafe { library.get::<Create>(CALL.as_bytes()) }.map_err(|_| DriverError { call: CALL, code: 0 })?;
    let mut context = std::ptr::null_mut();
    // SAFETY: a place for a handle.
    match unsafe { create(&raw mut context, flags, device) } {
        0 => Ok(context),
        code => Err(DriverError { call: CALL, code }),
    }
}

/// Least and greatest stream priority of the current context.
pub(super) fn cuCtxGetStreamPriorityRange() -> Result<(i32, i32)> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: places for two integers.
    let result = unsafe { sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest) };
    check("cuCtxGetStreamPriorityRange", result)?;
    Ok((least, greatest))
}

/// Free and total memory of the current context's device.
pub(super) fn cuMemGetInfo() -> Result<(u64, u64)> {
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: places for two sizes.
    check("cuMemGetInfo", unsafe {
        sys::cuMemGetInfo_v2(&raw mut free, &raw mut total)
    })?;
    Ok((free as u64, total as u64))
}

/// A stream that does not wait for the default stream.
pub(super) fn cuStreamCreateWithPriority(priority: i32) -> Result<CUstream> {
    const NON_BLOCKING: u32 = 1;
    let mut stream = std::ptr::null_mut();
    // SAFETY: a place for a handle.
    let result = unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, NON_BLOCKING, priority) };
    check("cuStreamCreateWithPriority", result)?;
    Ok(stream)
}

/// An event. `wakes`: waiting for it sleeps; otherwise it looks all the time.
pub(super) fn cuEventCreate(has_time: bool, wakes: bool) -> Result<CUevent> {
    const BLOCKING_SYNC: u32 = 1;
    const NO_TIMING: u32 = 2;
    let flags = if wakes { BLOCKING_SYNC } else { 0 } | if has_time { 0 } else { NO_TIMING };
    let mut event = std::ptr::null_mut();
    // SAFETY: a place for a handle.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
    Ok(event)
}

/// Milliseconds from one event to another.
pub(super) fn cuEventElapsedTime(start: CUevent, end: CUevent) -> Result<f32> {
    let mut milliseconds = 0.0;
    // SAFETY: a place for a number; both events live.
    let result = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, start, end) };
    check("cuEventElapsedTime", result)?;
    Ok(milliseconds)
}

/// Reserves an address range, at `addr` if that can be had; returns where.
pub(super) fn cuMemAddressReserve(size: usize, addr: CUdeviceptr) -> Result<CUdeviceptr> {
    let mut got = 0;
    // SAFETY: a place for an address.
    check("cuMemAddressReserve", unsafe {
        sys::cuMemAddressReserve(&raw mut got, size, 0, addr, 0)
    })?;
    Ok(got)
}

fn on_device(device: CUdevice) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    }
}

/// Physical memory on a device.
pub(super) fn cuMemCreate(size: usize, device: CUdevice) -> Result<u64> {
    let prop = sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_NONE,
        location: on_device(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let mut handle = 0;
    // SAFETY: places for a handle, and a filled description.
    check("cuMemCreate", unsafe {
        sys::cuMemCreate(&raw mut handle, size, &raw const prop, 0)
    })?;
    Ok(handle)
}

/// Lets a device read and write a mapped range.
pub(super) fn cuMemSetAccess(addr: CUdeviceptr, size: usize, device: CUdevice) -> Result<()> {
    let access = sys::CUmemAccessDesc {
        location: on_device(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: one filled description.
    check("cuMemSetAccess", unsafe {
        sys::cuMemSetAccess(addr, size, &raw const access, 1)
    })
}

/// Device memory anywhere, once the stream is there.
pub(super) fn cuMemAllocAsync(size: usize, stream: CUstream) -> Result<CUdeviceptr> {
    let mut addr = 0;
    // SAFETY: a place for an address.
    check("cuMemAllocAsync", unsafe {
        sys::cuMemAllocAsync(&raw mut addr, size, stream)
    })?;
    Ok(addr)
}

/// Pinned host memory.
pub(super) fn cuMemHostAlloc(size: usize) -> Result<*mut u8> {
    const PORTABLE: u32 = 1;
    let mut addr: *mut c_void = std::ptr::null_mut();
    // SAFETY: a place for an address.
    check("cuMemHostAlloc", unsafe {
        sys::cuMemHostAlloc(&raw mut addr, size, PORTABLE)
    })?;
    Ok(addr.cast())
}

/// Frees pinned host memory.
///
/// # Safety
/// `addr` came from [`cuMemHostAlloc`] and is used no more.
pub(super) unsafe fn cuMemFreeHost(addr: *mut u8) -> Result<()> {
    // SAFETY: the caller's promise.
    check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(addr.cast()) })
}

/// Pins host memory of this process for the device.
pub(super) fn cuMemHostRegister(addr: u64, size: usize) -> Result<()> {
    const PORTABLE_DEVICE_MAP: u32 = 1 | 2;
    // SAFETY: the driver checks that the range is mapped; pinning changes no content.
    let result = unsafe { sys::cuMemHostRegister_v2(addr as *mut c_void, size, PORTABLE_DEVICE_MAP) };
    check("cuMemHostRegister", result)
}

/// Undoes [`cuMemHostRegister`].
pub(super) fn cuMemHostUnregister(addr: u64) -> Result<()> {
    // SAFETY: the driver refuses addresses that are not registered.
    check("cuMemHostUnregister", unsafe {
        sys::cuMemHostUnregister(addr as *mut c_void)
    })
}

/// Device to host; returns at once if the host memory is pinned.
///
/// # Safety
/// `dst` is valid for writing `size` bytes until the stream has done it.
pub(super) unsafe fn cuMemcpyDtoHAsync(dst: *mut u8, src: CUdeviceptr, size: usize, stream: CUstream) -> Result<()> {
    // SAFETY: the caller's promise.
    check("cuMemcpyDtoHAsync", unsafe {
        sys::cuMemcpyDtoHAsync_v2(dst.cast(), src, size, stream)
    })
}

/// Host to device; returns at once if the host memory is pinned.
///
/// # Safety
/// `src` is valid for reading `size` bytes until the stream has done it.
pub(super) unsafe fn cuMemcpyHtoDAsync(dst: CUdeviceptr, src: *const u8, size: usize, stream: CUstream) -> Result<()> {
    // SAFETY: the caller's promise.
    check("cuMemcpyHtoDAsync", unsafe {
        sys::cuMemcpyHtoDAsync_v2(dst, src.cast(), size, stream)
    })
}

/// Compiles and loads PTX, with at most `max_registers` registers a thread if given. (Not through `cuLink…`, which
/// would compile it as a part of something larger, with worse code.)
///
/// # Errors
/// The failed call and the compiler's log.
pub(super) fn cuModuleLoadDataEx(
    ptx: &str,
    max_registers: Option<u32>,
) -> std::result::Result<CUmodule, (DriverError, String)> {
    const CALL: &str = "cuModuleLoadDataEx";
    const LOG_BYTES: usize = 16 * 1024;
    let text = CString::new(ptx).map_err(|e| {
        (
            DriverError {
                call: CALL,
                code: INVALID_VALUE,
            },
            e.to_string(),
        )
    })?;
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        sys::CUjit_option::CU_JIT_MAX_REGISTERS,
    ];
    let registers = max_registers.unwrap_or(0) as usize as *mut c_void;
    let mut values: [*mut c_void; 3] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void, registers];
    let count = if max_registers.is_some() { 3 } else { 2 };
    let mut module = std::ptr::null_mut();
    let (names, values, image) = (options.as_mut_ptr(), values.as_mut_ptr(), text.as_ptr().cast());
    // SAFETY: zero-terminated text, as many options and values as said, a place for a handle; the log outlives the
    // call.
    let result = unsafe { sys::cuModuleLoadDataEx(&raw mut module, image, count, names, values) };
    check(CALL, result).map_err(|e| {
        let text = CStr::from_bytes_until_nul(&log).map(|s| s.to_string_lossy().trim().to_owned());
        (e, text.unwrap_or_default())
    })?;
    Ok(module)
}

/// Loads machine code.
pub(super) fn cuModuleLoadData(image: &[u8]) -> Result<CUmodule> {
    let mut module = std::ptr::null_mut();
    // Text ends with 0.
    let image = [image, &[0]].concat();
    // SAFETY: an ELF file or fatbin whose headers tell its size, or text; the driver checks it.
    check("cuModuleLoadData", unsafe {
        sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast())
    })?;
    Ok(module)
}

/// A kernel of a module.
pub(super) fn cuModuleGetFunction(module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = std::ptr::null_mut();
    // SAFETY: a place for a handle, and a C string.
    let result = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
    check("cuModuleGetFunction", result)?;
    Ok(function)
}

/// Attribute of a kernel.
pub(super) fn cuFuncGetAttribute(attribute: CUfunction_attribute, function: CUfunction) -> Result<i32> {
    let mut value = 0;
    // SAFETY: a place for an integer.
    check("cuFuncGetAttribute", unsafe {
        sys::cuFuncGetAttribute(&raw mut value, attribute, function)
    })?;
    Ok(value)
}

/// A tensor map.
pub(super) fn cuTensorMapEncodeTiled(map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES]> {
    type Encode = unsafe extern "C" fn(
        *mut [u8; TENSOR_MAP_BYTES],
        u32,
        u32,
        u64,
        *const u64,
        *const u64,
        *const u32,
        *const u32,
        u32,
        u32,
        u32,
        u32,
    ) -> u32;
    /// The driver writes it aligned.
    #[repr(C, align(64))]
    struct Place([u8; TENSOR_MAP_BYTES]);
    const CALL: &str = "cuTensorMapEncodeTiled";
    let rank = map.rank as usize;
    if rank > map.sizes.len() {
        return Err(DriverError {
            call: CALL,
            code: INVALID_VALUE,
        });
    }
    // SAFETY: a device is open, so the library is loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: the function's type is the driver's, with its enums as plain numbers.
    let encode =
        unsafe { library.get::<Encode>(CALL.as_bytes()) }.map_err(|_| DriverError { call: CALL, code: 801 })?;
    let mut place = Place([0; TENSOR_MAP_BYTES]);
    // SAFETY: a place for the map, and lists of at least `rank` elements.
    let code = unsafe {
        encode(
            &raw mut place.0,
            map.data_type,
            map.rank,
            map.address,
            map.sizes.as_ptr(),
            map.strides.as_ptr(),
            map.tile.as_ptr(),
            map.element_strides.as_ptr(),
            map.interleave,
            map.swizzle,
            map.l2_promotion,
            map.fill,
        )
    };
    match code {
        0 => Ok(place.0),
        code => Err(DriverError { call: CALL, code }),
    }
}

/// Address and size of a module's variable.
pub(super) fn cuModuleGetGlobal(module: CUmodule, name: &CStr) -> Result<(CUdeviceptr, u64)> {
    let (mut addr, mut size) = (0, 0usize);
    // SAFETY: places for an address and a size, and a C string.
    let result = unsafe { sys::cuModuleGetGlobal_v2(&raw mut addr, &raw mut size, module, name.as_ptr()) };
    check("cuModuleGetGlobal", result)?;
    Ok((addr, size as u64))
}

/// Blocks of `threads` threads that a multiprocessor can hold.
pub(super) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(f: CUfunction, threads: u32, shared: u32) -> Result<u32> {
    const CALL: &str = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
    let mut blocks = 0;
    let threads = i32::try_from(threads).map_err(|_| DriverError { call: CALL, code: 1 })?;
    // SAFETY: a place for an integer.
    let result =
        unsafe { sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, f, threads, shared as usize) };
    check(CALL, result)?;
    Ok(blocks.cast_unsigned())
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub cooperative: bool,
    /// Blocks of a cluster; 0s if there are none.
    pub cluster: [u8; 3],
}

impl From<&LaunchShape> for Shape {
    fn from(shape: &LaunchShape) -> Self {
        Self {
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.dynamic_shared_bytes,
            cooperative: shape.cooperative,
            cluster: shape.cluster,
        }
    }
}

impl Shape {
    fn cluster_attribute(&self) -> sys::CUlaunchAttribute {
        let [x, y, z] = self.cluster.map(|n| u32::from(n).max(1));
        sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z },
            },
        }
    }

    /// The launch with one attribute, to be used while that lives.
    fn config(&self, attribute: &mut sys::CUlaunchAttribute, stream: CUstream) -> sys::CUlaunchConfig {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            attrs: attribute,
            numAttrs: 1,
        }
    }
}

/// Lets blocks of a kernel have that much dynamic shared memory.
pub(super) fn allow_shared_memory(function: CUfunction, bytes: u32) -> Result<()> {
    if bytes <= SHARED_WITHOUT_OPT_IN {
        return Ok(());
    }
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    cuFuncSetAttribute(function, attribute, bytes)
}

/// Lets a kernel have clusters of more than 8 blocks.
pub(super) fn allow_non_portable_clusters(function: CUfunction) -> Result<()> {
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    cuFuncSetAttribute(function, attribute, 1)
}

/// How many clusters of the launch run at once.
pub(super) fn cuOccupancyMaxActiveClusters(function: CUfunction, shape: &Shape) -> Result<i32> {
    let (mut count, mut attribute) = (0, shape.cluster_attribute());
    let config = shape.config(&mut attribute, std::ptr::null_mut());
    // SAFETY: a place for an integer, and a launch with one attribute.
    let result = unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut count, function, &raw const config) };
    check("cuOccupancyMaxActiveClusters", result)?;
    Ok(count)
}

/// Blocks of the launch's largest cluster.
pub(super) fn cuOccupancyMaxPotentialClusterSize(function: CUfunction, shape: &Shape) -> Result<i32> {
    let (mut size, mut attribute) = (0, shape.cluster_attribute());
    let mut config = shape.config(&mut attribute, std::ptr::null_mut());
    // The size is what is asked for.
    config.numAttrs = 0;
    // SAFETY: a place for an integer, and a launch without attributes.
    let result = unsafe { sys::cuOccupancyMaxPotentialClusterSize(&raw mut size, function, &raw const config) };
    check("cuOccupancyMaxPotentialClusterSize", result)?;
    Ok(size)
}

/// Starts a kernel.
///
/// # Safety
/// Each pointer of `params` is valid for reading as many bytes as the kernel's parameter has, in order, all of them.
pub(super) unsafe fn cuLaunchKernel(
    function: CUfunction,
    shape: &Shape,
    stream: CUstream,
    params: &mut [*mut c_void],
) -> Result<()> {
    let ([gx, gy, gz], [bx, by, bz], shared) = (shape.grid, shape.block, shape.shared_bytes);
    let params = params.as_mut_ptr();
    if shape.cooperative {
        // SAFETY: the caller's promise.
        let result =
            unsafe { sys::cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params) };
        return check("cuLaunchCooperativeKernel", result);
    }
    let extra = std::ptr::null_mut();
    if shape.cluster != [0; 3] {
        let mut attribute = shape.cluster_attribute();
        let config = shape.config(&mut attribute, stream);
        // SAFETY: one attribute, and the caller's promise.
        let result = unsafe { sys::cuLaunchKernelEx(&raw const config, function, params, extra) };
        return check("cuLaunchKernelEx", result);
    }
    // SAFETY: the caller's promise.
    let result = unsafe { sys::cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra) };
    check("cuLaunchKernel", result)
}
