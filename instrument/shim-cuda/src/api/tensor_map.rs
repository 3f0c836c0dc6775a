//! Tensor maps: what kernels of machine code take to copy tiles. The device's driver makes them.

use hetckpt_abi::tensor_map::{MAX_RANK, TENSOR_MAP_BYTES, TensorMap};
use hetckpt_ring::command::Command;
use hetckpt_ring::reply::Reply;

use crate::pointers::{In, Out};
use crate::result::{CuResult, Outcome};
use crate::session::Session;

entry_points! {
    working cuTensorMapEncodeTiled "cuTensorMapEncodeTiled" 12000
        (map: Out<[u8; TENSOR_MAP_BYTES]>, data_type: u32, rank: u32, address: u64, sizes: In<u64>, strides: In<u64>,
         tile: In<u32>, element_strides: In<u32>, interleave: u32, swizzle: u32, l2_promotion: u32, fill: u32)
        => encode_tiled;
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
fn encode_tiled(
    session: &Session,
    map: Out<[u8; TENSOR_MAP_BYTES]>,
    data_type: u32,
    rank: u32,
    address: u64,
    sizes: In<u64>,
    strides: In<u64>,
    tile: In<u32>,
    element_strides: In<u32>,
    interleave: u32,
    swizzle: u32,
    l2_promotion: u32,
    fill: u32,
) -> Outcome {
    let count = rank as usize;
    if !(1..=MAX_RANK).contains(&count) || map.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let asked = TensorMap {
        data_type,
        rank,
        address,
        sizes: first(sizes, count)?,
        strides: first(strides, count - 1)?,
        tile: first(tile, count)?,
        element_strides: first(element_strides, count)?,
        interleave,
        swizzle,
        l2_promotion,
        fill,
    };
    let answer = session.device.call_raw(Command::EncodeTensorMap(Box::new(asked)))?;
    match answer.reply {
        Reply::TensorMap(encoded) if answer.result == 0 => map.set(*encoded),
        _ => Err(CuResult(answer.result.max(1))),
    }
}

/// The first `count` elements; 0 for the others.
fn first<T: Copy + Default>(list: In<T>, count: usize) -> Outcome<[T; MAX_RANK]> {
    let mut elements = [T::default(); MAX_RANK];
    for (at, element) in elements.iter_mut().enumerate().take(count) {
        *element = list.nth(at)?;
    }
    Ok(elements)
}
