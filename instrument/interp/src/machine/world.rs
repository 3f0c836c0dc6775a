//! What the threads of a grid share: the program, the launch, memory and the pause flag.

use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::types::Dim3;

use super::pause::PauseFlag;
use crate::launch::Options;
use crate::memory::GlobalMemory;

/// What all threads share.
pub(super) struct World<'a> {
    pub kernel: &'a Kernel,
    pub program: &'a Program,
    pub layout: &'a ThreadStateLayout,
    pub grid: Dim3,
    pub block: Dim3,
    pub params: &'a [u8],
    pub dynamic_shared_bytes: u32,
    pub memory: &'a mut GlobalMemory,
    pub pause: PauseFlag,
    pub options: Options,
    /// Instructions so far; also the clock.
    pub steps: u64,
    /// Lanes of a warp start together or not at all.
    pub has_warp_ops: bool,
}

impl World<'_> {
    pub(super) fn threads_per_block(&self) -> usize {
        self.block.x as usize * self.block.y as usize * self.block.z as usize
    }

    pub(super) fn shared_bytes(&self) -> usize {
        self.kernel.shared.static_bytes as usize + self.dynamic_shared_bytes as usize
    }
}
