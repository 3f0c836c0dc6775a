//! What a launch is, whoever makes it.

use std::sync::Arc;

use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_devices::device::Room;
use hetckpt_ring::command::Command;

use crate::kernels::KernelCode;

/// A launch as the application asked for it.
#[derive(Clone)]
pub struct LaunchSpec {
    /// Kernel; `None` if it was restored from a snapshot, which keeps the probed kernel only.
    pub kernel: Option<Arc<KernelCode>>,
    /// Other kernels that are to be built before this one runs ([`crate::session::Session::loads_eagerly`]).
    pub build_before: Vec<Arc<KernelCode>>,
    /// How many threads.
    pub shape: LaunchShape,
    /// What has to have room on a multiprocessor.
    pub room: Room,
    /// Parameter buffer.
    pub params: Arc<[u8]>,
    /// The command, to be held back again.
    pub command: Option<Command>,
}
