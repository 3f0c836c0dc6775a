//! What lies where: device allocations, module variables, registered host memory. Answers pointer queries and tells
//! host from device addresses without asking the server.

use std::collections::BTreeMap;

/// Device and pinned addresses that we choose lie in here; variables that NVIDIA's driver has placed do not.
pub const OUR_ADDRESSES: std::ops::Range<u64> = 0x2000_0000_0000..0x3f00_0000_0000;

/// What a range of addresses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// From `cuMemAlloc` and the like.
    Allocation,
    /// A graph's own memory ([`crate::graph`]).
    Graph {
        /// The graph has allocated it, and nobody has freed it since.
        is_allocated: bool,
    },
    /// Mapped by the program where it wants it: what lies side by side is one.
    Mapped,
    /// A module's variable.
    Variable,
    /// Host memory pinned by us: server and device know it at the same address.
    Pinned {
        /// Flags given at allocation.
        flags: u32,
    },
    /// Pinned host memory that the program has as managed memory.
    Managed,
    /// The program's own memory, registered; copies treat it as ordinary memory.
    Registered {
        /// Flags given at registration.
        flags: u32,
        /// Where kernels reach it, once the program has asked for that.
        on_device: Option<u64>,
    },
}

/// A range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// What it is.
    pub kind: RangeKind,
    /// Unique number (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
}

impl Range {
    /// True if the range is in device memory.
    pub fn is_device(&self) -> bool {
        matches!(
            self.kind,
            RangeKind::Allocation | RangeKind::Graph { .. } | RangeKind::Mapped | RangeKind::Variable
        )
    }

    /// True if the server knows the range at its address.
    pub fn is_shared_with_server(&self) -> bool {
        !matches!(self.kind, RangeKind::Registered { .. })
    }
}

/// Ranges by address; they do not overlap.
#[derive(Debug, Default)]
pub struct MemoryMap {
    ranges: BTreeMap<u64, Range>,
    num_ids: u64,
}

impl MemoryMap {
    /// Adds a range.
    pub fn insert(&mut self, addr: u64, size_bytes: u64, kind: RangeKind) {
        self.num_ids += 1;
        self.ranges.insert(
            addr,
            Range {
                addr,
                size_bytes,
                kind,
                id: self.num_ids,
            },
        );
    }

    /// Removes the range that starts at `addr`.
    pub fn remove(&mut self, addr: u64) -> Option<Range> {
        self.ranges.remove(&addr)
    }

    /// Notes that a graph's own memory has been allocated or freed.
    pub fn mark_graph(&mut self, addr: u64, is_allocated: bool) {
        if let Some(range) = self.ranges.get_mut(&addr)
            && matches!(range.kind, RangeKind::Graph { .. })
        {
            range.kind = RangeKind::Graph { is_allocated };
        }
    }

    /// The graph that has the memory at `addr` is gone. True if the memory is to be freed; what the graph has allocated
    /// and nobody has freed is the program's from now on.
    pub fn forget_graph(&mut self, addr: u64) -> bool {
        match self.ranges.get_mut(&addr) {
            Some(range) if range.kind == (RangeKind::Graph { is_allocated: true }) => {
                range.kind = RangeKind::Allocation;
                false
            }
            Some(range) if matches!(range.kind, RangeKind::Graph { .. }) => {
                self.ranges.remove(&addr);
                true
            }
            // After a reset it is gone already.
            _ => false,
        }
    }

    /// The range that starts at `addr`.
    pub fn starting_at(&self, addr: u64) -> Option<Range> {
        self.ranges.get(&addr).copied()
    }

    /// The range around `addr`.
    pub fn find(&self, addr: u64) -> Option<Range> {
        let (_, range) = self.ranges.range(..=addr).next_back()?;
        (addr - range.addr < range.size_bytes).then_some(*range)
    }

    /// True if `addr` and the `length` bytes from it on lie in one range, or in mapped ones side by side.
    pub fn contains(&self, addr: u64, length: u64) -> bool {
        let (mut at, mut left) = (addr, length);
        while let Some(range) = self.find(at) {
            let there = range.size_bytes - (at - range.addr);
            if left <= there {
                return true;
            }
            if range.kind != RangeKind::Mapped {
                return false;
            }
            at += there;
            left -= there;
        }
        false
    }

    /// True if some range overlaps `addr` and the `length` bytes from it on.
    pub fn overlaps(&self, addr: u64, length: u64) -> bool {
        let end = addr.saturating_add(length);
        self.ranges
            .range(..end)
            .next_back()
            .is_some_and(|(_, range)| range.addr + range.size_bytes > addr)
    }

    /// Notes where kernels reach the registered memory that starts at `addr`.
    pub fn place_registered(&mut self, addr: u64, place: u64) {
        if let Some(Range {
            kind: RangeKind::Registered { on_device, .. },
            ..
        }) = self.ranges.get_mut(&addr)
        {
            *on_device = Some(place);
        }
    }

    /// Forgets all that goes with the device: what the program has registered of its own stays, out of reach.
    pub fn forget_device(&mut self) {
        self.ranges.retain(|_, range| match &mut range.kind {
            RangeKind::Registered { on_device, .. } => {
                *on_device = None;
                true
            }
            _ => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ranges_by_any_of_their_addresses() {
        let mut map = MemoryMap::default();
        map.insert(100, 50, RangeKind::Allocation);
        let (flags, on_device) = (0, None);
        map.insert(200, 10, RangeKind::Registered { flags, on_device });
        assert_eq!(map.find(149).map(|r| r.addr), Some(100));
        assert_eq!(map.find(150), None);
        assert_eq!(map.find(99), None);
        assert!(map.contains(110, 40) && !map.contains(110, 41));
        assert!(map.overlaps(140, 100) && map.overlaps(0, 101) && !map.overlaps(150, 50) && !map.overlaps(210, 9));
        for addr in [300, 310] {
            map.insert(addr, 10, RangeKind::Mapped);
        }
        map.insert(320, 10, RangeKind::Allocation);
        assert!(map.contains(305, 15) && map.contains(305, 25) && !map.contains(325, 6));
        map.forget_device();
        assert_eq!(map.find(100), None);
        assert!(map.find(200).is_some());
    }
}
