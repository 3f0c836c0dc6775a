//! Texture objects and surface objects: the device's driver makes them, and kernels of its own code take its values.

use hetckpt_abi::image_object::{ImageHandle, ImageKind, ImageObject, Resource};
use hetckpt_abi::software_image;
use hetckpt_ring::command::{Command, DeviceIndex};
use hetckpt_ring::reply::Reply;

use crate::array_params::{ResourceDescriptor, TextureDescriptor, ViewDescriptor};
use crate::copy_params::Transfer;
use crate::guard::Current;
use crate::handles::Handle;
use crate::log;
use crate::objects::{ArrayPlace, Image};
use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::transfer::{self, Mode};

use super::{array, memory};

entry_points! {
    context cuTexObjectCreate "cuTexObjectCreate" 5000
        (object: Out<u64>, resource: In<ResourceDescriptor>, texture: In<TextureDescriptor>,
         view: In<ViewDescriptor>) => create_texture;
    context cuTexObjectDestroy "cuTexObjectDestroy" 5000 (object: u64) => destroy_texture;
    context cuTexObjectGetResourceDesc "cuTexObjectGetResourceDesc" 5000
        (resource: Out<ResourceDescriptor>, object: u64) => resource_of_texture;
    context cuTexObjectGetTextureDesc "cuTexObjectGetTextureDesc" 5000
        (texture: Out<TextureDescriptor>, object: u64) => texture_of_texture;
    context cuTexObjectGetResourceViewDesc "cuTexObjectGetResourceViewDesc" 5000
        (view: Out<ViewDescriptor>, object: u64) => view_of_texture;
    context cuSurfObjectCreate "cuSurfObjectCreate" 5000
        (object: Out<u64>, resource: In<ResourceDescriptor>) => create_surface;
    context cuSurfObjectDestroy "cuSurfObjectDestroy" 5000 (object: u64) => destroy_surface;
    context cuSurfObjectGetResourceDesc "cuSurfObjectGetResourceDesc" 5000
        (resource: Out<ResourceDescriptor>, object: u64) => resource_of_surface;
}

fn create_texture(
    current: Current,
    object: Out<u64>,
    resource: In<ResourceDescriptor>,
    texture: In<TextureDescriptor>,
    view: In<ViewDescriptor>,
) -> Outcome {
    let (resource, texture) = (resource.get()?, texture.get()?);
    let view = if view.is_null() { None } else { Some(view.get()?) };
    let made_of = ImageObject::Texture {
        resource: resolve(&current, &resource)?,
        sampler: (&texture).into(),
        view: view.as_ref().map(Into::into),
    };
    let texture = Some(texture);
    create(
        &current,
        object,
        made_of,
        Image {
            resource,
            texture,
            view,
        },
    )
}

fn create_surface(current: Current, object: Out<u64>, resource: In<ResourceDescriptor>) -> Outcome {
    let resource = resource.get()?;
    let made_of = ImageObject::Surface {
        resource: resolve(&current, &resource)?,
    };
    let (texture, view) = (None, None);
    create(
        &current,
        object,
        made_of,
        Image {
            resource,
            texture,
            view,
        },
    )
}

fn create(current: &Current, object: Out<u64>, made_of: ImageObject, image: Image) -> Outcome {
    if object.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let value = match current.session.device.description.is_emulated() {
        true => describe(current, &image.resource, &made_of)?,
        false => request(current, made_of)?,
    };
    let kind = made_of.kind();
    current.session.images.lock().insert(ImageHandle { kind, value }, image);
    object.set(value)
}

/// Has the device make an object; its value.
fn request(current: &Current, made_of: ImageObject) -> Outcome<u64> {
    let reply = current.session.call(Command::ImageCreate {
        device: DeviceIndex::FIRST,
        object: Box::new(made_of),
    })?;
    match reply {
        Reply::ImageObject(value) => Ok(value),
        _ => Err(CuResult::UNKNOWN),
    }
}

