//! What kernels print (`printf`, failed assertions). It gathers in variables of their modules
//! ([`hetckpt_abi::device_output`]) and is taken from there when the program synchronises, as CUDA promises (CUDA C++
//! Programming Guide, "Formatted Output"). Kernels of machine code print by the driver ([`machine_code`]).

pub mod buffers;
mod c_library;
mod format;
mod machine_code;
mod records;

use hetckpt_abi::device_output as layout;
use hetckpt_ring::command::{Command, Payload, Rows, StreamId};
use hetckpt_ring::layout::CHUNK_BYTES;
use hetckpt_ring::reply::ModuleDescription;

use crate::device::Device;
use crate::log;

use buffers::Buffer;
use format::DeviceStrings;
use records::{Header, Record};

/// The longest string that is fetched for one `%s`, or as a format.
const MAX_STRING_BYTES: u64 = 64 << 10;
/// What is fetched of a string at a time.
const STRING_PIECE_BYTES: u64 = 256;

/// Notes the buffers among a module's variables.
pub fn note(device: &Device, description: &ModuleDescription) {
    for global in &description.globals {
        let Some(record_bytes) = layout::record_bytes_of(&global.name) else {
            continue;
        };
        device.output.add(global.addr, || {
            Some(Buffer {
                addr: global.addr,
                record_bytes,
                stream: device.new_stream().ok()?,
                printed: 0,
                num_lost: 0,
            })
        });
    }
}

/// Forgets a module's buffers.
pub fn forget(device: &Device, description: &ModuleDescription) {
    let is_gone = |buffer: &Buffer| description.globals.iter().any(|global| global.addr == buffer.addr);
    device.output.lock().retain(|buffer| {
        let is_gone = is_gone(buffer);
        if is_gone {
            let _ = device.send(Command::StreamDestroy { stream: buffer.stream });
        }
        !is_gone
    });
}

/// Prints what has gathered. What cannot be fetched is left for another time.
pub fn print(device: &Device) {
    machine_code::print(device);
    if !device.output.is_there() {
        return;
    }
    let mut text = Vec::new();
    for buffer in device.output.lock().iter_mut() {
        take(device, buffer, &mut text);
    }
    c_library::write_to_stdout(&text);
}

fn take(device: &Device, buffer: &mut Buffer, text: &mut Vec<u8>) {
    let fetching = Fetching {
        device,
        stream: buffer.stream,
    };
    let Some(header) = fetching.fetch(buffer.addr, layout::HEADER_BYTES.into()) else {
        return;
    };
    let header = Header::new(&header);
    let num_records = layout::num_records(buffer.record_bytes);
    let mut next = buffer.printed;
    while next != header.taken {
        // As many as lie one behind another and fit into a chunk.
        let first = next % num_records;
        let num = header.taken.wrapping_sub(next).min(num_records - first);
        let num = num.min(CHUNK_BYTES as u32 / buffer.record_bytes);
        let at = buffer.addr + u64::from(layout::HEADER_BYTES) + u64::from(first) * u64::from(buffer.record_bytes);
        let Some(bytes) = fetching.fetch(at, u64::from(num) * u64::from(buffer.record_bytes)) else {
            break;
        };
        let before = next;
        for bytes in bytes.chunks_exact(buffer.record_bytes as usize) {
            let Some(record) = Record::written(bytes, next) else {
                break; // A kernel is at it.
            };
            put(&record, &fetching, text);
            next = next.wrapping_add(1);
        }
        if next.wrapping_sub(before) < num {
            break;
        }
    }
    if next != buffer.printed {
        buffer.printed = next;
        fetching.set_printed(buffer.addr, next);
    }
    if header.lost != buffer.num_lost {
        let num = header.lost.wrapping_sub(buffer.num_lost);
        buffer.num_lost = header.lost;
        log::note(&format!(
            "{num} calls of printf in kernels found no room in the buffer; they printed nothing"
        ));
    }
}

fn put(record: &Record<'_>, fetching: &Fetching<'_>, text: &mut Vec<u8>) {
    match record {
        Record::Printed { format, arguments } => match fetching.string(*format) {
            Some(format) => format::append(text, &format, arguments, fetching),
            None => text.extend_from_slice(b"(null)"),
        },
        Record::Asserted(failed) => {
            fetching.device.output.note_assertion();
            c_library::write_to_stdout(text);
            text.clear();
            log::plain(&failed.message(fetching));
        }
    }
}

/// Device memory, read in a stream of our own.
struct Fetching<'s> {
    device: &'s Device,
    stream: StreamId,
}

impl Fetching<'_> {
    fn fetch(&self, addr: u64, length: u64) -> Option<Vec<u8>> {
        self.device.fetch(self.stream, addr, length)
    }

    fn set_printed(&self, buffer: u64, printed: u32) {
        // If it fails, the device has, and nothing more will come.
        let _ = self.device.call_raw(Command::CopyIn {
            stream: self.stream,
            dst: Rows::range(buffer + u64::from(layout::PRINTED), 4),
            data: Payload::Inline(printed.to_le_bytes().to_vec()),
        });
    }
}

impl DeviceStrings for Fetching<'_> {
    fn string(&self, addr: u64) -> Option<Vec<u8>> {
        let range = self.device.memory().find(addr).filter(|range| range.is_device())?;
        let room = (range.size_bytes - (addr - range.addr)).min(MAX_STRING_BYTES);
        let mut string = Vec::new();
        while (string.len() as u64) < room {
            let at = string.len();
            let length = STRING_PIECE_BYTES.min(room - at as u64);
            string.extend(self.fetch(addr + at as u64, length)?);
            if let Some(end) = string[at..].iter().position(|&b| b == 0) {
                string.truncate(at + end);
                break;
            }
        }
        Some(string)
    }
}
