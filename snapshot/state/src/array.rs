//! Arrays, and texture and surface objects: what kernels of machine code read through the driver's own descriptions.

use bincode::Encode;
use hetckpt_abi::array::ArrayShape;
use hetckpt_abi::image_object::{ImageHandle, ImageObject};

use crate::budget::decode_fields;

/// An array with what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct ArrayState {
    /// Its number, as the process uses it.
    pub number: u64,
    /// Index of its device.
    pub device: u32,
    /// What it was made from.
    pub shape: ArrayShape,
    /// Content: levels one behind the other, rows and slices without gaps.
    pub bytes: Vec<u8>,
}

decode_fields!(ArrayState {
    number: value,
    device: value,
    shape: value,
    bytes: bytes,
});

/// A texture or surface object. Parameters of kernels and memory hold its value, so it must have the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode)]
pub struct ImageState {
    /// The driver's value of it.
    pub value: u64,
    /// Index of its device.
    pub device: u32,
    /// What it was made from. The array or memory may be gone.
    pub object: ImageObject,
}

decode_fields!(ImageState {
    value: value,
    device: value,
    object: value,
});

impl ImageState {
    /// The object as kernels know it.
    #[must_use]
    pub fn handle(&self) -> ImageHandle {
        ImageHandle {
            kind: self.object.kind(),
            value: self.value,
        }
    }
}
