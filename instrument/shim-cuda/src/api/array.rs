//! Arrays, plain and mipmapped: the device's, or memory where it is none of NVIDIA's.

use std::sync::Arc;

use hetckpt_abi::array::ArrayShape;
use hetckpt_ring::command::{ArrayId, Command, DeviceIndex};

use crate::array_params::{Descriptor2D, Descriptor3D};
use crate::guard::Current;
use crate::handles::Handle;
use crate::objects::{Array, ArrayPlace, MipmappedArray};
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};

use super::memory;

entry_points! {
    context cuArrayCreate_v2 "cuArrayCreate" 3020 (array: Out<Handle>, descriptor: In<Descriptor2D>) => create_2d;
    context cuArray3DCreate_v2 "cuArray3DCreate" 3020 (array: Out<Handle>, descriptor: In<Descriptor3D>) => create_3d;
    context cuArrayDestroy "cuArrayDestroy" 2000 (array: Handle) => destroy;
    context cuArrayGetDescriptor_v2 "cuArrayGetDescriptor" 3020
        (descriptor: Out<Descriptor2D>, array: Handle) => descriptor_2d;
    context cuArray3DGetDescriptor_v2 "cuArray3DGetDescriptor" 3020
        (descriptor: Out<Descriptor3D>, array: Handle) => descriptor_3d;
    context cuMipmappedArrayCreate "cuMipmappedArrayCreate" 5000
        (array: Out<Handle>, descriptor: In<Descriptor3D>, levels: u32) => create_mipmapped;
    context cuMipmappedArrayGetLevel "cuMipmappedArrayGetLevel" 5000
        (level_array: Out<Handle>, array: Handle, level: u32) => get_level;
    context cuMipmappedArrayDestroy "cuMipmappedArrayDestroy" 5000 (array: Handle) => destroy_mipmapped;
}

/// The array behind a handle.
pub fn find(current: &Current, array: Handle) -> Outcome<Arc<Array>> {
    current.session.arrays.get(array).ok_or(CuResult::INVALID_HANDLE)
}

fn create_2d(current: Current, array: Out<Handle>, descriptor: In<Descriptor2D>) -> Outcome {
    create(&current, array, descriptor.get()?.shape())
}

fn create_3d(current: Current, array: Out<Handle>, descriptor: In<Descriptor3D>) -> Outcome {
    create(&current, array, descriptor.get()?.shape(0))
}

fn create(current: &Current, array: Out<Handle>, shape: ArrayShape) -> Outcome {
    if array.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    array.set(current.session.arrays.insert(Arc::new(Array {
        place: request(current, shape)?,
        level: 0,
        whole: shape,
        shape,
        is_level: false,
    })))
}

/// Has the device make an array, or memory for one.
fn request(current: &Current, shape: ArrayShape) -> Outcome<ArrayPlace> {
    if shape.size[0] == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let content_bytes = shape.content_bytes().ok_or(CuResult::NOT_SUPPORTED)?;
    let device = &current.session.device;
    if device.description.is_emulated() {
        return memory::allocate(current, content_bytes).map(ArrayPlace::Memory);
    }
    let number = device.next_id();
    current.session.call(Command::ArrayCreate {
        array: ArrayId(number),
        device: DeviceIndex::FIRST,
        shape,
    })?;
    Ok(ArrayPlace::Device(number))
}

/// Frees an array: once all that was given to streams before is done.
fn release(current: &Current, place: ArrayPlace) -> Outcome {
    match place {
        ArrayPlace::Device(number) => {
            let array = ArrayId(number);
            current.session.device.send(Command::ArrayDestroy { array })
        }
        ArrayPlace::Memory(addr) => memory::release(current, addr),
    }
}

fn destroy(current: Current, array: Handle) -> Outcome {
    let session = current.session;
    if find(&current, array)?.is_level {
        return Err(CuResult::INVALID_HANDLE);
    }
    let removed = session.arrays.remove(array).ok_or(CuResult::INVALID_HANDLE)?;
    release(&current, removed.place)
}

fn descriptor_2d(current: Current, descriptor: Out<Descriptor2D>, array: Handle) -> Outcome {
    descriptor.set((&find(&current, array)?.shape).into())
}

fn descriptor_3d(current: Current, descriptor: Out<Descriptor3D>, array: Handle) -> Outcome {
    descriptor.set((&find(&current, array)?.shape).into())
}

/// As many levels as asked for, or as there are until an element is left.
fn create_mipmapped(current: Current, array: Out<Handle>, descriptor: In<Descriptor3D>, levels: u32) -> Outcome {
    if array.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let plain = descriptor.get()?.shape(0);
    let [width, height, depth] = plain.size;
    let depth = if plain.is_stack() { 0 } else { depth };
    let longest = width.max(height).max(depth);
    let shape = ArrayShape {
        levels: levels.clamp(1, longest.max(1).ilog2() + 1),
        ..plain
    };
    let place = request(&current, shape)?;
    let session = current.session;
    let levels = (0..shape.levels).map(|level| {
        session.arrays.insert(Arc::new(Array {
            place,
            level,
            whole: shape,
            shape: plain.plain_level(level),
            is_level: true,
        }))
    });
    let levels = levels.collect();
    array.set(
        session
            .mipmapped
            .insert(Arc::new(MipmappedArray { place, shape, levels })),
    )
}

fn get_level(current: Current, level_array: Out<Handle>, array: Handle, level: u32) -> Outcome {
    let array = current.session.mipmapped.get(array).ok_or(CuResult::INVALID_HANDLE)?;
    let handle = array.levels.get(level as usize).ok_or(CuResult::INVALID_VALUE)?;
    level_array.set(*handle)
}

fn destroy_mipmapped(current: Current, array: Handle) -> Outcome {
    let session = current.session;
    let removed = session.mipmapped.remove(array).ok_or(CuResult::INVALID_HANDLE)?;
    for &level in &removed.levels {
        session.arrays.remove(level);
    }
    release(&current, removed.place)
}
