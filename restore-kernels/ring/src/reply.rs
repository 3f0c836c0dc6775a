//! Answers to commands.

use bincode::{Decode, Encode};
use hetckpt_abi::tensor_map::TENSOR_MAP_BYTES;

use crate::command::{decode, encode};
use crate::error::RingError;
use crate::layout;

/// Body of an answer; the CUresult stands beside it in the slot.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub enum Reply {
    /// The CUresult says all.
    #[default]
    Nothing,
    /// Address of an allocation.
    Address(u64),
    /// A module was loaded, or refused with a reason in `log`.
    ModuleLoaded {
        /// Size of its encoded [`ModuleDescription`], to be fetched with `ModuleDescribe`.
        description_bytes: u64,
        /// Why it was refused (first few hundred bytes), for the program's log buffer.
        log: String,
    },
    /// Attributes of a built kernel.
    KernelAttributes(BuiltKernel),
    /// Free and total memory.
    Memory {
        /// Free bytes.
        free_bytes: u64,
        /// All bytes.
        total_bytes: u64,
    },
    /// Time between events.
    Milliseconds(f32),
    /// A tensor map as kernels take it.
    TensorMap(Box<[u8; TENSOR_MAP_BYTES]>),
    /// The value by which kernels know a texture or surface object.
    ImageObject(u64),
    /// Variables for which the application is to find places, in managed memory; perhaps not all.
    ManagedVariables(Vec<ManagedVariable>),
    /// A number of things.
    Count(u32),
}

/// A variable in managed memory (`__managed__`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ManagedVariable {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// What names of [`ManagedVariable`]s may take in a reply, 16 bytes added to each.
pub const MANAGED_NAMES_BYTES: usize = 900;

/// What a kernel needs and allows once it has been built for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct BuiltKernel {
    /// Threads a block may have.
    pub max_threads_per_block: u32,
    /// Registers a thread.
    pub num_registers: u32,
    /// Static shared memory in bytes.
    pub static_shared_bytes: u32,
    /// Local memory a thread, in bytes.
    pub local_bytes: u32,
    /// Constant memory in bytes.
    pub const_bytes: u32,
}

/// One parameter of a kernel.
///
/// # Units
/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct KernelParam {
    /// Offset in the packed parameters.
    pub offset: u32,
    /// Size.
    pub size: u32,
}

/// One kernel of a module, as its PTX says it (not yet built).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct KernelDescription {
    /// Mangled name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<KernelParam>,
    /// Static shared memory in bytes.
    pub static_shared_bytes: u32,
    /// Local frame in bytes.
    pub local_bytes: u32,
    /// `.maxntid` product, or 1024.
    pub max_threads_per_block: u32,
    /// Registers a thread, an estimate (occupancy is answered from it).
    pub num_registers: u32,
    /// PTX `.target`, times ten plus minor: 75 for `sm_75`.
    pub ptx_version: u32,
    /// Why it cannot be run, if so: then a launch fails with CUresult 209 (no PTX) or 801 (not supported).
    pub refused: Option<String>,
}

/// One variable of a module.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GlobalDescription {
    /// Name.
    pub name: String,
    /// Device address.
    pub addr: u64,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// What a module holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ModuleDescription {
    /// Kernels; [`crate::command::KernelId::index`] is the place in this list.
    pub kernels: Vec<KernelDescription>,
    /// Variables.
    pub globals: Vec<GlobalDescription>,
}

const MAX_DESCRIPTION_BYTES: usize = 256 << 20;

impl ModuleDescription {
    /// As bytes.
    ///
    /// # Errors
    /// [`RingError::Decode`].
    pub fn encode(&self) -> Result<Vec<u8>, RingError> {
        encode(self, "module description")
    }

    /// Inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`RingError::Decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RingError> {
        decode::<Self, MAX_DESCRIPTION_BYTES>(bytes, "module description")
    }
}

impl Reply {
    /// As bytes that fit into a slot: a long log is cut.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, RingError> {
        if let Self::ModuleLoaded { description_bytes, log } = self
            && log.len() > 800
        {
            let cut = (0..=800).rev().find(|&n| log.is_char_boundary(n)).unwrap_or(0);
            let short = Self::ModuleLoaded {
                description_bytes: *description_bytes,
                log: log[..cut].to_owned(),
            };
            return encode(&short, "reply");
        }
        let bytes = encode(self, "reply")?;
        if bytes.len() > layout::REPLY_PAYLOAD_BYTES {
            let (size_bytes, limit_bytes) = (bytes.len() as u64, layout::REPLY_PAYLOAD_BYTES as u64);
            return Err(RingError::TooLarge {
                what: "reply",
                size_bytes,
                limit_bytes,
            });
        }
        Ok(bytes)
    }

    /// Inverse of [`Self::encode`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RingError> {
        decode::<Self, { 2 * layout::REPLY_SLOT_BYTES }>(bytes, "reply")
    }
}
