//! Arrays of a device (`CUarray`, `CUmipmappedArray`), and copies of boxes of their elements.
//!
//! An array lies where and how the device likes, and has no address; it is known by a number that the application has
//! given it.
//!
//! # Source
//! CUDA driver API, `CUDA_ARRAY3D_DESCRIPTOR` and `CUDA_MEMCPY3D`.

use bincode::{Decode, Encode};

/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers.
pub const LAYERED: u32 = 1;
/// `CUDA_ARRAY3D_SURFACE_LDST`: surface objects are made of it.
pub const SURFACE_LOAD_STORE: u32 = 2;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth counts faces.
pub const CUBEMAP: u32 = 4;
/// `CUDA_ARRAY3D_TEXTURE_GATHER`.
pub const TEXTURE_GATHER: u32 = 8;
/// The flags of arrays that can be made. The others name memory of graphics, and memory that comes later.
pub const KNOWN_FLAGS: u32 = LAYERED | SURFACE_LOAD_STORE | CUBEMAP | TEXTURE_GATHER;

/// Most elements of a dimension, far above what any device has.
const MAX_SIZE: u64 = 1 << 28;
/// Most levels of a mipmapped array.
const MAX_LEVELS: u32 = 32;
/// Most bytes of an array, far above what any device has.
const MAX_BYTES: u64 = 1 << 40;

/// What an array is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ArrayShape {
    /// Elements, x first; 0 for a dimension that it does not have.
    pub size: [u64; 3],
    /// `CUarray_format`.
    pub format: u32,
    /// Components of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_…`.
    pub flags: u32,
    /// Levels of a mipmapped array; 0 for a plain one.
    pub levels: u32,
}

/// Size of a box of elements without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BoxSize {
    /// Bytes of a row.
    pub width_bytes: u64,
    /// Rows of a slice.
    pub rows: u64,
    /// Slices: layers and faces, too.
    pub slices: u64,
}

impl BoxSize {
    /// Bytes of all of it; `None` if they are more than there can be.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.width_bytes.checked_mul(self.rows)?.checked_mul(self.slices)
    }
}

/// Bytes of an element; `None` if its format is not one of plain integers or floating-point numbers.
#[must_use]
pub fn element_bytes(format: u32, channels: u32) -> Option<u64> {
    let component = match format {
        // CU_AD_FORMAT_(UN)SIGNED_INT8, …INT16 and HALF, …INT32 and FLOAT.
        1 | 8 => 1,
        2 | 9 | 0x10 => 2,
        3 | 0xa | 0x20 => 4,
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then(|| component * u64::from(channels))
}

impl ArrayShape {
    /// Bytes of an element; `None` if its format is not known.
    #[must_use]
    pub fn element_bytes(&self) -> Option<u64> {
        element_bytes(self.format, self.channels)
    }

    /// Number of levels; a plain array counts as one.
    #[must_use]
    pub fn num_levels(&self) -> u32 {
        self.levels.max(1)
    }

    /// A level as a plain array.
    #[must_use]
    pub fn plain_level(&self, level: u32) -> Self {
        let halved = |size: u64| {
            if size == 0 {
                0
            } else {
                size.checked_shr(level).unwrap_or(0).max(1)
            }
        };
        let [width, height, depth] = self.size;
        let depth = if self.is_stack() { depth } else { halved(depth) };
        Self {
            size: [halved(width), halved(height), depth],
            levels: 0,
            ..*self
        }
    }

    /// True if the depth counts layers or faces, of which all levels have as many.
    #[must_use]
    pub fn is_stack(&self) -> bool {
        self.flags & (LAYERED | CUBEMAP) != 0
    }

    /// The elements of a level; `None` if there is none, or the shape is none that can be made.
    #[must_use]
    pub fn level(&self, level: u32) -> Option<BoxSize> {
        let is_known = self.flags & !KNOWN_FLAGS == 0;
        let fits = self.size[0] > 0 && self.size.iter().all(|&size| size <= MAX_SIZE) && self.levels <= MAX_LEVELS;
        if !is_known || !fits || level >= self.num_levels() {
            return None;
        }
        let [width, height, depth] = self.plain_level(level).size;
        let of_level = BoxSize {
            width_bytes: width * self.element_bytes()?,
            rows: height.max(1),
            slices: depth.max(1),
        };
        of_level.bytes().filter(|&bytes| bytes <= MAX_BYTES).map(|_| of_level)
    }

    /// Bytes of all levels without gaps; `None` if the shape is none that can be made.
    #[must_use]
    pub fn content_bytes(&self) -> Option<u64> {
        let mut levels = (0..self.num_levels()).map(|level| self.level(level)?.bytes());
        levels.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
    }
}

/// Where a box of elements lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum BoxPlace {
    /// In an array.
    Array {
        /// The application's number of it.
        array: u64,
        /// Level of a mipmapped array; 0 in a plain one.
        level: u32,
        /// First byte of each row.
        x_bytes: u64,
        /// First row.
        y: u64,
        /// First slice.
        z: u64,
    },
    /// In device memory or pinned memory.
    Memory {
        /// Address of the first row.
        addr: u64,
        /// From row to row, bytes.
        pitch: u64,
        /// Rows from slice to slice.
        slice_rows: u64,
    },
}

