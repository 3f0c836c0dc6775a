//! The cases, each a program of its own.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::api::*;
use crate::cu;
use crate::server::{DEADLY_GRID, FAULTING_GRID};

/// A case: its name, and what it does.
pub type Case = (&'static str, fn());

/// All cases.
pub const ALL: &[Case] = &[
    ("describes_the_device_of_the_server", describes_the_device_of_the_server),
    (
        "refuses_calls_before_initialisation_and_without_a_context",
        refuses_calls_before_initialisation,
    ),
    ("copies_go_there_and_back", copies_go_there_and_back),
    (
        "freed_memory_may_be_another_threads_at_once",
        freed_memory_may_be_another_threads_at_once,
    ),
    ("rows_keep_their_pitch", rows_keep_their_pitch),
    ("kernels_get_their_parameters", kernels_get_their_parameters),
    (
        "launches_that_cannot_run_are_refused",
        launches_that_cannot_run_are_refused,
    ),
    (
        "managed_memory_is_shared_with_the_server",
        managed_memory_is_shared_with_the_server,
    ),
    (
        "pinned_memory_is_shared_with_the_server",
        pinned_memory_is_shared_with_the_server,
    ),
    (
        "registered_memory_is_shared_once_its_place_is_asked_for",
        registered_memory_is_shared_once_its_place_is_asked_for,
    ),
    (
        "managed_variables_are_reached_by_the_host",
        managed_variables_are_reached_by_the_host,
    ),
    ("host_functions_run_in_the_program", host_functions_run_in_the_program),
    (
        "streams_and_events_have_handles_that_end",
        streams_and_events_have_handles_that_end,
    ),
    ("what_is_linked_can_be_loaded", what_is_linked_can_be_loaded),
    ("captures_are_ended_as_they_began", captures_are_ended_as_they_began),
    ("what_cannot_be_captured_spoils_it", what_cannot_be_captured_spoils_it),
    (
        "captured_work_is_done_at_each_launch",
        captured_work_is_done_at_each_launch,
    ),
    ("graphs_give_their_memory_back", graphs_give_their_memory_back),
    (
        "a_fault_sticks_until_the_device_is_reset",
        a_fault_sticks_until_the_device_is_reset,
    ),
    ("libraries_outlive_a_reset", libraries_outlive_a_reset),
    (
        "a_dead_server_is_an_error_for_all_threads",
        a_dead_server_is_an_error_for_all_threads,
    ),
    ("a_forked_child_has_no_device", a_forked_child_has_no_device),
    ("a_fork_waits_for_the_start", a_fork_waits_for_the_start),
    ("the_server_is_nobodys_child", the_server_is_nobodys_child),
    ("contexts_keep_the_runtimes_values", contexts_keep_the_runtimes_values),
    ("what_is_missing_says_so", what_is_missing_says_so),
    (
        "contexts_are_made_of_empty_parameters",
        contexts_are_made_of_empty_parameters,
    ),
];

const RELAXED: u32 = 2;
const IMAGE: &[u8] = b".version 8.0\n.target sm_80\n\0";

pub fn context() -> u64 {
    cu!(cuInit(0));
    let mut context = 0;
    cu!(cuDevicePrimaryCtxRetain(&mut context, 0));
    cu!(cuCtxSetCurrent(context));
    context
}

pub fn alloc(size: usize) -> u64 {
    let mut addr = 0;
    cu!(cuMemAlloc_v2(&mut addr, size));
    addr
}

pub fn read_words(addr: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0_u32; count];
    cu!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), addr, count * 4));
    words
}

pub fn load() -> (u64, u64) {
    let (mut module, mut function) = (0, 0);
    cu!(cuModuleLoadData(&mut module, IMAGE.as_ptr().cast()));
    cu!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
    (module, function)
}

fn launch(function: u64, grid: u32, block: u32, addr: u64, n: u32) -> u32 {
    launch_in(0, function, grid, block, addr, n)
}

fn launch_in(stream: u64, function: u64, grid: u32, block: u32, addr: u64, n: u32) -> u32 {
    let params = [(&raw const addr).cast::<c_void>(), (&raw const n).cast()];
    // SAFETY: the parameters are what the kernel's description says.
    unsafe { cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params.as_ptr(), null()) }
}

