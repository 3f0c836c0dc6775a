//! Names that programs linked to `libcuda.so.1` need in order to start, and that answer "not supported" when called.
//! `cuGetProcAddress` gives them to the CUDA runtime alone ([`crate::proc_address`]).

use std::ffi::c_void;

use crate::proc_address::Pointer;

macro_rules! not_implemented {
    ($($name:ident)*) => {
        $(
            #[allow(unsafe_code, reason = "the entry point's name is the interface")]
            #[unsafe(no_mangle)]
            // `hetckpt doctor --pid` tells them from the others by it.
            #[unsafe(link_section = "hetckpt_stubs")]
            pub extern "C" fn $name() -> crate::result::CuResult {
                crate::guard::not_implemented(stringify!($name))
            }
        )*

        /// All of them, by name.
        pub static STUBS: &[(&str, Pointer)] = &[$((stringify!($name), Pointer($name as *const c_void)),)*];
    };
}

not_implemented! {
    cuArray3DCreate cuArray3DGetDescriptor cuArrayCreate cuArrayGetDescriptor cuArrayGetMemoryRequirements
    cuArrayGetPlane cuArrayGetSparseProperties cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal
    cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal cuCtxAttach cuCtxCreate cuCtxDestroy cuCtxFromGreenCtx
    cuCtxGetDevResource cuCtxGetExecAffinity cuCtxPopCurrent cuCtxPushCurrent cuCtxRecordEvent cuCtxSetFlags
    cuCtxWaitEvent cuDestroyExternalMemory cuDestroyExternalSemaphore cuDevResourceGenerateDesc
    cuDevSmResourceSplitByCount cuDeviceGetDevResource cuDeviceGetExecAffinitySupport cuDeviceGetGraphMemAttribute
    cuDeviceGetHostAtomicCapabilities cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAtomicCapabilities
    cuDeviceGetProperties cuDeviceGetTexture1DLinearMaxWidth cuDeviceGraphMemTrim cuDeviceRegisterAsyncNotification
    cuDeviceSetGraphMemAttribute cuDeviceTotalMem cuDeviceUnregisterAsyncNotification cuEGLStreamConsumerAcquireFrame
    cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerDisconnect
    cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect
    cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame cuEventCreateFromEGLSync cuEventDestroy
    cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites
    cuFuncSetBlockShape cuFuncSetSharedSize cuGLCtxCreate cuGLCtxCreate_v2 cuGLGetDevices cuGLGetDevices_v2 cuGLInit
    cuGLMapBufferObject cuGLMapBufferObjectAsync cuGLMapBufferObjectAsync_v2 cuGLMapBufferObjectAsync_v2_ptsz
    cuGLMapBufferObject_v2 cuGLMapBufferObject_v2_ptsz cuGLRegisterBufferObject cuGLSetBufferObjectMapFlags
    cuGLUnmapBufferObject cuGLUnmapBufferObjectAsync cuGLUnregisterBufferObject cuGraphAddBatchMemOpNode
    cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode cuGraphBatchMemOpNodeGetParams
    cuGraphBatchMemOpNodeSetParams cuGraphConditionalHandleCreate cuGraphDebugDotPrint
    cuGraphExecBatchMemOpNodeSetParams cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams cuGraphReleaseUserObject cuGraphRetainUserObject
    cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage cuGraphicsMapResources
    cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedEglFrame cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags
    cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources
    cuGraphicsUnmapResources_ptsz cuGraphicsUnregisterResource cuGraphicsVDPAURegisterOutputSurface
    cuGraphicsVDPAURegisterVideoSurface cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource cuGreenCtxGetId
    cuGreenCtxRecordEvent cuGreenCtxStreamCreate cuGreenCtxWaitEvent cuImportExternalMemory cuImportExternalSemaphore
    cuIpcOpenEventHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuLaunch cuLaunchCooperativeKernelMultiDevice
    cuLaunchGrid cuLaunchGridAsync cuLibraryGetUnifiedFunction cuLinkAddData cuLinkAddFile cuLinkCreate cuLogsCurrent
    cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback cuMemAlloc cuMemAllocHost
    cuMemAllocPitch cuMemBatchDecompressAsync cuMemBatchDecompressAsync_ptsz cuMemDiscardAndPrefetchBatchAsync
    cuMemDiscardAndPrefetchBatchAsync_ptsz cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz cuMemFree
    cuMemGetAddressRange cuMemGetHandleForAddressRange cuMemGetInfo cuMemHostGetDevicePointer cuMemHostRegister
    cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPoolExportPointer cuMemPoolExportToShareableHandle
    cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync_ptsz
    cuMemcpy2D cuMemcpy2DAsync cuMemcpy2DUnaligned cuMemcpy3D cuMemcpy3DAsync cuMemcpy3DBatchAsync
    cuMemcpy3DBatchAsync_ptsz cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz cuMemcpy3DPeer cuMemcpy3DPeerAsync
    cuMemcpy3DPeerAsync_ptsz cuMemcpy3DPeer_ptds cuMemcpyAtoA cuMemcpyAtoD cuMemcpyAtoH cuMemcpyAtoHAsync
    cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz cuMemcpyDtoA
    cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpyDtoH cuMemcpyDtoHAsync cuMemcpyHtoA cuMemcpyHtoAAsync cuMemcpyHtoD
    cuMemcpyHtoDAsync cuMemsetD16 cuMemsetD2D16 cuMemsetD2D32 cuMemsetD2D8 cuMemsetD32 cuMemsetD8
    cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties cuModuleGetGlobal cuModuleGetSurfRef
    cuModuleGetTexRef cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate
    cuMulticastGetGranularity cuMulticastUnbind cuParamSetSize cuParamSetTexRef cuParamSetf cuParamSeti cuParamSetv
    cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz cuStreamDestroy cuSurfRefGetArray
    cuSurfRefSetArray cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide cuTensorMapReplaceAddress cuTexRefCreate
    cuTexRefDestroy cuTexRefGetAddress cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray
    cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
    cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray
    cuTexRefSetAddress cuTexRefSetAddress2D cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode
    cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags
    cuTexRefSetFormat cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
    cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain
    cuVDPAUCtxCreate cuVDPAUCtxCreate_v2 cuVDPAUGetDevice cuWaitExternalSemaphoresAsync
    cuWaitExternalSemaphoresAsync_ptsz
}
