//! The heap of kernels (`malloc` and `free` in device code; CUDA C++ Programming Guide, "Dynamic Global Memory
//! Allocation and Operations"): device memory, the same for all modules. A module that needs it has a variable for its
//! address.
//!
//! A heap starts with [`HEADER_BYTES`]. Behind them lie blocks of [`SMALLEST_BLOCK_BYTES`] times a power of two, the
//! block's *class*. A block starts with its class and, while it is free, the place of the next free one of its class;
//! what the program gets lies [`BLOCK_HEADER_BYTES`] behind. Places count 16 bytes from the heap's start.

/// The variable: a `u64`, the heap's address, or 0.
pub const NAME: &str = "__hetckpt_heap";

/// `u64` in the header: bytes from the heap's start that have been made into blocks.
pub const USED: u32 = 0;
/// `u64` in the header: bytes of the heap.
pub const SIZE: u32 = 8;
/// Offset of a `u64` for each class: the place of the first free block, 0 if there is none, and above it a number that
/// changes each time.
pub const FREE: u32 = 16;
/// Classes.
pub const NUM_CLASSES: u32 = 32;
/// Bytes of the header.
pub const HEADER_BYTES: u32 = 512;

/// Bytes of a block of class 0.
pub const SMALLEST_BLOCK_BYTES: u32 = 32;
/// Offset in a block of a `u32`: its class.
pub const CLASS: u32 = 0;
/// Offset in a block of a `u32`: the place of the next free one.
pub const NEXT: u32 = 4;
/// Bytes of a block before those that the program gets.
pub const BLOCK_HEADER_BYTES: u32 = 16;

/// As many bytes as a heap may have: places are 32 bits.
pub const LARGEST_BYTES: u64 = 16 << 32;

/// Bytes of a heap from which a program can take `limit` bytes, if it does so in blocks of 120 bytes and more: each can
/// take nearly twice the bytes that the program asks for, and its header.
#[must_use]
pub fn heap_bytes(limit: u64) -> u64 {
    let blocks = (limit / 4).saturating_mul(9).min(LARGEST_BYTES).next_multiple_of(4096);
    (blocks + u64::from(HEADER_BYTES)).min(LARGEST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_has_room_for_blocks_of_any_size() {
        const { assert!(FREE + 8 * NUM_CLASSES <= HEADER_BYTES) };
        const { assert!((SMALLEST_BLOCK_BYTES as u64) << (NUM_CLASSES - 1) >= LARGEST_BYTES) };
        let limit = 8 << 20;
        for wanted in [120_u64, 4081, 65_536, 1 << 20] {
            let block = (wanted + u64::from(BLOCK_HEADER_BYTES)).next_power_of_two();
            assert!(
                heap_bytes(limit) - u64::from(HEADER_BYTES) >= limit / wanted * block,
                "{wanted}"
            );
        }
        assert_eq!(heap_bytes(u64::MAX), LARGEST_BYTES);
    }
}
