//! Functions that ask for what only the hardware knows, or that would change it. They answer "not supported",
//! as on GPUs that lack such a thing, because programs call them without looking whether they are there.

use crate::result::NvmlReturn;

macro_rules! not_supported {
    ($($name:ident)*) => {
        nvml! {
            $(fn $name() { NvmlReturn::NOT_SUPPORTED })*
        }
    };
}

not_supported! {
    nvmlDeviceGetArchitecture nvmlDeviceGetBoardId nvmlDeviceGetBrand nvmlDeviceGetClockInfo
    nvmlDeviceGetComputeMode nvmlDeviceGetConfComputeGpuAttestationReport nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetCpuAffinity nvmlDeviceGetCpuAffinityWithinScope nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetDriverModel nvmlDeviceGetEccMode nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetFanSpeed nvmlDeviceGetFieldValues nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV
    nvmlDeviceGetGpuInstanceId nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetGraphicsRunningProcesses_v2
    nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetHandleBySerial nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth
    nvmlDeviceGetMemoryAffinity nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetMigMode
    nvmlDeviceGetNvLinkCapability nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetNvLinkRemotePciInfo
    nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkState nvmlDeviceGetNvLinkVersion
    nvmlDeviceGetPcieThroughput nvmlDeviceGetPerformanceState nvmlDeviceGetPersistenceMode nvmlDeviceGetPlatformInfo
    nvmlDeviceGetPowerManagementLimit nvmlDeviceGetPowerUsage nvmlDeviceGetProcessUtilization nvmlDeviceGetSerial
    nvmlDeviceGetTemperature nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetTotalEccErrors
    nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetUtilizationRates nvmlDeviceGetVbiosVersion
    nvmlDeviceIsMigDeviceHandle nvmlDeviceOnSameBoard nvmlDeviceSetComputeMode nvmlDeviceSetCpuAffinity
    nvmlDeviceSetPersistenceMode nvmlDeviceSetPowerManagementLimit nvmlEventSetCreate
    nvmlSystemGetConfComputeCapabilities nvmlSystemGetConfComputeSettings nvmlSystemGetConfComputeState
    nvmlSystemGetProcessName nvmlUnitGetCount
}
