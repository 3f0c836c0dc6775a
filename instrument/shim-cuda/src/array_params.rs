//! What arrays, texture objects and surface objects are made from: the driver's structures.

use hetckpt_abi::array::ArrayShape;
use hetckpt_abi::image_object::{ResourceView, Sampler};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Descriptor2D {
    size: [u64; 2],
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Descriptor3D {
    size: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_RESOURCE_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ResourceDescriptor {
    /// `CUresourcetype`.
    pub kind: u32,
    /// A structure of its own for each kind.
    pub words: [u64; 16],
    /// 0.
    pub flags: u32,
}

/// `CUDA_TEXTURE_DESC`; all its fields have 32 bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TextureDescriptor {
    fields: [u32; 14],
    reserved: [u32; 12],
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ViewDescriptor {
    format: u32,
    size: [u64; 3],
    levels: [u32; 2],
    layers: [u32; 2],
    reserved: [u32; 16],
}

const _: () = assert!(size_of::<Descriptor2D>() == 24 && size_of::<Descriptor3D>() == 40);
const _: () = assert!(
    size_of::<ResourceDescriptor>() == 144
        && size_of::<TextureDescriptor>() == 104
        && size_of::<ViewDescriptor>() == 112
);

impl Descriptor2D {
    /// As an array.
    pub fn shape(&self) -> ArrayShape {
        let [width, height] = self.size;
        ArrayShape {
            size: [width, height, 0],
            format: self.format,
            channels: self.channels,
            flags: 0,
            levels: 0,
        }
    }
}

impl Descriptor3D {
    /// As an array, with `levels` if it is a mipmapped one.
    pub fn shape(&self, levels: u32) -> ArrayShape {
        ArrayShape {
            size: self.size,
            format: self.format,
            channels: self.channels,
            flags: self.flags,
            levels,
        }
    }
}

impl From<&ArrayShape> for Descriptor2D {
    fn from(shape: &ArrayShape) -> Self {
        Self {
            size: [shape.size[0], shape.size[1]],
            format: shape.format,
            channels: shape.channels,
        }
    }
}

impl From<&ArrayShape> for Descriptor3D {
    fn from(shape: &ArrayShape) -> Self {
        Self {
            size: shape.size,
            format: shape.format,
            channels: shape.channels,
            flags: shape.flags,
        }
    }
}

impl ResourceDescriptor {
    /// A number of 64 bits that begins in word `at`, or two of 32.
    pub fn halves(&self, at: usize) -> [u32; 2] {
        let word = self.words[at];
        [word as u32, (word >> 32) as u32]
    }
}

impl From<&TextureDescriptor> for Sampler {
    fn from(descriptor: &TextureDescriptor) -> Self {
        let [
            x,
            y,
            z,
            filter,
            flags,
            anisotropy,
            between,
            bias,
            least,
            greatest,
            r,
            g,
            b,
            a,
        ] = descriptor.fields;
        Self {
            address_modes: [x, y, z],
            filter_mode: filter,
            flags,
            max_anisotropy: anisotropy,
            mipmap_filter_mode: between,
            mipmap_bias: bias,
            mipmap_clamp: [least, greatest],
            border_color: [r, g, b, a],
        }
    }
}

impl From<&ViewDescriptor> for ResourceView {
    fn from(descriptor: &ViewDescriptor) -> Self {
        Self {
            format: descriptor.format,
            size: descriptor.size,
            levels: descriptor.levels,
            layers: descriptor.layers,
        }
    }
}
