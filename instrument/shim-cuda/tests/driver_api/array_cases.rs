//! Cases about arrays, texture objects and surface objects.

use std::ffi::c_void;
use std::ptr::null;

use crate::api::*;
use crate::cases::{Case, context};
use crate::cu;
use crate::server::REFUSED_WIDTH;

pub const ALL: &[Case] = &[
    ("arrays_are_what_they_were_made", arrays_are_what_they_were_made),
    (
        "boxes_come_and_go_through_any_memory",
        boxes_come_and_go_through_any_memory,
    ),
    ("copies_give_their_memory_back", copies_give_their_memory_back),
    ("ranges_are_rows_of_an_array", ranges_are_rows_of_an_array),
    (
        "levels_of_a_mipmapped_array_are_arrays",
        levels_of_a_mipmapped_array_are_arrays,
    ),
    (
        "objects_tell_what_they_were_made_of",
        objects_tell_what_they_were_made_of,
    ),
    ("captured_streams_take_no_arrays", captured_streams_take_no_arrays),
];

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

/// Words.
fn shape(size: [u64; 3], flags: u32) -> Descriptor3D {
    Descriptor3D {
        size,
        format: 3,
        channels: 1,
        flags,
    }
}

fn array(size: [u64; 3]) -> u64 {
    let mut array = 0;
    cu!(cuArray3DCreate_v2(&mut array, &shape(size, 0)));
    array
}

fn arrays_are_what_they_were_made() {
    context();
    let made = shape([5, 4, 3], 1);
    let mut array = 0;
    cu!(cuArray3DCreate_v2(&mut array, &made));
    let mut told = Descriptor3D::default();
    cu!(cuArray3DGetDescriptor_v2(&mut told, array));
    assert_eq!(told, made);
    cu!(cuArrayDestroy(array));
    cu!(cuArrayDestroy(array) => INVALID_HANDLE);
    cu!(cuArray3DGetDescriptor_v2(&mut told, array) => INVALID_HANDLE);
    cu!(cuArrayCreate_v2(&mut array, &[5, 4, 1 << 32 | 3]));
    cu!(cuArray3DGetDescriptor_v2(&mut told, array));
    assert_eq!(told, shape([5, 4, 0], 0));
    cu!(cuArray3DCreate_v2(&mut array, &shape([0, 4, 0], 0)) => INVALID_VALUE);
    cu!(cuArray3DCreate_v2(&mut array, &shape([4, 4, 0], 0x40)) => NOT_SUPPORTED);
    cu!(cuArray3DCreate_v2(&mut array, &shape([REFUSED_WIDTH, 0, 0], 0)) => NOT_SUPPORTED);
    cu!(cuCtxSynchronize());
}

fn of_array(array: u64, [x, y, z]: [u64; 3]) -> Side3D {
    Side3D {
        x,
        y,
        z,
        memory_type: ARRAY,
        array,
        ..Side3D::default()
    }
}

