//! The device server: one per application, outside its process tree, holder of the only driver.
//!
//! Commands arrive through the ring ([`reader`], [`commands`], [`deferred_commands`]) and go into streams ([`queues`],
//! [`worker`]), which give launches to the device ([`launch`], [`flights`]) and do the rest themselves
//! ([`stream_operations`]). What takes long and goes into no stream is done beside them ([`aside`]).
//! Control connections ([`control`]) stop everything ([`pause`]), write it down ([`capture`]) and attach a restored
//! application to a session that [`restore`] has rebuilt.

pub mod error;
pub mod cuda_result;
pub mod options;
pub mod choose_device;
pub mod virtual_device;
pub mod memory;
pub mod memory_file;
pub mod kept_memory;
pub mod held_commands;
pub mod pinned;
pub mod printed;
pub mod generate;
pub mod grid_workspaces;
pub mod kernels;
pub mod kernel_names;
pub mod loaded_module;
pub mod load_failure;
pub mod managed_places;
pub mod managed_area;
pub mod managed_pages;
pub mod managed_faults;
pub mod modules;
pub mod window;
pub mod moved_variables;
pub mod arrays;
pub mod transfers;
pub mod graph_parts;
pub mod queues;
pub mod start_points;
pub mod counters;
pub mod session;
pub mod aside;
pub mod reader;
pub mod deferred_commands;
pub mod commands;
pub mod worker;
pub mod kicker;
pub mod stream_operations;
pub mod launch;
pub mod launch_spec;
pub mod graph_builder;
pub mod event_times;
pub mod flights;
pub mod own_files;
pub mod connections;
pub mod checkpoint_requests;
pub mod control;
pub mod pause;
pub mod thread_state;
pub mod state_output;
pub mod state_files;
pub mod rights;
pub mod rest_of_restore;
pub mod run_as;
pub mod capture;
pub mod kept_capture;
pub mod host_memory;
pub mod restored_arrays;
pub mod restore;
pub mod baggage;
pub mod suspend;
pub mod suspended;
pub mod process;
pub mod placeholder_addresses;
pub mod translate;
pub mod missing_features;
pub mod answer;
pub mod start;
