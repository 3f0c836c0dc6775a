//! Textures and surfaces of devices that have neither arrays nor texture units: an array is device memory without gaps,
//! and the value of an object is the address of its description, which kernels read (`sampler.cu` of `hetckpt-ptx`).
//! So they need nothing of a device, and snapshots hold them as they hold memory.

use crate::array::{ArrayShape, element_bytes};
use crate::image_object::{ImageObject, Resource, ResourceView, Sampler};

/// Bytes of a description. It begins with bytes of a component, [`UNSIGNED`] and the like, components, and a zero.
pub const DESCRIPTION_BYTES: usize = 624;

/// Offset of a `u32`: [`NORMALIZED_COORDINATES`] and the like.
const FLAGS: usize = 4;
/// Offset of a byte for each dimension: `CUaddress_mode`.
const MODES: usize = 8;
/// Offset of a `u32`.
const NUM_LEVELS: usize = 12;
/// Offset of three `f32`: what is added to a level, the least and the greatest one.
const LEVEL_RANGE: usize = 16;
/// Offset of four words: an element beyond the border.
const BORDER: usize = 32;
/// Offset of the levels: of each the address (`u64`), bytes from slice to slice (`u64`), from row to row (`u32`), and
/// width, height, depth or layers (`u32`).
const LEVELS: usize = 48;
const LEVEL_BYTES: usize = 32;
const MAX_LEVELS: usize = 18;

/// Kinds of component.
const UNSIGNED: u8 = 0;
const SIGNED: u8 = 1;
const FLOAT: u8 = 2;

/// Coordinates run from 0 to 1.
const NORMALIZED_COORDINATES: u32 = 1;
/// Integers are read as parts of the largest one.
const NORMALIZED_READS: u32 = 2;
/// What lies between elements is interpolated.
const LINEAR: u32 = 4;
/// And what lies between levels.
const LINEAR_BETWEEN_LEVELS: u32 = 8;
/// Whole elements that are not there are 0.
const BEYOND_IS_ZERO: u32 = 16;

/// `CU_TRSF_READ_AS_INTEGER`, `CU_TRSF_NORMALIZED_COORDINATES`, `CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION`. The others
/// stand for colours and for edges of cubes.
const READ_AS_INTEGER: u32 = 1;
const COORDINATES: u32 = 2;
const NO_OPTIMIZATION: u32 = 0x20;

/// `CU_TR_FILTER_MODE_LINEAR`.
const FILTER_LINEAR: u32 = 1;

/// Bytes of an array's content before its level `level`; `None` if there is no such level.
#[must_use]
pub fn level_offset(shape: &ArrayShape, level: u32) -> Option<u64> {
    shape.level(level)?;
    (0..level).try_fold(0u64, |sum, before| sum.checked_add(shape.level(before)?.bytes()?))
}

/// A level, or memory that is read as one.
struct Level {
    address: u64,
    slice_bytes: u64,
    row_bytes: u64,
    size: [u64; 3],
}

fn levels_of(resource: &Resource, array: Option<(u64, ArrayShape)>) -> Option<(Vec<Level>, [u32; 2])> {
    match *resource {
        Resource::Linear {
            addr,
            format,
            channels,
            size_bytes,
        } => {
            let width = size_bytes / element_bytes(format, channels)?;
            let level = Level {
                address: addr,
                slice_bytes: size_bytes,
                row_bytes: 0,
                size: [width, 1, 1],
            };
            Some((vec![level], [format, channels]))
        }
        Resource::Rows {
            addr,
            format,
            channels,
            width,
            height,
            pitch,
        } => {
            let level = Level {
                address: addr,
                slice_bytes: 0,
                row_bytes: pitch,
                size: [width, height, 1],
            };
            Some((vec![level], [format, channels]))
        }
        Resource::Array { .. } | Resource::Mipmapped { .. } => {
            let (address, shape) = array?;
            let numbers = match *resource {
                Resource::Array { level, .. } => level..level + 1,
                _ => 0..shape.num_levels(),
            };
            let levels = numbers.map(|number| {
                let (of_level, plain) = (shape.level(number)?, shape.plain_level(number));
                Some(Level {
                    address: address.checked_add(level_offset(&shape, number)?)?,
                    slice_bytes: of_level.rows * of_level.width_bytes,
                    row_bytes: of_level.width_bytes,
                    size: [plain.size[0], of_level.rows, of_level.slices],
                })
            });
            Some((levels.collect::<Option<_>>()?, [shape.format, shape.channels]))
        }
    }
}

