//! A BLAKE3 hash in JSON: 64 hexadecimal digits. For `#[serde(with)]`.

use blake3::Hash;
use hetckpt_state::bounded;
use serde::de::Error;
use serde::{Deserializer, Serializer};

/// Digits of a hash.
const DIGITS: usize = 2 * blake3::OUT_LEN;

/// Writes it.
///
/// # Errors
/// As serialising.
pub fn serialize<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hash.to_hex())
}

/// Reads it.
///
/// # Errors
/// As deserialising, and if it is no hash.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
    let text = bounded::text::<D, DIGITS>(deserializer)?;
    Hash::from_hex(&text).map_err(|_| D::Error::custom("not a hash of 64 hexadecimal digits"))
}