fn boxes_come_and_go_through_any_memory() {
    context();
    let array = array([4, 3, 2]);
    // Rows of six words, slices of four rows.
    let host: Vec<u32> = (0..48).collect();
    let side = |host: *const u32| Side3D {
        x: 4,
        y: 1,
        memory_type: HOST,
        host: host.expose_provenance() as u64,
        pitch: 24,
        height: 4,
        ..Side3D::default()
    };
    let boxed = |dst, src| Copy3D {
        src,
        dst,
        width: 16,
        height: 3,
        depth: 2,
    };
    cu!(cuMemcpy3D_v2(&boxed(of_array(array, [0; 3]), side(host.as_ptr()))));
    let mut back = vec![0; 48];
    cu!(cuMemcpy3DAsync_v2(
        &boxed(side(back.as_mut_ptr()), of_array(array, [0; 3])),
        0
    ));
    let expected = |i: u32| {
        if (1..5).contains(&(i % 6)) && !(i / 6).is_multiple_of(4) {
            i
        } else {
            0
        }
    };
    assert_eq!(back, (0..48).map(expected).collect::<Vec<u32>>());
    // Device memory, by two dimensions.
    let (mut addr, mut pinned) = (0, std::ptr::null_mut());
    cu!(cuMemAlloc_v2(&mut addr, 64));
    cu!(cuMemHostAlloc(&mut pinned, 64, 0));
    let two = |dst, src| Copy2D {
        dst,
        src,
        width: 8,
        height: 2,
    };
    let in_array = || Side2D {
        x: 8,
        y: 1,
        memory_type: ARRAY,
        array,
        ..Side2D::default()
    };
    let on_device = || Side2D {
        memory_type: DEVICE,
        device: addr,
        pitch: 8,
        ..Side2D::default()
    };
    cu!(cuMemcpy2D_v2(&two(on_device(), in_array())));
    let mut words = [0_u32; 4];
    cu!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), addr, 16));
    assert_eq!(words, [15, 16, 21, 22]);
    let in_pinned = Side2D {
        memory_type: HOST,
        host: pinned.expose_provenance() as u64,
        pitch: 8,
        ..Side2D::default()
    };
    cu!(cuMemcpy2D_v2(&two(in_pinned, in_array())));
    // SAFETY: sixteen bytes of the allocation, which nothing else uses.
    assert_eq!(unsafe { pinned.cast::<[u32; 4]>().read() }, words);
    // Beyond the array, and half an element.
    let beyond = Copy3D {
        width: 20,
        ..boxed(of_array(array, [0; 3]), side(host.as_ptr()))
    };
    cu!(cuMemcpy3D_v2(&beyond) => INVALID_VALUE);
    cu!(cuMemcpy3D_v2(&boxed(of_array(array, [2, 0, 0]), side(host.as_ptr()))) => INVALID_VALUE);
    cu!(cuMemcpy3D_v2(&boxed(of_array(addr, [0; 3]), side(host.as_ptr()))) => INVALID_HANDLE);
}

/// The server has 16 MiB in all, so what copies allocate must be given back.
fn copies_give_their_memory_back() {
    context();
    let array = array([1 << 10, 1 << 9, 0]);
    let host: Vec<u32> = (0..1 << 19).collect();
    for _ in 0..12 {
        cu!(cuMemcpyHtoA_v2(array, 0, host.as_ptr().cast(), 4 << 19));
    }
    let mut back = vec![0_u32; 1 << 19];
    cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 0, 4 << 19));
    assert!(back == host);
}

fn ranges_are_rows_of_an_array() {
    context();
    let (first, second) = (array([4, 3, 0]), array([4, 3, 0]));
    let host: Vec<u32> = (1..13).collect();
    // The end of the first row, the second, the beginning of the third.
    cu!(cuMemcpyHtoA_v2(first, 8, host.as_ptr().cast(), 28));
    let mut back = [0_u32; 12];
    cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 0, 48));
    assert_eq!(back, [0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0]);
    cu!(cuMemcpyAtoA_v2(second, 8, first, 8, 16));
    cu!(cuMemcpyAtoA_v2(second, 4, first, 8, 16) => NOT_SUPPORTED);
    let mut addr = 0;
    cu!(cuMemAlloc_v2(&mut addr, 48));
    cu!(cuMemcpyAtoD_v2(addr, second, 0, 48));
    cu!(cuMemcpyDtoA_v2(first, 16, addr, 16));
    cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 0, 48));
    assert_eq!(back, [0, 0, 1, 2, 0, 0, 1, 2, 7, 0, 0, 0]);
    cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 4, 48) => INVALID_VALUE);
    cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array([4, 3, 2]), 0, 4) => NOT_SUPPORTED);
}

fn levels_of_a_mipmapped_array_are_arrays() {
    context();
    let (mut mipmapped, mut level) = (0, 0);
    cu!(cuMipmappedArrayCreate(&mut mipmapped, &shape([8, 4, 0], 0), 99));
    cu!(cuMipmappedArrayGetLevel(&mut level, mipmapped, 4) => INVALID_VALUE);
    cu!(cuMipmappedArrayGetLevel(&mut level, mipmapped, 2));
    let mut told = Descriptor3D::default();
    cu!(cuArray3DGetDescriptor_v2(&mut told, level));
    assert_eq!(told, shape([2, 1, 0], 0));
    let (words, mut back) = ([3_u32, 4], [0_u32; 2]);
    cu!(cuMemcpyHtoA_v2(level, 0, words.as_ptr().cast(), 8));
    cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), level, 0, 8));
    assert_eq!(back, words);
    cu!(cuArrayDestroy(level) => INVALID_HANDLE);
    cu!(cuMipmappedArrayDestroy(mipmapped));
    cu!(cuArray3DGetDescriptor_v2(&mut told, level) => INVALID_HANDLE);
    cu!(cuMipmappedArrayDestroy(mipmapped) => INVALID_HANDLE);
    cu!(cuCtxSynchronize());
}

