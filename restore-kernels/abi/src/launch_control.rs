//! The control block of one launch, in device memory; generated code for GPUs gets its address as a hidden last
//! parameter (64 bits).
//!
//! The host writes `pause`; all else is read only by code that has seen it set, or by a continuation's start.
//! Slots hold the state of blocks that were stopped part-way. Every thread of the launch that does not finish is found
//! either in `entry_bits` (stopped at its entry: not started) or in its block's slot.

/// Offsets of the control block's words. All are little-endian; pointers are device addresses.
pub mod offset {
    /// u32: not 0 = stop at the next probe.
    pub const PAUSE: u64 = 0;
    /// u32: number of slots (for a check, not an allocation limit that can be hit).
    pub const NUM_SLOTS: u64 = 4;
    /// Address of a u32: slots taken so far.
    pub const SLOT_COUNTER: u64 = 8;
    /// Address of u32 per launched block (linear index): 0 no slot, 1 being claimed, `k + 2` slot `k`.
    pub const BLOCK_SLOT: u64 = 16;
    /// Address of bits, 32 threads a u32, `words_per_block = ceil(threads per block / 32)`: stopped at the entry.
    pub const ENTRY_BITS: u64 = 24;
    /// Address of slot 0.
    pub const SLOTS: u64 = 32;
    /// u64: bytes from slot to slot.
    pub const SLOT_STRIDE: u64 = 40;
    /// Address of the launch's resumed blocks ([`super::RESUMED_BLOCK_BYTES`] each, one a launched block);
    /// only for a continuation.
    pub const RESUMED_BLOCKS: u64 = 48;
    /// u32 × 3: the grid as the program sees it; only for a continuation, whose own grid is one-dimensional.
    pub const GRID: u64 = 56;
}

/// Size of a control block in bytes.
pub const LAUNCH_CONTROL_BYTES: u64 = 128;

/// A resumed block: u64 linear index of the block in the program's grid, u64 address of its slot (0: all its threads
/// start at the entry).
pub const RESUMED_BLOCK_BYTES: u64 = 16;

/// Layout of one slot.
///
/// # Shape
/// `u32` resume point per thread ([`crate::thread_state::FINISHED`] if finished); a `u32` that tells who saves shared
/// memory; the register area ([`crate::thread_state::ThreadStateLayout`]); shared memory; local frames, one after
/// another in thread order. Each part starts at a multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    /// Offset of the `u32` that the first thread sets to 1 to become the one that saves shared memory.
    pub shared_claim: u64,
    /// Offset of the register area.
    pub registers: u64,
    /// Offset of shared memory.
    pub shared: u64,
    /// Offset of the local frames.
    pub local: u64,
    /// Size, a multiple of 128.
    pub stride: u64,
}

impl SlotLayout {
    /// The layout for blocks of `threads` threads with `bytes_per_thread` of saved registers, `shared_bytes` of shared
    /// memory (static and dynamic) and local frames of `local_bytes`.
    #[must_use]
    pub fn new(threads: u32, bytes_per_thread: u32, shared_bytes: u32, local_bytes: u32) -> Self {
        let up = |n: u64| n.next_multiple_of(16);
        let threads = u64::from(threads);
        let shared_claim = up(threads * 4);
        let registers = shared_claim + 16;
        let shared = up(registers + threads * u64::from(bytes_per_thread));
        let local = up(shared + u64::from(shared_bytes));
        let stride = (local + threads * u64::from(local_bytes)).next_multiple_of(128);
        Self { shared_claim, registers, shared, local, stride }
    }
}
