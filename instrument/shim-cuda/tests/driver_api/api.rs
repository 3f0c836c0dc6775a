//! The part of the driver API that the cases call, as C declares it.

use std::ffi::{c_char, c_void};

// Links the library's entry points.
extern crate cuda_shim as _;

pub const SUCCESS: u32 = 0;
pub const INVALID_VALUE: u32 = 1;
pub const NOT_INITIALIZED: u32 = 3;
pub const DEVICE_UNAVAILABLE: u32 = 46;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const ILLEGAL_STATE: u32 = 401;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const NOT_REGISTERED: u32 = 713;
pub const NOT_SUPPORTED: u32 = 801;
pub const CAPTURE_UNSUPPORTED: u32 = 900;
pub const INVALID_CLUSTER_SIZE: u32 = 912;
pub const CAPTURE_INVALIDATED: u32 = 901;
pub const CAPTURE_MERGE: u32 = 902;
pub const CAPTURE_UNMATCHED: u32 = 903;
pub const CAPTURE_UNJOINED: u32 = 904;
pub const CAPTURE_ISOLATION: u32 = 905;
pub const CAPTURE_IMPLICIT: u32 = 906;
pub const CAPTURED_EVENT: u32 = 907;
pub const CAPTURE_WRONG_THREAD: u32 = 908;

