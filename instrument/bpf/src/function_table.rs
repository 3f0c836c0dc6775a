//! The functions of which more is known than their names.
//!
//! Arguments are those of the vendors' and Khronos's reference pages of the CUDA driver API, OpenCL 3.0, HIP and Level
//! Zero.

use crate::description::{CONFIGURED_QUEUE, Class, Description, RETURNED, UNKNOWN_QUEUE};

const fn of(name: &'static str, class: Class) -> Description {
    Description::of(name, class)
}

/// Writes where its first argument says, by the size that is its second.
const fn alloc(name: &'static str) -> Description {
    of(name, Class::Alloc).handle(1).size(2)
}

const fn free(name: &'static str) -> Description {
    of(name, Class::Free).handle(1)
}

/// A copy of as many bytes as its third argument says, in order on the default stream, that waits.
const fn copy(name: &'static str) -> Description {
    of(name, Class::Copy).size(3).blocking(RETURNED)
}

/// The same on the stream that is its fourth argument.
const fn copy_async(name: &'static str) -> Description {
    of(name, Class::Copy).size(3).queue(4)
}

/// A fill of as many units as its third argument says.
const fn fill(name: &'static str, unit_bytes: u8) -> Description {
    of(name, Class::Copy).size(3).unit(unit_bytes)
}

/// A fill of rows: width and height are the fourth and fifth argument.
const fn fill_rows(name: &'static str, unit_bytes: u8) -> Description {
    of(name, Class::Copy).size(4).times(5).unit(unit_bytes)
}

/// Writes a kernel's handle where its first argument says; the third is the kernel's name.
const fn kernel(name: &'static str) -> Description {
    of(name, Class::Kernel).handle(1).text(3)
}

/// Takes a name, and writes an address where its second argument says.
const fn asks(name: &'static str) -> Description {
    of(name, Class::Asks).text(1).handle(2)
}

