//! How long the image of a module is: programs pass only its address. The image is the program's own memory, so its
//! headers are believed as far as the program could believe them itself.

use crate::link;
use crate::pointers::HostMemory;
use crate::result::{CuResult, Outcome};

const WRAPPER_MAGIC: u32 = 0x4662_43B1;
const FATBIN_MAGIC: u32 = 0xBA55_ED50;
/// Longest PTX text that is looked for its end.
const MAX_TEXT_BYTES: usize = 1 << 30;

/// A part of an image: where, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Address.
    pub addr: u64,
    /// Length.
    pub length: usize,
}

impl Part {
    /// The bytes.
    pub fn bytes<'a>(self) -> &'a [u8] {
        HostMemory::bytes(self.addr, self.length)
    }
}

/// The parts of the image at `addr`: one, or the fatbins of a device-linked program.
pub fn parts(addr: u64) -> Outcome<Vec<Part>> {
    if addr == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let head = HostMemory::bytes(addr, 4);
    match word(head, 0) {
        WRAPPER_MAGIC => wrapper(addr),
        FATBIN_MAGIC => Ok(vec![fatbin(addr)]),
        link::MAGIC => linked(addr),
        _ if head == b"\x7fELF" => Ok(vec![elf(addr)?]),
        _ if head[0].is_ascii_graphic() || head[0].is_ascii_whitespace() => Ok(vec![text(addr)?]),
        _ => Err(CuResult::INVALID_IMAGE),
    }
}

/// The parts of a file's bytes, which are the image without a wrapper.
pub fn whole(bytes: &[u8]) -> Vec<Part> {
    vec![Part {
        addr: bytes.as_ptr().expose_provenance() as u64,
        length: bytes.len(),
    }]
}

fn wrapper(addr: u64) -> Outcome<Vec<Part>> {
    let bytes = HostMemory::bytes(addr, 24);
    let pointer = |at: usize| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
    let (main, list) = (pointer(8), pointer(16));
    if main == 0 {
        return Err(CuResult::INVALID_IMAGE);
    }
    let main = fatbin(main);
    if word(bytes, 4) != 2 || list == 0 || has_entries(main) {
        return Ok(vec![main]);
    }
    let mut parts = Vec::new();
    for index in 0_u64.. {
        let place = HostMemory::bytes(list + index * 8, 8);
        match u64::from(word(place, 0)) | u64::from(word(place, 4)) << 32 {
            0 => break,
            part => parts.push(fatbin(part)),
        }
    }
    Ok(parts.into_iter().filter(|&part| has_entries(part)).collect())
}

fn has_entries(part: Part) -> bool {
    part.length > 16
}

/// What [`link`] has put together: each part is an image without a wrapper, or a static library of the host.
fn linked(addr: u64) -> Outcome<Vec<Part>> {
    let count = word(HostMemory::bytes(addr, 8), 4);
    let mut at = addr + 8;
    let mut all = Vec::new();
    for _ in 0..count {
        let place = HostMemory::bytes(at, 8);
        let length = u64::from(word(place, 0)) | u64::from(word(place, 4)) << 32;
        let part = Part {
            addr: at + 8,
            length: length as usize,
        };
        match part.bytes().starts_with(b"!<arch>\n") {
            true => all.push(part),
            false => all.extend(parts(part.addr)?),
        }
        at += 8 + length;
    }
    Ok(all)
}

fn fatbin(addr: u64) -> Part {
    let header = HostMemory::bytes(addr, 16);
    let header_bytes = u64::from(word(header, 4) >> 16);
    let body = u64::from(word(header, 8)) | u64::from(word(header, 12)) << 32;
    Part {
        addr,
        length: (header_bytes + body) as usize,
    }
}

/// A cubin ends with its section or program headers, or with a section.
fn elf(addr: u64) -> Outcome<Part> {
    let header = HostMemory::bytes(addr, 64);
    let long = |bytes: &[u8], at: usize| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    if header[4] != 2 {
        return Err(CuResult::INVALID_IMAGE);
    }
    let (program_offset, section_offset) = (long(header, 32), long(header, 40));
    let (program_size, num_programs, section_size, num_sections) = (half(54), half(56), half(58), half(60));
    let mut end = (program_offset + program_size * num_programs).max(section_offset + section_size * num_sections);
    for index in 0..num_sections {
        let section = HostMemory::bytes(addr + section_offset + index * section_size, 64);
        const NOBITS: u32 = 8;
        if word(section, 4) != NOBITS {
            end = end.max(long(section, 24) + long(section, 32));
        }
    }
    Ok(Part {
        addr,
        length: end as usize,
    })
}

fn text(addr: u64) -> Outcome<Part> {
    for length in 0..MAX_TEXT_BYTES {
        if HostMemory::bytes(addr + length as u64, 1)[0] == 0 {
            return Ok(Part { addr, length });
        }
    }
    Err(CuResult::INVALID_IMAGE)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    (0..4).fold(0, |word, i| word | u32::from(bytes[at + i]) << (8 * i))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn address(bytes: &[u8]) -> u64 {
        bytes.as_ptr().expose_provenance() as u64
    }

    fn fatbin_of(length: usize) -> Vec<u8> {
        let mut bytes = FATBIN_MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((length as u64).to_le_bytes());
        bytes.resize(16 + length, 7);
        bytes
    }

    fn wrapper_of(version: u32, main: u64, list: u64) -> Vec<u8> {
        let mut bytes = WRAPPER_MAGIC.to_le_bytes().to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(main.to_le_bytes());
        bytes.extend(list.to_le_bytes());
        bytes
    }

    #[test]
    fn follows_the_wrapper() {
        let fatbin = fatbin_of(80);
        let wrapper = wrapper_of(1, address(&fatbin), 0);
        assert_eq!(
            parts(address(&wrapper)).unwrap(),
            [Part {
                addr: address(&fatbin),
                length: 96
            }]
        );
        assert_eq!(
            parts(address(&fatbin)).unwrap(),
            [Part {
                addr: address(&fatbin),
                length: 96
            }]
        );
    }

    #[test]
    fn lists_the_fatbins_of_a_device_linked_program() {
        let (empty, a, b) = (fatbin_of(0), fatbin_of(8), fatbin_of(24));
        let list: Vec<u8> = [address(&a), address(&empty), address(&b), 0]
            .iter()
            .flat_map(|p| p.to_le_bytes())
            .collect();
        let wrapper = wrapper_of(2, address(&empty), address(&list));
        let lengths: Vec<usize> = parts(address(&wrapper))
            .unwrap()
            .iter()
            .map(|part| part.length)
            .collect();
        assert_eq!(lengths, [24, 40]);
        let linked = wrapper_of(2, address(&a), address(&list));
        assert_eq!(parts(address(&linked)).unwrap().len(), 1);
    }

    #[test]
    fn text_ends_at_its_zero() {
        assert_eq!(parts(address(b".version 8.0\0rest\0")).unwrap()[0].length, 12);
        assert_eq!(parts(address(b"\x01\x02\x03\x04")), Err(CuResult::INVALID_IMAGE));
        assert_eq!(parts(0), Err(CuResult::INVALID_VALUE));
    }
}
