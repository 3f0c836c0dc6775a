//! Arrays of the device by their numbers, and texture and surface objects made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hetckpt_abi::array::{ArrayShape, BoxCopy, BoxPlace, BoxSize};
use hetckpt_abi::image_object::{ImageHandle, ImageKind, ImageObject, Resource};
use parking_lot::Mutex;

use super::driver::{DriverError, INVALID_VALUE, Result};
use super::handles::{Context, Stream};
use super::image_calls::{self as calls, Place, RawArray, RawMipmapped, RawResource};
use super::transfer::Transfers;

/// All arrays.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    by_number: Mutex<BTreeMap<u64, Arc<Array>>>,
}

/// An array, which frees itself.
#[derive(Debug)]
struct Array {
    shape: ArrayShape,
    whole: Whole,
    /// Each level; of a plain array there is one, which is all of it.
    levels: Vec<RawArray>,
}

#[derive(Clone, Copy, Debug)]
enum Whole {
    Plain,
    Mipmapped(RawMipmapped),
}

impl Array {
    fn new(shape: &ArrayShape) -> Result<Self> {
        if shape.levels == 0 {
            return Ok(Self {
                shape: *shape,
                whole: Whole::Plain,
                levels: vec![calls::cuArray3DCreate(shape)?],
            });
        }
        let mipmapped = calls::cuMipmappedArrayCreate(shape)?;
        let mut array = Self {
            shape: *shape,
            whole: Whole::Mipmapped(mipmapped),
            levels: Vec::new(),
        };
        for level in 0..shape.levels {
            array.levels.push(calls::cuMipmappedArrayGetLevel(mipmapped, level)?);
        }
        Ok(array)
    }

    fn level(&self, level: u32) -> Result<RawArray> {
        self.levels.get(level as usize).copied().ok_or(no_such_array())
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let _ = match (self.whole, &*self.levels) {
            (Whole::Mipmapped(mipmapped), _) => calls::cuMipmappedArrayDestroy(mipmapped),
            (Whole::Plain, [array]) => calls::cuArrayDestroy(*array),
            (Whole::Plain, _) => Ok(()),
        };
    }
}

fn no_such_array() -> DriverError {
    DriverError {
        call: "an array that is not there",
        code: INVALID_VALUE,
    }
}

impl Arrays {
    pub fn create(&self, context: &Context, number: u64, shape: &ArrayShape) -> Result<()> {
        context.enter()?;
        self.by_number.lock().insert(number, Arc::new(Array::new(shape)?));
        Ok(())
    }

    pub fn destroy(&self, context: &Context, number: u64) -> Result<()> {
        context.enter()?;
        let array = self.by_number.lock().remove(&number);
        array.map(drop).ok_or(no_such_array())
    }

    /// Destroys all.
    pub fn clear(&self, context: &Context) {
        if context.enter().is_ok() {
            self.by_number.lock().clear();
        }
    }

    fn get(&self, number: u64) -> Result<Arc<Array>> {
        self.by_number.lock().get(&number).cloned().ok_or(no_such_array())
    }

    /// Copies, and waits for it.
    pub fn copy(&self, context: &Context, transfers: &Transfers, copy: &BoxCopy) -> Result<()> {
        // Held until it is done.
        let arrays = [&copy.dst, &copy.src].map(|place| place.array().map(|number| self.get(number)).transpose());
        let [dst, src] = arrays;
        let (dst, src) = (dst?, src?);
        let (to, from) = (place(&copy.dst, dst.as_deref())?, place(&copy.src, src.as_deref())?);
        transfers.on_stream(context, |stream| start(to, from, &copy.size, stream))
    }

    /// Reads all of a level without gaps.
    pub fn read(
        &self,
        context: &Context,
        transfers: &Transfers,
        (number, level): (u64, u32),
        dst: &mut [u8],
    ) -> Result<()> {
        let array = self.get(number)?;
        let (from, size) = all_of(&array, level, dst.len())?;
        let to = Place::Host(dst.as_mut_ptr().expose_provenance() as u64);
        // `dst` is borrowed until the stream has been waited for.
        transfers.on_stream(context, |stream| start(to, from, &size, stream))
    }

    /// Writes all of a level.
    pub fn write(
        &self,
        context: &Context,
        transfers: &Transfers,
        (number, level): (u64, u32),
        src: &[u8],
    ) -> Result<()> {
        let array = self.get(number)?;
        let (to, size) = all_of(&array, level, src.len())?;
        let from = Place::Host(src.as_ptr().expose_provenance() as u64);
        // `src` is borrowed until the stream has been waited for.
        transfers.on_stream(context, |stream| start(to, from, &size, stream))
    }

    /// Makes a texture or surface object.
    pub fn create_image(&self, context: &Context, object: &ImageObject) -> Result<u64> {
        context.enter()?;
        // Held while the driver looks at it.
        let array = object.resource().array().map(|number| self.get(number)).transpose()?;
        let resource = raw_resource(object.resource(), array.as_deref())?;
        match object {
            ImageObject::Texture { sampler, view, .. } => calls::cuTexObjectCreate(resource, sampler, view.as_ref()),
            ImageObject::Surface { .. } => calls::cuSurfObjectCreate(resource),
        }
    }
}

/// Frees a texture or surface object.
pub(super) fn destroy_image(context: &Context, image: ImageHandle) -> Result<()> {
    context.enter()?;
    match image.kind {
        ImageKind::Texture => calls::cuTexObjectDestroy(image.value),
        ImageKind::Surface => calls::cuSurfObjectDestroy(image.value),
    }
}

fn raw_resource(resource: &Resource, array: Option<&Array>) -> Result<RawResource> {
    let array = array.ok_or(no_such_array());
    Ok(match *resource {
        Resource::Array { level, .. } => RawResource::Array(array?.level(level)?),
        Resource::Mipmapped { .. } => match array?.whole {
            Whole::Mipmapped(mipmapped) => RawResource::Mipmapped(mipmapped),
            Whole::Plain => return Err(no_such_array()),
        },
        Resource::Linear {
            addr,
            format,
            channels,
            size_bytes,
        } => RawResource::Linear(addr, [format, channels], size_bytes),
        Resource::Rows {
            addr,
            format,
            channels,
            width,
            height,
            pitch,
        } => RawResource::Rows(addr, [format, channels], [width, height, pitch]),
    })
}

fn place(place: &BoxPlace, array: Option<&Array>) -> Result<Place> {
    Ok(match *place {
        BoxPlace::Array {
            level, x_bytes, y, z, ..
        } => Place::Array(array.ok_or(no_such_array())?.level(level)?, [x_bytes, y, z]),
        BoxPlace::Memory {
            addr,
            pitch,
            slice_rows,
        } => Place::Memory(addr, [pitch, slice_rows]),
    })
}

/// All of a level, which must take `length` bytes.
fn all_of(array: &Array, level: u32, length: usize) -> Result<(Place, BoxSize)> {
    let size = array
        .shape
        .level(level)
        .filter(|size| size.bytes() == Some(length as u64));
    Ok((Place::Array(array.level(level)?, [0; 3]), size.ok_or(no_such_array())?))
}

#[allow(unsafe_code, reason = "driver FFI")]
fn start(to: Place, from: Place, size: &BoxSize, stream: &Stream) -> Result<()> {
    // SAFETY: memory of this process comes from `Arrays::read` and `Arrays::write`, which borrow it until they have
    // waited for the stream.
    unsafe { calls::cuMemcpy3DAsync(to, from, size, stream) }
}
