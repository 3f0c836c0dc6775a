//! The entries of a fatbin.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | kind |
//! | 4 | 4 | header size, at least 64; the payload follows |
//! | 8 | 8 | payload size |
//! | 16 | 4 | compressed size without padding, 0 = not compressed |
//! | 20 | 4 | offset of the options record (offset and length of a text), or 0 |
//! | 24 | 2 + 2 | code version, minor and major |
//! | 28 | 4 | architecture |
//! | 40 | 8 | flags |
//! | 56 | 8 | uncompressed size |

use crate::error::FatbinError;
use crate::limits;

/// First word of a fatbin.
pub const FATBIN_MAGIC: u32 = 0xBA55_ED50;
/// Size of a fatbin's header.
pub const FATBIN_HEADER_BYTES: usize = 16;
/// Size of an entry's header without options.
pub(crate) const MIN_ENTRY_HEADER_BYTES: usize = 64;

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
    /// Anything else (LTO IR, …).
    Other(u16),
}

/// How the payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// One raw LZ4 block.
    Lz4,
    /// One zstd frame.
    Zstd,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it holds.
    pub kind: Kind,
    /// Compute capability it is for, times ten plus minor.
    pub arch: u32,
    /// Needs exactly that architecture (`sm_90a`).
    pub is_arch_specific: bool,
    /// Needs that architecture's family (`sm_100f`).
    pub is_family_specific: bool,
    /// Version of PTX, or of the cubin: major, minor.
    pub version: (u16, u16),
    /// How the payload is compressed.
    pub compression: Compression,
    /// Uncompressed size, if compressed.
    pub uncompressed_bytes: u64,
    /// Options given at compilation, as text.
    pub options: &'a str,
    /// Payload without padding (if compressed; else it may be padded with zeros).
    pub payload: &'a [u8],
}

/// Flags of an entry.
pub(crate) mod flag {
    pub const FOR_64_BITS: u64 = 1;
    pub const FOR_LINUX: u64 = 0x10;
    pub const LZ4: u64 = 0x2000;
    pub const ZSTD: u64 = 0x8000;
    pub const ARCH_SPECIFIC: u64 = 0x10_0000;
    pub const FAMILY_SPECIFIC: u64 = 0x20_0000;
}

/// Reads the entries of a bare fatbin; bytes after its end are ignored.
///
/// # Errors
/// [`FatbinError::Truncated`], [`FatbinError::BadField`], [`FatbinError::TooLarge`].
pub fn entries(fatbin: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    let (header_bytes, body_bytes) = extent(fatbin)?;
    let body = slice(fatbin, header_bytes, body_bytes, "body")?;
    let mut all = Vec::new();
    let mut offset = 0_u64;
    while offset < body.len() as u64 {
        if all.len() == limits::MAX_ENTRIES {
            let limit = limits::MAX_ENTRIES as u64;
            return Err(FatbinError::TooLarge {
                what: "number of entries",
                size: limit + 1,
                limit,
            });
        }
        let (entry, size) = read_entry(body, offset)?;
        all.push(entry);
        offset += size;
    }
    Ok(all)
}

/// Bytes that a bare fatbin takes; others may follow.
///
/// # Errors
/// [`FatbinError::Truncated`], [`FatbinError::BadField`].
pub fn length(fatbin: &[u8]) -> Result<usize, FatbinError> {
    let (header_bytes, body_bytes) = extent(fatbin)?;
    let body = slice(fatbin, header_bytes, body_bytes, "body")?;
    Ok(header_bytes as usize + body.len())
}

/// Sizes of a fatbin's header and of what follows it.
fn extent(fatbin: &[u8]) -> Result<(u64, u64), FatbinError> {
    let header = slice(fatbin, 0, FATBIN_HEADER_BYTES as u64, "header")?;
    let bad = |field, value| FatbinError::BadField {
        field,
        offset: 0,
        value,
    };
    if u32_at(header, 0) != FATBIN_MAGIC {
        return Err(bad("magic", u32_at(header, 0).into()));
    }
    if u16_at(header, 4) != 1 {
        return Err(bad("version", u16_at(header, 4).into()));
    }
    let header_bytes = u64::from(u16_at(header, 6));
    if header_bytes < FATBIN_HEADER_BYTES as u64 {
        return Err(bad("header size", header_bytes));
    }
    Ok((header_bytes, u64_at(header, 8)))
}

fn read_entry(body: &[u8], offset: u64) -> Result<(Entry<'_>, u64), FatbinError> {
    let fixed = slice(body, offset, MIN_ENTRY_HEADER_BYTES as u64, "entry header")?;
    let bad = |field, value| FatbinError::BadField { field, offset, value };
    let header_bytes = u64::from(u32_at(fixed, 4));
    if header_bytes < MIN_ENTRY_HEADER_BYTES as u64 {
        return Err(bad("entry header size", header_bytes));
    }
    let header = slice(body, offset, header_bytes, "entry header")?;
    let payload_bytes = u64_at(header, 8);
    let whole = slice(body, offset + header_bytes, payload_bytes, "entry payload")?;
    let compressed_bytes = u64::from(u32_at(header, 16));
    let flags = u64_at(header, 40);
    let compression = match (flags & flag::LZ4 != 0, flags & flag::ZSTD != 0) {
        (false, false) => Compression::None,
        (true, false) => Compression::Lz4,
        (false, true) => Compression::Zstd,
        (true, true) => return Err(bad("flags", flags)),
    };
    let payload = match compression {
        Compression::None => whole,
        _ if compressed_bytes > payload_bytes => return Err(bad("compressed size", compressed_bytes)),
        _ => slice(whole, 0, compressed_bytes, "compressed payload")?,
    };
    let entry = Entry {
        kind: match u16_at(header, 0) {
            1 => Kind::Ptx,
            2 => Kind::Cubin,
            other => Kind::Other(other),
        },
        arch: u32_at(header, 28),
        is_arch_specific: flags & flag::ARCH_SPECIFIC != 0,
        is_family_specific: flags & flag::FAMILY_SPECIFIC != 0,
        version: (u16_at(header, 26), u16_at(header, 24)),
        compression,
        uncompressed_bytes: u64_at(header, 56),
        options: read_options(header),
        payload,
    };
    Ok((entry, header_bytes + payload_bytes))
}

/// The options' text; options are only a hint, so a damaged record counts as none.
fn read_options(header: &[u8]) -> &str {
    let text = || {
        let at = u32_at(header, 20) as usize;
        let record = header.get(at..at.checked_add(8)?).filter(|_| at != 0)?;
        let (start, length) = (u32_at(record, 0) as usize, u32_at(record, 4) as usize);
        let bytes = header.get(start..start.checked_add(length.min(limits::MAX_OPTIONS_BYTES))?)?;
        std::str::from_utf8(bytes).ok()
    };
    text().unwrap_or("").trim_end_matches('\0')
}

fn slice<'a>(bytes: &'a [u8], offset: u64, length: u64, what: &'static str) -> Result<&'a [u8], FatbinError> {
    let from = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
    let available = from.unwrap_or_default();
    let part = usize::try_from(length).ok().and_then(|length| available.get(..length));
    part.filter(|_| from.is_some()).ok_or(FatbinError::Truncated {
        what,
        offset,
        needed_bytes: length,
        available_bytes: available.len() as u64,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// The bytes at a fixed place of a header whose size has been checked.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