fn describes_the_device_of_the_server() {
    cu!(cuInit(0));
    let mut count = 0;
    cu!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
    let mut name = [1 as c_char; 8];
    cu!(cuDeviceGetName(name.as_mut_ptr(), 8, 0));
    assert_eq!(name.map(|c| c as u8), *b"test de\0");
    let attribute = |number| {
        let mut value = -1;
        cu!(cuDeviceGetAttribute(&mut value, number, 0));
        value
    };
    assert_eq!((attribute(75), attribute(8), attribute(76)), (9, 49152, 0));
    assert_eq!(
        attribute(88),
        0,
        "pageable memory is not offered, whatever the device can do"
    );
    cu!(cuDeviceGetAttribute(&mut count, 148, 0) => INVALID_VALUE);
}

fn refuses_calls_before_initialisation() {
    let (mut count, mut addr, mut context) = (0, 0, 1);
    cu!(cuDeviceGetCount(&mut count) => NOT_INITIALIZED);
    cu!(cuInit(0));
    cu!(cuMemAlloc_v2(&mut addr, 4) => INVALID_CONTEXT);
    cu!(cuCtxGetCurrent(&mut context));
    assert_eq!(context, 0);
    cu!(cuCtxSetCurrent(4711) => INVALID_CONTEXT);
}

fn copies_go_there_and_back() {
    context();
    for size in [1, 4096, 4097, 3 << 20] {
        let addr = alloc(size);
        let sent: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut back = vec![0; size];
        cu!(cuMemcpyHtoD_v2(addr, sent.as_ptr().cast(), size));
        cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), addr, size));
        assert!(sent == back, "{size} bytes");
        cu!(cuMemcpyHtoD_v2(addr, sent.as_ptr().cast(), size + 1) => INVALID_VALUE);
        cu!(cuMemFree_v2(addr + 1) => INVALID_VALUE);
        cu!(cuMemFree_v2(addr));
        cu!(cuMemFree_v2(addr) => INVALID_VALUE);
    }
    let addr = alloc(64);
    cu!(cuMemsetD32_v2(addr + 4, 0xabcd_0123, 14));
    assert_eq!(read_words(addr, 16)[..3], [0, 0xabcd_0123, 0xabcd_0123]);
    assert_eq!(read_words(addr, 16)[15], 0);
    cu!(cuMemsetD32_v2(addr + 4, 0, 16) => INVALID_VALUE);
    cu!(cuMemFree_v2(0));
}

/// So often that a library that forgets an address after the server has freed it is found out: it loses another
/// thread's allocation then.
fn freed_memory_may_be_another_threads_at_once() {
    let context = context();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                cu!(cuCtxSetCurrent(context));
                for _ in 0..100_000 {
                    cu!(cuMemFree_v2(alloc(512)));
                }
            });
        }
    });
}

fn rows_keep_their_pitch() {
    context();
    let (width, height, pitch) = (100_u64, 6000_u64, 512);
    let addr = alloc((pitch * height) as usize);
    let sent: Vec<u8> = (0..width * height).map(|i| (i % 253) as u8).collect();
    let mut back = vec![0_u8; (120 * height) as usize];
    let device = |pitch| Side2D {
        memory_type: 2,
        device: addr,
        pitch,
        ..Side2D::default()
    };
    let host = |addr: *const u8, pitch| Side2D {
        memory_type: 1,
        host: addr as u64,
        pitch,
        ..Side2D::default()
    };
    cu!(cuMemcpy2D_v2(&Copy2D {
        src: host(sent.as_ptr(), width),
        dst: device(pitch),
        width,
        height
    }));
    cu!(cuMemcpy2D_v2(&Copy2D {
        src: device(pitch),
        dst: host(back.as_ptr(), 120),
        width,
        height
    }));
    for (row, (sent, back)) in sent.chunks(width as usize).zip(back.chunks_mut(120)).enumerate() {
        assert!(*sent == back[..100] && back[100..].iter().all(|&b| b == 0), "row {row}");
    }
    cu!(cuMemcpy2D_v2(&Copy2D { src: device(99), dst: host(back.as_ptr(), 120), width, height }) => INVALID_VALUE);
}

fn kernels_get_their_parameters() {
    context();
    let (module, function) = load();
    let addr = alloc(64 * 4);
    cu!(cuMemsetD32_v2(addr, 1, 64));
    assert_eq!(launch(function, 2, 32, addr, 41), SUCCESS);
    assert_eq!(read_words(addr, 64), [42; 64]);
    let (mut variable, mut size) = (0, 0);
    cu!(cuModuleGetGlobal_v2(
        &mut variable,
        &mut size,
        module,
        c"variable".as_ptr()
    ));
    assert_eq!((read_words(variable, 1)[0], size), (5, 4));
    let mut other = 0;
    cu!(cuModuleGetFunction(&mut other, module, c"none".as_ptr()) => NOT_FOUND);
    cu!(cuModuleUnload(module));
    assert_eq!(launch(function, 1, 1, addr, 1), INVALID_HANDLE);
}

