//! `libnvidia-ml.so.1`: NVIDIA's management library, for programs under `hetckpt run`.
//!
//! NVIDIA's own keeps the GPU's device open in the program, which CRIU does not dump, and describes GPUs of the node
//! that the program may have left. This one describes the device that the program sees. It asks our `libcuda.so.1`, of
//! which it is a client like any other, and has no server of its own.
//!
//! What only the hardware knows (temperature, links, MIG) is "not supported", as it is on GPUs that lack it.
//! `nvidia-smi` looks at the node, so it gets NVIDIA's library ([`step_aside`]).
#![allow(unsafe_code, reason = "exports C functions, and calls those of the CUDA driver")]
#![allow(non_snake_case, reason = "the names are NVIDIA's own")]

/// Defines functions of NVML.
macro_rules! nvml {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> $crate::result::NvmlReturn $body
    )*};
}

mod result;
mod text;
mod cuda;
mod system;
mod device;
mod not_supported;
mod step_aside;