/// A copy of a box of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BoxCopy {
    /// Where to.
    pub dst: BoxPlace,
    /// Where from.
    pub src: BoxPlace,
    /// How much.
    pub size: BoxSize,
}

impl BoxPlace {
    /// Number of the array that it lies in.
    #[must_use]
    pub fn array(&self) -> Option<u64> {
        match self {
            Self::Array { array, .. } => Some(*array),
            Self::Memory { .. } => None,
        }
    }

    /// True if a box of `size` lies within an array of `shape` from here on, in whole elements.
    #[must_use]
    pub fn fits_array(&self, size: &BoxSize, shape: &ArrayShape) -> bool {
        let Self::Array {
            level, x_bytes, y, z, ..
        } = *self
        else {
            return false;
        };
        let (Some(all), Some(element)) = (shape.level(level), shape.element_bytes()) else {
            return false;
        };
        let ends_by = |first: u64, count: u64, end: u64| first.checked_add(count).is_some_and(|last| last <= end);
        x_bytes.is_multiple_of(element)
            && size.width_bytes.is_multiple_of(element)
            && ends_by(x_bytes, size.width_bytes, all.width_bytes)
            && ends_by(y, size.rows, all.rows)
            && ends_by(z, size.slices, all.slices)
    }

    /// Bytes of memory from the first of a box of `size` to its last. `None` for a place in an array, and if rows or
    /// slices lie one upon another, or beyond all addresses.
    #[must_use]
    pub fn span_bytes(&self, size: &BoxSize) -> Option<u64> {
        let Self::Memory {
            addr,
            pitch,
            slice_rows,
        } = *self
        else {
            return None;
        };
        let overlaps = (size.rows > 1 || size.slices > 1) && pitch < size.width_bytes;
        if overlaps || size.slices > 1 && slice_rows < size.rows {
            return None;
        }
        let slices = size.slices.checked_sub(1)?.checked_mul(slice_rows)?;
        let rows = slices.checked_add(size.rows.checked_sub(1)?)?;
        let span = rows.checked_mul(pitch)?.checked_add(size.width_bytes)?;
        addr.checked_add(span).map(|_| span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(size: [u64; 3], flags: u32, levels: u32) -> ArrayShape {
        ArrayShape {
            size,
            format: 0x20,
            channels: 2,
            flags,
            levels,
        }
    }

    fn size(width_bytes: u64, rows: u64, slices: u64) -> BoxSize {
        BoxSize {
            width_bytes,
            rows,
            slices,
        }
    }

    #[test]
    fn levels_halve_what_is_no_layer() {
        assert_eq!(shape([5, 0, 0], 0, 0).level(0), Some(size(40, 1, 1)));
        assert_eq!(shape([5, 4, 3], 0, 2).level(1), Some(size(16, 2, 1)));
        assert_eq!(shape([5, 4, 3], LAYERED, 2).level(1), Some(size(16, 2, 3)));
        assert_eq!(shape([5, 4, 3], 0, 0).level(1), None);
        assert_eq!(shape([5, 4, 3], 0, 2).content_bytes(), Some(40 * 4 * 3 + 16 * 2));
    }

    #[test]
    fn shapes_that_cannot_be_are_known() {
        for impossible in [
            shape([0, 4, 4], 0, 0),
            shape([MAX_SIZE; 3], 0, 0),
            shape([u64::MAX; 3], 0, 0),
            shape([4, 4, 0], 0x40, 0),
            shape([4, 4, 0], 0, MAX_LEVELS + 1),
            ArrayShape {
                channels: 3,
                ..shape([4, 4, 0], 0, 0)
            },
            ArrayShape {
                format: 0xb0,
                ..shape([4, 4, 0], 0, 0)
            },
        ] {
            assert_eq!(impossible.content_bytes(), None, "{impossible:?}");
        }
    }

    #[test]
    fn boxes_lie_within_their_array_in_whole_elements() {
        let shape = shape([16, 8, 4], 0, 0);
        let at = |x_bytes, y, z| BoxPlace::Array {
            array: 1,
            level: 0,
            x_bytes,
            y,
            z,
        };
        assert!(at(0, 0, 0).fits_array(&size(128, 8, 4), &shape));
        assert!(at(8, 1, 1).fits_array(&size(120, 7, 3), &shape));
        assert!(!at(8, 0, 0).fits_array(&size(128, 8, 4), &shape));
        assert!(!at(4, 0, 0).fits_array(&size(8, 1, 1), &shape));
        assert!(!at(0, 0, 0).fits_array(&size(12, 1, 1), &shape));
        assert!(!at(0, u64::MAX, 0).fits_array(&size(8, 2, 1), &shape));
    }

    #[test]
    fn memory_of_a_box_ends_with_its_last_row() {
        let at = |addr, pitch, slice_rows| BoxPlace::Memory {
            addr,
            pitch,
            slice_rows,
        };
        assert_eq!(at(0, 16, 5).span_bytes(&size(8, 4, 3)), Some(16 * (2 * 5 + 3) + 8));
        assert_eq!(at(0, 4, 5).span_bytes(&size(8, 4, 3)), None);
        assert_eq!(at(0, 16, 3).span_bytes(&size(8, 4, 3)), None);
        assert_eq!(at(u64::MAX - 4, 16, 4).span_bytes(&size(8, 1, 1)), None);
        assert_eq!(at(0, 0, 0).span_bytes(&size(8, 1, 1)), Some(8));
    }
}