fn launches_that_cannot_run_are_refused() {
    context();
    let (_, function) = load();
    let addr = alloc(4);
    for (grid, block, expected) in [(0, 1, 1), (1, 0, 1), (1, 1025, 1), (1, 257, 701)] {
        assert_eq!(
            launch(function, grid, block, addr, 1),
            expected,
            "{grid} blocks of {block}"
        );
    }
    let mut value = 0;
    cu!(cuFuncGetAttribute(&mut value, 0, function));
    assert_eq!(value, 256);
    cu!(cuFuncGetAttribute(&mut value, 8, function));
    assert_eq!(value, 49152 - 64);
    assert_eq!(launch(function, 1, 1, addr, 3), SUCCESS, "a refusal breaks nothing");
    assert_eq!(read_words(addr, 1), [3]);
}

fn pinned_memory_is_shared_with_the_server() {
    context();
    let (mut small, mut big) = (null_mut(), null_mut());
    cu!(cuMemHostAlloc(&mut small, 1000, 0));
    cu!(cuMemHostAlloc(&mut big, 5 << 20, 0));
    let addr = alloc(5 << 20);
    for (host, size) in [(small, 1000), (big, 5 << 20)] {
        // SAFETY: just allocated.
        let bytes = unsafe { std::slice::from_raw_parts_mut(host, size) };
        bytes
            .iter_mut()
            .zip(0_u32..)
            .for_each(|(byte, i)| *byte = (i % 251) as u8);
        cu!(cuMemcpyAsync(addr, host as u64, size, 0));
        cu!(cuMemsetD32_v2(addr, u32::MAX, 1));
        cu!(cuMemcpyAsync(host as u64, addr, size, 0));
        cu!(cuCtxSynchronize());
        assert_eq!(bytes[..6], [255, 255, 255, 255, 4, 5]);
        let mut memory_type = 0_u32;
        cu!(cuPointerGetAttribute((&raw mut memory_type).cast(), 2, host as u64 + 1));
        assert_eq!(memory_type, 1);
        cu!(cuMemFreeHost(host));
        cu!(cuMemFreeHost(host) => INVALID_VALUE);
    }
}

fn registered_memory_is_shared_once_its_place_is_asked_for() {
    const SIZE: usize = 9000;
    context();
    let mut memory: Vec<u8> = (0..SIZE + 100).map(|i| (i % 251) as u8).collect();
    let addr = alloc(SIZE);
    // Twice: what is no longer registered is ordinary memory again.
    for round in 1..=2_u32 {
        let host = memory[50..].as_mut_ptr();
        let mut place = 0;
        cu!(cuMemHostGetDevicePointer_v2(&mut place, host, 0) => INVALID_VALUE);
        cu!(cuMemHostRegister_v2(host, SIZE, 2));
        cu!(cuMemHostGetDevicePointer_v2(
            &mut place,
            memory[50 + 7..].as_mut_ptr(),
            0
        ));
        let mut again = 0;
        cu!(cuMemHostGetDevicePointer_v2(&mut again, host, 0));
        assert_eq!(place, again + 7);
        let before: Vec<u8> = (0..SIZE + 100).map(|i| (i % 251) as u8).collect();
        assert_eq!(memory[50 + 4..], before[50 + 4..]);
        cu!(cuMemsetD32_v2(addr, round, 1));
        // The server writes to its own mapping.
        cu!(cuMemcpyAsync(again, addr, 4, 0));
        cu!(cuCtxSynchronize());
        assert_eq!(memory[50..54], round.to_le_bytes());
        cu!(cuMemHostUnregister(memory[50..].as_mut_ptr()));
        cu!(cuMemHostUnregister(memory[50..].as_mut_ptr()) => NOT_REGISTERED);
        assert_eq!(memory[50..54], round.to_le_bytes());
        assert_eq!((&memory[..50], &memory[54..]), (&before[..50], &before[54..]));
    }
}

