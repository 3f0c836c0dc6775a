//! Memory layouts that generated code and devices agree on, and the shape of a launch.
//!
//! Generators write code against these; devices fill and read the memory. Nothing here allocates or runs anything.

pub mod program;
pub mod device_output;
pub mod device_heap;
pub mod thread_state;
pub mod launch_control;
pub mod launch_shape;
pub mod cluster_query;
pub mod tensor_map;
pub mod array;
pub mod image_object;
pub mod software_image;
pub mod opencl_program;
pub mod cpu_block;
pub mod cpu_tables;
pub mod cpu_codegen;
pub mod paused_block;