/// All of them.
pub const FUNCTIONS: &[Description] = &[
    // CUDA: launches.
    of("cuLaunchKernel", Class::Launch).handle(1).queue(9),
    of("cuLaunchKernelEx", Class::Launch).handle(2).queue(CONFIGURED_QUEUE),
    of("cuLaunchCooperativeKernel", Class::Launch).handle(1).queue(9),
    of("cuLaunch", Class::Launch).handle(1),
    of("cuLaunchGrid", Class::Launch).handle(1),
    of("cuLaunchGridAsync", Class::Launch).handle(1).queue(4),
    of("cuLaunchCooperativeKernelMultiDevice", Class::Launch).queue(UNKNOWN_QUEUE),
    of("cuGraphLaunch", Class::Launch).queue(2),
    of("cuLaunchHostFunc", Class::Copy).queue(1),
    // CUDA: waits.
    of("cuCtxSynchronize", Class::WaitAll),
    of("cuCtxSynchronize_v2", Class::WaitAll),
    of("cuStreamSynchronize", Class::Wait).queue(1),
    of("cuEventSynchronize", Class::WaitEvent).handle(1),
    of("cuEventRecord", Class::Record).handle(1).queue(2),
    of("cuEventRecordWithFlags", Class::Record).handle(1).queue(2),
    // CUDA: copies. Those of which a structure says how much they copy have no size here.
    copy("cuMemcpy"),
    copy_async("cuMemcpyAsync"),
    copy("cuMemcpyHtoD"),
    copy("cuMemcpyHtoD_v2"),
    copy("cuMemcpyDtoH"),
    copy("cuMemcpyDtoH_v2"),
    of("cuMemcpyDtoD", Class::Copy).size(3),
    of("cuMemcpyDtoD_v2", Class::Copy).size(3),
    copy_async("cuMemcpyHtoDAsync"),
    copy_async("cuMemcpyHtoDAsync_v2"),
    copy_async("cuMemcpyDtoHAsync"),
    copy_async("cuMemcpyDtoHAsync_v2"),
    copy_async("cuMemcpyDtoDAsync"),
    copy_async("cuMemcpyDtoDAsync_v2"),
    of("cuMemcpyPeer", Class::Copy).size(5),
    of("cuMemcpyPeerAsync", Class::Copy).size(5).queue(6),
    of("cuMemcpy2D_v2", Class::Copy),
    of("cuMemcpy2DUnaligned_v2", Class::Copy),
    of("cuMemcpy2DAsync_v2", Class::Copy).queue(2),
    of("cuMemcpy3D_v2", Class::Copy),
    of("cuMemcpy3DAsync_v2", Class::Copy).queue(2),
    of("cuMemPrefetchAsync", Class::Copy).size(2).queue(4),
    of("cuMemPrefetchAsync_v2", Class::Copy).size(2).queue(5),
    // CUDA: fills.
    fill("cuMemsetD8", 1),
    fill("cuMemsetD8_v2", 1),
    fill("cuMemsetD16", 2),
    fill("cuMemsetD16_v2", 2),
    fill("cuMemsetD32", 4),
    fill("cuMemsetD32_v2", 4),
    fill("cuMemsetD8Async", 1).queue(4),
    fill("cuMemsetD16Async", 2).queue(4),
    fill("cuMemsetD32Async", 4).queue(4),
    fill_rows("cuMemsetD2D8", 1),
    fill_rows("cuMemsetD2D8_v2", 1),
    fill_rows("cuMemsetD2D16", 2),
    fill_rows("cuMemsetD2D16_v2", 2),
    fill_rows("cuMemsetD2D32", 4),
    fill_rows("cuMemsetD2D32_v2", 4),
    fill_rows("cuMemsetD2D8Async", 1).queue(6),
    fill_rows("cuMemsetD2D16Async", 2).queue(6),
    fill_rows("cuMemsetD2D32Async", 4).queue(6),
    // CUDA: memory.
    alloc("cuMemAlloc"),
    alloc("cuMemAlloc_v2"),
    alloc("cuMemAllocManaged"),
    alloc("cuMemAllocAsync"),
    alloc("cuMemAllocFromPoolAsync"),
    alloc("cuMemAllocHost"),
    alloc("cuMemAllocHost_v2"),
    alloc("cuMemHostAlloc"),
    alloc("cuMemCreate"),
    // A row is at least as wide as is asked for.
    of("cuMemAllocPitch", Class::Alloc).handle(1).size(3).times(4),
    of("cuMemAllocPitch_v2", Class::Alloc).handle(1).size(3).times(4),
    free("cuMemFree"),
    free("cuMemFree_v2"),
    free("cuMemFreeAsync"),
    free("cuMemFreeHost"),
    free("cuMemRelease"),
    // CUDA: kernels and entry points.
    kernel("cuModuleGetFunction"),
    kernel("cuLibraryGetKernel"),
    asks("cuGetProcAddress"),
    asks("cuGetProcAddress_v2"),
    // OpenCL.
    of("clEnqueueNDRangeKernel", Class::Launch).handle(2).queue(1),
    of("clEnqueueTask", Class::Launch).handle(2).queue(1),
    of("clEnqueueNativeKernel", Class::Launch).queue(1),
    of("clFinish", Class::Wait).queue(1),
    // Waits for events of any queue, which are not followed.
    of("clWaitForEvents", Class::Other),
    of("clEnqueueReadBuffer", Class::Copy).queue(1).blocking(3).size(5),
    of("clEnqueueWriteBuffer", Class::Copy).queue(1).blocking(3).size(5),
    of("clEnqueueReadBufferRect", Class::Copy).queue(1).blocking(3),
    of("clEnqueueWriteBufferRect", Class::Copy).queue(1).blocking(3),
    of("clEnqueueCopyBuffer", Class::Copy).queue(1).size(6),
    of("clEnqueueCopyBufferRect", Class::Copy).queue(1),
    of("clEnqueueFillBuffer", Class::Copy).queue(1).size(6),
    of("clEnqueueMapBuffer", Class::Copy).queue(1).blocking(3).size(6),
    of("clEnqueueUnmapMemObject", Class::Copy).queue(1),
    of("clEnqueueReadImage", Class::Copy).queue(1).blocking(3),
    of("clEnqueueWriteImage", Class::Copy).queue(1).blocking(3),
    of("clEnqueueCopyImage", Class::Copy).queue(1),
    of("clEnqueueFillImage", Class::Copy).queue(1),
    of("clEnqueueCopyImageToBuffer", Class::Copy).queue(1),
    of("clEnqueueCopyBufferToImage", Class::Copy).queue(1),
    of("clEnqueueMapImage", Class::Copy).queue(1).blocking(3),
    of("clEnqueueMigrateMemObjects", Class::Copy).queue(1),
    of("clEnqueueSVMMemcpy", Class::Copy).queue(1).blocking(2).size(5),
    of("clEnqueueSVMMemFill", Class::Copy).queue(1).size(5),
    of("clEnqueueSVMMap", Class::Copy).queue(1).blocking(2).size(5),
    of("clCreateBuffer", Class::Alloc).handle(RETURNED).size(3),
    of("clCreateBufferWithProperties", Class::Alloc)
        .handle(RETURNED)
        .size(4),
    of("clRetainMemObject", Class::Retain).handle(1),
    free("clReleaseMemObject"),
    of("clSVMAlloc", Class::Alloc).handle(RETURNED).size(3),
    of("clSVMFree", Class::Free).handle(2),
    of("clCreateKernel", Class::Kernel).handle(RETURNED).text(2),
    of("clGetExtensionFunctionAddress", Class::Asks)
        .handle(RETURNED)
        .text(1),
    of("clGetExtensionFunctionAddressForPlatform", Class::Asks)
        .handle(RETURNED)
        .text(2),
    // HIP.
    of("hipModuleLaunchKernel", Class::Launch).handle(1).queue(9),
    of("hipExtModuleLaunchKernel", Class::Launch).handle(1).queue(9),
    // Its dimensions are structures: which argument the stream is depends on how they are passed.
    of("hipLaunchKernel", Class::Launch).handle(1).queue(UNKNOWN_QUEUE),
    of("hipGraphLaunch", Class::Launch).queue(2),
    of("hipStreamSynchronize", Class::Wait).queue(1),
    of("hipEventSynchronize", Class::WaitEvent).handle(1),
    of("hipEventRecord", Class::Record).handle(1).queue(2),
    of("hipDeviceSynchronize", Class::WaitAll),
    copy("hipMemcpy"),
    of("hipMemcpyAsync", Class::Copy).size(3).queue(5),
    copy("hipMemcpyHtoD"),
    copy("hipMemcpyDtoH"),
    of("hipMemcpyDtoD", Class::Copy).size(3),
    copy_async("hipMemcpyHtoDAsync"),
    copy_async("hipMemcpyDtoHAsync"),
    copy_async("hipMemcpyDtoDAsync"),
    fill("hipMemset", 1),
    fill("hipMemsetAsync", 1).queue(4),
    alloc("hipMalloc"),
    alloc("hipMallocManaged"),
    alloc("hipMallocAsync"),
    alloc("hipHostMalloc"),
    free("hipFree"),
    free("hipFreeAsync"),
    free("hipHostFree"),
    kernel("hipModuleGetFunction"),
    asks("hipGetProcAddress"),
    // Level Zero.
    of("zeCommandQueueExecuteCommandLists", Class::Copy).queue(1),
    of("zeCommandQueueSynchronize", Class::Wait).queue(1),
    of("zeCommandListAppendLaunchKernel", Class::Launch).handle(2).queue(1),
    of("zeCommandListAppendLaunchCooperativeKernel", Class::Launch)
        .handle(2)
        .queue(1),
    of("zeCommandListAppendMemoryCopy", Class::Copy).queue(1).size(4),
    of("zeCommandListAppendMemoryFill", Class::Copy).queue(1).size(5),
    of("zeMemAllocDevice", Class::Alloc).size(3).handle(6),
    of("zeMemAllocHost", Class::Alloc).size(3).handle(5),
    of("zeMemAllocShared", Class::Alloc).size(4).handle(7),
    of("zeMemFree", Class::Free).handle(2),
    of("zeDriverGetExtensionFunctionAddress", Class::Asks).text(2).handle(3),
];

