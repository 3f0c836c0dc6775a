//! Device memory.

use hetckpt_devices::device::{DEVICE_BASE, Device as _, Fill, GRANULARITY};
use hetckpt_devices::error::DeviceError;
use hetckpt_devices::opencl::OpenClOptions;

use crate::fixture::{OUT, left, on_devices, on_devices_with};
use crate::programs::plain;

#[test]
fn mapped_memory_is_zero_each_time() {
    on_devices(|bench| {
        let device = &bench.device;
        let addr = DEVICE_BASE + 8 * GRANULARITY;
        let mut got = [1; 64];
        for _ in 0..2 {
            device.map(addr, 2 * GRANULARITY).unwrap();
            device.read(addr + GRANULARITY, &mut got).unwrap();
            assert_eq!(got, [0; 64]);
            device.write(addr + GRANULARITY, &[7; 64]).unwrap();
            device.unmap(addr, 2 * GRANULARITY).unwrap();
        }
    });
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    on_devices(|bench| {
        let device = &bench.device;
        let total = device.describe().total_bytes;
        let too_much = device.map(DEVICE_BASE + total - GRANULARITY, 2 * GRANULARITY);
        assert!(matches!(too_much, Err(DeviceError::OutOfMemory { .. })), "{too_much:?}");
        let taken = device.map(DEVICE_BASE + GRANULARITY, GRANULARITY);
        assert!(matches!(taken, Err(DeviceError::Map { .. })), "{taken:?}");
        let below = device.map(DEVICE_BASE - GRANULARITY, GRANULARITY);
        assert!(matches!(below, Err(DeviceError::Map { .. })), "{below:?}");
        let unknown = device.unmap(DEVICE_BASE, GRANULARITY);
        assert!(matches!(unknown, Err(DeviceError::Map { .. })), "{unknown:?}");
        let before = device.describe().free_bytes;
        device.unmap(DEVICE_BASE, 4 * GRANULARITY).unwrap();
        assert!(device.describe().free_bytes >= before);
    });
}

#[test]
fn memory_far_from_its_start() {
    let options = OpenClOptions {
        max_arena_bytes: Some(6 << 30),
        max_buffer_bytes: Some(1 << 30),
        ..OpenClOptions::default()
    };
    on_devices_with(&options, |bench| {
        let device = &bench.device;
        let total = device.describe().total_bytes;
        for middle in [total / 2 / (1 << 30) * (1 << 30), total - GRANULARITY] {
            let middle = DEVICE_BASE + middle;
            device.map(middle - GRANULARITY, 2 * GRANULARITY).unwrap();
            device.fill(middle - 512, 4, Fill::U32(0x89ab_cdef), 256, 1).unwrap();
            device.copy(OUT, middle - 516, 1032).unwrap();
            let (mut here, mut there) = ([1; 1032], [1; 1032]);
            device.read(OUT, &mut here).unwrap();
            device.read(middle - 516, &mut there).unwrap();
            let mut wanted = [0; 1032];
            for word in wanted[4..1028].chunks_exact_mut(4) {
                word.copy_from_slice(&0x89ab_cdef_u32.to_le_bytes());
            }
            assert_eq!(here, wanted);
            assert_eq!(there, wanted);
            device.write(middle, &[7; 64]).unwrap();
            device.read(middle - 4, &mut there[..72]).unwrap();
            assert_eq!(there[4..68], [7; 64]);
            assert_eq!((&there[..4], &there[68..72]), (&wanted[4..8], &wanted[4..8]));
            device.unmap(middle - GRANULARITY, 2 * GRANULARITY).unwrap();
        }
    });
}

#[test]
fn copies_and_fills() {
    on_devices(|bench| {
        let device = &bench.device;
        let bytes: Vec<u8> = (0..=255).collect();
        device.write(OUT, &bytes).unwrap();
        device.copy(OUT + 1000, OUT + 16, 100).unwrap();
        let mut got = vec![0; 100];
        device.read(OUT + 1000, &mut got).unwrap();
        assert_eq!(got, bytes[16..116]);
        device.write(OUT, &[0; 256]).unwrap();
        device.fill(OUT, 32, Fill::U16(0x1234), 3, 4).unwrap();
        device.fill(OUT + 128, 0, Fill::U32(0x89ab_cdef), 2, 1).unwrap();
        device.fill(OUT + 160, 4, Fill::U8(9), 4, 2).unwrap();
        let mut got = vec![0; 256];
        device.read(OUT, &mut got).unwrap();
        let mut wanted = vec![0; 256];
        for row in 0..4 {
            wanted[row * 32..row * 32 + 6].copy_from_slice(&[0x34, 0x12, 0x34, 0x12, 0x34, 0x12]);
        }
        wanted[128..136].copy_from_slice(&[0xef, 0xcd, 0xab, 0x89, 0xef, 0xcd, 0xab, 0x89]);
        wanted[160..168].fill(9);
        assert_eq!(got, wanted);
    });
}

#[test]
fn pinned_memory_can_be_copied_and_where_memory_is_shared_reached() {
    const TEXT: &str = "
        typedef struct { ulong from; ulong to; } P;
        __kernel void plain(__global uchar *arena, ulong arena_base, P p MORE_ARENAS) {
            GLOBAL(ulong, p.to) = GLOBAL(ulong, p.from) + 1;
        }";
    on_devices(|bench| {
        let device = &bench.device;
        let mut host = vec![41u64, 0, 0];
        let addr = host.as_mut_ptr() as u64;
        device.register_host(addr, 24).unwrap();
        device.copy(OUT, addr, 8).unwrap();
        device.copy(addr + 8, OUT, 8).unwrap();
        let read = |at: usize| {
            let mut bytes = [0; 8];
            device.read(addr + 8 * at as u64, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        assert_eq!(read(1), 41);
        if device.shares_memory() {
            let kernel = device.load(&plain(TEXT)).unwrap();
            let queue = device.create_queue(0).unwrap();
            let mut launch = bench.launch(&kernel, 1, 1, 0);
            launch.params = [addr, addr + 16].iter().flat_map(|v| v.to_le_bytes()).collect();
            assert!(left(queue.launch(launch).unwrap().wait()).is_finished());
            assert_eq!(read(2), 42);
        }
        device.unregister_host(addr).unwrap();
        drop(host);
    });
}
