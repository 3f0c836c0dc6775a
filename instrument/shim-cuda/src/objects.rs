//! What handles stand for, besides libraries and kernels.

use hetckpt_abi::array::{ArrayShape, BoxSize};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use hetckpt_ring::command::StreamId;

use crate::array_params::{ResourceDescriptor, TextureDescriptor, ViewDescriptor};
use crate::handles::Handle;
use crate::result::{CuResult, Outcome};

/// A context. There is one device, so all contexts share its memory; they differ in handle and settings.
#[derive(Debug)]
pub struct Context {
    /// Flags given when it was made.
    pub flags: Mutex<u32>,
    /// True for the primary context.
    pub is_primary: bool,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Number in the ring.
    pub id: StreamId,
    /// Flags given when it was made.
    pub flags: u32,
    /// Priority.
    pub priority: i32,
    /// Context it belongs to.
    pub context: Handle,
    /// Generation of the device state it belongs to.
    pub generation: u64,
}

/// `CUlaunchAttributeValue`: 64 bytes, of which each attribute has its own use.
pub type AttributeValue = [u32; 16];

/// What a program has set of a stream's attributes, by `CUstreamAttrID`.
pub type StreamAttributes = FxHashMap<u32, AttributeValue>;

/// Where an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayPlace {
    /// The device has it, by this number.
    Device(u64),
    /// In device memory, from this address on ([`hetckpt_abi::software_image`]).
    Memory(u64),
}

/// An array, or a level of a mipmapped one.
#[derive(Debug)]
pub struct Array {
    /// Where it, or the mipmapped array, is.
    pub place: ArrayPlace,
    /// Level of the mipmapped array; 0 for a plain one.
    pub level: u32,
    /// What the mipmapped array, or it itself, was made from.
    pub whole: ArrayShape,
    /// What it was made from, or what the level would be made from as a plain array.
    pub shape: ArrayShape,
    /// It belongs to a mipmapped array, with which it goes.
    pub is_level: bool,
}

impl Array {
    /// Its elements.
    pub fn size(&self) -> Outcome<BoxSize> {
        self.shape.level(0).ok_or(CuResult::INVALID_HANDLE)
    }
}

/// A mipmapped array.
#[derive(Debug)]
pub struct MipmappedArray {
    /// Where it is.
    pub place: ArrayPlace,
    /// What it was made from.
    pub shape: ArrayShape,
    /// Its levels.
    pub levels: Vec<Handle>,
}

/// A texture or surface object, as the program has described it.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// What it reads.
    pub resource: ResourceDescriptor,
    /// How, for a texture.
    pub texture: Option<TextureDescriptor>,
    /// Which part, if the program says.
    pub view: Option<ViewDescriptor>,
}