/// What is known of the function `symbol`. Copies and fills without an entry are taken for work on a queue that is not
/// known, which nothing but a wait for all ends.
#[must_use]
pub fn describe(symbol: &str) -> Description {
    let name = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let known = FUNCTIONS.iter().find(|function| function.name == name);
    let works = [
        "cuMemcpy",
        "cuMemset",
        "hipMemcpy",
        "hipMemset",
        "clEnqueue",
        "cuMemBatch",
        "cuGraphLaunch",
    ];
    let does_nothing_there = ["clEnqueueMarker", "clEnqueueBarrier", "clEnqueueWaitForEvents"];
    let is_work = works.iter().any(|start| name.starts_with(start))
        && !does_nothing_there.iter().any(|start| name.starts_with(start));
    let unknown = match is_work {
        true => of("", Class::Copy).queue(UNKNOWN_QUEUE),
        false => of("", Class::Other),
    };
    known.copied().unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_and_without_their_suffixes() {
        assert_eq!(describe("cuMemcpyHtoDAsync_v2_ptsz").queue, 4);
        assert_eq!(describe("cuMemcpyHtoDAsync_v2").class, Class::Copy);
        assert_eq!(describe("cuMemcpy3DPeerAsync_ptsz").class, Class::Copy);
        assert_eq!(describe("clEnqueueMarker").class, Class::Other);
        assert_eq!(describe("cuCtxGetCurrent").class, Class::Other);
    }

    #[test]
    fn no_function_is_described_twice_and_all_numbers_fit() {
        for (at, function) in FUNCTIONS.iter().enumerate() {
            let same = |other: &Description| other.name == function.name;
            assert!(!FUNCTIONS[..at].iter().any(same), "{}", function.name);
            for argument in [
                function.size,
                function.factor,
                function.handle,
                function.text,
                function.queue,
                function.blocking,
            ] {
                assert!(argument <= RETURNED, "{}", function.name);
            }
            assert!(function.unit_bytes <= 7, "{}", function.name);
        }
    }
}
