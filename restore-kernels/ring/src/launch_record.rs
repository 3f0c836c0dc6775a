//! A launch as a record of the ring, the most frequent one: words at fixed places, little-endian.
//!
//! | offset | what |
//! |---|---|
//! | 0 | `u32` reply slot + 1, 0 = none |
//! | 4 | `u32` flags: bit 0 = cooperative; from bit 8 on a byte each: blocks of a cluster, x, y, z, 0 = none |
//! | 8 | `u64` stream |
//! | 16 | `u64` module |
//! | 24 | `u32` index of the kernel |
//! | 28 | `u32` dynamic shared memory, bytes |
//! | 32 | `u32` grid x, y, z in blocks |
//! | 44 | `u32` block x, y, z in threads |
//! | 56 | parameters |

use hetckpt_abi::launch_shape::LaunchShape;

use crate::command::{Command, Envelope, KernelId, LaunchCommand, ModuleId, SlotId, StreamId};
use crate::error::RingError;

/// Where the parameters begin.
const PARAMS: usize = 56;
const COOPERATIVE: u32 = 1;
/// Bits of a cluster's size.
const CLUSTER: u32 = 0xffff_ff00;

/// Appends the record's body to `record`.
pub fn encode(reply: Option<SlotId>, launch: &LaunchCommand, record: &mut Vec<u8>) {
    let mut fixed = [0; PARAMS];
    let mut put = |at: usize, bytes: &[u8]| fixed[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &reply.map_or(0, |slot| slot.0 + 1).to_le_bytes());
    let [x, y, z] = launch.shape.cluster;
    put(4, &[u8::from(launch.shape.cooperative), x, y, z]);
    put(8, &launch.stream.0.to_le_bytes());
    put(16, &launch.kernel.module.0.to_le_bytes());
    put(24, &launch.kernel.index.to_le_bytes());
    put(28, &launch.shape.dynamic_shared_bytes.to_le_bytes());
    for (i, n) in launch.shape.grid.iter().chain(&launch.shape.block).enumerate() {
        put(32 + 4 * i, &n.to_le_bytes());
    }
    record.extend_from_slice(&fixed);
    record.extend_from_slice(&launch.params);
}

/// The launch that a record's body is; any bytes may be given.
///
/// # Errors
/// [`RingError::Decode`].
pub fn decode(body: &[u8]) -> Result<Envelope, RingError> {
    let Some((fixed, params)) = body.split_first_chunk::<PARAMS>() else {
        return Err(RingError::Decode {
            what: "launch",
            reason: format!("{} bytes are too few", body.len()),
        });
    };
    let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let dim = |at: usize| [u32_at(at), u32_at(at + 4), u32_at(at + 8)];
    let flags = u32_at(4);
    if flags & !(COOPERATIVE | CLUSTER) != 0 {
        return Err(RingError::Decode {
            what: "launch",
            reason: format!("flags {flags:#x} are not known"),
        });
    }
    let launch = LaunchCommand {
        stream: StreamId(u64_at(8)),
        kernel: KernelId {
            module: ModuleId(u64_at(16)),
            index: u32_at(24),
        },
        shape: LaunchShape {
            grid: dim(32),
            block: dim(44),
            dynamic_shared_bytes: u32_at(28),
            cooperative: flags & COOPERATIVE != 0,
            cluster: [fixed[5], fixed[6], fixed[7]],
        },
        params: params.into(),
    };
    Ok(Envelope {
        reply: u32_at(0).checked_sub(1).map(SlotId),
        command: Command::Launch(launch),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn launches_come_back(
            reply in proptest::option::of(0u32..256), stream: u64, module: u64, index: u32,
            grid: [u32; 3], block: [u32; 3], dynamic_shared_bytes: u32, cooperative: bool, cluster: [u8; 3],
            params in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let reply = reply.map(SlotId);
            let launch = LaunchCommand {
                stream: StreamId(stream),
                kernel: KernelId { module: ModuleId(module), index },
                shape: LaunchShape { grid, block, dynamic_shared_bytes, cooperative, cluster },
                params: params.into(),
            };
            let mut record = Vec::new();
            encode(reply, &launch, &mut record);
            let command = Command::Launch(launch);
            prop_assert_eq!(decode(&record).unwrap(), Envelope { reply, command });
        }

        #[test]
        fn anything_is_refused_or_taken(body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&body);
        }
    }
}