fn managed_memory_is_shared_with_the_server() {
    const SIZES: [usize; 2] = [1000, 5 << 20];
    context();
    let mut addrs = [0; 2];
    cu!(cuMemAllocManaged(&mut addrs[0], SIZES[0], 0) => INVALID_VALUE);
    for (addr, size) in addrs.iter_mut().zip(SIZES) {
        cu!(cuMemAllocManaged(addr, size, 1));
    }
    let other = alloc(SIZES[1]);
    for (addr, size) in addrs.into_iter().zip(SIZES) {
        // SAFETY: just allocated, and nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, size) };
        assert_eq!(bytes[size - 1], 0);
        bytes.fill(3);
        cu!(cuMemPrefetchAsync(addr, size, 0, 0));
        cu!(cuMemcpyAsync(other, addr, size, 0));
        cu!(cuMemsetD32_v2(addr, u32::MAX, 1));
        cu!(cuCtxSynchronize());
        assert_eq!((bytes[3], bytes[4]), (255, 3));
        assert_eq!(read_words(other, 1), [0x0303_0303]);
        let word = |attribute| {
            let mut word = 0_i32;
            cu!(cuPointerGetAttribute((&raw mut word).cast(), attribute, addr + 1));
            word
        };
        assert_eq!((word(2), word(8)), (2, 1));

        let told = |attribute| {
            let mut word = 0_i32;
            cu!(cuMemRangeGetAttribute((&raw mut word).cast(), 4, attribute, addr, size));
            word
        };
        assert_eq!((told(1), told(2), told(4)), (0, -2, 0));
        cu!(cuMemAdvise(addr, size, 3, -1));
        assert_eq!(told(2), -1);
        cu!(cuMemAdvise(addr, size, 3, 7) => 101);
        cu!(cuMemPrefetchAsync(addr, size + 1, 0, 0) => INVALID_VALUE);
        cu!(cuStreamAttachMemAsync(0, addr, 0, 4));
        cu!(cuMemFree_v2(addr));
        cu!(cuMemFree_v2(addr) => INVALID_VALUE);
    }
    cu!(cuMemAdvise(other, 64, 1, 0) => INVALID_VALUE);
    cu!(cuMemFree_v2(other));
}

static CALLS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count(argument: *mut c_void) {
    CALLS.fetch_add(argument.addr() as u32, Ordering::SeqCst);
}

fn managed_variables_are_reached_by_the_host() {
    const MANAGED: &[u8] = b".version 8.0\n.target sm_80\n.global .attribute(.managed) .u64 shared;\n\0";
    context();
    let (plain, _) = load();
    let mut module = 0;
    cu!(cuModuleLoadData(&mut module, MANAGED.as_ptr().cast()));
    let (mut addr, mut size) = (0, 0);
    cu!(cuLibraryGetManaged(&mut addr, &mut size, module, c"shared".as_ptr()));
    assert_eq!(size, 8);
    let place = std::ptr::with_exposed_provenance_mut::<[u32; 2]>(addr as usize);
    // SAFETY: the library says that the host reaches so many bytes there; nobody else uses them.
    unsafe { *place = [3, 4] };
    assert_eq!(read_words(addr, 2), [3, 4]);
    cu!(cuLibraryGetManaged(&mut addr, &mut size, plain, c"variable".as_ptr()) => NOT_SUPPORTED);
    cu!(cuModuleUnload(module));
    let mut memory_type = 0_u32;
    cu!(cuPointerGetAttribute((&raw mut memory_type).cast(), 2, addr) => INVALID_VALUE);
}

