//! Arrays, whose elements lie one behind the other, and numbers for texture and surface objects: no kernel reads them.
//! Descriptions are looked at as the driver does.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::result::{INVALID_VALUE, SUCCESS, put};

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
pub struct Descriptor {
    size: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

/// An array, or a level of one.
pub struct Array {
    row_bytes: usize,
    rows: usize,
    bytes: Vec<u8>,
}

/// The levels of a mipmapped array.
pub type Mipmapped = Vec<Array>;

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
pub struct Side {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: u32,
    host: usize,
    device: usize,
    array: *mut Array,
    reserved: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
pub struct Copy3D {
    src: Side,
    dst: Side,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
pub struct Resource {
    kind: u32,
    words: [u64; 16],
    flags: u32,
}

/// `CUDA_TEXTURE_DESC`.
#[repr(C)]
pub struct Texture {
    address_modes: [u32; 3],
    filter_mode: u32,
    flags: u32,
    max_anisotropy: u32,
    mipmap_filter_mode: u32,
    levels_and_border: [f32; 7],
    reserved: [u32; 12],
}

/// Values of objects that have not been freed: textures and surfaces share them.
static IMAGES: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn element_bytes(format: u32, channels: u32) -> Option<usize> {
    let component = match format {
        1 | 8 => 1,
        2 | 9 | 0x10 => 2,
        3 | 0xa | 0x20 => 4,
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then(|| component * channels as usize)
}

impl Array {
    fn new(descriptor: &Descriptor, level: u32) -> Option<Self> {
        const LAYERED_OR_CUBEMAP: u32 = 5;
        let [width, height, depth] = descriptor.size;
        let halved = |size: usize| (size >> level).max(1);
        let is_stack = descriptor.flags & LAYERED_OR_CUBEMAP != 0;
        let slices = if is_stack { depth.max(1) } else { halved(depth) };
        let element = element_bytes(descriptor.format, descriptor.channels).filter(|_| width > 0)?;
        let (row_bytes, rows) = (halved(width) * element, halved(height));
        let bytes = vec![0xcd; row_bytes * rows * slices];
        Some(Self { row_bytes, rows, bytes })
    }
}

/// Address of a row of a box.
fn row(side: &Side, y: usize, z: usize) -> Option<usize> {
    let (base, pitch, height) = match side.memory_type {
        1 => (side.host, side.pitch, side.height),
        2 | 4 => (side.device, side.pitch, side.height),
        3 => {
            // SAFETY: the caller's array.
            let array = unsafe { side.array.as_mut() }?;
            let base = array.bytes.as_mut_ptr().expose_provenance();
            (base, array.row_bytes, array.rows)
        }
        _ => return None,
    };
    Some(base + ((side.z + z) * height + side.y + y) * pitch + side.x_bytes)
}

fn copy(copy: &Copy3D) -> Option<()> {
    for z in 0..copy.depth {
        for y in 0..copy.height {
            let from = std::ptr::with_exposed_provenance::<u8>(row(&copy.src, y, z)?);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(row(&copy.dst, y, z)?);
            // SAFETY: what the driver API asks of its callers.
            unsafe { std::ptr::copy(from, to, copy.width_bytes) };
        }
    }
    Some(())
}

/// The least value that is free.
fn image(value: Option<&mut u64>) -> u32 {
    let mut images = IMAGES.lock();
    let free = (1..).find(|number| !images.contains(number)).unwrap_or(0);
    images.insert(free);
    put(value, free)
}

fn is_possible(resource: &Resource) -> bool {
    let words = &resource.words;
    let element = element_bytes(words[1] as u32, (words[1] >> 32) as u32).map(|bytes| bytes as u64);
    let is_memory = words[0] != 0 && element.is_some();
    resource.flags == 0
        && match resource.kind {
            0 | 1 => words[0] != 0,
            2 => is_memory && words[2] > 0 && element.is_some_and(|element| words[2].is_multiple_of(element)),
            3 => is_memory && words[3] > 0 && element.is_some_and(|element| words[4] >= words[2] * element),
            _ => false,
        }
}

fn is_known(texture: &Texture) -> bool {
    let filters = [texture.filter_mode, texture.mipmap_filter_mode];
    texture.address_modes.iter().all(|&mode| mode < 4)
        && filters.iter().all(|&filter| filter < 2)
        && texture.max_anisotropy <= 16
        && texture.levels_and_border.iter().all(|number| number.is_finite())
        && texture.reserved == [0; 12]
}

fn done(done: Option<()>) -> u32 {
    done.map_or(INVALID_VALUE, |()| SUCCESS)
}

driver_api! {
    fn cuArray3DCreate_v2(array: Option<&mut *mut Array>, descriptor: Option<&Descriptor>) {
        let made = descriptor.and_then(|descriptor| Array::new(descriptor, 0));
        made.map_or(INVALID_VALUE, |made| put(array, Box::into_raw(Box::new(made))))
    }
    fn cuArrayDestroy(array: *mut Array) {
        // SAFETY: the caller's array, which it uses no more.
        drop(unsafe { Box::from_raw(array) });
        SUCCESS
    }
    fn cuMipmappedArrayCreate(array: Option<&mut *mut Mipmapped>, descriptor: Option<&Descriptor>, levels: u32) {
        let made = descriptor.and_then(|descriptor| (0..levels).map(|level| Array::new(descriptor, level)).collect());
        made.map_or(INVALID_VALUE, |made: Mipmapped| put(array, Box::into_raw(Box::new(made))))
    }
    fn cuMipmappedArrayGetLevel(place: Option<&mut *mut Array>, array: Option<&mut Mipmapped>, level: u32) {
        let found = array.and_then(|levels| levels.get_mut(level as usize));
        found.map_or(INVALID_VALUE, |found| put(place, std::ptr::from_mut(found)))
    }
    fn cuMipmappedArrayDestroy(array: *mut Mipmapped) {
        // SAFETY: the caller's array, which it uses no more.
        drop(unsafe { Box::from_raw(array) });
        SUCCESS
    }
    fn cuMemcpy3DAsync_v2(params: Option<&Copy3D>, _stream: usize) {
        done(params.and_then(copy))
    }
    fn cuTexObjectCreate(
        value: Option<&mut u64>, resource: Option<&Resource>, texture: Option<&Texture>, _view: usize,
    ) {
        match (resource.is_some_and(is_possible), texture.is_some_and(is_known)) {
            (true, true) => image(value),
            _ => INVALID_VALUE,
        }
    }
    fn cuTexObjectDestroy(value: u64) {
        done(IMAGES.lock().remove(&value).then_some(()))
    }
    fn cuSurfObjectCreate(value: Option<&mut u64>, resource: Option<&Resource>) {
        if resource.is_some_and(|resource| resource.kind == 0 && is_possible(resource)) {
            image(value)
        } else {
            INVALID_VALUE
        }
    }
    fn cuSurfObjectDestroy(value: u64) {
        done(IMAGES.lock().remove(&value).then_some(()))
    }
}
