//! The CUDA device's arrays, texture objects and surface objects, with the stand-in in the driver's place.
#![allow(unsafe_code, reason = "says where the driver is")]
#![allow(clippy::unwrap_used, reason = "tests")]

use hetckpt_abi::array::{ArrayShape, BoxCopy, BoxPlace, BoxSize, LAYERED, SURFACE_LOAD_STORE};
use hetckpt_abi::image_object::{ImageHandle, ImageKind, ImageObject, Resource, ResourceView, Sampler};
use hetckpt_devices::cuda::{CudaDevice, CudaOptions, DRIVER_VARIABLE};
use hetckpt_devices::device::{DEVICE_BASE, Device, GRANULARITY};
use hetckpt_devices::error::DeviceError;

/// The device; cargo builds the library beside this program.
fn device() -> CudaDevice {
    let own = std::env::current_exe().unwrap();
    let mut candidates = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("libstand_in_driver.so"));
    let library = candidates.find(|path| path.exists()).unwrap();
    // SAFETY: the only test of this program, which has no other threads yet.
    unsafe { std::env::set_var(DRIVER_VARIABLE, library) };
    CudaDevice::open(0, &CudaOptions::default()).unwrap()
}

fn shape(size: [u64; 3], flags: u32, levels: u32) -> ArrayShape {
    ArrayShape {
        size,
        format: 3,
        channels: 1,
        flags,
        levels,
    }
}

fn in_array(array: u64, level: u32, [x_bytes, y, z]: [u64; 3]) -> BoxPlace {
    BoxPlace::Array {
        array,
        level,
        x_bytes,
        y,
        z,
    }
}

#[test]
fn the_driver_is_given_what_was_asked_for() {
    let device = device();
    assert!(device.has_arrays());
    device.map(DEVICE_BASE, GRANULARITY).unwrap();
    copies(&device);
    levels(&device);
    objects(&device);
    // What is left is freed with the device.
    drop(device);
}

fn copies(device: &CudaDevice) {
    let layered = shape([4, 3, 2], LAYERED, 0);
    device.create_array(1, &layered).unwrap();
    let content: Vec<u8> = (0..96).collect();
    device.write_array(1, 0, &content).unwrap();
    let mut back = vec![0; 96];
    device.read_array(1, 0, &mut back).unwrap();
    assert_eq!(back, content);
    assert!(device.read_array(1, 0, &mut back[1..]).is_err());
    assert!(device.read_array(2, 0, &mut back).is_err());

    // Two words of two rows of both layers, to rows of 32 bytes in slices of three.
    let (addr, pitch, slice_rows) = (DEVICE_BASE + 64, 32, 3);
    let memory = BoxPlace::Memory {
        addr,
        pitch,
        slice_rows,
    };
    let size = BoxSize {
        width_bytes: 8,
        rows: 2,
        slices: 2,
    };
    let out = |dst, src| device.copy_box(&BoxCopy { dst, src, size });
    out(memory, in_array(1, 0, [4, 1, 0])).unwrap();
    for (row, first) in [(0, 20), (1, 36), (3, 68), (4, 84)] {
        let mut bytes = [0; 9];
        device.read(addr + row * pitch, &mut bytes).unwrap();
        let expected: Vec<u8> = (first..first + 8).chain([0]).collect();
        assert_eq!(bytes, *expected);
    }
    device.create_array(2, &layered).unwrap();
    device.write_array(2, 0, &[0; 96]).unwrap();
    out(in_array(2, 0, [0; 3]), memory).unwrap();
    out(in_array(2, 0, [8, 1, 0]), in_array(1, 0, [0; 3])).unwrap();
    device.read_array(2, 0, &mut back).unwrap();
    assert_eq!(back[..8], content[20..28]);
    assert_eq!(back[24..32], content[..8]);
    assert_eq!(back[48..56], content[68..76]);
    device.destroy_array(2).unwrap();
    assert!(device.destroy_array(2).is_err());
}

fn levels(device: &CudaDevice) {
    device.create_array(3, &shape([8, 4, 0], 0, 3)).unwrap();
    device.write_array(3, 2, &[7; 8]).unwrap();
    device.write_array(3, 1, &[6; 32]).unwrap();
    let size = BoxSize {
        width_bytes: 8,
        rows: 1,
        slices: 1,
    };
    let (dst, src) = (in_array(3, 1, [8, 1, 0]), in_array(3, 2, [0; 3]));
    device.copy_box(&BoxCopy { dst, src, size }).unwrap();
    let mut bytes = [0; 32];
    device.read_array(3, 1, &mut bytes).unwrap();
    assert_eq!(bytes[..24], [6; 24]);
    assert_eq!(bytes[24..], [7; 8]);
}

fn objects(device: &CudaDevice) {
    device
        .create_array(4, &shape([8, 4, 0], SURFACE_LOAD_STORE, 0))
        .unwrap();
    let texture = |resource| ImageObject::Texture {
        resource,
        sampler: Sampler {
            filter_mode: 1,
            mipmap_clamp: [0, 2.0_f32.to_bits()],
            ..Sampler::default()
        },
        view: Some(ResourceView {
            format: 0,
            size: [8, 4, 0],
            levels: [0; 2],
            layers: [0; 2],
        }),
    };
    let (format, channels) = (3, 1);
    let linear = |size_bytes| Resource::Linear {
        addr: DEVICE_BASE,
        format,
        channels,
        size_bytes,
    };
    let rows = |pitch| Resource::Rows {
        addr: DEVICE_BASE,
        format,
        channels,
        width: 8,
        height: 4,
        pitch,
    };
    let plain = Resource::Array { array: 4, level: 0 };
    let made = [
        texture(plain),
        texture(Resource::Array { array: 3, level: 1 }),
        texture(Resource::Mipmapped { array: 3 }),
        texture(linear(64)),
        texture(rows(32)),
        ImageObject::Surface { resource: plain },
    ];
    let values: Vec<u64> = made.iter().map(|object| device.create_image(object).unwrap()).collect();
    assert_eq!(values, [1, 2, 3, 4, 5, 6]);
    for refused in [linear(62), rows(31), Resource::Mipmapped { array: 4 }] {
        let error = device.create_image(&texture(refused)).unwrap_err();
        assert!(matches!(error, DeviceError::Refused { cuda_result: 1, .. }), "{error}");
    }
    let kind = ImageKind::Surface;
    device.destroy_image(ImageHandle { kind, value: 6 }).unwrap();
    assert!(device.destroy_image(ImageHandle { kind, value: 6 }).is_err());
}
