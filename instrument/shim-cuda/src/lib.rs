//! libcuda.so.1 that forwards the driver API to a device server.
//!
//! Programs (through the CUDA runtime or directly) load it instead of NVIDIA's driver. Arguments go in, ring commands
//! come out; what the program asks about itself (contexts, attributes, occupancy, pointers) is answered here. There is
//! no driver in this process and no translation of kernels.
//!
//! An entry point is a line in the `entry_points!` list of its file in `api`; it goes through `guard`, which checks
//! that the library may be called now and turns errors and panics into a `CUresult`.

mod version;
mod result;
mod result_table;
mod pointers;
mod advice;
mod log;
mod handles;
mod thread_state;
mod server_process;
mod memory_map;
mod host_areas;
mod managed_faults;
mod pinned_pool;
mod placed_variables;
mod link;
mod image;
mod objects;
mod fork;
mod device;
mod device_heap;
mod device_output;
mod driver_addresses;
mod library;
mod own_thread;
mod host_functions;
mod copy_params;
mod box_transfer;
mod array_params;
mod graph;
mod virtual_memory;
mod pools;
mod session;
mod guard;
mod transfer;
mod graph_launch;
mod md2;
mod integrity;
mod storage;
mod checkpoint;
mod checkpoint_tool;
mod program_api;
mod table_slots;
mod registered_memory;
mod word_wait;
mod shared_pages;
mod library_tables;
mod event;
mod export_tables;
mod proc_address;
mod api;
