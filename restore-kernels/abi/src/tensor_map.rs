//! What a tensor map is made from (`cuTensorMapEncodeTiled`).

use bincode::{Decode, Encode};

/// Most dimensions.
pub const MAX_RANK: usize = 5;
/// Size of a tensor map (`CUtensorMap`), bytes.
pub const TENSOR_MAP_BYTES: usize = 128;

/// A tiled tensor in device memory, in the driver's own numbers. Of each list the first `rank` elements count, of
/// `strides` one less.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TensorMap {
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Dimensions.
    pub rank: u32,
    /// Where it begins.
    pub address: u64,
    /// Elements of each dimension.
    pub sizes: [u64; MAX_RANK],
    /// From one element to the next of the second dimension and those above it, bytes.
    pub strides: [u64; MAX_RANK],
    /// Elements of a tile in each dimension.
    pub tile: [u32; MAX_RANK],
    /// Of how many elements in each dimension one is taken.
    pub element_strides: [u32; MAX_RANK],
    /// `CUtensorMapInterleave`.
    pub interleave: u32,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// `CUtensorMapL2promotion`.
    pub l2_promotion: u32,
    /// `CUtensorMapFloatOOBfill`.
    pub fill: u32,
}
