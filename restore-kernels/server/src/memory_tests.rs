use parking_lot::Mutex;

use hetckpt_devices::device::{DeviceDescription, Fill, LoadRequest, LoadedKernel, Queue};

use super::*;

/// Memory of the device.
const TOTAL_BYTES: u64 = 72 << 20;

/// Only keeps account of mappings.
#[derive(Default)]
struct Maps(Mutex<BTreeMap<u64, u64>>);

impl Maps {
    /// True if all of the range is mapped.
    fn has(&self, addr: u64, size_bytes: u64) -> bool {
        let maps = self.0.lock();
        let mut granules = (addr..addr + size_bytes).step_by(usize::try_from(GRANULARITY).unwrap());
        granules.all(|at| maps.range(..=at).next_back().is_some_and(|(&a, &s)| at < a + s))
    }
}

fn unused() -> DeviceError {
    DeviceError::Driver {
        call: "unused",
        reason: String::new(),
    }
}

impl Device for Maps {
    fn describe(&self) -> DeviceDescription {
        DeviceDescription {
            id: String::new(),
            kind: "cpu",
            name: String::new(),
            vendor: String::new(),
            driver: String::new(),
            total_bytes: 0,
            free_bytes: 0,
            max_threads_per_block: 0,
            max_shared_bytes: 0,
            num_multiprocessors: 0,
            cuda_attributes: vec![],
            uuid: [0; 16],
        }
    }
    fn map(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        assert!(addr.is_multiple_of(GRANULARITY) && size_bytes.is_multiple_of(GRANULARITY) && size_bytes > 0);
        let mut maps = self.0.lock();
        assert!(maps.iter().all(|(&a, &s)| addr + size_bytes <= a || a + s <= addr));
        if maps.values().sum::<u64>() + size_bytes > TOTAL_BYTES {
            return Err(unused());
        }
        maps.insert(addr, size_bytes);
        Ok(())
    }
    fn unmap(&self, addr: u64, size_bytes: u64) -> Result<(), DeviceError> {
        assert_eq!(self.0.lock().remove(&addr), Some(size_bytes));
        Ok(())
    }
    fn register_host(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Err(unused())
    }
    fn unregister_host(&self, _: u64) -> Result<(), DeviceError> {
        Err(unused())
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Err(unused())
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
        Err(unused())
    }
    fn copy(&self, _: u64, _: u64, _: u64) -> Result<(), DeviceError> {
        Err(unused())
    }
    fn fill(&self, dst: u64, _: u64, value: Fill, size_bytes: u64, rows: u64) -> Result<(), DeviceError> {
        assert_eq!((value, rows), (Fill::U8(0), 1));
        assert!(self.has(dst / GRANULARITY * GRANULARITY, size_bytes));
        Ok(())
    }
    fn load(&self, _: &LoadRequest) -> Result<Arc<dyn LoadedKernel>, DeviceError> {
        Err(unused())
    }
    fn create_queue(&self, _: i32) -> Result<Box<dyn Queue>, DeviceError> {
        Err(unused())
    }
    fn request_pause(&self) -> Result<(), DeviceError> {
        Err(unused())
    }
    fn end_pause(&self) -> Result<(), DeviceError> {
        Err(unused())
    }
}

fn memory() -> DeviceMemory {
    DeviceMemory::new(Arc::new(Maps::default()), 64 << 20)
}

#[test]
fn addresses_are_given_out_the_same_way_each_time() {
    let run = || {
        let mut memory = memory();
        let a = memory.allocate(100, Owner::Program).unwrap();
        let b = memory.allocate(5 << 20, Owner::Program).unwrap();
        let c = memory.allocate(700, Owner::Program).unwrap();
        memory.free(a).unwrap();
        (a, b, c, memory.allocate(512, Owner::Program).unwrap())
    };
    assert_eq!(run(), run());
    let (a, b, c, d) = run();
    assert_eq!(
        (a, b, c, d),
        (
            FIRST_MAPPING,
            FIRST_MAPPING + GRANULARITY,
            FIRST_MAPPING + ALIGN_BYTES,
            a
        )
    );
}

/// A memory on a device that can be asked what is mapped.
fn on(maps: &Arc<Maps>) -> DeviceMemory {
    DeviceMemory::new(Arc::clone(maps) as _, 64 << 20)
}

fn assert_room(memory: &DeviceMemory, maps: &Maps) {
    assert!(maps.has(memory.end(), GRANULARITY), "behind {:x?}", memory.mappings());
    if let Some(first) = memory.mappings().first() {
        assert!(maps.has(DEVICE_BASE, GRANULARITY));
        assert!(first.addr == DEVICE_BASE || !memory.contains(DEVICE_BASE, 1));
    }
    assert!(!memory.contains(memory.end(), 1));
    let mapped: u64 = maps.0.lock().values().sum();
    let rooms = u64::from(memory.has_room_before) + u64::from(memory.room_behind.is_some());
    assert_eq!(mapped, memory.all_mapped_bytes() + rooms * GRANULARITY);
}

