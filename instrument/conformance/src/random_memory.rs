//! Memory of random kernels: operands, output that is compared, and behind it what kernels need besides: images'
//! descriptions, a heap, words by which the grid's blocks meet.

use hetckpt_abi::array::ArrayShape;
use hetckpt_abi::image_object::{ImageObject, Resource, Sampler};
use hetckpt_abi::software_image::{DESCRIPTION_BYTES, describe};
use hetckpt_abi::{device_heap, launch_shape};

/// Blocks of the grid.
pub const BLOCKS: u32 = 3;
/// Threads of a block: two warps.
pub const THREADS: u32 = 64;
/// All of them.
pub const GRID_THREADS: u32 = BLOCKS * THREADS;
/// Bytes of operands of a thread.
pub const OPERAND_BYTES: u32 = 32;
/// Bytes that a thread's forms work on, and a row of the surface.
pub const SLOT_BYTES: u32 = crate::form_scope::SLOT_BYTES;
/// 64-bit results of a thread.
pub const VALUES: u32 = 6;
/// 64-bit words that all threads add to.
pub const COUNTERS: u32 = 16;

/// Offset in the output of the threads' slots.
pub const SLOTS: u32 = GRID_THREADS * 8 * VALUES;
/// Offset in the output of the counters.
pub const COUNTED: u32 = SLOTS + GRID_THREADS * SLOT_BYTES;
/// Bytes of output that is compared; the rest may be another each time.
pub const COMPARED_BYTES: u32 = COUNTED + 8 * COUNTERS;

/// Offset in the output of the description of image `number`: a filtered texture, a plain one, a surface.
#[must_use]
pub const fn image(number: u32) -> u32 {
    COMPARED_BYTES.next_multiple_of(4096) + number * IMAGE_BYTES
}

const IMAGE_BYTES: u32 = (DESCRIPTION_BYTES as u32).next_multiple_of(16);
const NUM_IMAGES: u32 = 3;
/// Offset in the output of the word by which the blocks of the grid meet.
pub const WORKSPACE: u32 = image(NUM_IMAGES);
/// Offset in the output of the variable with the heap's address.
const HEAP_VARIABLE: u32 = WORKSPACE + 8;
/// Offset in the output of 64 bits for each thread, for others to read behind a barrier of the grid.
pub const EXCHANGED: u32 = HEAP_VARIABLE + 8;
const HEAP: u32 = (EXCHANGED + 8 * GRID_THREADS).next_multiple_of(4096);
/// More than all threads hold at once, in blocks of any size that they ask for.
const HEAP_BYTES: u32 = 1 << 19;

/// Bytes of operands, of any content.
pub const OPERANDS_BYTES: u32 = GRID_THREADS * OPERAND_BYTES;
/// Bytes of output.
pub const OUTPUT_BYTES: u32 = HEAP + HEAP_BYTES;

/// The shape of a launch; its blocks are resident together if they meet.
#[must_use]
pub const fn shape(is_cooperative: bool) -> launch_shape::LaunchShape {
    let mut shape = launch_shape::LaunchShape::new([BLOCKS, 1, 1], [THREADS, 1, 1]);
    shape.cooperative = is_cooperative;
    shape
}

/// A variable's address, if it is one that kernels have not defined themselves.
#[must_use]
pub fn variable(name: &str, output_at: u64) -> Option<u64> {
    (name == device_heap::NAME).then_some(output_at + u64::from(HEAP_VARIABLE))
}

/// The output before a launch, where operands and output lie at these addresses.
///
/// # Panics
/// If an image is not modelled.
#[must_use]
pub fn before(operands_at: u64, output_at: u64) -> Vec<u8> {
    const UNSIGNED_8: u32 = 1;
    const UNSIGNED_32: u32 = 3;
    const READ_AS_INTEGER: u32 = 1;
    let mut bytes = vec![0; OUTPUT_BYTES as usize];
    let mut put = |at: u32, field: &[u8]| bytes[at as usize..][..field.len()].copy_from_slice(field);
    let rows = |format, channels| Resource::Rows {
        addr: operands_at,
        format,
        channels,
        width: (OPERAND_BYTES / 4).into(),
        height: GRID_THREADS.into(),
        pitch: OPERAND_BYTES.into(),
    };
    let filtered = Sampler {
        address_modes: [1; 3],
        filter_mode: 1,
        ..Sampler::default()
    };
    let plain = Sampler {
        address_modes: [3; 3],
        flags: READ_AS_INTEGER,
        border_color: [7, 8, 9, 10],
        ..Sampler::default()
    };
    let texture = |resource, sampler| ImageObject::Texture {
        resource,
        sampler,
        view: None,
    };
    let slots = ArrayShape {
        size: [(SLOT_BYTES / 4).into(), GRID_THREADS.into(), 0],
        format: UNSIGNED_32,
        channels: 1,
        flags: 0,
        levels: 0,
    };
    let surface = ImageObject::Surface {
        resource: Resource::Array { array: 1, level: 0 },
    };
    let images = [
        (texture(rows(UNSIGNED_8, 4), filtered), None),
        (texture(rows(UNSIGNED_32, 1), plain), None),
        (surface, Some((output_at + u64::from(SLOTS), slots))),
    ];
    for (number, (object, array)) in (0..NUM_IMAGES).zip(images) {
        put(image(number), &describe(&object, array).unwrap());
    }
    put(HEAP_VARIABLE, &(output_at + u64::from(HEAP)).to_le_bytes());
    put(
        HEAP + device_heap::USED,
        &u64::from(device_heap::HEADER_BYTES).to_le_bytes(),
    );
    put(HEAP + device_heap::SIZE, &u64::from(HEAP_BYTES).to_le_bytes());
    bytes
}
