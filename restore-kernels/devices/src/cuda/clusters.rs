//! Questions about clusters, which the driver answers: how many of them run at once depends on how many multiprocessors
//! each part of the very card has. Programs choose their kernels by that.

use hetckpt_abi::cluster_query::{ClusterFact, ClusterQuery};

use super::driver::{self, DriverError, Result, Shape};
use super::module::LoadedCuda;
use super::opaque::OpaqueCuda;
use crate::device::LoadedKernel;

/// The first compute capability (times ten plus minor) with clusters.
pub(super) const FIRST_SM: u32 = 90;
/// First driver that has clusters.
const FIRST_DRIVER: i32 = 11_080;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

/// Asks the driver. The kernel is as the program has it: without probes, or run as it came.
pub(super) fn query(kernel: &dyn LoadedKernel, query: &ClusterQuery) -> Result<u32> {
    const CALL: &str = "cuOccupancyMaxActiveClusters";
    let refused = |code| DriverError { call: CALL, code };
    let kernel = kernel.as_any();
    let opaque = kernel.downcast_ref::<OpaqueCuda>().map(OpaqueCuda::function);
    let probed = || kernel.downcast_ref::<LoadedCuda>().map(|kernel| kernel.0.function());
    let function = opaque.or_else(probed).ok_or(refused(driver::INVALID_VALUE))?;
    if driver::cuDriverGetVersion()? < FIRST_DRIVER {
        return Err(refused(NOT_SUPPORTED));
    }
    driver::allow_shared_memory(function, query.shape.dynamic_shared_bytes)?;
    if query.allows_non_portable {
        driver::allow_non_portable_clusters(function)?;
    }
    let shape = Shape::from(&query.shape);
    let answer = match query.wanted {
        ClusterFact::MaxActive => driver::cuOccupancyMaxActiveClusters(function, &shape)?,
        ClusterFact::MaxSize => driver::cuOccupancyMaxPotentialClusterSize(function, &shape)?,
    };
    u32::try_from(answer).map_err(|_| refused(driver::UNKNOWN))
}
