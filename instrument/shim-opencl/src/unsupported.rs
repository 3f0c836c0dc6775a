//! What devices here do not have: images, samplers, sharing with other interfaces, and what came after OpenCL 1.2.

use crate::context::Context;
use crate::handles::{self, Handle};
use crate::pointers::{In, Out};
use crate::status::{Outcome, Status};

entry_points! {
    object clCreateImage2D
        (context: Handle, flags: u64, format: In<u8>, width: usize, height: usize, pitch: usize, host: In<u8>) => image_2d;
    object clCreateImage3D
        (context: Handle, flags: u64, format: In<u8>, width: usize, height: usize, depth: usize, row_pitch: usize,
         slice_pitch: usize, host: In<u8>) => image_3d;
    object clCreateImage(context: Handle, flags: u64, format: In<u8>, description: In<u8>, host: In<u8>) => image;
    object clCreateImageWithProperties
        (context: Handle, properties: In<u64>, flags: u64, format: In<u8>, description: In<u8>, host: In<u8>) => image_of;
    object clCreateSampler(context: Handle, normalized: u32, addressing: u32, filter: u32) => sampler;
    object clCreateSamplerWithProperties(context: Handle, properties: In<u64>) => with_context_and_one;
    object clCreatePipe(context: Handle, flags: u64, packet: u32, count: u32, properties: In<usize>) => pipe;
    object clCreateProgramWithIL(context: Handle, il: In<u8>, length: usize) => program_with_il;
    object clCreateBufferWithProperties
        (context: Handle, properties: In<u64>, flags: u64, size_bytes: usize, host: In<u8>) => buffer_of;
    object clCloneKernel(kernel: Handle) => one;
    object three_arguments(context: Handle, flags: u64, object: usize) => shared_3;
    object five_arguments(context: Handle, a: usize, b: usize, c: usize, d: usize) => shared_5;
    object two_arguments(context: Handle, object: usize) => shared_2;
    object map_image
        (queue: Handle, image: Handle, is_blocking: u32, flags: u64, origin: In<usize>, region: In<usize>,
         row_pitch: Out<usize>, slice_pitch: Out<usize>, num_waits: u32, waits: In<Handle>, event: Out<Handle>) => no_map;
    status clGetSupportedImageFormats
        (context: Handle, flags: u64, kind: u32, room: u32, formats: Out<u8>, count: Out<u32>) => image_formats;
    status no_operation() => refuse;
    status no_sampler() => refuse_sampler;
    status no_memory_object() => refuse_memory;
}

/// Functions whose result is an address, or nothing: NULL.
pub extern "C" fn nothing() -> usize {
    0
}

fn refuse() -> Outcome {
    Err(Status::INVALID_OPERATION)
}

fn refuse_sampler() -> Outcome {
    Err(Status::INVALID_SAMPLER)
}

fn refuse_memory() -> Outcome {
    Err(Status::INVALID_MEM_OBJECT)
}

fn in_context(context: Handle) -> Outcome<Handle> {
    handles::get::<Context>(context)?;
    Err(Status::INVALID_OPERATION)
}

fn image_2d(context: Handle, _: u64, _: In<u8>, _: usize, _: usize, _: usize, _: In<u8>) -> Outcome<Handle> {
    in_context(context)
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn image_3d(
    context: Handle,
    _: u64,
    _: In<u8>,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: In<u8>,
) -> Outcome<Handle> {
    in_context(context)
}

fn image(context: Handle, _: u64, _: In<u8>, _: In<u8>, _: In<u8>) -> Outcome<Handle> {
    in_context(context)
}

fn image_of(context: Handle, _: In<u64>, _: u64, _: In<u8>, _: In<u8>, _: In<u8>) -> Outcome<Handle> {
    in_context(context)
}

fn sampler(context: Handle, _: u32, _: u32, _: u32) -> Outcome<Handle> {
    in_context(context)
}

fn with_context_and_one(context: Handle, _: In<u64>) -> Outcome<Handle> {
    in_context(context)
}

fn pipe(context: Handle, _: u64, _: u32, _: u32, _: In<usize>) -> Outcome<Handle> {
    in_context(context)
}

fn program_with_il(context: Handle, _: In<u8>, _: usize) -> Outcome<Handle> {
    in_context(context)
}

fn buffer_of(context: Handle, _: In<u64>, _: u64, _: usize, _: In<u8>) -> Outcome<Handle> {
    in_context(context)
}

fn one(_: Handle) -> Outcome<Handle> {
    Err(Status::INVALID_OPERATION)
}

fn shared_2(context: Handle, _: usize) -> Outcome<Handle> {
    in_context(context)
}

fn shared_3(context: Handle, _: u64, _: usize) -> Outcome<Handle> {
    in_context(context)
}

fn shared_5(context: Handle, _: usize, _: usize, _: usize, _: usize) -> Outcome<Handle> {
    in_context(context)
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn no_map(
    _: Handle,
    _: Handle,
    _: u32,
    _: u64,
    _: In<usize>,
    _: In<usize>,
    _: Out<usize>,
    _: Out<usize>,
    _: u32,
    _: In<Handle>,
    _: Out<Handle>,
) -> Outcome<Handle> {
    Err(Status::INVALID_OPERATION)
}

/// There are none.
fn image_formats(context: Handle, _: u64, _: u32, _: u32, _: Out<u8>, count: Out<u32>) -> Outcome {
    handles::get::<Context>(context)?;
    count.set(0);
    Ok(())
}
