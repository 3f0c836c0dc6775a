//! Commands of the process that were held back, in the snapshot's own words: those of the ring may change.
//!
//! A variant keeps its number for ever; new ones are added at the end.

use bincode::de::Decoder;
use bincode::error::{AllowedEnumVariants, DecodeError};
use bincode::{Decode, Encode};
use hetckpt_abi::array::BoxCopy;
use hetckpt_abi::image_object::ImageHandle;
use hetckpt_abi::launch_shape::LaunchShape;

use crate::budget::{self, Budget, decode_fields};

/// Rows in device memory or pinned memory; a plain range is one row.
///
/// # Units
/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Rows {
    /// Address of the first row.
    pub addr: u64,
    /// From row to row.
    pub pitch: u64,
    /// Length of a row.
    pub width: u64,
    /// Number of rows.
    pub rows: u64,
}

/// A piece of the memory that process and server share for copies: it is in the image of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    /// Its number.
    pub index: u32,
    /// Bytes of it that count, from its start.
    pub length: u32,
}

/// Bytes for the device.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub enum Data {
    /// Here.
    Bytes(Vec<u8>),
    /// Still in a chunk.
    Chunk(Chunk),
}

/// With what memory is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FillValue {
    /// Bytes.
    U8(u8),
    /// 16-bit words.
    U16(u16),
    /// 32-bit words.
    U32(u32),
}

/// A launch that has not begun.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct Launch {
    /// Handle of the module.
    pub module: u64,
    /// Place of the kernel in [`crate::module::ModuleState::kernels`].
    pub kernel: u32,
    /// How many threads.
    pub shape: LaunchShape,
    /// Parameter buffer.
    pub params: Vec<u8>,
}

decode_fields!(Launch {
    module: value,
    kernel: value,
    shape: value,
    params: bytes,
});

/// A command in a stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub enum StreamCommand {
    /// Nothing is left to do but to answer.
    Nothing,
    /// A launch.
    Launch(Launch),
    /// Host to device; `data` holds the rows without gaps.
    CopyIn {
        /// Where to.
        dst: Rows,
        /// What.
        data: Data,
    },
    /// Device to host.
    CopyOut {
        /// Where from.
        src: Rows,
        /// Where to, without gaps.
        chunk: Chunk,
    },
    /// Between addresses that the server knows.
    Copy {
        /// Where to.
        dst: Rows,
        /// Address of the first row to copy.
        src: u64,
        /// From row to row at the source, bytes.
        src_pitch: u64,
    },
    /// Fills rows.
    Fill {
        /// Where.
        dst: Rows,
        /// With what.
        value: FillValue,
    },
    /// Frees an allocation.
    Free {
        /// Its address.
        addr: u64,
    },
    /// Records an event.
    RecordEvent {
        /// Handle of the event.
        event: u64,
    },
    /// Has waited for an event: what that meant is in the item's places.
    WaitEvent {
        /// Handle of the event.
        event: u64,
    },
    /// The process is to run a function of its own.
    HostFunction {
        /// The process's number of it.
        id: u64,
    },
    /// Copies a box of elements from or to an array.
    CopyBox(Box<BoxCopy>),
}

/// A command that waits for places in streams but is in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum WaitingCommand {
    /// To answer.
    Synchronize {
        /// Index of the device.
        device: u32,
    },
    /// The same, for one stream.
    SynchronizeStream {
        /// Handle of the stream.
        stream: u64,
    },
    /// The same, for an event.
    SynchronizeEvent {
        /// Handle of the event.
        event: u64,
    },
    /// To free an allocation.
    Free {
        /// Its address.
        addr: u64,
    },
    /// To forget pinned memory.
    UnregisterHost {
        /// Its address.
        addr: u64,
    },
    /// To unload a module.
    UnloadModule {
        /// Its handle.
        module: u64,
    },
    /// To drop everything on a device.
    Reset {
        /// Index of the device.
        device: u32,
    },
    /// To let the process go.
    Exit,
    /// To free an array.
    DestroyArray {
        /// Its number.
        array: u64,
    },
    /// To free a texture or surface object.
    DestroyImage {
        /// Which.
        image: ImageHandle,
    },
}

impl Decode<Budget> for Data {
    fn decode<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Self, DecodeError> {
        match u32::decode(decoder)? {
            0 => budget::bytes(decoder).map(Self::Bytes),
            1 => budget::value(decoder).map(Self::Chunk),
            found => Err(DecodeError::UnexpectedVariant {
                type_name: "Data",
                allowed: &AllowedEnumVariants::Range { min: 0, max: 1 },
                found,
            }),
        }
    }
}

impl Decode<Budget> for StreamCommand {
    fn decode<D: Decoder<Context = Budget>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(match u32::decode(decoder)? {
            0 => Self::Nothing,
            1 => Self::Launch(budget::part(decoder)?),
            2 => Self::CopyIn {
                dst: budget::value(decoder)?,
                data: budget::part(decoder)?,
            },
            3 => Self::CopyOut {
                src: budget::value(decoder)?,
                chunk: budget::value(decoder)?,
            },
            4 => Self::Copy {
                dst: budget::value(decoder)?,
                src: budget::value(decoder)?,
                src_pitch: budget::value(decoder)?,
            },
            5 => Self::Fill {
                dst: budget::value(decoder)?,
                value: budget::value(decoder)?,
            },
            6 => Self::Free {
                addr: budget::value(decoder)?,
            },
            7 => Self::RecordEvent {
                event: budget::value(decoder)?,
            },
            8 => Self::WaitEvent {
                event: budget::value(decoder)?,
            },
            9 => Self::HostFunction {
                id: budget::value(decoder)?,
            },
            10 => Self::CopyBox(budget::boxed(decoder)?),
            found => {
                return Err(DecodeError::UnexpectedVariant {
                    type_name: "StreamCommand",
                    allowed: &AllowedEnumVariants::Range { min: 0, max: 10 },
                    found,
                });
            }
        })
    }
}
