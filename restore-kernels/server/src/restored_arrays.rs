//! Arrays, and texture and surface objects, from a snapshot back to a device.
//!
//! Kernels know an object by its value, which is in their parameters and in memory, so it must be the same again. The
//! driver chooses it; it gives out small numbers, one after the other. So objects are made in the order of their
//! values, with others in the gaps between them, which are freed at the end. If an object gets another value all the
//! same, the restore is refused.

use std::collections::BTreeSet;

use hetckpt_abi::array::{ArrayShape, SURFACE_LOAD_STORE};
use hetckpt_abi::image_object::{ImageHandle, ImageKind, ImageObject, Resource, Sampler};
use hetckpt_devices::device::Device;
use hetckpt_state::array::{ArrayState, ImageState};

use crate::arrays::Arrays;
use crate::error::ServerError;

/// Number of the array of which objects are made whose own array or memory is gone. No application counts so far.
const STAND_IN: u64 = u64::MAX;
/// Objects that are made in the gaps at most, all together.
const MOST_IN_GAPS: usize = 1 << 16;

/// Makes the arrays, and fills them.
///
/// # Errors
/// [`ServerError::Damaged`], [`ServerError::Transfer`].
pub fn restore_arrays(device: &dyn Device, arrays: &mut Arrays, stored: &[ArrayState]) -> Result<(), ServerError> {
    for array in stored {
        let number = array.number;
        if array.shape.content_bytes() != Some(array.bytes.len() as u64) {
            let why = format!("array {number} does not have the length of its content");
            return Err(ServerError::Damaged(why.into()));
        }
        let of_array = |source| ServerError::Transfer {
            what: format!("array {number}, of {:?} elements", array.shape.size),
            source,
        };
        arrays.create(device, number, &array.shape).map_err(of_array)?;
        let mut rest = &*array.bytes;
        for level in 0..array.shape.num_levels() {
            let length = array.shape.level(level).and_then(|size| size.bytes()).unwrap_or(0);
            let (bytes, others) = rest.split_at(usize::try_from(length).map_or(rest.len(), |n| n.min(rest.len())));
            device.write_array(number, level, bytes).map_err(of_array)?;
            rest = others;
        }
    }
    Ok(())
}

/// Makes the texture and surface objects. `actual` says where memory lies that the application has at an address, and
/// `is_memory` of an address whether device memory is there.
///
/// # Errors
/// [`ServerError::ImageMoved`], [`ServerError::Transfer`].
pub fn restore_images(
    device: &dyn Device,
    arrays: &mut Arrays,
    stored: &[ImageState],
    actual: impl Fn(u64) -> u64,
    is_memory: impl Fn(u64) -> bool,
) -> Result<(), ServerError> {
    let mut wanted: Vec<(ImageHandle, ImageObject)> = stored.iter().map(|i| (i.handle(), i.object)).collect();
    wanted.sort_unstable_by_key(|(image, _)| (image.value, image.kind));
    let mut gaps = Gaps {
        device,
        made: BTreeSet::new(),
    };
    let mut has_stand_in = false;
    for (image, object) in wanted {
        let mut made_of = object.with_address(&actual);
        if !arrays.has_resource(made_of.resource(), &is_memory) {
            if !has_stand_in {
                let made = device.create_array(STAND_IN, &stand_in());
                made.map_err(|source| of_image(image, source))?;
                has_stand_in = true;
            }
            made_of = of_stand_in(image.kind);
        }
        gaps.make(image, &made_of)?;
        arrays.insert_image(image, object);
    }
    Ok(())
}

fn of_image(image: ImageHandle, source: hetckpt_devices::error::DeviceError) -> ServerError {
    ServerError::Transfer {
        what: format!("{} {}", image.kind, image.value),
        source,
    }
}

/// A small array that any object can be made of.
fn stand_in() -> ArrayShape {
    ArrayShape {
        size: [16, 16, 0],
        // CU_AD_FORMAT_UNSIGNED_INT32.
        format: 3,
        channels: 1,
        flags: SURFACE_LOAD_STORE,
        levels: 0,
    }
}

fn of_stand_in(kind: ImageKind) -> ImageObject {
    let resource = Resource::Array {
        array: STAND_IN,
        level: 0,
    };
    match kind {
        ImageKind::Texture => ImageObject::Texture {
            resource,
            sampler: Sampler::default(),
            view: None,
        },
        ImageKind::Surface => ImageObject::Surface { resource },
    }
}

/// Objects in the gaps, which free themselves.
struct Gaps<'a> {
    device: &'a dyn Device,
    made: BTreeSet<ImageHandle>,
}

impl Gaps<'_> {
    /// Makes an object again and again until it has the value of `image`.
    fn make(&mut self, image: ImageHandle, object: &ImageObject) -> Result<(), ServerError> {
        if self.made.remove(&image) {
            self.device.destroy_image(image).map_err(|e| of_image(image, e))?;
        }
        loop {
            let now = self.device.create_image(object).map_err(|e| of_image(image, e))?;
            if now == image.value {
                return Ok(());
            }
            let kind = image.kind;
            self.made.insert(ImageHandle { kind, value: now });
            if self.made.len() > MOST_IN_GAPS {
                let (what, before) = (kind, image.value);
                return Err(ServerError::ImageMoved { what, before, now });
            }
        }
    }
}

impl Drop for Gaps<'_> {
    fn drop(&mut self) {
        for &image in &self.made {
            if let Err(error) = self.device.destroy_image(image) {
                tracing::error!(%error, value = image.value, "a {} cannot be freed", image.kind);
            }
        }
    }
}
