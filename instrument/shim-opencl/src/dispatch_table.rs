//! The dispatch table of `cl_khr_icd`: what a handle's first word points to. The loader calls everything through it.
#![allow(unsafe_code, reason = "a table of pointers is shared between threads")]

use std::ffi::c_void;

use crate::unsupported::{
    five_arguments, map_image, no_memory_object, no_operation, no_sampler, nothing, three_arguments, two_arguments,
};
use crate::{
    buffer, context, device, event, kernel, launch, map, marker, platform, program, queue, separate_compilation,
    transfer, unsupported,
};

/// The address of an entry point.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Entry(*const c_void);

// SAFETY: it is the address of a function, which never changes.
unsafe impl Sync for Entry {}

macro_rules! table {
    ($($function:expr,)*) => {
        [$(Entry($function as *const c_void)),*]
    };
}

/// Entries of the header `cl_icd.h`.
pub const NUM_ENTRIES: usize = 149;

/// How the loader finds functions that are not in the table.
#[derive(Clone, Copy, Debug)]
pub struct Lookups {
    /// `clGetExtensionFunctionAddress`.
    pub by_name: *const c_void,
    /// `clGetExtensionFunctionAddressForPlatform`.
    pub by_platform: *const c_void,
}

/// The table, in the order of `cl_icd.h`; a group of its comments is a paragraph.
pub const fn table(lookups: Lookups) -> [Entry; NUM_ENTRIES] {
    table![
        platform::clGetPlatformIDs,
        platform::clGetPlatformInfo,
        device::clGetDeviceIDs,
        device::clGetDeviceInfo,
        context::clCreateContext,
        context::clCreateContextFromType,
        context::clRetainContext,
        context::clReleaseContext,
        context::clGetContextInfo,
        queue::clCreateCommandQueue,
        queue::clRetainCommandQueue,
        queue::clReleaseCommandQueue,
        queue::clGetCommandQueueInfo,
        queue::clSetCommandQueueProperty,
        buffer::clCreateBuffer,
        unsupported::clCreateImage2D,
        unsupported::clCreateImage3D,
        buffer::clRetainMemObject,
        buffer::clReleaseMemObject,
        unsupported::clGetSupportedImageFormats,
        buffer::clGetMemObjectInfo,
        no_memory_object, // clGetImageInfo
        unsupported::clCreateSampler,
        no_sampler, // clRetainSampler
        no_sampler, // clReleaseSampler
        no_sampler, // clGetSamplerInfo
        program::clCreateProgramWithSource,
        program::clCreateProgramWithBinary,
        program::clRetainProgram,
        program::clReleaseProgram,
        program::clBuildProgram,
        platform::clUnloadCompiler,
        program::clGetProgramInfo,
        program::clGetProgramBuildInfo,
        kernel::clCreateKernel,
        kernel::clCreateKernelsInProgram,
        kernel::clRetainKernel,
        kernel::clReleaseKernel,
        kernel::clSetKernelArg,
        kernel::clGetKernelInfo,
        kernel::clGetKernelWorkGroupInfo,
        event::clWaitForEvents,
        event::clGetEventInfo,
        event::clRetainEvent,
        event::clReleaseEvent,
        event::clGetEventProfilingInfo,
        queue::clFlush,
        queue::clFinish,
        transfer::clEnqueueReadBuffer,
        transfer::clEnqueueWriteBuffer,
        transfer::clEnqueueCopyBuffer,
        no_operation, // clEnqueueReadImage
        no_operation, // clEnqueueWriteImage
        no_operation, // clEnqueueCopyImage
        no_operation, // clEnqueueCopyImageToBuffer
        no_operation, // clEnqueueCopyBufferToImage
        map::clEnqueueMapBuffer,
        map_image,
        map::clEnqueueUnmapMemObject,
        launch::clEnqueueNDRangeKernel,
        launch::clEnqueueTask,
        no_operation, // clEnqueueNativeKernel
        marker::clEnqueueMarker,
        marker::clEnqueueWaitForEvents,
        marker::clEnqueueBarrier,
        lookups.by_name,
        three_arguments,  // clCreateFromGLBuffer
        five_arguments,   // clCreateFromGLTexture2D
        five_arguments,   // clCreateFromGLTexture3D
        three_arguments,  // clCreateFromGLRenderbuffer
        no_memory_object, // clGetGLObjectInfo
        no_memory_object, // clGetGLTextureInfo
        no_operation,     // clEnqueueAcquireGLObjects
        no_operation,     // clEnqueueReleaseGLObjects
        no_operation,     // clGetGLContextInfoKHR
        // cl_khr_d3d10_sharing
        no_operation,
        nothing,
        nothing,
        nothing,
        no_operation,
        no_operation,
        // OpenCL 1.1
        event::clSetEventCallback,
        buffer::clCreateSubBuffer,
        buffer::clSetMemObjectDestructorCallback,
        event::clCreateUserEvent,
        event::clSetUserEventStatus,
        transfer::clEnqueueReadBufferRect,
        transfer::clEnqueueWriteBufferRect,
        transfer::clEnqueueCopyBufferRect,
        // cl_ext_device_fission
        no_operation, // clCreateSubDevicesEXT
        device::clRetainDevice,
        device::clReleaseDevice,
        // cl_khr_gl_event
        two_arguments, // clCreateEventFromGLsyncKHR
        // OpenCL 1.2
        device::clCreateSubDevices,
        device::clRetainDevice,
        device::clReleaseDevice,
        unsupported::clCreateImage,
        program::clCreateProgramWithBuiltInKernels,
        separate_compilation::clCompileProgram,
        separate_compilation::clLinkProgram,
        platform::clUnloadPlatformCompiler,
        kernel::clGetKernelArgInfo,
        transfer::clEnqueueFillBuffer,
        no_operation, // clEnqueueFillImage
        map::clEnqueueMigrateMemObjects,
        marker::clEnqueueMarkerWithWaitList,
        marker::clEnqueueBarrierWithWaitList,
        lookups.by_platform,
        five_arguments, // clCreateFromGLTexture
        // cl_khr_d3d11_sharing
        no_operation,
        nothing,
        nothing,
        nothing,
        nothing, // clCreateFromDX9MediaSurfaceKHR
        no_operation,
        no_operation,
        // cl_khr_dx9_media_sharing
        no_operation,
        no_operation,
        no_operation,
        // cl_khr_egl_image
        five_arguments, // clCreateFromEGLImageKHR
        no_operation,
        no_operation,
        // cl_khr_egl_event
        three_arguments, // clCreateEventFromEGLSyncKHR
        // OpenCL 2.0
        queue::clCreateCommandQueueWithProperties,
        unsupported::clCreatePipe,
        no_memory_object, // clGetPipeInfo
        nothing,          // clSVMAlloc
        nothing,          // clSVMFree
        no_operation,     // clEnqueueSVMFree
        no_operation,     // clEnqueueSVMMemcpy
        no_operation,     // clEnqueueSVMMemFill
        no_operation,     // clEnqueueSVMMap
        no_operation,     // clEnqueueSVMUnmap
        unsupported::clCreateSamplerWithProperties,
        no_operation, // clSetKernelArgSVMPointer
        no_operation, // clSetKernelExecInfo
        // cl_khr_sub_groups
        no_operation, // clGetKernelSubGroupInfoKHR
        // OpenCL 2.1
        unsupported::clCloneKernel,
        unsupported::clCreateProgramWithIL,
        no_operation, // clEnqueueSVMMigrateMem
        no_operation, // clGetDeviceAndHostTimer
        no_operation, // clGetHostTimer
        no_operation, // clGetKernelSubGroupInfo
        no_operation, // clSetDefaultDeviceCommandQueue
        // OpenCL 2.2
        no_operation, // clSetProgramReleaseCallback
        no_operation, // clSetProgramSpecializationConstant
        // OpenCL 3.0
        unsupported::clCreateBufferWithProperties,
        unsupported::clCreateImageWithProperties,
        no_operation, // clSetContextDestructorCallback
    ]
}
