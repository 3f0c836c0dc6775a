//! Where a stopped thread's registers lie.
//!
//! One layout per probed kernel, the same on every device: each register that is live at some resume point has a fixed
//! column. A column holds that register of all threads of the block (structure of arrays), so that neighbouring
//! threads write neighbouring addresses. Columns stand by falling width, so each is aligned for its width.

use hetckpt_ir::analysis::liveness::Liveness;
use hetckpt_ir::analysis::reg_set::RegSet;
use hetckpt_ir::entity::{RegId, ResumePointId};
use hetckpt_ir::kernel::Kernel;

/// Resume point of a thread that has finished.
pub const FINISHED: u32 = u32::MAX;

/// Columns of the registers of one block.
///
/// # Shape
/// Register `r` of thread `t` (linear index in the block) of a block of `n` threads lies at
/// `column(r) * n + t * width(r)` bytes from the start of the register area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStateLayout {
    columns: Vec<Option<u32>>,
    /// Registers live at each resume point, indexed by [`ResumePointId`]; empty for the entry.
    pub live: Vec<RegSet>,
    /// Bytes per thread: size of the register area of a block of `n` threads is `n` times this.
    pub bytes_per_thread: u32,
}

impl ThreadStateLayout {
    /// The layout for a probed kernel. Depends only on the kernel's text, so source and target compute the same.
    #[must_use]
    pub fn new(kernel: &Kernel) -> Self {
        let liveness = Liveness::new(kernel);
        let live: Vec<RegSet> = kernel
            .resume_points
            .iter()
            .enumerate()
            .map(|(i, point)| {
                if i == 0 {
                    RegSet::default()
                } else {
                    liveness.live_in(point.block).clone()
                }
            })
            .collect();
        let mut all = RegSet::with_capacity(kernel.registers.len());
        for set in &live {
            all.union_with(set);
        }
        let mut saved: Vec<RegId> = all.iter().collect();
        saved.sort_by_key(|&r| (std::cmp::Reverse(kernel.width(r)), r));
        let mut columns = vec![None; kernel.registers.len()];
        let mut bytes_per_thread = 0;
        for reg in saved {
            columns[reg.index()] = Some(bytes_per_thread);
            bytes_per_thread += kernel.width(reg).size_bytes();
        }
        Self {
            columns,
            live,
            bytes_per_thread,
        }
    }

    /// Column of a register, bytes per thread before it; `None` if it is live at no resume point.
    #[must_use]
    pub fn column(&self, reg: RegId) -> Option<u32> {
        self.columns.get(reg.index()).copied().flatten()
    }

    /// Registers to save at a resume point.
    #[must_use]
    pub fn live_at(&self, point: ResumePointId) -> &RegSet {
        &self.live[point.index()]
    }
}
