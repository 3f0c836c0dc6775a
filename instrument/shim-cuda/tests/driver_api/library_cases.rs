//! Cases of what libraries ask for beyond what the CUDA runtime does.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::api::*;
use crate::cases::{Case, alloc, context, load, read_words};
use crate::cu;
use crate::server::{CLUSTER_SAYS_ITS_SIZE, UNKNOWN_CLUSTER};

/// All of them.
pub const ALL: &[Case] = &[
    (
        "libraries_find_what_is_in_no_header",
        libraries_find_what_is_in_no_header,
    ),
    ("clusters_reach_the_server", clusters_reach_the_server),
    ("clusters_are_told_by_the_device", clusters_are_told_by_the_device),
    ("tensor_maps_are_the_servers", tensor_maps_are_the_servers),
    (
        "words_are_written_in_a_streams_order",
        words_are_written_in_a_streams_order,
    ),
    ("streams_keep_their_attributes", streams_keep_their_attributes),
    (
        "pointers_may_be_asked_about_without_a_context",
        pointers_may_be_asked_about_without_a_context,
    ),
];

/// A table of `cuGetExportTable`, whose UUID is given as one reads it.
fn table(uuid: u128) -> *const *const c_void {
    let mut table = null();
    cu!(cuGetExportTable(&mut table, &uuid.to_be()));
    table
}

/// A function of such a table.
fn slot<F: Copy>(table: *const *const c_void, number: usize) -> F {
    // SAFETY: the table says that it is as long.
    let function = unsafe { table.wrapping_add(number).read() };
    // SAFETY: the case names the function's type.
    unsafe { std::mem::transmute_copy(&function) }
}

fn libraries_find_what_is_in_no_header() {
    let context = context();
    let (module, function) = load();
    let contexts = table(0x2131_8c60_9714_3248_8ca6_41ff_7324_c8f2);
    let number: extern "C" fn(u64, *mut u64) -> u32 = slot(contexts, 4);
    let mut got = 0;
    assert_eq!((number(context, &mut got), got), (SUCCESS, context));
    let unknown: extern "C" fn() -> u32 = slot(contexts, 5);
    assert_eq!(unknown(), NOT_SUPPORTED);
    let refusing: extern "C" fn() -> u32 = slot(table(0x1734_dc26_800d_4745_8726_c0f1_e7dd_8bca), 1);
    assert_eq!(refusing(), NOT_SUPPORTED);

    extern "C" fn take_first(place: *mut u64, function: u64, _owner: u64) -> u32 {
        // SAFETY: the case's own place.
        unsafe { place.write(function) };
        0
    }
    type Each = extern "C" fn(u64, u64, extern "C" fn(*mut u64, u64, u64) -> u32, *mut u64) -> u32;
    let each: Each = slot(table(0x6e16_3fbe_b958_444d_835c_e182_aff1_991e), 7);
    let mut first = 0;
    assert_eq!((each(context, module, take_first, &mut first), first), (1, function));
    assert_eq!(each(context, 1, take_first, &mut first), INVALID_HANDLE);
}