fn objects_tell_what_they_were_made_of() {
    context();
    let plain = array([4, 3, 0]);
    let resource = |kind, words: &[u64]| {
        let mut made = ResourceDescriptor {
            kind,
            ..ResourceDescriptor::default()
        };
        made.words[..words.len()].copy_from_slice(words);
        made
    };
    let mut texture = TextureDescriptor::default();
    texture.fields[3] = 1;
    let (mut mipmapped, mut level) = (0, 0);
    cu!(cuMipmappedArrayCreate(&mut mipmapped, &shape([8, 4, 0], 0), 2));
    cu!(cuMipmappedArrayGetLevel(&mut level, mipmapped, 1));
    let (mut addr, mut pinned) = (0, std::ptr::null_mut());
    cu!(cuMemAlloc_v2(&mut addr, 64));
    cu!(cuMemHostAlloc(&mut pinned, 64, 0));
    let format = 1 << 32 | 3;
    let mut object = 0;
    for (made, says) in [
        (resource(0, &[plain]), 0),
        (resource(0, &[level]), 1),
        (resource(1, &[mipmapped]), 100),
        (resource(2, &[addr, format, 48]), 48),
        (resource(3, &[addr, format, 4, 3, 16]), 3),
    ] {
        cu!(cuTexObjectCreate(&mut object, &made, &texture, null()));
        assert_eq!(object & 0xffff_ffff, 1 << 16 | says, "filter and resource");
        let mut told = ResourceDescriptor::default();
        cu!(cuTexObjectGetResourceDesc(&mut told, object));
        assert_eq!(told, made);
    }
    let mut told = TextureDescriptor::default();
    cu!(cuTexObjectGetTextureDesc(&mut told, object));
    assert_eq!(told, texture);
    cu!(cuTexObjectGetResourceViewDesc(&mut [0; 14], object) => INVALID_VALUE);
    let view = [1_u64; 14];
    let with_view = resource(0, &[plain]);
    cu!(cuTexObjectCreate(
        &mut object,
        &with_view,
        &texture,
        view.as_ptr().cast::<c_void>()
    ));
    let mut told = [0; 14];
    cu!(cuTexObjectGetResourceViewDesc(&mut told, object));
    assert_eq!(told[1..6], view[1..6]);
    cu!(cuTexObjectDestroy(object));
    cu!(cuTexObjectDestroy(object) => INVALID_VALUE);
    cu!(cuTexObjectDestroy(0));

    let of_plain = resource(0, &[plain]);
    let mut surface = 0;
    cu!(cuSurfObjectCreate(&mut surface, &of_plain));
    let mut told = ResourceDescriptor::default();
    cu!(cuSurfObjectGetResourceDesc(&mut told, surface));
    assert_eq!(told, of_plain);
    cu!(cuTexObjectGetResourceDesc(&mut told, surface) => INVALID_VALUE);
    cu!(cuSurfObjectDestroy(surface));

    let outside = pinned.expose_provenance() as u64;
    for (refused, result) in [
        (resource(0, &[addr]), INVALID_HANDLE),
        (resource(2, &[16, format, 16]), INVALID_VALUE),
        (resource(2, &[outside, format, 16]), NOT_SUPPORTED),
        (resource(9, &[]), INVALID_VALUE),
    ] {
        cu!(cuTexObjectCreate(&mut object, &refused, &texture, null()) => result);
    }
}

fn captured_streams_take_no_arrays() {
    context();
    let array = array([4, 3, 0]);
    let mut stream = 0;
    cu!(cuStreamCreate(&mut stream, 0));
    cu!(cuStreamBeginCapture_v2(stream, 0));
    let mut addr = 0;
    cu!(cuMemAlloc_v2(&mut addr, 64));
    let copy = Copy3D {
        dst: of_array(array, [0; 3]),
        src: Side3D {
            memory_type: DEVICE,
            device: addr,
            pitch: 16,
            ..Side3D::default()
        },
        width: 16,
        height: 3,
        depth: 1,
    };
    cu!(cuMemcpy3DAsync_v2(&copy, stream) => NOT_SUPPORTED);
    let mut graph = 0;
    cu!(cuStreamEndCapture(stream, &mut graph));
    cu!(cuMemcpy3DAsync_v2(&copy, stream));
    cu!(cuCtxSynchronize());
}
