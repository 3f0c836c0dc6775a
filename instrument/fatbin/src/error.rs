//! What goes wrong with a fat binary.

/// Failure to read an image. All variants are the image's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FatbinError {
    /// The first bytes are those of no known format.
    #[error("image starts with {first_bytes:02x?}: neither PTX, nor a fatbin, nor a cubin")]
    NotAnImage {
        /// Up to four bytes.
        first_bytes: Vec<u8>,
    },
    /// A part goes beyond its container.
    #[error("fatbin is truncated: {what} at offset {offset} needs {needed_bytes} bytes, {available_bytes} are there")]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Where.
        offset: u64,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes there.
        available_bytes: u64,
    },
    /// A header field has a value that cannot be.
    #[error("fatbin field `{field}` at offset {offset} is {value:#x}")]
    BadField {
        /// Field.
        field: &'static str,
        /// Where its header starts.
        offset: u64,
        /// Value.
        value: u64,
    },
    /// Something is larger than [`crate::limits`] allow.
    #[error("{what} of {size} exceeds the limit of {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The payload of an entry cannot be decompressed.
    #[error("{format} payload cannot be decompressed: {reason}")]
    Decompress {
        /// `LZ4` or `zstd`.
        format: &'static str,
        /// The decompressor's words.
        reason: String,
    },
    /// Something was taken for a file of the host, and is none.
    #[error("neither an object nor a static library: {reason}")]
    HostFile {
        /// Why.
        reason: String,
    },
    /// PTX is not text.
    #[error("PTX is not UTF-8 text: byte {offset}")]
    NotText {
        /// First bad byte.
        offset: usize,
    },
    /// There is no PTX that the device can take.
    #[error(
        "the module has no PTX for sm_{device} or lower (it has PTX for {ptx:?} and machine code for {cubins:?}): build it with -gencode arch=compute_{device},code=compute_{device}"
    )]
    NoPtx {
        /// Device's compute capability, times ten plus minor.
        device: u32,
        /// What the PTX is for.
        ptx: Vec<u32>,
        /// What the cubins are for.
        cubins: Vec<u32>,
    },
}