fn host_functions_run_in_the_program() {
    context();
    for n in 1..=10 {
        cu!(cuLaunchHostFunc(0, count, std::ptr::without_provenance_mut(n)));
    }
    for _ in 0..2000 {
        if CALLS.load(Ordering::SeqCst) == 55 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{CALLS:?}");
}

fn contexts_are_made_of_empty_parameters() {
    cu!(cuInit(0));
    let mut made = 0;
    cu!(cuCtxCreate_v4(&mut made, [0; 3].as_ptr(), 0, 0));
    cu!(cuCtxDestroy_v2(made));
    cu!(cuCtxCreate_v4(&mut made, std::ptr::null(), 0, 0));
    cu!(cuCtxDestroy_v2(made));
    cu!(cuCtxCreate_v4(&mut made, [0, 1, 0].as_ptr(), 0, 0) => NOT_SUPPORTED);
    cu!(cuCtxCreate_v4(&mut made, [0, 0, 1].as_ptr(), 0, 0) => NOT_SUPPORTED);
}

fn streams_and_events_have_handles_that_end() {
    context();
    let (mut stream, mut start, mut end) = (0, 0, 0);
    cu!(cuStreamCreate(&mut stream, 1));
    cu!(cuEventCreate(&mut start, 0));
    cu!(cuEventCreate(&mut end, 2));
    cu!(cuEventQuery(start));
    cu!(cuEventSynchronize(start));
    cu!(cuEventRecord(start, stream));
    cu!(cuEventRecord(end, 2));
    cu!(cuEventQuery(start) => NOT_READY);
    let mut ms = 0.0;
    cu!(cuEventElapsedTime(&mut ms, start, end) => INVALID_HANDLE);
    cu!(cuEventElapsedTime(&mut ms, start, start));
    assert_eq!(ms, 1.5);
    // The next wait brings the time along, for what is recorded by then.
    cu!(cuEventSynchronize(start));
    cu!(cuEventElapsedTime(&mut ms, start, start));
    assert_eq!(ms, 2.5);
    cu!(cuEventSynchronize(start));
    cu!(cuEventRecord(start, stream));
    cu!(cuEventElapsedTime(&mut ms, start, start));
    assert_eq!(ms, 1.5);
    cu!(cuStreamSynchronize(stream));
    cu!(cuStreamDestroy_v2(stream));
    cu!(cuStreamSynchronize(stream) => INVALID_HANDLE);
    cu!(cuStreamSynchronize(start) => INVALID_HANDLE);
    cu!(cuEventQuery(stream) => INVALID_HANDLE);
}

fn a_fault_sticks_until_the_device_is_reset() {
    context();
    let (_, function) = load();
    let addr = alloc(4);
    assert_eq!(launch(function, FAULTING_GRID, 1, addr, 1), SUCCESS);
    let mut result = SUCCESS;
    for _ in 0..100 {
        // SAFETY: no arguments.
        result = unsafe { cuCtxSynchronize() };
        if result != SUCCESS {
            break;
        }
    }
    assert_eq!(result, ILLEGAL_ADDRESS);
    cu!(cuMemFree_v2(addr) => ILLEGAL_ADDRESS);
    cu!(cuDevicePrimaryCtxReset_v2(0));
    cu!(cuCtxSynchronize());
}

fn libraries_outlive_a_reset() {
    context();
    let (module, function) = load();
    let (mut variable, mut stream) = (0, 0);
    cu!(cuModuleGetGlobal_v2(
        &mut variable,
        null_mut(),
        module,
        c"variable".as_ptr()
    ));
    cu!(cuMemsetD32_v2(variable, 99, 1));
    cu!(cuStreamCreate(&mut stream, 0));
    let old = alloc(4);
    cu!(cuDevicePrimaryCtxReset_v2(0));
    cu!(cuMemFree_v2(old) => INVALID_VALUE);
    cu!(cuStreamSynchronize(stream) => INVALID_HANDLE);
    cu!(cuModuleGetGlobal_v2(
        &mut variable,
        null_mut(),
        module,
        c"variable".as_ptr()
    ));
    assert_eq!(read_words(variable, 1), [5], "variables have their first values again");
    let addr = alloc(4);
    assert_eq!(launch(function, 1, 1, addr, 8), SUCCESS);
    assert_eq!(read_words(addr, 1), [8]);
}

fn a_dead_server_is_an_error_for_all_threads() {
    let context = context();
    let (_, function) = load();
    let addr = alloc(4);
    assert_eq!(launch(function, DEADLY_GRID, 1, addr, 1), SUCCESS);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                cu!(cuCtxSetCurrent(context));
                cu!(cuCtxSynchronize() => DEVICE_UNAVAILABLE);
            });
        }
    });
    cu!(cuMemFree_v2(addr) => DEVICE_UNAVAILABLE);
}

/// Forks and runs `child`, which tells whether all is as it should be; the parent waits for it.
fn in_a_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the children of these cases call the library and the allocator, which has fork handlers, and exit.
    match unsafe { libc::fork() } {
        0 => {
            let code = i32::from(!child());
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = -1;
            // SAFETY: waits for the child into a local.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status == 0
        }
    }
}

