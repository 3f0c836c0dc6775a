//! What a program asks about clusters of blocks before it launches any (`cuOccupancyMaxActiveClusters`,
//! `cuOccupancyMaxPotentialClusterSize`).

use bincode::{Decode, Encode};

use crate::launch_shape::LaunchShape;

/// Blocks of a cluster that every device with clusters has; more must be allowed for each kernel.
pub const PORTABLE_CLUSTER: u32 = 8;

/// A question about a kernel's clusters. Its answer depends on how many multiprocessors of each part of the GPU this
/// very card has, so only the device's driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterQuery {
    /// What is asked.
    pub wanted: ClusterFact,
    /// The launch that is meant. Its clusters may be larger than any that can be launched, and its grid need not be
    /// whole ones.
    pub shape: LaunchShape,
    /// The kernel may have clusters of more than [`PORTABLE_CLUSTER`] blocks
    /// (`CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`).
    pub allows_non_portable: bool,
}

/// What is asked about clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ClusterFact {
    /// How many clusters of the shape's size run at once.
    MaxActive,
    /// Blocks of the largest cluster.
    MaxSize,
}
