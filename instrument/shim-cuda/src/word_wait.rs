//! A wait for a word of memory in a stream's order (`cuStreamWaitValue32`). The stream waits as it does for a function
//! of the program; a thread of ours looks at the word, so that a pause finds nothing that it would have to wait for.
#![allow(unsafe_code, reason = "reads memory that others write")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hetckpt_ring::command::{Command, StreamId};

use crate::device::Device;
use crate::memory_map::RangeKind;
use crate::result::{CuResult, Outcome};

/// What the word is to be (CUDA driver API, `CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Not below the value, where numbers go round.
    NotBelow,
    /// The value.
    Equal,
    /// It has a bit of the value.
    HasBit,
    /// Neither has some bit.
    LacksBit,
}

impl Condition {
    /// By the flags of a call. That remote writes be flushed as well is not offered.
    pub fn of(flags: u32) -> Outcome<Self> {
        match flags {
            0 => Ok(Self::NotBelow),
            1 => Ok(Self::Equal),
            2 => Ok(Self::HasBit),
            3 => Ok(Self::LacksBit),
            _ => Err(CuResult::NOT_SUPPORTED),
        }
    }

    fn holds(self, word: Word, value: Word) -> bool {
        let word_bits = word.bits();
        let value_bits = value.bits();
        match self {
            Self::NotBelow => word.is_not_below(value),
            Self::Equal => word_bits == value_bits,
            Self::HasBit => word_bits & value_bits != 0,
            Self::LacksBit => !(word_bits | value_bits) & word.all() != 0,
        }
    }
}

/// A word of either size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// 32 bits.
    Short(u32),
    /// 64 bits.
    Long(u64),
}

impl Word {
    fn bits(self) -> u64 {
        match self {
            Self::Short(word) => word.into(),
            Self::Long(word) => word,
        }
    }

    fn all(self) -> u64 {
        match self {
            Self::Short(_) => u32::MAX.into(),
            Self::Long(_) => u64::MAX,
        }
    }

    fn is_not_below(self, value: Self) -> bool {
        match (self, value) {
            (Self::Short(word), Self::Short(value)) => word.wrapping_sub(value).cast_signed() >= 0,
            (word, value) => word.bits().wrapping_sub(value.bits()).cast_signed() >= 0,
        }
    }

    fn size_bytes(self) -> u64 {
        match self {
            Self::Short(_) => 4,
            Self::Long(_) => 8,
        }
    }
}

/// How the word is read.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// It lies in this process.
    Host(u64),
    /// Device memory, read in a stream of its own.
    Device(u64, StreamId),
}

/// A wait.
#[derive(Clone, Copy, Debug)]
pub struct WordWait {
    place: Place,
    condition: Condition,
    value: Word,
    /// That of the device: a reset ends the wait.
    generation: u64,
}

impl WordWait {
    /// A wait for the word at `addr`.
    pub fn new(device: &Device, addr: u64, condition: Condition, value: Word) -> Outcome<Self> {
        let size = value.size_bytes();
        if !addr.is_multiple_of(size) {
            return Err(CuResult::INVALID_VALUE);
        }
        let range = device.memory().find(addr).ok_or(CuResult::INVALID_VALUE)?;
        let place = match range.kind {
            RangeKind::Pinned { .. } | RangeKind::Managed | RangeKind::Registered { .. } => Place::Host(addr),
            _ => Place::Device(addr, device.new_stream()?),
        };
        Ok(Self {
            place,
            condition,
            value,
            generation: device.generation(),
        })
    }

    /// True if the wait is over, also because the word can no longer be read.
    pub fn is_over(&self, device: &Device) -> bool {
        if device.generation() != self.generation {
            return true;
        }
        let word = match self.place {
            Place::Host(addr) => Some(self.read(addr)),
            Place::Device(addr, stream) => self.fetch(device, addr, stream),
        };
        let is_over = word.is_none_or(|word| self.condition.holds(word, self.value));
        if let Place::Device(_, stream) = self.place
            && is_over
        {
            let _ = device.send(Command::StreamDestroy { stream });
        }
        is_over
    }

    fn read(&self, addr: u64) -> Word {
        let at = std::ptr::with_exposed_provenance_mut::<u64>(addr as usize);
        match self.value {
            // SAFETY: memory that the program has promised to keep until the wait is over, aligned.
            Word::Short(_) => Word::Short(unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::Acquire)),
            // SAFETY: as above.
            Word::Long(_) => Word::Long(unsafe { AtomicU64::from_ptr(at) }.load(Ordering::Acquire)),
        }
    }

    fn fetch(&self, device: &Device, addr: u64, stream: StreamId) -> Option<Word> {
        let bytes = device.fetch(stream, addr, self.value.size_bytes())?;
        Some(match self.value {
            Word::Short(_) => Word::Short(u32::from_le_bytes(bytes.try_into().ok()?)),
            Word::Long(_) => Word::Long(u64::from_le_bytes(bytes.try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_the_driver() {
        let holds = |condition: Condition, word: u32, value: u32| {
            let short = condition.holds(Word::Short(word), Word::Short(value));
            let long = |word: u32| Word::Long(u64::from(word) | u64::from(word) << 32);
            assert_eq!(
                short,
                condition.holds(long(word), long(value)),
                "{condition:?} {word} {value}"
            );
            short
        };
        assert!(
            holds(Condition::NotBelow, 5, 5) && holds(Condition::NotBelow, 6, 5) && !holds(Condition::NotBelow, 4, 5)
        );
        // Numbers go round.
        assert!(holds(Condition::NotBelow, 2, u32::MAX) && !holds(Condition::NotBelow, u32::MAX, 2));
        assert!(holds(Condition::Equal, 7, 7) && !holds(Condition::Equal, 7, 6));
        assert!(holds(Condition::HasBit, 6, 2) && !holds(Condition::HasBit, 6, 1));
        assert!(holds(Condition::LacksBit, 6, 1) && !holds(Condition::LacksBit, u32::MAX - 1, 1));
        assert!([4, 1 << 30].map(Condition::of).iter().all(Result::is_err));
    }
}
