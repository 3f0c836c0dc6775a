//! Decoding within a budget: what lists and texts take in memory is taken off it before it is allocated, so that few
//! bytes cannot ask for much.
//!
//! bincode's own limit counts a list's elements only until they are decoded, and so lets some of them take many times
//! as much.

use bincode::Decode;
use bincode::de::Decoder;
use bincode::de::read::Reader;
use bincode::error::DecodeError;

use crate::names::FORMAT_VERSION;

/// What an allocation takes beside its bytes.
const ALLOCATION_BYTES: u64 = 32;
/// Bytes that are read at once where none are kept.
const SCRATCH_BYTES: usize = 4096;

/// What may still be allocated.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    /// Longest run of bytes that there can be.
    most_bytes: u64,
    /// False if runs of bytes are only counted and left empty.
    keeps_bytes: bool,
    /// Format version of what is decoded.
    format_version: u32,
}

impl Budget {
    /// `memory_bytes` for what is decoded from `size_bytes`.
    pub(crate) fn new(memory_bytes: u64, size_bytes: u64) -> Self {
        Self {
            left: memory_bytes,
            most_bytes: size_bytes,
            keeps_bytes: true,
            format_version: FORMAT_VERSION,
        }
    }

    /// For what was written as this format version.
    pub(crate) fn of_version(self, format_version: u32) -> Self {
        Self { format_version, ..self }
    }

    /// As [`Budget::new`], to learn whether it suffices: runs of bytes are not kept.
    pub(crate) fn trial(memory_bytes: u64, size_bytes: u64) -> Self {
        Self {
            keeps_bytes: false,
            ..Self::new(memory_bytes, size_bytes)
        }
    }

    fn take(&mut self, count: u64, size: usize) -> Result<(), DecodeError> {
        if count == 0 {
            return Ok(());
        }
        let bytes = count.saturating_mul(size as u64).saturating_add(ALLOCATION_BYTES);
        self.left = self.left.checked_sub(bytes).ok_or(DecodeError::LimitExceeded)?;
        Ok(())
    }
}

/// Implements `Decode` of a structure whose fields are of these kinds, each a function of this module, in the order in
/// which they are encoded.
macro_rules! decode_fields {
    ($name:ident { $($field:ident: $kind:ident),* $(,)? }) => {
        impl bincode::Decode<$crate::budget::Budget> for $name {
            fn decode<D: bincode::de::Decoder<Context = $crate::budget::Budget>>(
                decoder: &mut D,
            ) -> Result<Self, bincode::error::DecodeError> {
                Ok(Self { $($field: $crate::budget::$kind(decoder)?),* })
            }
        }
    };
}
pub(crate) use decode_fields;

/// What takes no memory but its own.
pub(crate) fn value<T: Decode<Budget> + Copy, D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<T, DecodeError> {
    T::decode(decoder)
}

/// A structure whose fields are decoded within the budget.
pub(crate) fn part<T: Decode<Budget>, D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<T, DecodeError> {
    T::decode(decoder)
}

/// The same, in a box.
pub(crate) fn boxed<T: Decode<Budget>, D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Box<T>, DecodeError> {
    decoder.context().take(1, size_of::<T>())?;
    T::decode(decoder).map(Box::new)
}

/// A list of structures.
pub(crate) fn list<T: Decode<Budget>, D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Vec<T>, DecodeError> {
    list_of(decoder, T::decode)
}

/// A list of structures that format version 3 has added.
pub(crate) fn list_since_3<T: Decode<Budget>, D: Decoder<Context = Budget>>(
    decoder: &mut D,
) -> Result<Vec<T>, DecodeError> {
    match decoder.context().format_version {
        ..3 => Ok(Vec::new()),
        _ => list(decoder),
    }
}

/// A list of structures that format version 4 has added.
pub(crate) fn list_since_4<T: Decode<Budget>, D: Decoder<Context = Budget>>(
    decoder: &mut D,
) -> Result<Vec<T>, DecodeError> {
    match decoder.context().format_version {
        ..4 => Ok(Vec::new()),
        _ => list(decoder),
    }
}

/// A list of texts.
pub(crate) fn texts<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Vec<String>, DecodeError> {
    list_of(decoder, text)
}

/// A list of runs of bytes.
pub(crate) fn byte_lists<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Vec<Vec<u8>>, DecodeError> {
    list_of(decoder, bytes)
}

fn list_of<T, D: Decoder<Context = Budget>>(
    decoder: &mut D,
    element: fn(&mut D) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = u64::decode(decoder)?;
    decoder.context().take(count, size_of::<T>())?;
    let mut elements = Vec::with_capacity(usize::try_from(count).map_err(|_| DecodeError::OutsideUsizeRange(count))?);
    for _ in 0..count {
        elements.push(element(decoder)?);
    }
    Ok(elements)
}

/// A text.
pub(crate) fn text<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<String, DecodeError> {
    String::from_utf8(bytes(decoder)?).map_err(|e| DecodeError::Utf8 { inner: e.utf8_error() })
}

/// A run of bytes.
pub(crate) fn bytes<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Vec<u8>, DecodeError> {
    let count = u64::decode(decoder)?;
    let budget = decoder.context();
    budget.take(count, 1)?;
    if count > budget.most_bytes {
        return Err(DecodeError::LimitExceeded);
    }
    let keeps_bytes = budget.keeps_bytes;
    let mut left = usize::try_from(count).map_err(|_| DecodeError::OutsideUsizeRange(count))?;
    if keeps_bytes {
        let mut bytes = vec![0; left];
        decoder.reader().read(&mut bytes)?;
        return Ok(bytes);
    }
    let mut scratch = [0; SCRATCH_BYTES];
    while left > 0 {
        let next = left.min(SCRATCH_BYTES);
        decoder.reader().read(&mut scratch[..next])?;
        left -= next;
    }
    Ok(vec![])
}
