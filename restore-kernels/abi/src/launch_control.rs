//! The control block of one launch, in device memory; generated code for GPUs gets its address as a hidden last
//! parameter (64 bits).
//!
//! Control blocks lie in arenas of [`ARENA_BYTES`], aligned to their size, which start with [`NUM_PAUSE_WORDS`] pause
//! words, all equal: 0, or all ones = stop at the next probe. There are many, each in a cache line of its own, because
//! a word that every warp of the device reads at its start would make one slice of the second-level cache the
//! bottleneck; a multiprocessor reads the word of its number. The host writes them; the control block itself is read
//! only by code that has seen one set, or by a continuation's start.
//!
//! The words do not change all at once. A kernel that ended because some say stop, while others do not yet, would let
//! the next kernel of its stream run on their multiprocessors. So the host writes the word at [`TOLD_WORD_AT`] last, to
//! every arena, and a thread that stops waits for it first.
//!
//! Slots hold the state of blocks that were stopped part-way; the host zeroes them. Every thread of the launch that
//! does not finish is found either in `entry_bits` (stopped at its entry: not started, or in a continuation still as it
//! was in the slot that it was given) or in its block's slot.

/// Offsets of the control block's words. All are little-endian; pointers are device addresses.
pub mod offset {
    /// u32: number of slots (for a check, not an allocation limit that can be hit: the blocks that can need one are
    /// those resident when the request is seen).
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

/// Size and alignment of an arena of control blocks.
pub const ARENA_BYTES: u64 = 2 << 20;
/// Pause words at the start of an arena; a power of two.
pub const NUM_PAUSE_WORDS: u32 = 128;
/// Bytes from pause word to pause word.
pub const PAUSE_WORD_STRIDE: u32 = 128;

/// Offset in an arena of the u32 that is set, to all ones, once every pause word of every arena is.
pub const TOLD_WORD_AT: u64 = NUM_PAUSE_WORDS as u64 * PAUSE_WORD_STRIDE as u64;

/// Offset in an arena of the address of the u64, in memory that the host sees, to which a thread that traps writes its
/// launch's control block's address, before it ends as if it had finished.
pub const TRAP_WORD_ADDRESS_AT: u64 = TOLD_WORD_AT + 8;

/// Size of a control block in bytes.
pub const LAUNCH_CONTROL_BYTES: u64 = 128;

/// A resumed block: u64 linear index of the block in the program's grid, u64 address of its slot (0: all its threads
/// start at the entry).
pub const RESUMED_BLOCK_BYTES: u64 = 16;

/// Layout of one slot.
///
/// # Shape
/// `u32` per thread, its resume point plus 1, or 0 if it has finished; a `u32` that counts the pieces of shared memory
/// taken for saving; the register area ([`crate::thread_state::ThreadStateLayout`]); shared memory; local frames, one
/// after another in thread order. Each part starts at a multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    /// Offset of the `u32` from which stopped threads take pieces of shared memory to save.
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
        Self {
            shared_claim,
            registers,
            shared,
            local,
            stride,
        }
    }
}
