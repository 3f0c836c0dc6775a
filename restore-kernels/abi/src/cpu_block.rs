//! What the CPU device hands to native code: the context of one block.
//!
//! Native code runs threads one at a time through a *region*: from a resume point to the next place where a thread must
//! wait for others (barrier, warp-level operation), stops (probe) or ends. Between regions a thread is its entry in
//! `resume_points` plus its saved registers, which is also what a snapshot stores.

/// Context of one block while it runs. Native code reads it; it writes only through the pointers.
#[repr(C)]
#[derive(Debug)]
pub struct CpuBlock {
    /// What device addresses count from: null where they are the process's own, as on every CPU so far. Native code
    /// adds it to each address, because LLVM sees through pointer arithmetic but not through integers made pointers.
    pub global: *mut u8,
    /// Pause word of the launch: not 0 = stop at the next probe.
    pub pause: *const u32,
    /// Kernel parameters.
    pub params: *const u8,
    /// Resume point of each thread, [`crate::thread_state::FINISHED`] if it has finished.
    pub resume_points: *mut u32,
    /// Register area ([`crate::thread_state::ThreadStateLayout`]).
    pub registers: *mut u8,
    /// Shared memory, 16-byte aligned.
    pub shared: *mut u8,
    /// Local frames, one after another in thread order, 16-byte aligned.
    pub local: *mut u8,
    /// Set to 1 by a thread that traps.
    pub trapped: *mut u32,
    /// Threads in the block.
    pub num_threads: u32,
    /// Dynamic shared memory in bytes.
    pub dynamic_shared_bytes: u32,
    /// Block dimensions, x first.
    pub block_dim: [u32; 3],
    /// Grid dimensions.
    pub grid_dim: [u32; 3],
    /// This block's index.
    pub block_index: [u32; 3],
    /// Keeps the size a multiple of 8.
    pub reserved: u32,
}

const _: () = assert!(size_of::<CpuBlock>() == 112 && std::mem::offset_of!(CpuBlock, num_threads) == 64);
const _: () = assert!(std::mem::offset_of!(CpuBlock, block_dim) == 72);

/// A region: runs every thread in `first..end`, each until it must wait, stops or ends, and leaves its new resume point
/// and registers in the context. All of these threads must be at the region's resume point.
///
/// # Safety
/// The context's pointers must be valid for the block's shape and the program's layout.
pub type CpuRegion = unsafe extern "C" fn(block: *const CpuBlock, first: u32, end: u32);

/// Symbol of the region for resume point `point` in an object made by the CPU code generator.
#[must_use]
pub fn region_symbol(point: u32) -> String {
    format!("hetckpt_region_{point}")
}
