//! Occupancy: how many blocks fit on a multiprocessor of the device that the program sees. Computed here from the
//! device's attributes, with NVIDIA's allocation granularities (registers 256 a warp, shared memory 128 bytes). The
//! device's driver is asked how many clusters fit.

use std::sync::atomic::Ordering;

use hetckpt_abi::cluster_query::{ClusterFact, ClusterQuery, PORTABLE_CLUSTER};
use hetckpt_abi::launch_shape::LaunchShape;
use hetckpt_ring::command::Command;
use hetckpt_ring::reply::Reply;

use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

use super::kernel::find;
use super::launch_config::LaunchConfig;

entry_points! {
    context cuOccupancyMaxActiveBlocksPerMultiprocessor "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050
        (blocks: Out<i32>, kernel: Handle, threads: i32, dynamic_shared: u64) => max_blocks_plain;
    context cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000
        (blocks: Out<i32>, kernel: Handle, threads: i32, dynamic_shared: u64, flags: u32) => max_blocks;
    context cuOccupancyAvailableDynamicSMemPerBlock "cuOccupancyAvailableDynamicSMemPerBlock" 10020
        (bytes: Out<u64>, kernel: Handle, blocks: i32, threads: i32) => available_shared;
    context cuOccupancyMaxPotentialBlockSize "cuOccupancyMaxPotentialBlockSize" 6050
        (grid: Out<i32>, block: Out<i32>, kernel: Handle, shared_of: SharedOfThreads, dynamic_shared: u64, limit: i32)
        => potential_block_plain;
    context cuOccupancyMaxPotentialBlockSizeWithFlags "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000
        (grid: Out<i32>, block: Out<i32>, kernel: Handle, shared_of: SharedOfThreads, dynamic_shared: u64, limit: i32,
         flags: u32) => potential_block;
    context cuOccupancyMaxActiveClusters "cuOccupancyMaxActiveClusters" 11070
        (clusters: Out<i32>, kernel: Handle, config: In<LaunchConfig>) => active_clusters;
    context cuOccupancyMaxPotentialClusterSize "cuOccupancyMaxPotentialClusterSize" 11070
        (size: Out<i32>, kernel: Handle, config: In<LaunchConfig>) => potential_cluster;
}

/// `CUoccupancyB2DSize`: dynamic shared memory as a function of the block's size.
pub type SharedOfThreads = Option<unsafe extern "C" fn(i32) -> u64>;

const WARP: u32 = 32;

/// What a multiprocessor has.
#[derive(Clone, Copy, Debug)]
struct Multiprocessor {
    threads: u32,
    blocks: u32,
    registers: u32,
    shared_bytes: u32,
    reserved_shared_bytes: u32,
    max_threads_per_block: u32,
}

/// What a block needs.
#[derive(Clone, Copy, Debug)]
struct BlockNeeds {
    threads: u32,
    registers_per_thread: u32,
    shared_bytes: u64,
}

impl Multiprocessor {
    fn of(session: &Session) -> Self {
        let attribute = |number| session.device.attribute_u32(number);
        Self {
            threads: attribute(39),
            blocks: attribute(106).max(1),
            registers: attribute(82),
            shared_bytes: attribute(81),
            reserved_shared_bytes: attribute(111),
            max_threads_per_block: attribute(1),
        }
    }

    fn max_blocks(&self, needs: &BlockNeeds) -> u32 {
        if needs.threads == 0 || needs.threads > self.max_threads_per_block {
            return 0;
        }
        let warps = needs.threads.div_ceil(WARP);
        let by_threads = self.threads / (warps * WARP);
        let registers = (needs.registers_per_thread * WARP).next_multiple_of(256) * warps.next_multiple_of(4);
        let by_registers = self.registers.checked_div(registers).unwrap_or(u32::MAX);
        let shared = (needs.shared_bytes + u64::from(self.reserved_shared_bytes)).next_multiple_of(128);
        let by_shared = u64::from(self.shared_bytes).checked_div(shared).unwrap_or(u64::MAX);
        let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
        self.blocks.min(by_threads).min(by_registers).min(by_shared)
    }
}

/// Blocks of `threads` threads of a kernel that fit on one multiprocessor.
pub fn blocks_per_multiprocessor(session: &Session, kernel: Handle, threads: u32, dynamic_shared: u64) -> Outcome<u32> {
    let kernel = find(session, kernel)?;
    let built = kernel.built(&session.device)?;
    if threads > built.max_threads_per_block
        || dynamic_shared
            > kernel
                .max_dynamic_shared(&session.device, built.static_shared_bytes)
                .into()
    {
        return Ok(0);
    }
    let shared_bytes = u64::from(built.static_shared_bytes).saturating_add(dynamic_shared);
    let needs = BlockNeeds {
        threads,
        registers_per_thread: built.num_registers,
        shared_bytes,
    };
    Ok(Multiprocessor::of(session).max_blocks(&needs))
}

fn max_blocks_plain(current: Current, blocks: Out<i32>, kernel: Handle, threads: i32, dynamic_shared: u64) -> Outcome {
    max_blocks(current, blocks, kernel, threads, dynamic_shared, 0)
}

fn max_blocks(
    current: Current,
    blocks: Out<i32>,
    kernel: Handle,
    threads: i32,
    dynamic_shared: u64,
    _flags: u32,
) -> Outcome {
    let threads = u32::try_from(threads)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CuResult::INVALID_VALUE)?;
    blocks.set(blocks_per_multiprocessor(current.session, kernel, threads, dynamic_shared)?.cast_signed())
}

