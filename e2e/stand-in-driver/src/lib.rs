//! Stands in for NVIDIA's driver in a device server, on machines without a GPU (`HETCKPT_CUDA_DRIVER`).
//!
//! It says that it is an H100 under driver 580, and answers what a device server asks. Memory is the process's own, at
//! the addresses that are asked for, and copies and fills are done; whatever is given to a stream is done at once.
//! **Kernels do not run**, so it shows which calls come and what becomes of them, not that results are right. It loads
//! PTX and machine code as far as naming kernels, their parameters and variables takes.
//!
//! It is made of functions of the driver API that take `Option<&mut T>` where the API has a pointer to write to.
#![allow(unsafe_code, reason = "exports C functions, and has memory at fixed addresses")]
#![allow(non_snake_case, reason = "the names are the driver's own")]

/// Defines functions of the driver API.
macro_rules! driver_api {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> u32 $body
    )*};
}

mod result;
mod device;
mod memory;
mod copies;
mod arrays;
mod image;
mod module;
mod output;
mod launch;
mod stream;
mod graph;