/// Bytes and kind of a component.
fn component(format: u32) -> Option<(u8, u8)> {
    // CU_AD_FORMAT_…: unsigned, signed, half and float.
    Some(match format {
        1 => (1, UNSIGNED),
        2 => (2, UNSIGNED),
        3 => (4, UNSIGNED),
        8 => (1, SIGNED),
        9 => (2, SIGNED),
        0xa => (4, SIGNED),
        0x10 => (2, FLOAT),
        0x20 => (4, FLOAT),
        _ => return None,
    })
}

/// Flags of a texture of components of `bytes` bytes and `kind`; `None` for what is not modelled.
fn flags_of(sampler: &Sampler, (bytes, kind): (u8, u8)) -> Option<u32> {
    if sampler.flags & !(READ_AS_INTEGER | COORDINATES | NO_OPTIMIZATION) != 0 {
        return None;
    }
    let is_normalized = kind != FLOAT && bytes < 4 && sampler.flags & READ_AS_INTEGER == 0;
    let set = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let linear = sampler.filter_mode == FILTER_LINEAR;
    // Nothing lies between integers.
    if linear && kind != FLOAT && !is_normalized {
        return None;
    }
    Some(
        set(sampler.flags & COORDINATES != 0, NORMALIZED_COORDINATES)
            | set(is_normalized, NORMALIZED_READS)
            | set(linear, LINEAR)
            | set(sampler.mipmap_filter_mode == FILTER_LINEAR, LINEAR_BETWEEN_LEVELS),
    )
}

/// True if a view shows all of an image as what it is.
fn shows_all(view: &ResourceView, first: &Level, num_levels: usize) -> bool {
    let last = u32::try_from(num_levels).map_or(0, |num| num - 1);
    let size = view.size.map(|size| size.max(1));
    let ends = [0, first.size[2] - 1].contains(&u64::from(view.layers[1]));
    view.format == 0 && size == first.size && view.levels == [0, last] && view.layers[0] == 0 && ends
}

