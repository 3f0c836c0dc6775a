//! The entry points, one file per group of the driver API.
//!
//! Each file begins with its list: kind of guard, exported name, name and version in `cuGetProcAddress`, arguments,
//! body; then exported name and version of the variant for per-thread default streams.

use std::sync::LazyLock;

use hetckpt_ring::version::{PART_VERSION_BYTES, part_version};

/// Defines entry points and the list `ENTRIES` of them for `cuGetProcAddress`.
macro_rules! entry_points {
    ($($kind:ident $name:ident $query:literal $version:literal $args:tt => $body:path
       $(, $per_thread:ident $newer:literal)?;)*) => {
        $(
            entry_points!(@function $kind $name $args $body, Legacy);
            $(entry_points!(@function $kind $per_thread $args $body, PerThread);)?
        )*
        /// This file's entry points.
        pub static ENTRIES: &[crate::proc_address::Entry] = &[
            $(
                entry_points!(@entry $query, $version, false, $name),
                $(entry_points!(@entry $query, $newer, true, $per_thread),)?
            )*
        ];
    };
    (@function $kind:ident $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:path, $default:ident) => {
        #[allow(unsafe_code, reason = "the entry point's name is the interface")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $ty),*) -> crate::result::CuResult {
            entry_points!(@guard $kind $name $default, |scope| $body(scope, $($arg),*))
        }
    };
    (@guard context $name:ident $default:ident, $call:expr) => {
        crate::guard::context(stringify!($name), crate::guard::DefaultStream::$default, $call)
    };
    (@guard $kind:ident $name:ident $default:ident, $call:expr) => {
        crate::guard::$kind(stringify!($name), $call)
    };
    (@entry $query:literal, $version:literal, $is_per_thread:literal, $name:ident) => {
        crate::proc_address::Entry {
            name: $query,
            version: $version,
            is_per_thread: $is_per_thread,
            pointer: crate::proc_address::Pointer($name as *const std::ffi::c_void),
        }
    };
}

/// What `hetckpt doctor` compares with its own version.
#[allow(unsafe_code, reason = "the symbol is found by its name")]
#[unsafe(no_mangle)]
pub static HETCKPT_VERSION: [u8; PART_VERSION_BYTES] = part_version(env!("CARGO_PKG_VERSION"));

pub mod init;
pub mod device;
pub mod context;
pub mod memory;
pub mod managed_memory;
pub mod memory_pool;
pub mod virtual_memory;
pub mod sharing;
pub mod checkpoint;
pub mod host_memory;
pub mod pointer;
pub mod copy;
pub mod copy_rows;
pub mod fill;
pub mod library;
pub mod module;
pub mod link;
pub mod kernel;
pub mod occupancy;
pub mod launch_config;
pub mod launch;
pub mod stream;
pub mod event;
pub mod graph;
pub mod graph_node_access;
pub mod graph_nodes;
pub mod graph_kernel_nodes;
pub mod graph_launch;
pub mod stream_attributes;
pub mod stream_capture;
pub mod stream_memory;
pub mod tensor_map;
pub mod array;
pub mod array_copy;
pub mod image_object;
pub mod not_implemented_table;
#[cfg(test)]
mod documentation;

/// All entry points.
pub static ENTRY_LISTS: &[&[crate::proc_address::Entry]] = &[
    init::ENTRIES,
    device::ENTRIES,
    context::ENTRIES,
    memory::ENTRIES,
    managed_memory::ENTRIES,
    memory_pool::ENTRIES,
    virtual_memory::ENTRIES,
    sharing::ENTRIES,
    checkpoint::ENTRIES,
    host_memory::ENTRIES,
    pointer::ENTRIES,
    copy::ENTRIES,
    copy_rows::ENTRIES,
    fill::ENTRIES,
    library::ENTRIES,
    module::ENTRIES,
    link::ENTRIES,
    kernel::ENTRIES,
    occupancy::ENTRIES,
    launch::ENTRIES,
    stream::ENTRIES,
    event::ENTRIES,
    graph::ENTRIES,
    graph_nodes::ENTRIES,
    graph_kernel_nodes::ENTRIES,
    graph_launch::ENTRIES,
    graph_launch::ALIASES,
    stream_attributes::ENTRIES,
    stream_capture::ENTRIES,
    stream_memory::ENTRIES,
    tensor_map::ENTRIES,
    array::ENTRIES,
    array_copy::ENTRIES,
    image_object::ENTRIES,
];

/// What `cuGetProcAddress` looks in.
pub static TABLE: LazyLock<crate::proc_address::Table> =
    LazyLock::new(|| crate::proc_address::Table::new(ENTRY_LISTS, not_implemented_table::STUBS));
