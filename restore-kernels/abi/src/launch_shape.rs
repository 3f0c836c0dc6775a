//! The shape of a launch, the same from the program's call to the device, and in a snapshot.
//!
//! # Source
//! CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": sizes of grids and blocks.

use bincode::{Decode, Encode};

/// Most blocks of a grid, x first.
const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
/// Most threads of a block, x first.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Most threads of a block, all together.
const MAX_THREADS_PER_BLOCK: u32 = 1024;

/// How many threads a launch has, and what each block of them has for itself. A snapshot holds it with its fields in
/// this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LaunchShape {
    /// Blocks of the grid, x first.
    pub grid: [u32; 3],
    /// Threads of a block, x first.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub dynamic_shared_bytes: u32,
    /// A cooperative launch: its blocks must be resident together.
    pub cooperative: bool,
}

impl LaunchShape {
    /// An ordinary launch of `grid` blocks of `block` threads, without dynamic shared memory.
    #[must_use]
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            dynamic_shared_bytes: 0,
            cooperative: false,
        }
    }

    /// True if CUDA has such launches: none of their counts overflows then.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let within =
            |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(&size, most)| (1..=most).contains(&size));
        within(self.grid, MAX_GRID)
            && within(self.block, MAX_BLOCK)
            && self.block.iter().product::<u32>() <= MAX_THREADS_PER_BLOCK
    }

    /// Blocks in the grid; of one that is not possible at most [`u64::MAX`].
    #[must_use]
    pub fn num_blocks(&self) -> u64 {
        self.grid
            .iter()
            .fold(1, |product, &n| product.saturating_mul(u64::from(n)))
    }

    /// Threads in a block; of one that is not possible at most [`u64::MAX`].
    #[must_use]
    pub fn threads_per_block(&self) -> u64 {
        self.block
            .iter()
            .fold(1, |product, &n| product.saturating_mul(u64::from(n)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_cudas() {
        let shape = LaunchShape::new([0x7fff_ffff, 65_535, 65_535], [1024, 1, 1]);
        assert!(shape.is_possible());
        assert_eq!(shape.num_blocks(), 0x7fff_ffff * 65_535 * 65_535);
        for (grid, block) in [
            ([1, 65_536, 1], [1; 3]),
            ([0, 1, 1], [1; 3]),
            ([1; 3], [1, 1, 65]),
            ([1; 3], [1024, 2, 1]),
            ([1; 3], [u32::MAX; 3]),
        ] {
            assert!(!LaunchShape::new(grid, block).is_possible());
        }
        assert_eq!(LaunchShape::new([u32::MAX; 3], [1; 3]).num_blocks(), u64::MAX);
    }
}
