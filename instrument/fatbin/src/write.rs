//! Writing a fatbin: machine code and PTX in one file, as NVIDIA's `fatbinary` writes them without compression.

use crate::entry::{FATBIN_HEADER_BYTES, FATBIN_MAGIC, Kind, MIN_ENTRY_HEADER_BYTES, flag};

/// Version of cubins that `fatbinary` of CUDA 13 writes, and of PTX where the text does not say.
const CUBIN_VERSION: (u16, u16) = (1, 8);
const PTX_VERSION: (u16, u16) = (8, 0);
/// Size of a record of no options.
const OPTIONS_BYTES: usize = 16;
/// Payloads end at multiples of this.
const ALIGN: usize = 8;

/// What an entry is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// PTX or a cubin.
    pub kind: Kind,
    /// Compute capability it is for, times ten plus minor.
    pub arch: u32,
    /// Needs exactly that architecture (`sm_90a`).
    pub is_arch_specific: bool,
    /// The text or the cubin.
    pub payload: &'a [u8],
}

/// A fatbin of `parts`.
#[must_use]
pub fn fatbin(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        let (kind, version) = match part.kind {
            Kind::Ptx => (1, ptx_version(part.payload).unwrap_or(PTX_VERSION)),
            Kind::Cubin => (2, CUBIN_VERSION),
            Kind::Other(kind) => (kind, (0, 0)),
        };
        // A text ends with a zero, and has a record of options, here empty.
        let is_text = part.kind == Kind::Ptx;
        let ending = usize::from(is_text);
        let header_bytes = MIN_ENTRY_HEADER_BYTES + if is_text { OPTIONS_BYTES } else { 0 };
        let payload_bytes = (part.payload.len() + ending).next_multiple_of(ALIGN);
        let flags = flag::FOR_64_BITS | flag::FOR_LINUX | if part.is_arch_specific { flag::ARCH_SPECIFIC } else { 0 };
        let start = body.len();
        body.extend(u16::to_le_bytes(kind));
        body.extend(u16::to_le_bytes(0x0101));
        body.extend(u32::to_le_bytes(header_bytes as u32));
        body.extend(u64::to_le_bytes(payload_bytes as u64));
        body.extend([0; 4]);
        body.extend(u32::to_le_bytes(if is_text {
            MIN_ENTRY_HEADER_BYTES as u32
        } else {
            0
        }));
        body.extend(u16::to_le_bytes(version.1));
        body.extend(u16::to_le_bytes(version.0));
        body.extend(u32::to_le_bytes(part.arch));
        body.extend([0; 8]);
        body.extend(u64::to_le_bytes(flags));
        body.resize(start + MIN_ENTRY_HEADER_BYTES, 0);
        if is_text {
            // Where their text begins, and that it has no bytes.
            body.extend(u32::to_le_bytes(MIN_ENTRY_HEADER_BYTES as u32 + 8));
        }
        body.resize(start + header_bytes, 0);
        body.extend(part.payload);
        body.resize(start + header_bytes + payload_bytes, 0);
    }
    let mut fatbin = Vec::with_capacity(FATBIN_HEADER_BYTES + body.len());
    fatbin.extend(FATBIN_MAGIC.to_le_bytes());
    fatbin.extend(u16::to_le_bytes(1));
    fatbin.extend(u16::to_le_bytes(FATBIN_HEADER_BYTES as u16));
    fatbin.extend(u64::to_le_bytes(body.len() as u64));
    fatbin.extend(body);
    fatbin
}

/// What a text's `.version` says.
fn ptx_version(text: &[u8]) -> Option<(u16, u16)> {
    let mut lines = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok());
    let version = lines.find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = version.trim().split_once('.')?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major.parse().ok()?, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::entry::entries;

    #[test]
    fn what_is_written_is_read() {
        let ptx = b"// a comment\n.version 8.7\n.target sm_90a\n";
        let part = |kind, payload| Part {
            kind,
            arch: 90,
            is_arch_specific: true,
            payload,
        };
        let written = fatbin(&[part(Kind::Cubin, b"\x7fELF machine code"), part(Kind::Ptx, ptx)]);
        let found = entries(&written).unwrap();
        let [cubin, text] = &found[..] else {
            unreachable!("two entries")
        };
        assert_eq!(
            (cubin.kind, cubin.arch, cubin.is_arch_specific, cubin.version),
            (Kind::Cubin, 90, true, (1, 8))
        );
        assert_eq!(&cubin.payload[..16], b"\x7fELF machine cod");
        assert_eq!((text.kind, text.version), (Kind::Ptx, (8, 7)));
        assert!(text.payload.starts_with(ptx) && text.payload[ptx.len()..].iter().all(|byte| *byte == 0));
        assert!(text.payload.len() > ptx.len());
    }
}