#[test]
fn there_is_room_before_the_first_allocation_and_behind_the_last() {
    let maps = Arc::new(Maps::default());
    let mut memory = on(&maps);
    let sizes = [100, 1 << 20, 5 << 20, 3 << 20, 700, 9 << 20];
    let mut live = Vec::new();
    for size in sizes {
        live.push(memory.allocate(size, Owner::Program).unwrap());
        assert_room(&memory, &maps);
    }
    // Not in an archive, and there again after a restore.
    let (mappings, allocations) = (memory.mappings(), memory.allocations());
    assert!(
        mappings
            .iter()
            .all(|m| m.addr >= FIRST_MAPPING && m.addr + m.size_bytes <= memory.end())
    );
    let restored_maps = Arc::new(Maps::default());
    let mut restored = on(&restored_maps);
    assert!(restored.restore(&mappings, &allocations).is_ok());
    assert_room(&restored, &restored_maps);
    for at in [5, 3, 0, 4, 1, 2] {
        memory.free(live[at]).unwrap();
        restored.free(live[at]).unwrap();
        assert_room(&memory, &maps);
        assert_room(&restored, &restored_maps);
    }
    memory.clear();
    assert!(maps.0.lock().is_empty());
}

#[test]
fn archives_without_room_before_their_first_mapping_are_restored_as_they_are() {
    let maps = Arc::new(Maps::default());
    let mut memory = on(&maps);
    let mapping = Mapping {
        addr: DEVICE_BASE,
        size_bytes: 2 * GRANULARITY,
        device: 0,
    };
    let allocation = Allocation {
        addr: DEVICE_BASE,
        size_bytes: 3 << 20,
        owner: Owner::Program,
    };
    assert!(memory.restore(&[mapping], &[allocation]).is_ok());
    assert_room(&memory, &maps);
    let next = memory.allocate(2 << 20, Owner::Program).unwrap();
    assert_eq!(next, DEVICE_BASE + 2 * GRANULARITY);
    assert!(memory.free(DEVICE_BASE).unwrap());
    memory.remove_spares().unwrap();
    assert_eq!(memory.allocate(100, Owner::Program).unwrap(), FIRST_MAPPING);
    assert_room(&memory, &maps);
}

#[test]
fn a_program_can_have_all_but_the_room_in_one() {
    let maps = Arc::new(Maps::default());
    let mut memory = DeviceMemory::new(Arc::clone(&maps) as _, TOTAL_BYTES - ROOM_BYTES);
    let addr = memory.allocate(memory.free_bytes(), Owner::Program).unwrap();
    assert_eq!(addr + TOTAL_BYTES - ROOM_BYTES, memory.end());
    assert_room(&memory, &maps);
}

#[test]
fn a_device_without_memory_for_room_still_gives_all_of_its_own() {
    let maps = Arc::new(Maps::default());
    let mut memory = DeviceMemory::new(Arc::clone(&maps) as _, TOTAL_BYTES - GRANULARITY);
    let all = memory.allocate(TOTAL_BYTES - GRANULARITY, Owner::Program).unwrap();
    assert_eq!(memory.room_behind, None);
    assert!(memory.free(all).unwrap());
    assert_room(&memory, &maps);
}

#[test]
fn random_use_never_overlaps_and_ends_empty() {
    let mut memory = memory();
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut x = 12345u64;
    for _ in 0..4000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let r = x >> 33;
        if r.is_multiple_of(3) && !live.is_empty() {
            let (addr, _) = live.swap_remove(usize::try_from(r / 3).unwrap() % live.len());
            assert!(memory.free(addr).unwrap());
            assert!(!memory.free(addr).unwrap());
        } else {
            let size = if r.is_multiple_of(7) {
                (1 << 20) + r % (3 << 20)
            } else {
                1 + r % 9000
            };
            let Ok(addr) = memory.allocate(size, Owner::Program) else {
                continue;
            };
            assert!(addr.is_multiple_of(ALIGN_BYTES) && memory.contains(addr, size));
            assert!(live.iter().all(|&(a, s)| addr + size <= a || a + s <= addr));
            live.push((addr, size));
        }
    }
    let (mappings, allocations) = (memory.mappings(), memory.allocations());
    assert_eq!(allocations.len(), live.len());
    let mut restored = self::memory();
    assert!(restored.restore(&mappings, &allocations).is_ok());
    assert_eq!((restored.mappings(), restored.allocations()), (mappings, allocations));
    for (addr, _) in live {
        assert!(memory.free(addr).unwrap());
        assert!(restored.free(addr).unwrap());
    }
    assert_eq!((memory.mapped_bytes(), restored.mapped_bytes()), (0, 0));
}

