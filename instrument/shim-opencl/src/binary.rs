//! Program binaries: what a program's build gave, in a container of ours.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `hetckpCL` |
//! | 4 | version, little-endian: [`VERSION`] |
//! | 4 | kind, as OpenCL numbers `CL_PROGRAM_BINARY_TYPE`, little-endian |
//! | 32 | BLAKE3 hash of kind and content |
//! | rest | content: bitcode of an object or library; an [`Image`] by bincode 2, standard configuration |
//!
//! Binaries are files of programs' caches, so they are cut off, old, or somebody else's. The hash finds accidents; who
//! makes one that is right gets no more than a source would give: PTX is checked like any program's.

use bincode::{Decode, Encode};

use crate::metadata::Declaration;

/// Counts the formats of the container and of what is in it: rules for PTX (`ptx_text`) too.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"hetckpCL";
const HASH_BYTES: usize = 32;
const HEAD_BYTES: usize = MAGIC.len() + 4 + 4 + HASH_BYTES;
/// Most that an image may take in memory.
const LIMIT_BYTES: usize = 1 << 28;

/// Numbers of `cl_program_binary_type`.
pub mod kind {
    /// There is none.
    pub const NONE: u32 = 0;
    /// Compiled, to be linked.
    pub const OBJECT: u32 = 1;
    /// Linked, to be linked to others.
    pub const LIBRARY: u32 = 2;
    /// To be run.
    pub const EXECUTABLE: u32 = 4;
}

/// What a device is given, and what is known of it.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
pub struct Image {
    /// PTX for the driver API.
    pub ptx: String,
    /// Kernels, in the source's order.
    pub kernels: Vec<Declaration>,
}

/// What a build gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Binary {
    /// Bitcode of a program that is compiled.
    Object(Vec<u8>),
    /// Bitcode of programs that are linked to a library.
    Library(Vec<u8>),
    /// What can be run.
    Executable(Image),
}

/// Bytes are no binary of ours.
#[derive(Debug, PartialEq, Eq)]
pub struct BadBinary;

impl Binary {
    /// Its type, by OpenCL's number.
    pub fn kind(&self) -> u32 {
        match self {
            Self::Object(_) => kind::OBJECT,
            Self::Library(_) => kind::LIBRARY,
            Self::Executable(_) => kind::EXECUTABLE,
        }
    }

    /// Its bitcode, if it can be linked.
    pub fn bitcode(&self) -> Option<&[u8]> {
        match self {
            Self::Object(bitcode) | Self::Library(bitcode) => Some(bitcode),
            Self::Executable(_) => None,
        }
    }

    /// The container.
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = match self {
            Self::Object(bitcode) | Self::Library(bitcode) => bitcode.clone(),
            // It cannot fail: there is nothing in it that has no encoding, and memory grows. Nothing would be no
            // binary.
            Self::Executable(image) => bincode::encode_to_vec(image, bincode::config::standard()).unwrap_or_default(),
        };
        let kind = self.kind().to_le_bytes();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&kind);
        bytes.extend_from_slice(hash(kind, &content).as_bytes());
        bytes.extend(content);
        bytes
    }

    /// Reads a container.
    ///
    /// # Errors
    /// If it is none, one of another version, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, BadBinary> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(BadBinary)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(BadBinary)?;
        let (kind, rest) = rest.split_first_chunk::<4>().ok_or(BadBinary)?;
        let (expected, content) = rest.split_first_chunk::<HASH_BYTES>().ok_or(BadBinary)?;
        if *version != VERSION.to_le_bytes() || hash(*kind, content) != *expected {
            return Err(BadBinary);
        }
        match u32::from_le_bytes(*kind) {
            kind::OBJECT => Ok(Self::Object(content.to_vec())),
            kind::LIBRARY => Ok(Self::Library(content.to_vec())),
            kind::EXECUTABLE => {
                let config = bincode::config::standard().with_limit::<LIMIT_BYTES>();
                let (image, read) = bincode::decode_from_slice(content, config).map_err(|_| BadBinary)?;
                if read == content.len() {
                    Ok(Self::Executable(image))
                } else {
                    Err(BadBinary)
                }
            }
            _ => Err(BadBinary),
        }
    }
}

fn hash(kind: [u8; 4], content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&kind);
    hasher.update(content);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Argument, Space};

    fn image() -> Binary {
        let argument = Argument {
            space: Space::Local,
            type_name: "float*".to_owned(),
            name: "a".to_owned(),
            qualifiers: 5,
        };
        let kernel = Declaration {
            name: "k".to_owned(),
            arguments: vec![argument],
            required_group: Some([8, 4, 1]),
            group_hint: None,
        };
        Binary::Executable(Image {
            ptx: ".version 4.0\n".to_owned(),
            kernels: vec![kernel],
        })
    }

    #[test]
    fn what_is_written_is_read() {
        for binary in [Binary::Object(vec![1, 2, 3]), Binary::Library(Vec::new()), image()] {
            assert_eq!(Binary::read(&binary.to_bytes()), Ok(binary));
        }
    }

    #[test]
    fn every_damage_is_found() {
        let bytes = image().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Binary::read(&bytes[..length]), Err(BadBinary), "{length}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Binary::read(&damaged), Err(BadBinary), "{at}");
        }
        let more = [&bytes[..], b"x"].concat();
        assert_eq!(Binary::read(&more), Err(BadBinary));
    }

    /// Whatever the content, with its hash right: lengths that are not there take no memory, and nothing panics.
    #[test]
    fn hostile_content_is_refused() {
        let with_hash = |kind: u32, content: &[u8]| {
            let kind = kind.to_le_bytes();
            let head = [MAGIC, &VERSION.to_le_bytes()[..], &kind, hash(kind, content).as_bytes()].concat();
            Binary::read(&[&head, content].concat())
        };
        let long = [vec![253], vec![0xff; 8], vec![0; 16]].concat();
        assert_eq!(with_hash(kind::EXECUTABLE, &long), Err(BadBinary));
        let no_text = [2, 0xff, 0xfe, 0];
        assert_eq!(with_hash(kind::EXECUTABLE, &no_text), Err(BadBinary));
        let many_kernels = [vec![0, 252], vec![0xff; 4], vec![0; 64]].concat();
        assert_eq!(with_hash(kind::EXECUTABLE, &many_kernels), Err(BadBinary));
        let and_more = [0, 0, 0];
        assert_eq!(with_hash(kind::EXECUTABLE, &and_more), Err(BadBinary));
        assert_eq!(with_hash(3, b""), Err(BadBinary));
        let Binary::Executable(image) = image() else { panic!() };
        let content = bincode::encode_to_vec(&image, bincode::config::standard()).unwrap();
        for length in 0..content.len() {
            assert_eq!(
                with_hash(kind::EXECUTABLE, &content[..length]),
                Err(BadBinary),
                "{length}"
            );
        }
        assert!(with_hash(kind::EXECUTABLE, &content).is_ok());
    }
}
