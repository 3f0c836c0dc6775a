//! Results of driver calls.

/// A `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CuResult(pub u32);

/// What every entry point comes down to: success, or the result to return.
pub type Outcome<T = ()> = Result<T, CuResult>;

impl CuResult {
    pub const SUCCESS: Self = Self(0);
    pub const INVALID_VALUE: Self = Self(1);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const NOT_INITIALIZED: Self = Self(3);
    pub const DEVICE_UNAVAILABLE: Self = Self(46);
    pub const NO_DEVICE: Self = Self(100);
    pub const INVALID_DEVICE: Self = Self(101);
    pub const INVALID_IMAGE: Self = Self(200);
    pub const INVALID_CONTEXT: Self = Self(201);
    pub const FILE_NOT_FOUND: Self = Self(301);
    pub const INVALID_HANDLE: Self = Self(400);
    pub const ILLEGAL_STATE: Self = Self(401);
    pub const NOT_FOUND: Self = Self(500);
    pub const NOT_READY: Self = Self(600);
    pub const LAUNCH_OUT_OF_RESOURCES: Self = Self(701);
    pub const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    pub const ASSERT: Self = Self(710);
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    pub const LAUNCH_FAILED: Self = Self(719);
    pub const COOPERATIVE_LAUNCH_TOO_LARGE: Self = Self(720);
    pub const NOT_SUPPORTED: Self = Self(801);
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    pub const STREAM_CAPTURE_INVALIDATED: Self = Self(901);
    pub const STREAM_CAPTURE_MERGE: Self = Self(902);
    pub const STREAM_CAPTURE_UNMATCHED: Self = Self(903);
    pub const STREAM_CAPTURE_UNJOINED: Self = Self(904);
    pub const STREAM_CAPTURE_ISOLATION: Self = Self(905);
    pub const STREAM_CAPTURE_IMPLICIT: Self = Self(906);
    pub const CAPTURED_EVENT: Self = Self(907);
    pub const STREAM_CAPTURE_WRONG_THREAD: Self = Self(908);
    pub const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
    pub const INVALID_CLUSTER_SIZE: Self = Self(912);
    pub const UNKNOWN: Self = Self(999);

    /// Success or this.
    pub fn into_outcome(self) -> Outcome {
        if self == Self::SUCCESS { Ok(()) } else { Err(self) }
    }
}
