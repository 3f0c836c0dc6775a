//! The heap of kernels ([`hetckpt_abi::device_heap`]): device memory that is set aside when the first module is loaded
//! that needs it, as large as the program's limit says then (`cudaLimitMallocHeapSize`).

pub mod place;

use hetckpt_abi::device_heap as layout;
use hetckpt_ring::command::{Command, DeviceIndex, FillValue, Rows, StreamId};
use hetckpt_ring::reply::{ModuleDescription, Reply};

use crate::device::Device;
use crate::log;
use crate::result::{CuResult, Outcome};

use place::Place;

/// Tells a module that needs it where the heap is. Without one, `malloc` in its kernels returns NULL.
pub fn note(device: &Device, description: &ModuleDescription) {
    let Some(variable) = description.globals.iter().find(|global| global.name == layout::NAME) else {
        return;
    };
    let told = device.new_stream().and_then(|stream| {
        let told = heap(device, stream).and_then(|heap| write(device, stream, variable.addr, heap));
        device.send(Command::StreamDestroy { stream })?;
        told
    });
    if let Err(error) = told {
        log::note(&format!(
            "no memory for the heap of kernels ({error:?}): `malloc` in them returns NULL"
        ));
    }
}

fn heap(device: &Device, stream: StreamId) -> Outcome<u64> {
    let mut place = device.heap.place();
    let generation = device.generation();
    if let Some(place) = place.filter(|place| place.generation == generation) {
        return Ok(place.addr);
    }
    let size_bytes = layout::heap_bytes(device.heap.limit());
    let answer = device.call_raw(Command::Malloc {
        size_bytes,
        device: DeviceIndex::FIRST,
    })?;
    let Reply::Address(addr) = device.outcome(answer)? else {
        return Err(CuResult::UNKNOWN);
    };
    device.send(Command::Fill {
        stream,
        dst: Rows::range(addr, layout::HEADER_BYTES.into()),
        value: FillValue::U8(0),
    })?;
    write(
        device,
        stream,
        addr + u64::from(layout::USED),
        layout::HEADER_BYTES.into(),
    )?;
    write(device, stream, addr + u64::from(layout::SIZE), size_bytes)?;
    *place = Some(Place { generation, addr });
    Ok(addr)
}

/// Writes a number; it is there when this returns.
fn write(device: &Device, stream: StreamId, addr: u64, value: u64) -> Outcome {
    for (at, half) in [(0, value), (4, value >> 32)] {
        device.send(Command::Fill {
            stream,
            dst: Rows::range(addr + at, 4),
            value: FillValue::U32(half as u32),
        })?;
    }
    let answer = device.call_raw(Command::StreamSynchronize { stream })?;
    device.outcome(answer).map(|_| ())
}