/// In its grandchild the numbers of its parent's descriptors are those of other files, which stay open.
fn a_forked_child_has_no_device() {
    context();
    let addr = alloc(4);
    let is_refused = move || {
        // SAFETY: no pointers.
        let freed = unsafe { cuMemFree_v2(addr) };
        // SAFETY: as above.
        let initialised = unsafe { cuInit(0) };
        (freed, initialised) == (NOT_INITIALIZED, NOT_INITIALIZED)
    };
    let has_ring = || {
        std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .contains("hetckpt-ring")
    };
    assert!(has_ring());
    assert!(in_a_child(move || {
        let files: Vec<i32> = (0..8)
            // SAFETY: plain descriptor call.
            .map(|_| unsafe { libc::fcntl(2, libc::F_DUPFD, 100) })
            .collect();
        // SAFETY: asks for flags only.
        let are_open = move || files.iter().all(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
        is_refused() && !has_ring() && in_a_child(move || is_refused() && are_open())
    }));
    cu!(cuMemFree_v2(addr));
}

/// A child has a device of its own, if it was forked before its parent's start, or none, if after; never half of one.
fn a_fork_waits_for_the_start() {
    let starting = std::thread::spawn(|| {
        cu!(cuInit(0));
    });
    let mut is_started = false;
    for _ in 0..20 {
        is_started |= starting.is_finished();
        assert!(in_a_child(move || {
            // SAFETY: no pointers.
            let initialised = unsafe { cuInit(0) };
            let logs = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let has_log = logs
                .filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .filter_map(|link| Some(link.file_name()?.to_string_lossy().into_owned()))
                .any(|name| name.starts_with("app-") && name.ends_with(".log"));
            !has_log && (initialised == NOT_INITIALIZED || initialised == SUCCESS && !is_started)
        }));
    }
    starting.join().unwrap();
}

fn the_server_is_nobodys_child() {
    context();
    // SAFETY: asks for any child.
    let result = unsafe { libc::waitpid(-1, null_mut(), libc::WNOHANG | libc::__WALL) };
    assert_eq!(
        (result, std::io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::ECHILD))
    );
    let own: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    assert!(own.iter().filter(|fd| **fd >= 100).count() >= 2, "{own:?}");
    for fd in own.into_iter().filter(|fd| *fd >= 100 && *fd < 110) {
        // SAFETY: plain descriptor call.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
    }
}

fn contexts_keep_the_runtimes_values() {
    static DESTROYED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn destroy(_: u64, _: *mut c_void, value: *mut c_void) {
        DESTROYED.fetch_add(value.addr() as u32, Ordering::SeqCst);
    }
    type Put = unsafe extern "C" fn(u64, usize, usize, unsafe extern "C" fn(u64, *mut c_void, *mut c_void)) -> u32;
    type Get = unsafe extern "C" fn(*mut usize, u64, usize) -> u32;
    context();
    let uuid = 0xc693_336e_1121_df11_a8c3_68f3_55d8_9593_u128.to_be();
    let mut table = null();
    cu!(cuGetExportTable(&mut table, &uuid));
    // SAFETY: the table has at least three slots.
    let slots = unsafe { std::slice::from_raw_parts(table, 3) };
    // SAFETY: the first is this function.
    let put: Put = unsafe { std::mem::transmute(slots[0]) };
    // SAFETY: the third is this function.
    let get: Get = unsafe { std::mem::transmute(slots[2]) };
    let mut value = 0;
    cu!(get(&mut value, 0, 8) => INVALID_HANDLE);
    cu!(put(0, 8, 77, destroy));
    cu!(get(&mut value, 0, 8));
    assert_eq!(value, 77);
    cu!(cuDevicePrimaryCtxReset_v2(0));
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 77);
    cu!(get(&mut value, 0, 8) => INVALID_HANDLE);
}

fn what_is_linked_can_be_loaded() {
    const PTX: u32 = 1;
    const NVVM: u32 = 5;
    context();
    let (mut linking, mut image, mut size, mut module) = (0, null(), 0, 0);
    cu!(cuLinkCreate_v2(0, null(), null(), &mut linking));
    cu!(cuLinkComplete(linking, &mut image, &mut size) => INVALID_VALUE);
    let add = |kind, name: *const c_char| {
        let image = IMAGE.as_ptr().cast();
        // SAFETY: the image is there.
        unsafe { cuLinkAddData_v2(linking, kind, image, IMAGE.len(), name, 0, null(), null()) }
    };
    assert_eq!(add(PTX, c"kernels".as_ptr()), SUCCESS);
    assert_eq!(add(NVVM, null()), NOT_SUPPORTED);
    cu!(cuLinkComplete(linking, &mut image, &mut size));
    cu!(cuModuleLoadData(&mut module, image));
    cu!(cuLinkDestroy(linking));
    cu!(cuLinkDestroy(linking) => INVALID_HANDLE);
    let mut function = 0;
    cu!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
    let addr = alloc(4);
    assert_eq!(launch(function, 1, 1, addr, 3), SUCCESS);
    assert_eq!(read_words(addr, 1), [3]);
}

fn new_stream() -> u64 {
    const NON_BLOCKING: u32 = 1;
    let mut stream = 0;
    cu!(cuStreamCreate(&mut stream, NON_BLOCKING));
    stream
}

fn new_event() -> u64 {
    let mut event = 0;
    cu!(cuEventCreate(&mut event, 0));
    event
}