/// Clusters of `x` blocks.
fn clusters_of(x: u32) -> LaunchAttribute {
    LaunchAttribute {
        id: 4,
        reserved: 0,
        value: [x, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

fn four_blocks(attribute: &LaunchAttribute) -> LaunchConfig {
    LaunchConfig {
        grid: [4, 1, 1],
        block: [2, 1, 1],
        shared: 0,
        stream: 0,
        attributes: attribute,
        num_attributes: 1,
    }
}

fn clusters_reach_the_server() {
    context();
    let (_, function) = load();
    let addr = alloc(8 * 4);
    let (n, params) = (CLUSTER_SAYS_ITS_SIZE, [addr]);
    let params = [params.as_ptr().cast::<c_void>(), (&raw const n).cast()];
    for (size, result, sum) in [
        (2, SUCCESS, 2),
        (1, SUCCESS, 0),
        (3, INVALID_CLUSTER_SIZE, 0),
        (32, INVALID_CLUSTER_SIZE, 0),
    ] {
        cu!(cuMemsetD32_v2(addr, 0, 8));
        let attribute = clusters_of(size);
        cu!(cuLaunchKernelEx(&four_blocks(&attribute), function, params.as_ptr(), null()) => result);
        assert_eq!(read_words(addr, 8), [sum; 8], "clusters of {size}");
    }
}

fn clusters_are_told_by_the_device() {
    const NON_PORTABLE_CLUSTERS: u32 = 14;
    context();
    let (_, function) = load();
    let active = |size| {
        let (mut clusters, attribute) = (0, clusters_of(size));
        // SAFETY: a place, a kernel and a launch.
        let result = unsafe { cuOccupancyMaxActiveClusters(&mut clusters, function, &four_blocks(&attribute)) };
        (result, clusters)
    };
    let attribute = clusters_of(1);
    let largest = || {
        let mut size = 0;
        cu!(cuOccupancyMaxPotentialClusterSize(
            &mut size,
            function,
            &four_blocks(&attribute)
        ));
        size
    };
    assert_eq!(
        (active(2), active(16), largest()),
        ((SUCCESS, 360), (INVALID_CLUSTER_SIZE, 0), 8)
    );
    cu!(cuFuncSetAttribute(function, NON_PORTABLE_CLUSTERS, 1));
    let mut is_allowed = 0;
    cu!(cuFuncGetAttribute(&mut is_allowed, NON_PORTABLE_CLUSTERS, function));
    // Larger ones than can be launched are asked about too.
    assert_eq!(
        (is_allowed, active(16), active(18), largest()),
        (1, (SUCCESS, 45), (SUCCESS, 40), 16)
    );
    // A device without clusters: what fits its multiprocessors.
    let (result, clusters) = active(UNKNOWN_CLUSTER);
    assert!(result == SUCCESS && clusters > 0);
    assert_eq!(active(256).0, INVALID_CLUSTER_SIZE);
}

fn tensor_maps_are_the_servers() {
    context();
    let addr = alloc(1 << 20);
    let (sizes, strides, tile, steps) = ([64_u64, 32], [128_u64], [16_u32, 8], [1_u32; 2]);
    let mut map = [0; 128];
    cu!(cuTensorMapEncodeTiled(
        &mut map,
        6,
        2,
        addr,
        sizes.as_ptr(),
        strides.as_ptr(),
        tile.as_ptr(),
        steps.as_ptr(),
        0,
        1,
        2,
        0
    ));
    // As the server of these cases makes them.
    assert_eq!(map[..8], addr.to_le_bytes());
    assert_eq!(map[8..16], [6, 2, 64, 32, 128, 16, 8, 1]);
    cu!(cuTensorMapEncodeTiled(&mut map, 6, 6, addr, sizes.as_ptr(), strides.as_ptr(), tile.as_ptr(), steps.as_ptr(),
        0, 0, 0, 0) => INVALID_VALUE);
}

fn words_are_written_in_a_streams_order() {
    context();
    let addr = alloc(16);
    cu!(cuMemsetD32_v2(addr, 1, 4));
    cu!(cuStreamWriteValue32(0, addr + 4, 7, 0));
    cu!(cuStreamWriteValue64_v2(0, addr + 8, (5 << 32) | 3, 0));
    assert_eq!(read_words(addr, 4), [1, 7, 3, 5]);
    cu!(cuStreamWriteValue64_v2(0, addr + 4, 0, 0) => INVALID_VALUE);
    cu!(cuStreamWriteValue64_v2(0, (&raw const addr).addr() as u64, 0, 0) => INVALID_VALUE);
    cu!(cuStreamWaitValue32_v2(0, addr + 4, 7, 1));
    cu!(cuStreamWaitValue32_v2(0, addr + 2, 7, 1) => INVALID_VALUE);
    cu!(cuStreamWaitValue32_v2(0, addr, 1, 1 << 30) => NOT_SUPPORTED);
    let operation = |kind: u64, addr: u64, value: u64| [kind, addr, value, 0, 0, 0];
    let operations = [
        operation(2, addr, 9),
        operation(6, 0, 0),
        operation(1, addr, 9),
        operation(5, addr + 8, 1 << 32),
    ];
    cu!(cuStreamBatchMemOp_v2(0, 4, operations.as_ptr(), 0));
    assert_eq!(read_words(addr, 4), [9, 7, 0, 1]);
    cu!(cuStreamBatchMemOp_v2(0, 1, &operation(3, 0, 0), 0) => NOT_SUPPORTED);
    cu!(cuMemExportToShareableHandle(null_mut(), 0, 1, 0) => NOT_SUPPORTED);
    let mut context = 1;
    cu!(cuStreamGetGreenCtx(0, &mut context));
    assert_eq!(context, 0);
}

fn streams_keep_their_attributes() {
    const ACCESS_POLICY_WINDOW: u32 = 1;
    const SYNCHRONIZATION_POLICY: u32 = 3;
    context();
    let mut stream = 0;
    cu!(cuStreamCreate(&mut stream, 0));
    let mut value = [9; 16];
    cu!(cuStreamGetAttribute(stream, SYNCHRONIZATION_POLICY, &mut value));
    assert_eq!(value[..2], [1, 0], "as it begins");
    let window: [u32; 16] = std::array::from_fn(|i| i as u32);
    cu!(cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, &window));
    cu!(cuStreamGetAttribute(stream, ACCESS_POLICY_WINDOW, &mut value));
    assert_eq!(value, window);
    cu!(cuStreamGetAttribute(0, ACCESS_POLICY_WINDOW, &mut value));
    assert_eq!(value, [0; 16], "another stream's");
    cu!(cuStreamCopyAttributes(0, stream));
    cu!(cuStreamGetAttribute(0, ACCESS_POLICY_WINDOW, &mut value));
    assert_eq!(value, window);
    cu!(cuStreamSetAttribute(stream, 99, &window) => INVALID_VALUE);
    cu!(cuStreamDestroy_v2(stream));
    cu!(cuStreamGetAttribute(stream, ACCESS_POLICY_WINDOW, &mut value) => INVALID_HANDLE);
}

fn pointers_may_be_asked_about_without_a_context() {
    context();
    let addr = alloc(8);
    let ask = move || {
        let (mut kind, mut start) = (9_u32, 9_u64);
        let values = [(&raw mut kind).cast(), (&raw mut start).cast()];
        cu!(cuPointerGetAttributes(2, [2, 11].as_ptr(), values.as_ptr(), addr));
        (kind, start)
    };
    assert_eq!(std::thread::spawn(ask).join().unwrap(), (2, addr));
}
