//! Launches as `cuLaunchKernelEx` has them: a shape and attributes.

use hetckpt_abi::launch_shape::LaunchShape;

use crate::handles::Handle;
use crate::log;
use crate::pointers::In;
use crate::result::{CuResult, Outcome};

const ATTRIBUTE_COOPERATIVE: u32 = 2;
const ATTRIBUTE_CLUSTER_DIMENSION: u32 = 4;
/// Most blocks of a cluster.
const MAX_CLUSTER: u32 = 16;

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    /// Where.
    pub stream: Handle,
    attributes: In<LaunchAttribute>,
    num_attributes: u32,
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    reserved: u32,
    value: [u32; 16],
}

impl LaunchAttribute {
    fn first_words(&self) -> [u32; 3] {
        let [x, y, z, ..] = self.value;
        [x, y, z]
    }
}

const _: () = assert!(size_of::<LaunchConfig>() == 56 && size_of::<LaunchAttribute>() == 72);

impl LaunchConfig {
    /// The shape of the launch. Attributes that are preferences are ignored.
    pub fn shape(&self) -> Outcome<LaunchShape> {
        let shape = self.intended_shape()?;
        match shape.blocks_per_cluster() <= MAX_CLUSTER && divides(shape.cluster, shape.grid) {
            true => Ok(shape),
            false => Err(CuResult::INVALID_CLUSTER_SIZE),
        }
    }

    /// The same of a launch that is only asked about: its clusters may be larger than any that can be launched, and its
    /// grid need not be whole ones.
    pub fn intended_shape(&self) -> Outcome<LaunchShape> {
        let (mut cooperative, mut cluster) = (false, [0; 3]);
        for index in 0..self.num_attributes as usize {
            let attribute = self.attributes.nth(index)?;
            match attribute.id {
                ATTRIBUTE_COOPERATIVE => cooperative = attribute.value[0] != 0,
                ATTRIBUTE_CLUSTER_DIMENSION => cluster = intended_cluster(attribute.first_words())?,
                other => log::detail(&format!("launch attribute {other} is ignored")),
            }
        }
        Ok(LaunchShape {
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.shared_bytes,
            cooperative,
            cluster,
        })
    }
}

/// A cluster's size from a launch attribute; 0s for one block, which is no cluster.
pub fn cluster_of(size: [u32; 3]) -> Outcome<[u8; 3]> {
    let cluster = intended_cluster(size)?;
    match cluster.iter().map(|&n| u32::from(n)).product::<u32>() <= MAX_CLUSTER {
        true => Ok(cluster),
        false => Err(CuResult::INVALID_CLUSTER_SIZE),
    }
}

/// The same, however large.
fn intended_cluster(size: [u32; 3]) -> Outcome<[u8; 3]> {
    let of_a_byte = |n: u32| u8::try_from(n.max(1)).map_err(|_| CuResult::INVALID_CLUSTER_SIZE);
    let [x, y, z] = size;
    match [of_a_byte(x)?, of_a_byte(y)?, of_a_byte(z)?] {
        [1, 1, 1] => Ok([0; 3]),
        cluster => Ok(cluster),
    }
}

/// True if the grid is whole clusters.
pub fn divides(cluster: [u8; 3], grid: [u32; 3]) -> bool {
    let mut sizes = grid.iter().zip(cluster);
    sizes.all(|(blocks, size)| blocks.is_multiple_of(size.max(1).into()))
}
