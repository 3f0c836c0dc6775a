//! NVIDIA's driver API for arrays, texture objects and surface objects, with results. Formats and modes are plain
//! numbers here, as the program gave them; the driver refuses those that it does not know.
#![allow(unsafe_code, reason = "driver FFI")]
#![allow(non_snake_case, reason = "the names are the driver's own")]

use cudarc::driver::sys;
use hetckpt_abi::array::{ArrayShape, BoxSize};
use hetckpt_abi::image_object::{ResourceView, Sampler};

use super::driver::{DriverError, Result};
use super::handles::Stream;

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

/// A `CUarray`, which [`super::arrays`] keeps valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct RawArray(usize);

/// A `CUmipmappedArray`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct RawMipmapped(usize);

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
struct Descriptor {
    size: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

/// One side of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Side {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: u32,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
struct Copy3D {
    src: Side,
    dst: Side,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

const _: () = assert!(size_of::<Descriptor>() == 40 && size_of::<Copy3D>() == 200);

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In an array: first byte of each row, first row, first slice.
    Array(RawArray, [u64; 3]),
    /// In device memory or pinned memory: address, from row to row in bytes, rows from slice to slice.
    Memory(u64, [u64; 2]),
    /// In memory of this process, without gaps.
    Host(u64),
}

impl Place {
    fn side(self, size: &BoxSize) -> Side {
        const HOST: u32 = 1;
        const ARRAY: u32 = 3;
        const UNIFIED: u32 = 4;
        match self {
            Self::Array(RawArray(array), [x_bytes, y, z]) => Side {
                x_bytes: x_bytes as usize,
                y: y as usize,
                z: z as usize,
                memory_type: ARRAY,
                array,
                ..Side::default()
            },
            Self::Memory(device, [pitch, height]) => Side {
                memory_type: UNIFIED,
                device,
                pitch: pitch as usize,
                height: height as usize,
                ..Side::default()
            },
            Self::Host(host) => Side {
                memory_type: HOST,
                host: host as usize,
                pitch: size.width_bytes as usize,
                height: size.rows as usize,
                ..Side::default()
            },
        }
    }
}

/// What an object reads, with the driver's own arrays.
#[derive(Clone, Copy, Debug)]
pub(super) enum RawResource {
    /// An array, or a level.
    Array(RawArray),
    /// A mipmapped array.
    Mipmapped(RawMipmapped),
    /// Device memory: address, format, components, bytes.
    Linear(u64, [u32; 2], u64),
    /// Rows: address, format, components, and width, height and pitch.
    Rows(u64, [u32; 2], [u64; 3]),
}

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
struct ResourceDescriptor {
    kind: u32,
    words: [u64; 16],
    flags: u32,
}

/// `CUDA_TEXTURE_DESC`.
#[repr(C)]
struct TextureDescriptor {
    sampler: [u32; 14],
    reserved: [u32; 12],
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[repr(C)]
struct ViewDescriptor {
    format: u32,
    size: [usize; 3],
    levels: [u32; 2],
    layers: [u32; 2],
    reserved: [u32; 16],
}

const _: () = assert!(
    size_of::<ResourceDescriptor>() == 144
        && size_of::<TextureDescriptor>() == 104
        && size_of::<ViewDescriptor>() == 112
);

impl From<RawResource> for ResourceDescriptor {
    fn from(resource: RawResource) -> Self {
        let mut words = [0; 16];
        // Two numbers of 32 bits, one behind the other.
        let pair = |[first, second]: [u32; 2]| u64::from(first) | u64::from(second) << 32;
        let kind = match resource {
            RawResource::Array(RawArray(array)) => {
                words[0] = array as u64;
                0
            }
            RawResource::Mipmapped(RawMipmapped(array)) => {
                words[0] = array as u64;
                1
            }
            RawResource::Linear(addr, format, size_bytes) => {
                words[..3].copy_from_slice(&[addr, pair(format), size_bytes]);
                2
            }
            RawResource::Rows(addr, format, [width, height, pitch]) => {
                words[..5].copy_from_slice(&[addr, pair(format), width, height, pitch]);
                3
            }
        };
        Self { kind, words, flags: 0 }
    }
}

impl From<&Sampler> for TextureDescriptor {
    fn from(sampler: &Sampler) -> Self {
        let [x, y, z] = sampler.address_modes;
        let [least, greatest] = sampler.mipmap_clamp;
        let [r, g, b, a] = sampler.border_color;
        let (filter, between) = (sampler.filter_mode, sampler.mipmap_filter_mode);
        let (flags, anisotropy, bias) = (sampler.flags, sampler.max_anisotropy, sampler.mipmap_bias);
        Self {
            sampler: [
                x, y, z, filter, flags, anisotropy, between, bias, least, greatest, r, g, b, a,
            ],
            reserved: [0; 12],
        }
    }
}

impl From<&ResourceView> for ViewDescriptor {
    fn from(view: &ResourceView) -> Self {
        Self {
            format: view.format,
            size: view.size.map(|n| n as usize),
            levels: view.levels,
            layers: view.layers,
            reserved: [0; 16],
        }
    }
}

/// Calls a function of the driver by name: `driver_call!("name", fn(types), arguments)`.
macro_rules! driver_call {
    ($name:literal, fn($($ty:ty),*), $($arg:expr),*) => {{
        // SAFETY: a device is open, so the library is loaded.
        let library = unsafe { sys::culib() };
        // SAFETY: the function's type is the driver's, with its enums and handles as plain numbers.
        let function = unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> u32>($name.as_bytes()) };
        let function = function.map_err(|_| DriverError { call: $name, code: NOT_SUPPORTED })?;
        // SAFETY: pointers are to places and structures of our own; handles are those that their owner keeps valid.
        match unsafe { function($($arg),*) } {
            0 => Ok(()),
            code => Err(DriverError { call: $name, code }),
        }
    }};
}

fn descriptor(shape: &ArrayShape) -> Descriptor {
    Descriptor {
        size: shape.size.map(|n| n as usize),
        format: shape.format,
        channels: shape.channels,
        flags: shape.flags,
    }
}

/// A plain array.
pub(super) fn cuArray3DCreate(shape: &ArrayShape) -> Result<RawArray> {
    let (mut array, descriptor) = (RawArray(0), descriptor(shape));
    driver_call!(
        "cuArray3DCreate_v2",
        fn(*mut RawArray, *const Descriptor),
        &raw mut array,
        &raw const descriptor
    )?;
    Ok(array)
}

/// Frees a plain array.
pub(super) fn cuArrayDestroy(array: RawArray) -> Result<()> {
    driver_call!("cuArrayDestroy", fn(RawArray), array)
}

/// A mipmapped array.
pub(super) fn cuMipmappedArrayCreate(shape: &ArrayShape) -> Result<RawMipmapped> {
    let (mut array, descriptor) = (RawMipmapped(0), descriptor(shape));
    driver_call!(
        "cuMipmappedArrayCreate",
        fn(*mut RawMipmapped, *const Descriptor, u32),
        &raw mut array,
        &raw const descriptor,
        shape.levels
    )?;
    Ok(array)
}

/// A level of it, which lives as long as it.
pub(super) fn cuMipmappedArrayGetLevel(array: RawMipmapped, level: u32) -> Result<RawArray> {
    let mut of_level = RawArray(0);
    driver_call!(
        "cuMipmappedArrayGetLevel",
        fn(*mut RawArray, RawMipmapped, u32),
        &raw mut of_level,
        array,
        level
    )?;
    Ok(of_level)
}

/// Frees a mipmapped array.
pub(super) fn cuMipmappedArrayDestroy(array: RawMipmapped) -> Result<()> {
    driver_call!("cuMipmappedArrayDestroy", fn(RawMipmapped), array)
}

/// Starts a copy of a box.
///
/// # Safety
/// Memory of this process that a side names is valid, at the destination for writing, until the stream has done it.
pub(super) unsafe fn cuMemcpy3DAsync(dst: Place, src: Place, size: &BoxSize, stream: &Stream) -> Result<()> {
    let copy = Copy3D {
        src: src.side(size),
        dst: dst.side(size),
        width_bytes: size.width_bytes as usize,
        height: size.rows as usize,
        depth: size.slices as usize,
    };
    driver_call!(
        "cuMemcpy3DAsync_v2",
        fn(*const Copy3D, sys::CUstream),
        &raw const copy,
        stream.0
    )
}

/// A texture object.
pub(super) fn cuTexObjectCreate(resource: RawResource, sampler: &Sampler, view: Option<&ResourceView>) -> Result<u64> {
    let (mut value, resource) = (0u64, ResourceDescriptor::from(resource));
    let (sampler, view) = (TextureDescriptor::from(sampler), view.map(ViewDescriptor::from));
    let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    driver_call!(
        "cuTexObjectCreate",
        fn(*mut u64, *const ResourceDescriptor, *const TextureDescriptor, *const ViewDescriptor),
        &raw mut value,
        &raw const resource,
        &raw const sampler,
        view
    )?;
    Ok(value)
}

/// Frees a texture object.
pub(super) fn cuTexObjectDestroy(value: u64) -> Result<()> {
    driver_call!("cuTexObjectDestroy", fn(u64), value)
}

/// A surface object.
pub(super) fn cuSurfObjectCreate(resource: RawResource) -> Result<u64> {
    let (mut value, resource) = (0u64, ResourceDescriptor::from(resource));
    driver_call!(
        "cuSurfObjectCreate",
        fn(*mut u64, *const ResourceDescriptor),
        &raw mut value,
        &raw const resource
    )?;
    Ok(value)
}

/// Frees a surface object.
pub(super) fn cuSurfObjectDestroy(value: u64) -> Result<()> {
    driver_call!("cuSurfObjectDestroy", fn(u64), value)
}
