//! The shape of a launch, the same from the program's call to the device, and in a snapshot.
//!
//! # Source
//! CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": sizes of grids and blocks.

use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

/// Most blocks of a grid, x first.
const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
/// Most threads of a block, x first.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Most threads of a block, all together.
const MAX_THREADS_PER_BLOCK: u32 = 1024;

/// In a snapshot: its blocks must be resident together.
const COOPERATIVE: u8 = 1;
/// In a snapshot: its blocks come in clusters, whose size follows.
const HAS_CLUSTERS: u8 = 2;

/// How many threads a launch has, and what each block of them has for itself.
///
/// A snapshot holds grid, block and shared memory, then a byte of flags, then the cluster's size if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks of the grid, x first.
    pub grid: [u32; 3],
    /// Threads of a block, x first.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub dynamic_shared_bytes: u32,
    /// A cooperative launch: its blocks must be resident together.
    pub cooperative: bool,
    /// Blocks of a cluster, x first; 0s if the launch names none. Of use to kernels that are run as they came: what
    /// tells a cluster from its blocks is in none of those that are probed.
    pub cluster: [u8; 3],
}

impl Encode for LaunchShape {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        (self.grid, self.block, self.dynamic_shared_bytes).encode(encoder)?;
        let cooperative = if self.cooperative { COOPERATIVE } else { 0 };
        if self.cluster == [0; 3] {
            cooperative.encode(encoder)
        } else {
            (cooperative | HAS_CLUSTERS, self.cluster).encode(encoder)
        }
    }
}

impl<Context> Decode<Context> for LaunchShape {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        let (grid, block, dynamic_shared_bytes) = Decode::decode(decoder)?;
        let flags = u8::decode(decoder)?;
        if flags & !(COOPERATIVE | HAS_CLUSTERS) != 0 {
            return Err(DecodeError::Other("flags of a launch that are not known"));
        }
        let cluster = match flags & HAS_CLUSTERS {
            0 => [0; 3],
            _ => Decode::decode(decoder)?,
        };
        Ok(Self {
            grid,
            block,
            dynamic_shared_bytes,
            cooperative: flags & COOPERATIVE != 0,
            cluster,
        })
    }
}

bincode::impl_borrow_decode!(LaunchShape);

impl LaunchShape {
    /// An ordinary launch of `grid` blocks of `block` threads, without dynamic shared memory.
    #[must_use]
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            dynamic_shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
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

    /// Blocks in a cluster: 1 if the launch names none.
    #[must_use]
    pub fn blocks_per_cluster(&self) -> u32 {
        self.cluster.iter().map(|&n| u32::from(n).max(1)).product()
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
    fn snapshots_hold_clusters_only_where_there_are_some() {
        let config = bincode::config::standard();
        let plain = LaunchShape {
            cooperative: true,
            ..LaunchShape::new([9, 10, 11], [12, 13, 14])
        };
        let clusters = LaunchShape {
            cluster: [2, 1, 4],
            ..plain
        };
        let encoded = [plain, clusters].map(|shape| bincode::encode_to_vec(shape, config).unwrap_or_default());
        assert_eq!(encoded[0], [9, 10, 11, 12, 13, 14, 0, 1]);
        assert_eq!(encoded[1], [9, 10, 11, 12, 13, 14, 0, 3, 2, 1, 4]);
        for (shape, bytes) in [plain, clusters].iter().zip(&encoded) {
            let decoded = bincode::decode_from_slice::<LaunchShape, _>(bytes, config).map(|(shape, _)| shape);
            assert_eq!(decoded.ok(), Some(*shape));
        }
        assert!(bincode::decode_from_slice::<LaunchShape, _>(&[1, 1, 1, 1, 1, 1, 0, 4], config).is_err());
    }

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
