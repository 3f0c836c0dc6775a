//! What runs a kernel: a code generator with something that executes its code, or a device.

use hetckpt_abi::program::Program;

/// Blocks of a launch and threads of a block, in x, y and z.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
}

impl Shape {
    /// One block of so many threads.
    pub const fn one_block(block: [u32; 3]) -> Self {
        Self { grid: [1; 3], block }
    }
}

/// Something that runs kernels, and how far its results may be from the reference interpreter's.
pub trait Implementation {
    /// Runs `program`, whose two parameters are the addresses of `operands` and of `output`. The kernel finds in
    /// `output` what the caller has put there, and leaves its results there.
    ///
    /// Returns false if there is no such device on this machine. Nothing has been done then.
    ///
    /// # Panics
    ///
    /// If the kernel cannot be built or does not end as it should.
    fn run(&self, program: &Program, shape: Shape, operands: &[u64], output: &mut [u64]) -> bool;

    /// Largest relative error of single-precision functions for which PTX only bounds the error. The default is
    /// smaller than PTX's bounds.
    fn approximation(&self) -> f64 {
        1e-6
    }

    /// For results of a smaller magnitude than this, [`Self::approximation`] is relative to this magnitude instead.
    fn near_zero(&self) -> f64 {
        1e-6
    }

    /// True if what is not a number has PTX's bits in all formats but `f64`.
    fn has_canonical_nans(&self) -> bool {
        true
    }

    /// True if `%warpid` and `%nwarpid` are those of the block. On a GPU they are the multiprocessor's affair.
    fn numbers_warps_by_block(&self) -> bool {
        true
    }

    /// True if there are barriers that are not number 0.
    fn has_numbered_barriers(&self) -> bool {
        true
    }
}
