//! What an OpenCL call gives back.

/// An OpenCL status: 0 is success, errors are negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub i32);

/// What functions give that can fail.
pub type Outcome<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($name:ident $number:literal)*) => {
        impl Status {
            $(
                #[doc = concat!("`CL_", stringify!($name), "`.")]
                pub const $name: Self = Self($number);
            )*
        }
    };
}

statuses! {
    SUCCESS 0
    DEVICE_NOT_FOUND -1
    COMPILER_NOT_AVAILABLE -3
    MEM_OBJECT_ALLOCATION_FAILURE -4
    OUT_OF_RESOURCES -5
    OUT_OF_HOST_MEMORY -6
    PROFILING_INFO_NOT_AVAILABLE -7
    MEM_COPY_OVERLAP -8
    BUILD_PROGRAM_FAILURE -11
    MISALIGNED_SUB_BUFFER_OFFSET -13
    EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST -14
    LINKER_NOT_AVAILABLE -16
    DEVICE_PARTITION_FAILED -18
    INVALID_VALUE -30
    INVALID_DEVICE_TYPE -31
    INVALID_PLATFORM -32
    INVALID_DEVICE -33
    INVALID_CONTEXT -34
    INVALID_QUEUE_PROPERTIES -35
    INVALID_COMMAND_QUEUE -36
    INVALID_HOST_PTR -37
    INVALID_MEM_OBJECT -38
    INVALID_SAMPLER -41
    INVALID_BINARY -42
    INVALID_BUILD_OPTIONS -43
    INVALID_PROGRAM -44
    INVALID_PROGRAM_EXECUTABLE -45
    INVALID_KERNEL_NAME -46
    INVALID_KERNEL -48
    INVALID_ARG_INDEX -49
    INVALID_ARG_VALUE -50
    INVALID_ARG_SIZE -51
    INVALID_KERNEL_ARGS -52
    INVALID_WORK_DIMENSION -53
    INVALID_WORK_GROUP_SIZE -54
    INVALID_WORK_ITEM_SIZE -55
    INVALID_GLOBAL_OFFSET -56
    INVALID_EVENT_WAIT_LIST -57
    INVALID_EVENT -58
    INVALID_OPERATION -59
    INVALID_BUFFER_SIZE -61
    INVALID_GLOBAL_WORK_SIZE -63
    INVALID_PROPERTY -64
}
