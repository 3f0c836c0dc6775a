//! Texture objects and surface objects (`CUtexObject`, `CUsurfObject`): what kernels of machine code read arrays and
//! memory through.
//!
//! # Source
//! CUDA driver API, `CUDA_RESOURCE_DESC`, `CUDA_TEXTURE_DESC` and `CUDA_RESOURCE_VIEW_DESC`. Numbers are the driver's
//! own.

use bincode::{Decode, Encode};

/// What an object reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Resource {
    /// An array, or a level of a mipmapped one.
    Array {
        /// The application's number of it.
        array: u64,
        /// Level of a mipmapped array; 0 for a plain one.
        level: u32,
    },
    /// A mipmapped array.
    Mipmapped {
        /// The application's number of it.
        array: u64,
    },
    /// A range of device memory.
    Linear {
        /// First address.
        addr: u64,
        /// `CUarray_format`.
        format: u32,
        /// Components of an element.
        channels: u32,
        /// Length in bytes.
        size_bytes: u64,
    },
    /// Rows of device memory.
    Rows {
        /// Address of the first row.
        addr: u64,
        /// `CUarray_format`.
        format: u32,
        /// Components of an element.
        channels: u32,
        /// Elements of a row.
        width: u64,
        /// Rows.
        height: u64,
        /// From row to row, bytes.
        pitch: u64,
    },
}

impl Resource {
    /// Number of the array that it is, or is a level of.
    #[must_use]
    pub fn array(&self) -> Option<u64> {
        match self {
            Self::Array { array, .. } | Self::Mipmapped { array } => Some(*array),
            Self::Linear { .. } | Self::Rows { .. } => None,
        }
    }

    /// Address and size in bytes of the memory that it is; the size is `u64::MAX` if there is no such range.
    #[must_use]
    pub fn memory(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Array { .. } | Self::Mipmapped { .. } => None,
            Self::Linear { addr, size_bytes, .. } => Some((addr, size_bytes)),
            Self::Rows {
                addr,
                format,
                channels,
                width,
                height,
                pitch,
            } => {
                let span = || {
                    let row = crate::array::element_bytes(format, channels)?.checked_mul(width)?;
                    height.checked_sub(1)?.checked_mul(pitch)?.checked_add(row)
                };
                Some((addr, span().unwrap_or(u64::MAX)))
            }
        }
    }
}

/// How a texture is read. Floating-point numbers are kept as their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Sampler {
    /// `CUaddress_mode` of each dimension.
    pub address_modes: [u32; 3],
    /// `CUfilter_mode`.
    pub filter_mode: u32,
    /// `CU_TRSF_…`.
    pub flags: u32,
    /// Greatest anisotropy.
    pub max_anisotropy: u32,
    /// `CUfilter_mode` between levels.
    pub mipmap_filter_mode: u32,
    /// Added to the level.
    pub mipmap_bias: u32,
    /// Least and greatest level.
    pub mipmap_clamp: [u32; 2],
    /// What lies beyond the border.
    pub border_color: [u32; 4],
}

/// Which part of an array a texture shows, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ResourceView {
    /// `CUresourceViewFormat`.
    pub format: u32,
    /// Elements, x first.
    pub size: [u64; 3],
    /// First and last level.
    pub levels: [u32; 2],
    /// First and last layer.
    pub layers: [u32; 2],
}

/// What an object is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ImageObject {
    /// A texture object.
    Texture {
        /// What it reads.
        resource: Resource,
        /// How.
        sampler: Sampler,
        /// Which part of it.
        view: Option<ResourceView>,
    },
    /// A surface object.
    Surface {
        /// What it reads and writes.
        resource: Resource,
    },
}

impl ImageObject {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ImageKind {
        match self {
            Self::Texture { .. } => ImageKind::Texture,
            Self::Surface { .. } => ImageKind::Surface,
        }
    }

    /// What it reads.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        match self {
            Self::Texture { resource, .. } | Self::Surface { resource } => resource,
        }
    }

    /// The same with the memory that it reads at another address, if it reads memory.
    #[must_use]
    pub fn with_address(mut self, place: impl FnOnce(u64) -> u64) -> Self {
        let (Self::Texture { resource, .. } | Self::Surface { resource }) = &mut self;
        if let Resource::Linear { addr, .. } | Resource::Rows { addr, .. } = resource {
            *addr = place(*addr);
        }
        self
    }
}

/// Texture or surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum ImageKind {
    /// A texture object.
    Texture,
    /// A surface object.
    Surface,
}

/// In words: `texture object`.
impl std::fmt::Display for ImageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Texture => "texture object",
            Self::Surface => "surface object",
        })
    }
}

/// An object, as kernels are given it. Textures and surfaces may have equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct ImageHandle {
    /// What it is.
    pub kind: ImageKind,
    /// The device's value of it: parameters of kernels and memory hold it.
    pub value: u64,
}