fn captures_are_ended_as_they_began() {
    context();
    let (first, second, event, addr) = (new_stream(), new_stream(), new_event(), alloc(64));
    let mut graph = 1;
    let (mut status, mut id) = (9, 0);
    cu!(cuStreamBeginCapture_v2(0, RELAXED) => CAPTURE_UNSUPPORTED);
    cu!(cuStreamEndCapture(first, &mut graph) => ILLEGAL_STATE);
    cu!(cuStreamIsCapturing(first, &mut status));
    assert_eq!(status, 0);
    cu!(cuStreamBeginCapture_v2(first, 0));
    cu!(cuStreamBeginCapture_v2(first, 0) => ILLEGAL_STATE);
    cu!(cuStreamGetCaptureInfo(first, &mut status, &mut id));
    assert_eq!((status, id), (1, 1));
    // The second stream comes into it by an event, and only the first ends it.
    cu!(cuEventRecord(event, first));
    cu!(cuStreamWaitEvent(second, event, 0));
    cu!(cuMemsetD32Async(addr, 7, 4, second));
    cu!(cuStreamEndCapture(second, &mut graph) => CAPTURE_UNMATCHED);
    cu!(cuStreamEndCapture(first, &mut graph) => CAPTURE_UNJOINED);
    assert_eq!(graph, 0);
    cu!(cuStreamIsCapturing(second, &mut status));
    assert_eq!(status, 0, "it is over");
    // Another thread may end only those that say so.
    cu!(cuStreamBeginCapture_v2(first, 0));
    let ended = std::thread::spawn(move || {
        context();
        let mut graph = 0;
        // SAFETY: the place is there.
        unsafe { cuStreamEndCapture(first, &mut graph) }
    });
    assert_eq!(ended.join().unwrap(), CAPTURE_WRONG_THREAD);
    cu!(cuStreamEndCapture(first, &mut graph));
    let mut count = 9;
    cu!(cuGraphGetNodes(graph, null_mut(), &mut count));
    assert_eq!(count, 0);
    cu!(cuGraphDestroy(graph));
    cu!(cuGraphDestroy(graph) => INVALID_VALUE);
    assert_eq!(read_words(addr, 1), [0], "what was captured is not done");
}

