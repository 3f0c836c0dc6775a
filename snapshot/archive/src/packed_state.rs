//! The state of a process as its file holds it: one zstd frame, whose header says how much it holds.

use std::io::Read;

use hetckpt_state::codec::{self, CodecError};
use hetckpt_state::process::ProcessState;
use zstd::zstd_safe;

use crate::limits::{MAX_EXPANSION, MAX_STATE_BYTES};
use crate::room;

const LEVEL: i32 = 1;

/// Why a state cannot be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackedStateError {
    /// The bytes are no zstd frame, or its header does not say how much it holds (input).
    #[error("the state is not a zstd frame that tells its content size")]
    NotAFrame,
    /// Its header says more than a state can have, or than a frame of this length can hold (input).
    #[error(
        "the compressed state ({packed_bytes} bytes) claims to unpack to {size_bytes} bytes; the limit is {most_bytes}"
    )]
    Size {
        /// Its length.
        packed_bytes: u64,
        /// What its header says.
        size_bytes: u64,
        /// The limit.
        most_bytes: u64,
    },
    /// The host has not enough memory.
    #[error("the state takes {needed_bytes} bytes of memory, of which {available_bytes} are available")]
    Memory {
        /// What it takes.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// What the frame holds is no state.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// It cannot be compressed (host).
    #[error("the state cannot be compressed")]
    Compress(#[source] std::io::Error),
}

/// The bytes of the file of `state`.
///
/// # Errors
/// [`PackedStateError`]; whatever could not be unpacked again.
pub fn pack(state: &ProcessState) -> Result<Vec<u8>, PackedStateError> {
    let bytes = codec::encode(state)?;
    let packed = zstd::bulk::compress(&bytes, LEVEL).map_err(PackedStateError::Compress)?;
    size_of(&packed).map(|_| packed)
}

/// Reads what [`pack`] has made. It takes little more memory than the state has bytes ([`codec::memory_bytes`]): they
/// are decoded as they are decompressed.
///
/// # Errors
/// [`PackedStateError`].
pub fn unpack(packed: &[u8]) -> Result<ProcessState, PackedStateError> {
    let size_bytes = size_of(packed)?;
    if let Some(available_bytes) = room::available_memory().filter(|&available| available < size_bytes) {
        return Err(PackedStateError::Memory {
            needed_bytes: size_bytes,
            available_bytes,
        });
    }
    let decoder = zstd::Decoder::with_buffer(packed).map_err(|_| PackedStateError::NotAFrame)?;
    // A byte more than there ought to be is found.
    let input = decoder.single_frame().take(size_bytes.saturating_add(1));
    Ok(codec::decode_from(input, size_bytes)?)
}

/// Bytes of the state, as the frame's header says.
fn size_of(packed: &[u8]) -> Result<u64, PackedStateError> {
    let found = zstd_safe::get_frame_content_size(packed).ok().flatten();
    let size_bytes = found.ok_or(PackedStateError::NotAFrame)?;
    let packed_bytes = packed.len() as u64;
    let most_bytes = MAX_STATE_BYTES.min(packed_bytes.saturating_mul(MAX_EXPANSION));
    match size_bytes <= most_bytes {
        true => Ok(size_bytes),
        false => Err(PackedStateError::Size {
            packed_bytes,
            size_bytes,
            most_bytes,
        }),
    }
}