#[test]
fn what_is_freed_is_taken_again_until_there_is_no_more_room() {
    let maps = Arc::new(Maps::default());
    let mut memory = on(&maps);
    let a = memory.allocate(1 << 20, Owner::Program).unwrap();
    let mapped = maps.0.lock().clone();
    assert!(memory.free(a).unwrap());
    // For the program and for snapshots it is not there.
    assert!(!memory.contains(a, 1) && !memory.free(a).unwrap());
    assert_eq!((memory.mappings(), memory.mapped_bytes()), (vec![], 0));
    assert_eq!(*maps.0.lock(), mapped);
    assert_eq!(memory.allocate(2 << 20, Owner::Program).unwrap(), a);
    assert!(memory.free(a).unwrap());
    // More than a share of the limit is not kept.
    let large = memory.allocate(20 << 20, Owner::Program).unwrap();
    assert!(memory.free(large).unwrap());
    assert_eq!(memory.all_mapped_bytes(), 2 << 20);
    // All of the limit can still be had.
    memory.allocate(64 << 20, Owner::Program).unwrap();
    assert_room(&memory, &maps);
}

#[test]
fn memory_beyond_the_limit_is_refused() {
    let mut memory = memory();
    for size in [65 << 20, u64::MAX, u64::MAX - 600] {
        let error = memory.allocate(size, Owner::Program).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
    }
    assert!(!memory.contains(u64::MAX - 1, 4));
    assert_eq!(memory.mapped_bytes(), 0);
}

#[test]
fn contradicting_snapshots_are_refused() {
    let mapping = |addr, size_bytes| Mapping {
        addr,
        size_bytes,
        device: 0,
    };
    let allocation = |addr, size_bytes| Allocation {
        addr,
        size_bytes,
        owner: Owner::Program,
    };
    let (a, g) = (DEVICE_BASE, GRANULARITY);
    for (mappings, allocations) in [
        (vec![mapping(a + 1, g)], vec![]),
        (vec![mapping(a, 0)], vec![]),
        (vec![mapping(a, 2 * g), mapping(a + g, g)], vec![]),
        (vec![mapping(u64::MAX - g + 1, g)], vec![]),
        (vec![mapping(a, g)], vec![allocation(a + g - 4, 8)]),
        (vec![mapping(a, g)], vec![allocation(a, 600), allocation(a + 512, 8)]),
    ] {
        assert!(
            memory().restore(&mappings, &allocations).is_err(),
            "{mappings:?} {allocations:?}"
        );
    }
}

#[test]
fn allocations_lie_where_they_are_placed() {
    let maps = Arc::new(Maps::default());
    let mut memory = DeviceMemory::new(maps.clone(), TOTAL_BYTES);
    let size = 4 * GRANULARITY;
    let place = PLACED_ADDRESSES.start + 3 * GRANULARITY;
    let low = memory.allocate(100, Owner::Program).unwrap();
    assert!(memory.allocate_at(place, size, Owner::Program).unwrap());
    // Beside it, but not over it, askew, or elsewhere.
    for (addr, size_bytes) in [
        (place, size),
        (place + size - GRANULARITY, 2 * GRANULARITY),
        (place - GRANULARITY, 2 * GRANULARITY),
        (place + size + 1, GRANULARITY),
        (place + size, GRANULARITY - 1),
        (place + size, 0),
        (PLACED_ADDRESSES.start - GRANULARITY, GRANULARITY),
        (PLACED_ADDRESSES.end - GRANULARITY, 2 * GRANULARITY),
        (u64::MAX - GRANULARITY + 1, GRANULARITY),
    ] {
        assert!(
            !memory.allocate_at(addr, size_bytes, Owner::Program).unwrap(),
            "{addr:#x}"
        );
    }
    assert!(memory.allocate_at(place + size, GRANULARITY, Owner::Program).unwrap());
    assert!(memory.contains(place + 5, size));
    assert!(
        memory
            .allocate_at(place - GRANULARITY, GRANULARITY, Owner::Program)
            .unwrap()
    );
    // Others still lie below, and nothing takes what was placed and is free again.
    assert!(memory.free(place).unwrap() && !memory.contains(place, 1));
    assert!(!maps.has(place, size));
    let other = memory.allocate(size, Owner::Program).unwrap();
    assert!(low < other && other < PLACED_ADDRESSES.start);
    assert!(memory.allocate_at(place, GRANULARITY, Owner::Program).unwrap());
    assert!(
        memory
            .allocate_at(place + 8 * GRANULARITY, TOTAL_BYTES, Owner::Program)
            .is_err()
    );
    let (mappings, allocations) = (memory.mappings(), memory.allocations());
    memory.clear();
    assert!(maps.0.lock().is_empty());
    let mut restored = DeviceMemory::new(maps, TOTAL_BYTES);
    restored.restore(&mappings, &allocations).unwrap();
    assert_eq!((restored.mappings(), restored.allocations()), (mappings, allocations));
    assert!(restored.free(place).unwrap() && !restored.contains(place, 1));
}
