//! What a program has said of its managed memory. Nothing depends on it here; it is told when the program asks.

use std::collections::BTreeMap;

use crate::result::{CuResult, Outcome};

/// `CUmemLocation`: where memory is, or should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Location {
    kind: u32,
    id: i32,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_INVALID`.
    pub const NOWHERE: Self = Self { kind: 0, id: 0 };
    const DEVICE: u32 = 1;
    const HOST: u32 = 2;
    const HOST_NUMA: u32 = 3;
    const HOST_NUMA_CURRENT: u32 = 4;
    /// `CU_DEVICE_CPU`.
    const CPU: i32 = -1;
    /// `CU_DEVICE_INVALID`.
    const NO_DEVICE: i32 = -2;

    /// A device, or the host as `CU_DEVICE_CPU`.
    pub fn of_device(device: i32) -> Outcome<Self> {
        match device {
            Self::CPU => Ok(Self {
                kind: Self::HOST,
                id: 0,
            }),
            0 => Ok(Self {
                kind: Self::DEVICE,
                id: 0,
            }),
            _ => Err(CuResult::INVALID_DEVICE),
        }
    }

    /// Refuses what is no place.
    pub fn check(self) -> Outcome {
        match (self.kind, self.id) {
            (Self::DEVICE, 0) | (Self::HOST | Self::HOST_NUMA | Self::HOST_NUMA_CURRENT, _) => Ok(()),
            (Self::DEVICE, _) => Err(CuResult::INVALID_DEVICE),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }

    fn as_device(self) -> i32 {
        match self.kind {
            Self::DEVICE => self.id,
            Self::HOST | Self::HOST_NUMA | Self::HOST_NUMA_CURRENT => Self::CPU,
            _ => Self::NO_DEVICE,
        }
    }
}

/// What has been said of an allocation, by its address. Parts are not told apart.
pub type AdviceTable = BTreeMap<u64, Advice>;

/// What has been said of an allocation.
#[derive(Clone, Debug)]
pub struct Advice {
    is_read_mostly: bool,
    preferred: Location,
    accessed_by: Vec<i32>,
    /// Where it was last fetched ahead.
    pub prefetched_to: Location,
}

impl Default for Advice {
    fn default() -> Self {
        Self {
            is_read_mostly: false,
            preferred: Location::NOWHERE,
            accessed_by: Vec::new(),
            prefetched_to: Location::NOWHERE,
        }
    }
}

impl Advice {
    /// True if an advice of this number (`CUmem_advise`) names no place.
    pub fn ignores_place(number: u32) -> bool {
        matches!(number, 1 | 2 | 4)
    }

    /// Takes advice of this number (`CUmem_advise`).
    pub fn take(&mut self, number: u32, place: Location) -> Outcome {
        let device = place.as_device();
        match number {
            1 | 2 => self.is_read_mostly = number == 1,
            3 => self.preferred = place,
            4 => self.preferred = Location::NOWHERE,
            5 | 6 => {
                self.accessed_by.retain(|&other| other != device);
                if number == 5 {
                    self.accessed_by.push(device);
                }
            }
            _ => return Err(CuResult::INVALID_VALUE),
        }
        Ok(())
    }

    /// The value of an attribute (`CUmem_range_attribute`), in words, for so many bytes.
    pub fn attribute(&self, number: u32, size_bytes: u64) -> Outcome<Vec<i32>> {
        const WORD: u64 = size_of::<i32>() as u64;
        const ACCESSED_BY: u32 = 3;

        if size_bytes == 0 || !size_bytes.is_multiple_of(WORD) || (number != ACCESSED_BY && size_bytes != WORD) {
            return Err(CuResult::INVALID_VALUE);
        }
        let word = match number {
            1 => i32::from(self.is_read_mostly),
            2 => self.preferred.as_device(),
            ACCESSED_BY => {
                let all = self.accessed_by.iter().copied();
                let padded = all.chain(std::iter::repeat(Location::NO_DEVICE));
                return Ok(padded.take((size_bytes / WORD) as usize).collect());
            }
            4 => self.prefetched_to.as_device(),
            5 => self.preferred.kind.cast_signed(),
            6 => self.preferred.id,
            7 => self.prefetched_to.kind.cast_signed(),
            8 => self.prefetched_to.id,
            _ => return Err(CuResult::INVALID_VALUE),
        };
        Ok(vec![word])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_said_is_told() {
        let (host, device) = (Location::of_device(-1).unwrap(), Location::of_device(0).unwrap());
        let mut advice = Advice::default();
        assert_eq!(advice.attribute(2, 4), Ok(vec![-2]));
        assert_eq!(advice.attribute(3, 8), Ok(vec![-2, -2]));
        for (number, place) in [(1, Location::NOWHERE), (3, host), (5, device), (5, host), (5, device)] {
            advice.take(number, place).unwrap();
        }
        let told = |number, bytes| advice.attribute(number, bytes).unwrap();
        assert_eq!((told(1, 4), told(2, 4), told(5, 4)), (vec![1], vec![-1], vec![2]));
        assert_eq!(told(3, 12), [-1, 0, -2]);
        for (number, bytes) in [(1, 8), (3, 6), (3, 0), (9, 4)] {
            assert_eq!(advice.attribute(number, bytes), Err(CuResult::INVALID_VALUE));
        }
    }

    #[test]
    fn only_places_are_taken() {
        assert_eq!(Location::of_device(3), Err(CuResult::INVALID_DEVICE));
        assert_eq!(Location::NOWHERE.check(), Err(CuResult::INVALID_VALUE));
    }
}