fn what_cannot_be_captured_spoils_it() {
    context();
    let (stream, other, event, loose) = (new_stream(), new_stream(), new_event(), new_event());
    let mut blocking = 0;
    cu!(cuStreamCreate(&mut blocking, 0));
    let addr = alloc(64);
    let mut graph = 0;
    let spoiled = |stream: u64, result: u32, by: &dyn Fn() -> u32| {
        let mut graph = 1;
        cu!(cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(by(), result);
        cu!(cuMemsetD32Async(addr, 7, 4, stream) => CAPTURE_INVALIDATED);
        cu!(cuStreamEndCapture(stream, &mut graph) => CAPTURE_INVALIDATED);
        assert_eq!(graph, 0);
    };
    // SAFETY: handles and addresses are good.
    spoiled(stream, CAPTURE_UNSUPPORTED, &|| unsafe { cuStreamSynchronize(stream) });
    // SAFETY: as above.
    spoiled(stream, CAPTURE_UNSUPPORTED, &|| unsafe { cuCtxSynchronize() });
    // SAFETY: as above.
    spoiled(stream, CAPTURE_ISOLATION, &|| unsafe {
        cuStreamWaitEvent(stream, loose, 0)
    });
    // SAFETY: as above.
    spoiled(blocking, CAPTURE_IMPLICIT, &|| unsafe { cuMemsetD32_v2(addr, 7, 4) });
    spoiled(stream, CAPTURED_EVENT, &|| {
        cu!(cuEventRecord(event, stream));
        // SAFETY: as above.
        unsafe { cuEventQuery(event) }
    });
    // Two captures do not become one.
    cu!(cuStreamBeginCapture_v2(stream, RELAXED));
    cu!(cuStreamBeginCapture_v2(other, RELAXED));
    cu!(cuEventRecord(event, other));
    cu!(cuStreamWaitEvent(stream, event, 0) => CAPTURE_MERGE);
    cu!(cuStreamEndCapture(stream, &mut graph) => CAPTURE_INVALIDATED);
    cu!(cuStreamEndCapture(other, &mut graph) => CAPTURE_INVALIDATED);
    // A stream that is not captured is not concerned.
    cu!(cuStreamBeginCapture_v2(stream, RELAXED));
    cu!(cuMemsetD32Async(addr, 5, 4, other));
    cu!(cuStreamSynchronize(other));
    cu!(cuStreamEndCapture(stream, &mut graph));
    assert_eq!(read_words(addr, 1), [5]);
}

fn captured_work_is_done_at_each_launch() {
    context();
    let (_, function) = load();
    let (stream, addr) = (new_stream(), alloc(64));
    let (mut graph, mut ready, mut other) = (0, 0, 0);
    cu!(cuMemsetD32_v2(addr, 0, 16));
    cu!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch_in(stream, function, 2, 1, addr, 3), SUCCESS);
    cu!(cuMemcpyAsync(addr + 32, addr, 8, stream));
    cu!(cuStreamEndCapture(stream, &mut graph));
    cu!(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    assert_eq!(read_words(addr, 1), [0]);
    for times in 1..=3 {
        cu!(cuGraphLaunch(ready, stream));
        cu!(cuStreamSynchronize(stream));
        assert_eq!(read_words(addr, 2), [3 * times; 2]);
        assert_eq!(read_words(addr + 32, 2), [3 * times; 2]);
    }
    // Another graph of the same form takes its place; one of another form does not.
    let (mut info, mut nodes, mut count) = ([9_u64; 3], [0; 3], 3);
    cu!(cuGraphClone(&mut other, graph));
    cu!(cuGraphExecUpdate_v2(ready, other, info.as_mut_ptr()));
    assert_eq!(info[0] as u32, 0);
    cu!(cuGraphGetNodes(other, nodes.as_mut_ptr(), &mut count));
    assert_eq!((count, nodes[2]), (2, 0), "room that is left is cleared");
    cu!(cuGraphDestroyNode(nodes[1]));
    cu!(cuGraphExecUpdate_v2(ready, other, info.as_mut_ptr()) => 910);
    assert_eq!(info[0] as u32, 2);
    // A node that depends on itself, by another, cannot be launched.
    let (mut first, mut second) = (0, 0);
    cu!(cuGraphAddEmptyNode(&mut first, other, null(), 0));
    cu!(cuGraphAddEmptyNode(&mut second, other, &first, 1));
    cu!(cuGraphAddEmptyNode(&mut second, other, &nodes[1], 1) => INVALID_VALUE);
    cu!(cuGraphAddDependencies(other, &second, &first, 1));
    cu!(cuGraphInstantiateWithFlags(&mut ready, other, 0) => INVALID_VALUE);
}

fn graphs_give_their_memory_back() {
    context();
    let stream = new_stream();
    let (mut graph, mut ready, mut addr) = (0, 0, 0);
    cu!(cuStreamBeginCapture_v2(stream, RELAXED));
    cu!(cuMemAllocAsync(&mut addr, 64, stream));
    cu!(cuMemsetD32Async(addr, 9, 4, stream));
    cu!(cuMemFreeAsync(addr, stream));
    cu!(cuStreamEndCapture(stream, &mut graph));
    cu!(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    for _ in 0..2 {
        cu!(cuGraphLaunch(ready, stream));
    }
    cu!(cuStreamSynchronize(stream));
    assert_eq!(read_words(addr, 1), [9]);
    cu!(cuGraphDestroy(graph));
    assert_eq!(read_words(addr, 1), [9], "what can be launched keeps it");
    cu!(cuGraphExecDestroy(ready));
    let mut word = 0_u32;
    cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), addr, 4) => INVALID_VALUE);
    // What a graph has allocated and not freed outlives it.
    cu!(cuStreamBeginCapture_v2(stream, RELAXED));
    cu!(cuMemAllocAsync(&mut addr, 64, stream));
    cu!(cuMemsetD32Async(addr, 8, 4, stream));
    cu!(cuStreamEndCapture(stream, &mut graph));
    cu!(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    cu!(cuGraphLaunch(ready, stream));
    cu!(cuStreamSynchronize(stream));
    cu!(cuGraphDestroy(graph));
    cu!(cuGraphExecDestroy(ready));
    assert_eq!(read_words(addr, 1), [8]);
    cu!(cuMemFree_v2(addr));
    cu!(cuMemFree_v2(addr) => INVALID_VALUE);
}

fn what_is_missing_says_so() {
    context();
    let (mut addr, mut table) = (0, null());
    cu!(cuGraphDebugDotPrint(0, null(), 0) => NOT_SUPPORTED);
    cu!(cuGetExportTable(&mut table, &1) => INVALID_VALUE);
    cu!(cuMemAlloc_v2(&mut addr, 0) => INVALID_VALUE);
    cu!(cuMemAlloc_v2(&mut addr, 1 << 40) => 2);
}
