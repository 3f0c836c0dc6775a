//! Arrays of the application, and the texture and surface objects that it has made: what a snapshot needs to know of
//! them. Their content is on the device.

use std::collections::BTreeMap;

use hetckpt_abi::array::{ArrayShape, BoxCopy, BoxPlace};
use hetckpt_abi::image_object::{ImageHandle, ImageObject, Resource};
use hetckpt_devices::device::Device;
use hetckpt_devices::error::DeviceError;

/// `CUDA_ERROR_INVALID_VALUE`, of a number or a box that there is not.
const INVALID_VALUE: u32 = crate::cuda_result::INVALID_VALUE;

/// All of them.
#[derive(Debug, Default)]
pub struct Arrays {
    /// By number.
    shapes: BTreeMap<u64, ArrayShape>,
    images: BTreeMap<ImageHandle, ImageObject>,
}

fn refused(what: &str, reason: &str, cuda_result: u32) -> DeviceError {
    DeviceError::Refused {
        what: what.to_owned(),
        reason: reason.to_owned(),
        cuda_result,
    }
}

impl Arrays {
    /// Makes an array.
    ///
    /// # Errors
    /// [`DeviceError::Refused`].
    pub fn create(&mut self, device: &dyn Device, number: u64, shape: &ArrayShape) -> Result<(), DeviceError> {
        if device.has_arrays() && (shape.content_bytes().is_none() || self.shapes.contains_key(&number)) {
            return Err(refused(
                "an array",
                "its shape or number is none that can be",
                INVALID_VALUE,
            ));
        }
        device.create_array(number, shape)?;
        self.shapes.insert(number, *shape);
        Ok(())
    }

    /// Frees an array. Objects made of it stay until they are freed.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn destroy(&mut self, device: &dyn Device, number: u64) -> Result<(), DeviceError> {
        match self.shapes.remove(&number) {
            Some(_) => device.destroy_array(number),
            None => Err(refused("an array", "there is none of this number", INVALID_VALUE)),
        }
    }

    /// Makes a texture or surface object: of an array, or of memory that begins where there is some, as `is_memory`
    /// says. For the application the memory lies where `object` says, on the device where `on_device` says.
    ///
    /// # Errors
    /// [`DeviceError::Refused`].
    pub fn create_image(
        &mut self,
        device: &dyn Device,
        (object, on_device): (&ImageObject, &ImageObject),
        is_memory: impl FnOnce(u64) -> bool,
    ) -> Result<u64, DeviceError> {
        let kind = object.kind();
        if device.has_arrays() && !self.has_resource(on_device.resource(), is_memory) {
            let reason = "its array or device memory is not there";
            return Err(refused(&format!("a {kind}"), reason, INVALID_VALUE));
        }
        let value = device.create_image(on_device)?;
        self.images.insert(ImageHandle { kind, value }, *object);
        Ok(value)
    }

    /// True if there is what an object is to be made of.
    #[must_use]
    pub fn has_resource(&self, resource: &Resource, is_memory: impl FnOnce(u64) -> bool) -> bool {
        match (*resource, resource.memory()) {
            (_, Some((addr, _))) => is_memory(addr),
            (Resource::Array { array, level }, _) => {
                self.shapes.get(&array).is_some_and(|shape| level < shape.num_levels())
            }
            (resource, None) => {
                let shape = resource.array().and_then(|array| self.shapes.get(&array));
                shape.is_some_and(|shape| shape.levels > 0)
            }
        }
    }

    /// Frees an object.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn destroy_image(&mut self, device: &dyn Device, image: ImageHandle) -> Result<(), DeviceError> {
        match self.images.remove(&image) {
            Some(_) => device.destroy_image(image),
            None => Err(refused(
                &image.kind.to_string(),
                "there is none of this value",
                INVALID_VALUE,
            )),
        }
    }

    /// Makes sure that a copy lies within its arrays, and that its memory is such as `is_memory` says (address and
    /// size).
    ///
    /// # Errors
    /// [`DeviceError::Refused`].
    pub fn check(&self, copy: &BoxCopy, is_memory: impl Fn(u64, u64) -> bool) -> Result<(), DeviceError> {
        let is_there = |place: &BoxPlace| match *place {
            BoxPlace::Array { array, .. } => {
                let shape = self.shapes.get(&array);
                shape.is_some_and(|shape| place.fits_array(&copy.size, shape))
            }
            BoxPlace::Memory { addr, .. } => {
                let span = place.span_bytes(&copy.size);
                span.is_some_and(|span| is_memory(addr, span))
            }
        };
        if copy.size.bytes().is_some() && is_there(&copy.dst) && is_there(&copy.src) {
            return Ok(());
        }
        Err(refused(
            "a copy of an array",
            "one of its sides is not there",
            INVALID_VALUE,
        ))
    }

    /// Arrays by number.
    pub fn shapes(&self) -> impl Iterator<Item = (u64, &ArrayShape)> {
        self.shapes.iter().map(|(&number, shape)| (number, shape))
    }

    /// Bytes that all arrays hold.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let bytes = self.shapes.values().filter_map(ArrayShape::content_bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Texture and surface objects.
    pub fn images(&self) -> impl Iterator<Item = (ImageHandle, &ImageObject)> {
        self.images.iter().map(|(&image, object)| (image, object))
    }

    /// Notes an object that a restore has made.
    pub fn insert_image(&mut self, image: ImageHandle, object: ImageObject) {
        self.images.insert(image, object);
    }

    /// Frees all.
    pub fn clear(&mut self, device: &dyn Device) {
        let freed = std::mem::take(&mut self.images)
            .into_keys()
            .map(|image| device.destroy_image(image));
        let arrays = std::mem::take(&mut self.shapes)
            .into_keys()
            .map(|array| device.destroy_array(array));
        for error in freed.chain(arrays).filter_map(Result::err) {
            tracing::error!(%error, "an array, or a texture or surface object, cannot be freed");
        }
    }
}
