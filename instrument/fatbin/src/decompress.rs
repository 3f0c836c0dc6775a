//! Payloads to PTX text.

use std::io::Read;

use crate::entry::{Compression, Entry};
use crate::error::FatbinError;
use crate::limits;

/// The entry's payload, decompressed; never more than [`limits::MAX_PTX_BYTES`], whatever the entry says.
///
/// # Errors
/// [`FatbinError::TooLarge`], [`FatbinError::Decompress`].
pub fn payload(entry: &Entry<'_>) -> Result<Vec<u8>, FatbinError> {
    let (size, limit) = (entry.uncompressed_bytes, limits::MAX_PTX_BYTES);
    let too_large = |size| FatbinError::TooLarge {
        what: "uncompressed payload",
        size,
        limit,
    };
    match entry.compression {
        Compression::None if entry.payload.len() as u64 > limit => Err(too_large(entry.payload.len() as u64)),
        Compression::None => Ok(entry.payload.to_vec()),
        _ if size > limit => Err(too_large(size)),
        Compression::Lz4 => lz4(entry.payload, size as usize),
        Compression::Zstd => zstd(entry.payload, size),
    }
}

/// The entry's PTX, without the zeros behind it.
///
/// # Errors
/// As [`payload`], and [`FatbinError::NotText`].
pub fn ptx(entry: &Entry<'_>) -> Result<String, FatbinError> {
    text(payload(entry)?)
}

/// PTX text from bytes that may end with zeros.
///
/// # Errors
/// [`FatbinError::NotText`].
pub fn text(mut bytes: Vec<u8>) -> Result<String, FatbinError> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    String::from_utf8(bytes).map_err(|error| FatbinError::NotText {
        offset: error.utf8_error().valid_up_to(),
    })
}

fn lz4(compressed: &[u8], size: usize) -> Result<Vec<u8>, FatbinError> {
    // LZ4 expands at most 255-fold: a larger claim is a lie that must not cost memory.
    let possible = compressed.len().saturating_mul(255).saturating_add(16);
    let fail = |reason: String| FatbinError::Decompress { format: "LZ4", reason };
    if size > possible {
        return Err(fail(format!("{} bytes cannot become {size}", compressed.len())));
    }
    let bytes = lz4_flex::block::decompress(compressed, size).map_err(|error| fail(error.to_string()))?;
    if bytes.len() != size {
        return Err(fail(format!("{} bytes instead of {size}", bytes.len())));
    }
    Ok(bytes)
}

fn zstd(compressed: &[u8], size: u64) -> Result<Vec<u8>, FatbinError> {
    let fail = |reason: String| FatbinError::Decompress { format: "zstd", reason };
    let decoder = zstd::stream::read::Decoder::with_buffer(compressed).map_err(|error| fail(error.to_string()))?;
    let mut bytes = Vec::new();
    decoder
        .take(size + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| fail(error.to_string()))?;
    if bytes.len() as u64 != size {
        return Err(fail(format!("{} bytes instead of {size}", bytes.len())));
    }
    Ok(bytes)
}