fn available_shared(current: Current, bytes: Out<u64>, kernel: Handle, blocks: i32, threads: i32) -> Outcome {
    let session = current.session;
    let wanted = u32::try_from(blocks)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CuResult::INVALID_VALUE)?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CuResult::INVALID_VALUE)?;
    if blocks_per_multiprocessor(session, kernel, threads, 0)? < wanted {
        return Err(CuResult::INVALID_VALUE);
    }
    let built = find(session, kernel)?.built(&session.device)?;
    let device = Multiprocessor::of(session);
    let a_block = (device.shared_bytes / wanted / 128 * 128).saturating_sub(device.reserved_shared_bytes);
    let a_block = a_block.min(session.device.attribute_u32(97));
    bytes.set(u64::from(a_block.saturating_sub(built.static_shared_bytes)))
}

fn potential_block_plain(
    current: Current,
    grid: Out<i32>,
    block: Out<i32>,
    kernel: Handle,
    shared_of: SharedOfThreads,
    dynamic_shared: u64,
    limit: i32,
) -> Outcome {
    potential_block(current, grid, block, kernel, shared_of, dynamic_shared, limit, 0)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn potential_block(
    current: Current,
    grid: Out<i32>,
    block: Out<i32>,
    kernel: Handle,
    shared_of: SharedOfThreads,
    dynamic_shared: u64,
    limit: i32,
    _flags: u32,
) -> Outcome {
    let session = current.session;
    let max = find(session, kernel)?.built(&session.device)?.max_threads_per_block;
    let limit = u32::try_from(limit)
        .ok()
        .filter(|&n| n > 0)
        .map_or(max, |limit| limit.min(max));
    let mut best = (0, 0, 0);
    for threads in (1..=limit)
        .rev()
        .filter(|threads| *threads == limit || threads.is_multiple_of(WARP))
    {
        let shared = shared_of.map_or(dynamic_shared, |function| call(function, threads.cast_signed()));
        let blocks = blocks_per_multiprocessor(session, kernel, threads, shared)?;
        if blocks * threads > best.0 {
            best = (blocks * threads, blocks, threads);
        }
    }
    let (_, blocks, threads) = best;
    if blocks == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    grid.set((blocks * session.device.attribute_u32(16)).cast_signed())?;
    block.set(threads.cast_signed())
}

#[allow(unsafe_code, reason = "calls the program's function")]
fn call(function: unsafe extern "C" fn(i32) -> u64, threads: i32) -> u64 {
    // SAFETY: the program gave this function to be called with a number of threads.
    unsafe { function(threads) }
}

/// What the device's driver says; of a device without clusters, as many as multiprocessors hold blocks for.
fn active_clusters(current: Current, clusters: Out<i32>, kernel: Handle, config: In<LaunchConfig>) -> Outcome {
    let (session, shape) = (current.session, config.get()?.intended_shape()?);
    if let Some(count) = query_clusters(session, kernel, shape, ClusterFact::MaxActive)? {
        return clusters.set(count.cast_signed());
    }
    let threads = u32::try_from(shape.threads_per_block()).map_err(|_| CuResult::INVALID_VALUE)?;
    let blocks = blocks_per_multiprocessor(session, kernel, threads, shape.dynamic_shared_bytes.into())?;
    let all = blocks * session.device.attribute_u32(16);
    clusters.set((all / shape.blocks_per_cluster()).cast_signed())
}

/// What the device's driver says; of a device without clusters, what all have that have them.
fn potential_cluster(current: Current, size: Out<i32>, kernel: Handle, config: In<LaunchConfig>) -> Outcome {
    let shape = config.get()?.intended_shape()?;
    let answer = query_clusters(current.session, kernel, shape, ClusterFact::MaxSize)?;
    size.set(answer.unwrap_or(PORTABLE_CLUSTER).cast_signed())
}

/// The driver's answer; `None` if the device has no clusters.
fn query_clusters(session: &Session, kernel: Handle, shape: LaunchShape, wanted: ClusterFact) -> Outcome<Option<u32>> {
    let kernel = find(session, kernel)?;
    let query = ClusterQuery {
        wanted,
        shape,
        allows_non_portable: kernel.allows_non_portable_clusters.load(Ordering::Relaxed),
    };
    let kernel = kernel.resolve(&session.device)?.id();
    let answer = session.device.call_raw(Command::QueryClusters { kernel, query })?;
    match (CuResult(answer.result), answer.reply) {
        (CuResult::SUCCESS, Reply::Count(count)) => Ok(Some(count)),
        (CuResult::NOT_SUPPORTED, _) => Ok(None),
        (CuResult::SUCCESS, _) => Err(CuResult::UNKNOWN),
        (refused, _) => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Multiprocessor = Multiprocessor {
        threads: 2048,
        blocks: 32,
        registers: 65536,
        shared_bytes: 233_472,
        reserved_shared_bytes: 1024,
        max_threads_per_block: 1024,
    };

    fn blocks(threads: u32, registers_per_thread: u32, shared_bytes: u64) -> u32 {
        H200.max_blocks(&BlockNeeds {
            threads,
            registers_per_thread,
            shared_bytes,
        })
    }

    #[test]
    fn each_resource_can_be_the_limit() {
        assert_eq!(blocks(32, 16, 0), 32, "blocks");
        assert_eq!(blocks(256, 16, 0), 8, "threads");
        assert_eq!(blocks(256, 64, 0), 4, "registers");
        assert_eq!(blocks(256, 255, 0), 1, "registers");
        assert_eq!(blocks(128, 16, 48 << 10), 4, "shared memory");
        assert_eq!(blocks(1025, 16, 0), 0, "block size");
    }
}