/// Describes an object in device memory; its address.
fn describe(current: &Current, resource: &ResourceDescriptor, made_of: &ImageObject) -> Outcome<u64> {
    let session = current.session;
    let array = match made_of.resource() {
        Resource::Array { .. } => {
            let found = array::find(current, Handle(resource.words[0]))?;
            Some((found.place, found.whole))
        }
        Resource::Mipmapped { .. } => {
            let found = session.mipmapped.get(Handle(resource.words[0]));
            found.map(|found| (found.place, found.shape))
        }
        Resource::Linear { .. } | Resource::Rows { .. } => None,
    };
    let array = array.and_then(|(place, shape)| match place {
        ArrayPlace::Memory(addr) => Some((addr, shape)),
        ArrayPlace::Device(_) => None,
    });
    let Some(description) = software_image::describe(made_of, array) else {
        log::note(&format!(
            "a {} of this kind is not modelled: {made_of:?}",
            made_of.kind()
        ));
        return Err(CuResult::NOT_SUPPORTED);
    };
    let size = description.len() as u64;
    let addr = memory::allocate(current, size)?;
    let copied = transfer::run(
        current,
        Transfer::range(addr, description.as_ptr() as u64, size),
        current.default_stream()?,
        Mode::Sync,
    );
    copied.map(|()| addr)
}

/// What the descriptor names, in the ring's words. The number of an array is of no meaning if it lies in memory.
fn resolve(current: &Current, descriptor: &ResourceDescriptor) -> Outcome<Resource> {
    let words = &descriptor.words;
    if descriptor.flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let [format, channels] = descriptor.halves(1);
    match descriptor.kind {
        0 => {
            let found = array::find(current, Handle(words[0]))?;
            Ok(Resource::Array {
                array: number(found.place),
                level: found.level,
            })
        }
        1 => {
            let found = current.session.mipmapped.get(Handle(words[0]));
            let array = number(found.ok_or(CuResult::INVALID_HANDLE)?.place);
            Ok(Resource::Mipmapped { array })
        }
        2 => on_device(
            current,
            Resource::Linear {
                addr: words[0],
                format,
                channels,
                size_bytes: words[2],
            },
        ),
        3 => on_device(
            current,
            Resource::Rows {
                addr: words[0],
                format,
                channels,
                width: words[2],
                height: words[3],
                pitch: words[4],
            },
        ),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn number(place: ArrayPlace) -> u64 {
    match place {
        ArrayPlace::Device(number) => number,
        ArrayPlace::Memory(_) => 0,
    }
}

/// Memory of the host that the device reaches is there only when a restored program is; objects are made before. That
/// an object ends within its memory, NVIDIA's driver does not ask either.
fn on_device(current: &Current, resource: Resource) -> Outcome<Resource> {
    let (addr, _) = resource.memory().ok_or(CuResult::INVALID_VALUE)?;
    let range = current.session.device.memory().find(addr);
    match range.ok_or(CuResult::INVALID_VALUE)?.is_device() {
        true => Ok(resource),
        false => Err(CuResult::NOT_SUPPORTED),
    }
}

/// The value 0, which is no object's, is taken.
fn destroy(current: &Current, kind: ImageKind, value: u64) -> Outcome {
    if value == 0 {
        return Ok(());
    }
    let image = ImageHandle { kind, value };
    // Before the server hears of it: it may give the value to another thread's object then.
    let removed = current.session.images.lock().remove(&image);
    removed.ok_or(CuResult::INVALID_VALUE)?;
    match current.session.device.description.is_emulated() {
        true => memory::release(current, value),
        false => current.session.device.send(Command::ImageDestroy { image }),
    }
}

fn destroy_texture(current: Current, object: u64) -> Outcome {
    destroy(&current, ImageKind::Texture, object)
}

fn destroy_surface(current: Current, object: u64) -> Outcome {
    destroy(&current, ImageKind::Surface, object)
}

fn find(current: &Current, kind: ImageKind, value: u64) -> Outcome<Image> {
    let images = current.session.images.lock();
    let image = images.get(&ImageHandle { kind, value });
    image.copied().ok_or(CuResult::INVALID_VALUE)
}

fn resource_of_texture(current: Current, resource: Out<ResourceDescriptor>, object: u64) -> Outcome {
    resource.set(find(&current, ImageKind::Texture, object)?.resource)
}

fn texture_of_texture(current: Current, texture: Out<TextureDescriptor>, object: u64) -> Outcome {
    let found = find(&current, ImageKind::Texture, object)?.texture;
    texture.set(found.ok_or(CuResult::INVALID_VALUE)?)
}

fn view_of_texture(current: Current, view: Out<ViewDescriptor>, object: u64) -> Outcome {
    let found = find(&current, ImageKind::Texture, object)?.view;
    view.set(found.ok_or(CuResult::INVALID_VALUE)?)
}

fn resource_of_surface(current: Current, resource: Out<ResourceDescriptor>, object: u64) -> Outcome {
    resource.set(find(&current, ImageKind::Surface, object)?.resource)
}