#[repr(C)]
#[derive(Default)]
pub struct Copy2D {
    pub src: Side2D,
    pub dst: Side2D,
    pub width: u64,
    pub height: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct Side2D {
    pub x: u64,
    pub y: u64,
    pub memory_type: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct Copy3D {
    pub src: Side3D,
    pub dst: Side3D,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct Side3D {
    pub x: u64,
    pub y: u64,
    pub z: u64,
    pub lod: u64,
    pub memory_type: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub reserved: u64,
    pub pitch: u64,
    pub height: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Descriptor3D {
    pub size: [u64; 3],
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceDescriptor {
    pub kind: u32,
    pub words: [u64; 16],
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TextureDescriptor {
    pub fields: [u32; 26],
}

#[repr(C)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: u64,
    pub attributes: *const LaunchAttribute,
    pub num_attributes: u32,
}

#[repr(C)]
pub struct LaunchAttribute {
    pub id: u32,
    pub reserved: u32,
    pub value: [u32; 16],
}

#[rustfmt::skip]
unsafe extern "C" {
    pub fn cuInit(flags: u32) -> u32;
    pub fn cuGetExportTable(table: *mut *const *const c_void, uuid: *const u128) -> u32;
    pub fn cuDeviceGetCount(count: *mut i32) -> u32;
    pub fn cuDeviceGetName(name: *mut c_char, room: i32, device: i32) -> u32;
    pub fn cuDeviceGetAttribute(value: *mut i32, number: i32, device: i32) -> u32;
    pub fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) -> u32;
    pub fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32;
    pub fn cuCtxSetCurrent(context: u64) -> u32;
    pub fn cuCtxGetCurrent(context: *mut u64) -> u32;
    pub fn cuCtxCreate_v4(context: *mut u64, params: *const u64, flags: u32, device: i32) -> u32;
    pub fn cuCtxDestroy_v2(context: u64) -> u32;
    pub fn cuCtxSynchronize() -> u32;
    pub fn cuMemAlloc_v2(addr: *mut u64, size: usize) -> u32;
    pub fn cuMemFree_v2(addr: u64) -> u32;
    pub fn cuMemAllocManaged(addr: *mut u64, size: usize, flags: u32) -> u32;
    pub fn cuMemAdvise(addr: u64, size: usize, advice: u32, device: i32) -> u32;
    pub fn cuMemPrefetchAsync(addr: u64, size: usize, device: i32, stream: u64) -> u32;
    pub fn cuMemRangeGetAttribute(value: *mut c_void, bytes: usize, attribute: u32, addr: u64, size: usize) -> u32;
    pub fn cuStreamAttachMemAsync(stream: u64, addr: u64, size: usize, flags: u32) -> u32;
    pub fn cuMemHostAlloc(addr: *mut *mut u8, size: usize, flags: u32) -> u32;
    pub fn cuMemFreeHost(addr: *mut u8) -> u32;
    pub fn cuMemHostRegister_v2(addr: *mut u8, size: usize, flags: u32) -> u32;
    pub fn cuMemHostUnregister(addr: *mut u8) -> u32;
    pub fn cuMemHostGetDevicePointer_v2(device_addr: *mut u64, addr: *mut u8, flags: u32) -> u32;
    pub fn cuMemcpyHtoD_v2(dst: u64, src: *const c_void, size: usize) -> u32;
    pub fn cuMemcpyDtoH_v2(dst: *mut c_void, src: u64, size: usize) -> u32;
    pub fn cuMemcpyAsync(dst: u64, src: u64, size: usize, stream: u64) -> u32;
    pub fn cuMemcpy2D_v2(copy: *const Copy2D) -> u32;
    pub fn cuMemsetD32_v2(dst: u64, value: u32, count: usize) -> u32;
    pub fn cuLibraryGetManaged(addr: *mut u64, size: *mut usize, library: u64, name: *const c_char) -> u32;
    pub fn cuModuleLoadData(module: *mut u64, image: *const c_void) -> u32;
    pub fn cuModuleUnload(module: u64) -> u32;
    pub fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) -> u32;
    pub fn cuModuleGetGlobal_v2(addr: *mut u64, size: *mut u64, module: u64, name: *const c_char) -> u32;
    pub fn cuFuncGetAttribute(value: *mut i32, attribute: u32, function: u64) -> u32;
    pub fn cuFuncSetAttribute(function: u64, attribute: u32, value: i32) -> u32;
    pub fn cuLaunchKernel(function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64,
        params: *const *const c_void, extra: *const *const c_void) -> u32;
    pub fn cuLaunchHostFunc(stream: u64, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> u32;
    pub fn cuStreamCreate(stream: *mut u64, flags: u32) -> u32;
    pub fn cuStreamDestroy_v2(stream: u64) -> u32;
    pub fn cuStreamSynchronize(stream: u64) -> u32;
    pub fn cuEventCreate(event: *mut u64, flags: u32) -> u32;
    pub fn cuEventRecord(event: u64, stream: u64) -> u32;
    pub fn cuEventQuery(event: u64) -> u32;
    pub fn cuEventSynchronize(event: u64) -> u32;
    pub fn cuEventElapsedTime(ms: *mut f32, start: u64, end: u64) -> u32;
    pub fn cuPointerGetAttribute(value: *mut c_void, attribute: u32, addr: u64) -> u32;
    pub fn cuLinkCreate_v2(count: u32, options: *const u32, values: *const u64, linking: *mut u64) -> u32;
    pub fn cuLinkAddData_v2(linking: u64, kind: u32, data: *const c_void, size: usize, name: *const c_char, count: u32,
        options: *const u32, values: *const u64) -> u32;
    pub fn cuLinkComplete(linking: u64, image: *mut *const c_void, size: *mut u64) -> u32;
    pub fn cuLinkDestroy(linking: u64) -> u32;
    pub fn cuMemAllocAsync(addr: *mut u64, size: usize, stream: u64) -> u32;
    pub fn cuMemFreeAsync(addr: u64, stream: u64) -> u32;
    pub fn cuMemsetD32Async(dst: u64, value: u32, count: usize, stream: u64) -> u32;
    pub fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) -> u32;
    pub fn cuStreamBeginCapture_v2(stream: u64, mode: u32) -> u32;
    pub fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> u32;
    pub fn cuStreamIsCapturing(stream: u64, status: *mut u32) -> u32;
    pub fn cuStreamGetCaptureInfo(stream: u64, status: *mut u32, id: *mut u64) -> u32;
    pub fn cuGraphAddEmptyNode(node: *mut u64, graph: u64, after: *const u64, count: u64) -> u32;
    pub fn cuGraphAddDependencies(graph: u64, from: *const u64, to: *const u64, count: u64) -> u32;
    pub fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut u64) -> u32;
    pub fn cuGraphDestroyNode(node: u64) -> u32;
    pub fn cuGraphClone(copy: *mut u64, graph: u64) -> u32;
    pub fn cuGraphDestroy(graph: u64) -> u32;
    pub fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64) -> u32;
    pub fn cuGraphExecUpdate_v2(executable: u64, graph: u64, info: *mut u64) -> u32;
    pub fn cuGraphExecDestroy(executable: u64) -> u32;
    pub fn cuGraphLaunch(executable: u64, stream: u64) -> u32;
    pub fn cuMemExportToShareableHandle(shareable: *mut c_void, handle: u64, kind: u32, flags: u64) -> u32;
    pub fn cuStreamSetAttribute(stream: u64, attribute: u32, value: *const [u32; 16]) -> u32;
    pub fn cuStreamGetAttribute(stream: u64, attribute: u32, value: *mut [u32; 16]) -> u32;
    pub fn cuStreamCopyAttributes(to: u64, from: u64) -> u32;
    pub fn cuStreamWriteValue32(stream: u64, addr: u64, value: u32, flags: u32) -> u32;
    pub fn cuStreamWriteValue64_v2(stream: u64, addr: u64, value: u64, flags: u32) -> u32;
    pub fn cuStreamBatchMemOp_v2(stream: u64, count: u32, operations: *const [u64; 6], flags: u32) -> u32;
    pub fn cuStreamWaitValue32_v2(stream: u64, addr: u64, value: u32, flags: u32) -> u32;
    pub fn cuStreamGetGreenCtx(stream: u64, context: *mut u64) -> u32;
    pub fn cuPointerGetAttributes(count: u32, attributes: *const u32, values: *const *mut c_void, addr: u64) -> u32;
    pub fn cuLaunchKernelEx(config: *const LaunchConfig, function: u64, params: *const *const c_void,
        extra: *const *const c_void) -> u32;
    pub fn cuOccupancyMaxActiveClusters(clusters: *mut i32, function: u64, config: *const LaunchConfig) -> u32;
    pub fn cuOccupancyMaxPotentialClusterSize(size: *mut i32, function: u64, config: *const LaunchConfig) -> u32;
    pub fn cuTensorMapEncodeTiled(map: *mut [u8; 128], data_type: u32, rank: u32, addr: u64, sizes: *const u64,
        strides: *const u64, tile: *const u32, element_strides: *const u32, interleave: u32, swizzle: u32,
        promotion: u32, fill: u32) -> u32;
    pub fn cuArrayCreate_v2(array: *mut u64, descriptor: *const [u64; 3]) -> u32;
    pub fn cuArray3DCreate_v2(array: *mut u64, descriptor: *const Descriptor3D) -> u32;
    pub fn cuArrayDestroy(array: u64) -> u32;
    pub fn cuArray3DGetDescriptor_v2(descriptor: *mut Descriptor3D, array: u64) -> u32;
    pub fn cuMipmappedArrayCreate(array: *mut u64, descriptor: *const Descriptor3D, levels: u32) -> u32;
    pub fn cuMipmappedArrayGetLevel(level: *mut u64, array: u64, number: u32) -> u32;
    pub fn cuMipmappedArrayDestroy(array: u64) -> u32;
    pub fn cuMemcpy3D_v2(copy: *const Copy3D) -> u32;
    pub fn cuMemcpy3DAsync_v2(copy: *const Copy3D, stream: u64) -> u32;
    pub fn cuMemcpyHtoA_v2(dst: u64, offset: u64, src: *const c_void, size: u64) -> u32;
    pub fn cuMemcpyAtoH_v2(dst: *mut c_void, src: u64, offset: u64, size: u64) -> u32;
    pub fn cuMemcpyAtoA_v2(dst: u64, dst_offset: u64, src: u64, src_offset: u64, size: u64) -> u32;
    pub fn cuMemcpyDtoA_v2(dst: u64, offset: u64, src: u64, size: u64) -> u32;
    pub fn cuMemcpyAtoD_v2(dst: u64, src: u64, offset: u64, size: u64) -> u32;
    pub fn cuTexObjectCreate(object: *mut u64, resource: *const ResourceDescriptor, texture: *const TextureDescriptor,
        view: *const c_void) -> u32;
    pub fn cuTexObjectDestroy(object: u64) -> u32;
    pub fn cuTexObjectGetResourceDesc(resource: *mut ResourceDescriptor, object: u64) -> u32;
    pub fn cuTexObjectGetTextureDesc(texture: *mut TextureDescriptor, object: u64) -> u32;
    pub fn cuTexObjectGetResourceViewDesc(view: *mut [u64; 14], object: u64) -> u32;
    pub fn cuSurfObjectCreate(object: *mut u64, resource: *const ResourceDescriptor) -> u32;
    pub fn cuSurfObjectDestroy(object: u64) -> u32;
    pub fn cuSurfObjectGetResourceDesc(resource: *mut ResourceDescriptor, object: u64) -> u32;
    pub fn cuGraphDebugDotPrint(graph: u64, path: *const c_char, flags: u32) -> u32;
}

/// Calls a driver function whose result must be `SUCCESS`, or the one named.
#[macro_export]
macro_rules! cu {
    ($call:expr) => {
        $crate::cu!($call => $crate::api::SUCCESS)
    };
    ($call:expr => $expected:expr) => {{
        // SAFETY: the case passes valid pointers, or what it wants to see refused.
        let result = unsafe { $call };
        assert_eq!(result, $expected, "{}", stringify!($call));
    }};
}
