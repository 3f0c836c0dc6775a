//! Memory of a block while it runs.

use hetckpt_abi::cpu_block::CpuBlock;
use hetckpt_abi::thread_state::FINISHED;

/// A cache line, so that every part starts at one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes that start at a cache line.
#[derive(Default)]
pub struct AlignedBytes {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBytes {
    /// Makes room for `len` bytes; what they hold is left over from before.
    fn resize(&mut self, len: usize) {
        self.lines.resize(len.div_ceil(64), Line([0; 64]));
        self.len = len;
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.lines.as_flattened_bytes()[..self.len]
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.lines.as_flattened_bytes_mut()[..len]
    }

    fn pointer(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast::<u8>()
    }
}

trait AsBytes {
    fn as_flattened_bytes(&self) -> &[u8];
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8];
}

impl AsBytes for [Line] {
    #[allow(unsafe_code, reason = "lines seen as bytes")]
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: a line is 64 plain bytes without padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast::<u8>(), size_of_val(self)) }
    }

    #[allow(unsafe_code, reason = "lines seen as bytes")]
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast::<u8>(), size_of_val(self)) }
    }
}

/// Sizes of a launch's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Threads.
    pub num_threads: u32,
    /// Bytes of saved registers a thread.
    pub bytes_per_thread: u32,
    /// Shared memory, static and dynamic.
    pub shared_bytes: u32,
    /// Local frame a thread.
    pub local_bytes: u32,
}

/// State of one block's threads and its memory.
#[derive(Default)]
pub struct BlockMemory {
    /// Resume point of each thread.
    pub points: Vec<u32>,
    /// Register area.
    pub registers: AlignedBytes,
    /// Shared memory.
    pub shared: AlignedBytes,
    /// Local frames.
    pub local: AlignedBytes,
    /// Set by a thread that traps.
    pub trapped: u32,
    /// Where the next turn begins to look for threads that can go on, so that one that spins does not keep the others
    /// from running.
    pub next_thread: usize,
    /// Turns that have begun with threads waiting at a step, since these last went on.
    pub turns_at_steps: u32,
}

impl BlockMemory {
    /// Makes this the memory of a block that has not started. Shared memory is zeroed: what a block reads before it
    /// writes does not depend on the block that was here before.
    pub fn reset(&mut self, shape: &BlockShape) {
        let threads = shape.num_threads as usize;
        self.points.clear();
        self.points.resize(threads, 0);
        self.registers.resize(threads * shape.bytes_per_thread as usize);
        self.shared.resize(shape.shared_bytes as usize);
        self.shared.bytes_mut().fill(0);
        self.local.resize(threads * shape.local_bytes as usize);
        self.trapped = 0;
        self.next_thread = 0;
        self.turns_at_steps = 0;
    }

    /// Pointers for native code.
    pub fn fill_context(&mut self, context: &mut CpuBlock) {
        context.resume_points = self.points.as_mut_ptr();
        context.registers = self.registers.pointer();
        context.shared = self.shared.pointer();
        context.local = self.local.pointer();
        context.trapped = &raw mut self.trapped;
    }

    /// True if every thread has finished.
    pub fn is_finished(&self) -> bool {
        self.points.iter().all(|&p| p == FINISHED)
    }
}