/// The description of an object, of the content of `array`: where it lies, and the shape. `None` for what is not
/// modelled: views of parts or as something else, colours of sRGB, seamless cubes.
#[must_use]
pub fn describe(object: &ImageObject, array: Option<(u64, ArrayShape)>) -> Option<[u8; DESCRIPTION_BYTES]> {
    let (levels, [format, channels]) = levels_of(object.resource(), array)?;
    let (first, component) = (levels.first()?, component(format)?);
    if levels.len() > MAX_LEVELS {
        return None;
    }
    let mut bytes = [0; DESCRIPTION_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &[component.0, component.1, u8::try_from(channels).ok()?]);
    if let ImageObject::Texture { sampler, view, .. } = object {
        if view.as_ref().is_some_and(|view| !shows_all(view, first, levels.len())) {
            return None;
        }
        let beyond = match object.resource() {
            Resource::Linear { .. } => BEYOND_IS_ZERO,
            _ => 0,
        };
        put(FLAGS, &(flags_of(sampler, component)? | beyond).to_le_bytes());
        put(MODES, &sampler.address_modes.map(|mode| mode.min(3) as u8));
        let [least, greatest] = sampler.mipmap_clamp;
        for (at, word) in (0..).zip([sampler.mipmap_bias, least, greatest]) {
            put(LEVEL_RANGE + 4 * at, &word.to_le_bytes());
        }
        for (at, word) in (0..).zip(sampler.border_color) {
            put(BORDER + 4 * at, &word.to_le_bytes());
        }
    }
    put(NUM_LEVELS, &u32::try_from(levels.len()).ok()?.to_le_bytes());
    for (number, level) in levels.iter().enumerate() {
        let at = LEVELS + number * LEVEL_BYTES;
        put(at, &level.address.to_le_bytes());
        put(at + 8, &level.slice_bytes.to_le_bytes());
        let words = [level.row_bytes, level.size[0], level.size[1], level.size[2]];
        for (word, value) in (0..).zip(words) {
            // Kernels count in `int`s.
            let value = u32::try_from(value).ok().filter(|&value| value <= i32::MAX as u32)?;
            put(at + 16 + 4 * word, &value.to_le_bytes());
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::LAYERED;

    fn texture(resource: Resource, sampler: Sampler) -> ImageObject {
        ImageObject::Texture {
            resource,
            sampler,
            view: None,
        }
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        bytes[at..].first_chunk().map_or(0, |found| u32::from_le_bytes(*found))
    }

    #[test]
    fn levels_lie_one_behind_the_other() {
        let shape = ArrayShape {
            size: [8, 4, 3],
            format: 0x20,
            channels: 2,
            flags: LAYERED,
            levels: 3,
        };
        let second = 8 * 4 * 3 * 8;
        assert_eq!(level_offset(&shape, 1), Some(second));
        assert_eq!(level_offset(&shape, 3), None);
        let object = texture(Resource::Mipmapped { array: 1 }, Sampler::default());
        let bytes = describe(&object, Some((0x1_0000, shape))).unwrap_or([0; DESCRIPTION_BYTES]);
        assert_eq!((bytes[0], bytes[1], bytes[2]), (4, FLOAT, 2));
        assert_eq!(word(&bytes, NUM_LEVELS), 3);
        let at = LEVELS + LEVEL_BYTES;
        assert_eq!(u64::from(word(&bytes, at)), 0x1_0000 + second);
        let sizes: Vec<u32> = (4..8).map(|number| word(&bytes, at + 4 * number)).collect();
        assert_eq!(sizes, [32, 4, 2, 3]);
    }

    #[test]
    fn small_integers_are_read_as_parts_unless_as_integers() {
        let linear = Resource::Linear {
            addr: 0x1000,
            format: 1,
            channels: 4,
            size_bytes: 64,
        };
        let described = |flags, filter_mode| {
            let sampler = Sampler {
                flags,
                filter_mode,
                ..Sampler::default()
            };
            describe(&texture(linear, sampler), None).map(|bytes| word(&bytes, FLAGS))
        };
        assert_eq!(described(0, 1), Some(NORMALIZED_READS | LINEAR | BEYOND_IS_ZERO));
        assert_eq!(described(READ_AS_INTEGER, 0), Some(BEYOND_IS_ZERO));
        // There is nothing between integers, and colours are not modelled.
        assert_eq!((described(READ_AS_INTEGER, 1), described(0x10, 0)), (None, None));
    }

    #[test]
    fn views_of_parts_are_not_modelled() {
        let rows = Resource::Rows {
            addr: 0x1000,
            format: 0x20,
            channels: 1,
            width: 16,
            height: 2,
            pitch: 64,
        };
        let seen = |format, size| {
            let object = ImageObject::Texture {
                resource: rows,
                sampler: Sampler::default(),
                view: Some(ResourceView {
                    format,
                    size,
                    levels: [0; 2],
                    layers: [0; 2],
                }),
            };
            describe(&object, None).is_some()
        };
        assert!(seen(0, [16, 2, 0]) && !seen(0, [8, 2, 0]) && !seen(1, [16, 2, 0]));
    }
}
